//! Who may use the addresses of a load balancer in front of the cluster (`loadBalancerSourceRanges`).
//!
//! Rules on every switch that clients come in by, a node's own and its external one, look at packets before a load balancer
//! changes them: there the client's address and the Service's are still what they were. Later packets of a connection
//! have the endpoint's address there already, so that what is established stays, as with kube-proxy.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use netmodel::Prefix;
use ovn_schema::northbound::{Acl, PortGroup};

use crate::contribution::Draft;
use crate::desired::cluster::SERVICE_PORTS_KEY;
use crate::desired::ip_word;
use crate::objects::Protocol;

/// Ports, by the address and protocol that they are of.
pub(super) type Guarded = BTreeMap<(IpAddr, Protocol), BTreeSet<u16>>;

/// In the stage before load balancing there is nothing else but rules for multicast.
const ALLOW: i64 = 1001;
const DROP: i64 = 1000;

/// Drops what comes to these ports from elsewhere than these networks; no networks are all of them.
pub(super) fn guard(draft: &mut Draft<'_>, guarded: &Guarded, ranges: &[Prefix]) {
    if ranges.is_empty() {
        return;
    }
    let group = draft.of_cluster::<PortGroup>(SERVICE_PORTS_KEY);
    for ((address, protocol), ports) in guarded {
        let (ip, word) = (ip_word(address.is_ipv6()), protocol.word());
        let own = || ranges.iter().filter(|range| range.is_ipv6() == address.is_ipv6());
        if own().any(|range| range.length() == 0) {
            continue;
        }
        let own: BTreeSet<String> = own().map(ToString::to_string).collect();
        let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
        let to = format!("{ip}.dst == {address} && {word}.dst == {{{}}}", ports.join(", "));
        let from = own.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        // Where only the other family is named, nobody of this one is.
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
