//! Blocked connections: a connection that a policy cut stays cut.
//!
//! OVN drops the first packet of an established connection that a policy now denies, and marks the connection
//! (`ct_mark.blocked`). For marked connections that no ACL denies any more, northd adds a flow that unmarks and allows them,
//! below all ACLs but in *every* tier (seen in OVN 25.03 and 26.03). A policy of tier 2 is evaluated after tier 0, in which that
//! flow has decided already: of an established connection, every second packet passed.
//!
//! ```text
//!  tier 0  ── blocked: pass ──▶  tier 1  ── blocked: pass ──▶  tier 2 ── no ACL denies it: unmarked, allowed
//!                                                                └──── blocked: pass ──▶ tier 3, if it has ACLs
//! ```
//!
//! The last tier with ACLs on a switch must not have such a `pass`: connections would never be unmarked there, and their
//! replies would stay blocked when the policy is gone. Tier 2 has ACLs on every node's switch. Only `to-lport` is affected:
//! the stage after load balancing has no such flow.

use ovn_schema::Feature;
use ovn_schema::northbound::{Acl, PortGroup};
use ovsdb::uuid::Uuid;

use super::Inputs;
use crate::contribution::Draft;

/// Packets of the client of an established connection that was cut.
const BLOCKED: &str = "ct.est && !ct.rpl && ct_mark.blocked == 1";
/// ACL priority below all policies.
const LOWEST: i64 = 0;

/// On every node's switch: passes on to the policies in tier 2.
pub(super) fn pass_to_policies(draft: &mut Draft<'_>, group: Uuid, inputs: Inputs<'_>) {
    if !inputs.settings.features.has(Feature::AclTiers) {
        return;
    }
    for tier in [0, 1] {
        pass(draft, group, tier, BLOCKED.to_owned());
    }
}

/// For the pods of a group with ACLs in tier 3: passes on to these.
pub(super) fn pass_to_baseline(draft: &mut Draft<'_>, group: Uuid, group_name: &str) {
    pass(draft, group, 2, format!("outport == @{group_name} && {BLOCKED}"));
}

fn pass(draft: &mut Draft<'_>, group: Uuid, tier: i64, matching: String) {
    let acl = Acl {
        direction: "to-lport".into(),
        priority: LOWEST,
        matching,
        action: "pass".into(),
        tier,
        external_ids: draft.mark(&[]),
        ..Default::default()
    };
    draft.child(PortGroup::acls, group, &format!("blocked, tier {tier}"), &acl);
}
