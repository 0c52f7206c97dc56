//! Namespace: address sets of its pods, and multicast among them if it is enabled.
//!
//! A namespace's rows are identified by its name, not by its UID: its pods add members, whichever event arrives first, and
//! the rows stay until the namespace and its last pod are gone.

use netmodel::Family;
use ovn_schema::northbound::{Acl, AddressSet, PortGroup};
use ovsdb::uuid::Uuid;

use super::cluster::{MULTICAST_ALLOW, tier};
use super::{Inputs, ip_word};
use crate::contribution::{Contribution, Draft};
use crate::identity::{Owner, family_key, hashed_name};

/// The address set of a namespace and family.
pub(super) fn address_set(draft: &Draft<'_>, namespace: &str, family: Family) -> Uuid {
    draft.foreign::<AddressSet>("Namespace", namespace, set_key(family))
}

/// The port group of a namespace; it exists only with multicast.
pub(super) fn port_group(draft: &Draft<'_>, namespace: &str) -> Uuid {
    draft.foreign::<PortGroup>("Namespace", namespace, "ports")
}

fn set_key(family: Family) -> &'static str {
    match family {
        Family::V4 => "addresses v4",
        Family::V6 => "addresses v6",
    }
}

/// The name of the address set of a namespace and family.
fn set_name(namespace: &str, family: Family) -> String {
    hashed_name(&format!("namespace {namespace} {}", family.short()))
}

/// Whether a namespace has rows: it exists, or pods of it do.
fn is_needed(name: &str, inputs: Inputs<'_>) -> bool {
    inputs.store.namespace(name).is_some() || inputs.store.pods_in(name).next().is_some()
}

/// Whether multicast is enabled among its pods.
pub(super) fn has_multicast(name: &str, inputs: Inputs<'_>) -> bool {
    inputs.settings.multicast && inputs.store.namespace(name).is_some_and(|namespace| namespace.multicast)
}

pub(super) fn desired(name: &str, inputs: Inputs<'_>) -> Contribution {
    if !is_needed(name, inputs) {
        return Contribution::default();
    }
    let owner = Owner::Namespace(name.into());
    let mut draft = Draft::new(&owner, name, inputs.aliases);
    for family in inputs.settings.families() {
        let set = AddressSet {
            name: set_name(name, family),
            external_ids: draft.mark(&[("ip-family", family.short())]),
            ..Default::default()
        };
        draft.row(set_key(family), &set);
    }
    if has_multicast(name, inputs) {
        multicast(&mut draft, name, inputs);
    }
    draft.finish()
}

fn multicast(draft: &mut Draft<'_>, name: &str, inputs: Inputs<'_>) {
    let group_name = hashed_name(&format!("namespace {name} ports"));
    let row = PortGroup { name: group_name.clone(), external_ids: draft.mark(&[]), ..Default::default() };
    let group = draft.row("ports", &row);
    for family in inputs.settings.families() {
        let (ip, set) = (ip_word(family), set_name(name, family));
        let (sent, joined) = match family {
            Family::V4 => ("ip4.mcast", "igmp"),
            Family::V6 => ("(mldv1 || mldv2 || (ip6.dst[120..127] == 0xff && ip6.dst[116] == 1))", "mldv1 || mldv2"),
        };
        let received = format!("({joined} || ({ip}.src == ${set} && {sent}))");
        for (direction, port, what) in [("from-lport", "inport", sent), ("to-lport", "outport", received.as_str())] {
            let acl = Acl {
                direction: direction.into(),
                priority: MULTICAST_ALLOW,
                matching: format!("{port} == @{group_name} && {what}"),
                action: "allow".into(),
                tier: tier(inputs),
                external_ids: draft.mark(&[]),
                ..Default::default()
            };
            draft.child(PortGroup::acls, group, &family_key(&format!("multicast {direction}"), family), &acl);
        }
    }
}
