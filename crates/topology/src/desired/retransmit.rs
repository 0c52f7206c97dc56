//! SNAT of retransmissions at the load balancers of a gateway router.
//!
//! OVN translates the source of load-balanced connections to the gateway router's address, so that replies return by it. A
//! flag requests this SNAT: the load balancer's flow sets it for the first packet, another flow for packets after a reply.
//! On the userspace datapath, a retransmission before the first reply matches neither: connection tracking has already
//! translated its destination, so it does not hit the load balancer, and its connection is still new. It reached the
//! endpoint with the client's address, replies took another path, and the connection was never established: one lost packet
//! was enough. (The kernel datapath applies the entry of a new connection only at the load balancer, and has no such
//! packets.)
//!
//! NAT comes after the connection-tracking state is cleared, so a routing policy of the router marks such packets earlier, a
//! NAT rule matches the mark, and the join switch removes it: tunnels have no route for marked packets.

use std::net::IpAddr;

use netmodel::Family;
use ovn_schema::Feature;
use ovn_schema::northbound::{LogicalRouter, LogicalRouterPolicy, LogicalSwitch, Nat, Qos};
use ovsdb::uuid::Uuid;

use super::Inputs;
use crate::contribution::Draft;
use crate::identity::family_key;

/// Used by nothing else of ours, nor by OVN-Kubernetes (Go).
const MARK: i64 = 1100;
const PRIORITY: i64 = 100;

/// Whether the server has all features that this needs; otherwise it is left out.
fn possible(inputs: Inputs<'_>) -> bool {
    let needed = [Feature::ConditionalNat, Feature::QosRules, Feature::QosMarks];
    needed.into_iter().all(|feature| inputs.settings.features.has(feature))
}

/// Marks them on a gateway router.
pub(super) fn mark(draft: &mut Draft<'_>, router: Uuid, inputs: Inputs<'_>) {
    if !possible(inputs) {
        return;
    }
    let policy = LogicalRouterPolicy {
        priority: PRIORITY,
        matching: "flags.force_snat_for_lb == 0 && ct.new && ct_mark.force_snat == 1".into(),
        action: "allow".into(),
        options: [("pkt_mark".to_owned(), MARK.to_string())].into(),
        external_ids: draft.mark(&[]),
        ..Default::default()
    };
    draft.child(LogicalRouter::policies, router, "sent again", &policy);
}

/// Translates them on a gateway router, for one family.
///
/// A connection keeps the translation of its first packet, whatever address is given here. It is the router's external one,
/// because a NAT rule with the join address would make the router announce that address outside.
pub(super) fn translate(draft: &mut Draft<'_>, router: Uuid, outside: IpAddr, inputs: Inputs<'_>) {
    if !possible(inputs) {
        return;
    }
    let family = Family::of(outside);
    let nat = Nat {
        kind: "snat".into(),
        external_ip: outside.to_string(),
        logical_ip: family.everything().to_string(),
        matching: format!("pkt.mark == {MARK}"),
        external_ids: draft.mark(&[]),
        ..Default::default()
    };
    draft.child(LogicalRouter::nat, router, &family_key("snat of what is sent again", family), &nat);
}

/// Removes the mark on the join switch.
pub(super) fn unmark(draft: &mut Draft<'_>, join: Uuid, inputs: Inputs<'_>) {
    if !possible(inputs) {
        return;
    }
    let rule = Qos {
        priority: PRIORITY,
        direction: "from-lport".into(),
        matching: format!("pkt.mark == {MARK}"),
        action: [("mark".to_owned(), 0)].into(),
        external_ids: draft.mark(&[]),
        ..Default::default()
    };
    draft.child(LogicalSwitch::qos_rules, join, "sent again", &rule);
}
