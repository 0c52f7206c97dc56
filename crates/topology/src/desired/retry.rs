//! retry: what a client sends again because nobody answered, at a load balancer of a gateway router.
//!
//! OVN makes a load balancer's connections come back by the gateway router that they came in by: under this router's
//! address. A flag decides it, which the load balancer's rule sets for the first packet and another rule for what follows
//! an answer. With the datapath in userspace, a packet that is sent again before there was an answer meets neither: the
//! entry of the first has given it the endpoint's address already, so it is none to the load balancer, and its connection
//! is still new. It reached the endpoint under the client's own address, and the answers went another way: one packet lost,
//! and the connection never came about. (The kernel's datapath does not apply a new connection's entry before it is asked
//! to choose, and has no such packets.)
//!
//! Translations come after connection tracking was forgotten, so the router's policy marks such a packet while it is still
//! known, a translation looks for the mark, and the join switch takes it off: tunnels have no route for marked packets.

use std::net::IpAddr;

use ovn_schema::Feature;
use ovn_schema::northbound::{LogicalRouter, LogicalRouterPolicy, LogicalSwitch, Nat, Qos};
use ovsdb::uuid::Uuid;

use super::{Given, everything};
use crate::contribution::Draft;

/// Nothing else of ours, and nothing of OVN-Kubernetes (Go), marks packets so.
const MARK: i64 = 1100;
const PRIORITY: i64 = 100;

/// Whether the server has all that this takes; without it things are as OVN makes them.
fn possible(given: Given<'_>) -> bool {
    let needed = [Feature::ConditionalNat, Feature::QosRules, Feature::QosMarks];
    needed.into_iter().all(|feature| given.settings.features.has(feature))
}

/// On a gateway router, once: they are marked.
pub(super) fn mark(draft: &mut Draft<'_>, router: Uuid, given: Given<'_>) {
    if !possible(given) {
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

/// On a gateway router, for each family: they are translated.
///
/// To what the first packet was, whatever is said here: a connection keeps its translation. The address outside is said because
/// the router has it anyway; it would announce that of the join switch to the outside, had it a translation.
pub(super) fn translate(draft: &mut Draft<'_>, router: Uuid, outside: IpAddr, given: Given<'_>) {
    if !possible(given) {
        return;
    }
    let nat = Nat {
        kind: "snat".into(),
        external_ip: outside.to_string(),
        logical_ip: everything(outside.is_ipv6()).into(),
        matching: format!("pkt.mark == {MARK}"),
        external_ids: draft.mark(&[]),
        ..Default::default()
    };
    draft.child(LogicalRouter::nat, router, &format!("snat of what is sent again {}", outside.is_ipv6()), &nat);
}

/// On the join switch: they go on unmarked.
pub(super) fn unmark(draft: &mut Draft<'_>, join: Uuid, given: Given<'_>) {
    if !possible(given) {
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
