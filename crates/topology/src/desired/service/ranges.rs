//! `loadBalancerSourceRanges`: which clients may use a Service's external addresses.
//!
//! ACLs on every switch that receives clients' packets, a node's own and its external one, see packets before load
//! balancing, with the client's and the Service's addresses. Later packets of a connection have the endpoint's address
//! there already, so that established connections stay, as with kube-proxy.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use netmodel::{Family, Prefix};
use objects::Protocol;
use ovn_schema::northbound::{Acl, PortGroup};

use crate::contribution::Draft;
use crate::desired::cluster::SERVICE_PORTS_KEY;
use crate::desired::ip_word;

/// Ports by address and protocol.
pub(super) type Guarded = BTreeMap<(IpAddr, Protocol), BTreeSet<u16>>;

/// ACL priorities. Before load balancing, only multicast has other ACLs.
const ALLOW: i64 = 1001;
const DROP: i64 = 1000;

/// Drops packets to these ports from outside of `ranges`; an empty `ranges` allows all.
pub(super) fn guard(draft: &mut Draft<'_>, guarded: &Guarded, ranges: &[Prefix]) {
    if ranges.is_empty() {
        return;
    }
    let group = draft.of_cluster::<PortGroup>(SERVICE_PORTS_KEY);
    for ((address, protocol), ports) in guarded {
        let (ip, word) = (ip_word(Family::of(*address)), protocol.ovn_name());
        let own = || ranges.iter().filter(|range| range.family().matches(*address));
        if own().any(|range| range.length() == 0) {
            continue;
        }
        let own: BTreeSet<String> = own().map(ToString::to_string).collect();
        let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
        let to = format!("{ip}.dst == {address} && {word}.dst == {{{}}}", ports.join(", "));
        let from = own.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        // With ranges of the other family only, no client of this one is allowed.
        let allow = (!from.is_empty()).then(|| (ALLOW, "allow", format!("{to} && {ip}.src == {{{from}}}")));
        for (priority, action, matching) in allow.into_iter().chain([(DROP, "drop", to)]) {
            let acl = Acl {
                direction: "from-lport".into(),
                priority,
                matching,
                action: action.into(),
                external_ids: draft.mark(&[]),
                ..Default::default()
            };
            draft.child(PortGroup::acls, group, &format!("source ranges {address} {word} {action}"), &acl);
        }
    }
}
