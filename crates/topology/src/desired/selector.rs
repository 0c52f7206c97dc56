//! Selector: a port group of the pods that policies select, or address sets of their peers.
//!
//! The rows are the selector's; each pod adds its own members, in the transaction that creates its port.

use netmodel::Family;
use ovn_schema::TableRow;
use ovn_schema::northbound::{AddressSet, PortGroup};
use ovsdb::uuid::Uuid;

use super::Inputs;
use crate::allocation::PodAllocation;
use crate::contribution::{Aliases, Contribution, Draft};
use crate::identity::{Owner, RowId, row_uuid};
use crate::selector::{Role, Scope, Selector, group_name, set_name};

const PORTS_KEY: &str = "ports";

fn set_key(family: Family) -> &'static str {
    match family {
        Family::V4 => "addresses v4",
        Family::V6 => "addresses v6",
    }
}

/// The port group of a selector.
pub(crate) fn group(words: &str, aliases: &Aliases) -> Uuid {
    aliases.resolve(row_uuid(PortGroup::TABLE, "Selector", words, PORTS_KEY))
}

/// The address set of a selector and family.
fn set(words: &str, family: Family, aliases: &Aliases) -> Uuid {
    aliases.resolve(row_uuid(AddressSet::TABLE, "Selector", words, set_key(family)))
}

/// All rows that a selector can have, whichever its role; the port group is first.
pub(crate) fn rows(words: &str, aliases: &Aliases) -> [RowId; 3] {
    [
        RowId { table: PortGroup::TABLE, uuid: group(words, aliases) },
        RowId { table: AddressSet::TABLE, uuid: set(words, Family::V4, aliases) },
        RowId { table: AddressSet::TABLE, uuid: set(words, Family::V6, aliases) },
    ]
}

/// Adds a pod's members to the rows of a selector that selects it.
pub(crate) fn join(
    draft: &mut Draft<'_>,
    words: &str,
    selector: &Selector,
    own: &PodAllocation,
    port: Uuid,
    aliases: &Aliases,
) {
    match selector.role {
        Role::Ports => draft.member(PortGroup::ports, group(words, aliases), &port),
        Role::Addresses => {
            for address in own.addresses() {
                draft.member(AddressSet::addresses, set(words, Family::of(address), aliases), &address.to_string());
            }
        }
    }
}

pub(super) fn desired(words: &str, inputs: Inputs<'_>) -> Contribution {
    let Some(selector) = inputs.store.selector(words) else { return Contribution::default() };
    let owner = Owner::Selector(words.into());
    let mut draft = Draft::new(&owner, words, inputs.aliases);
    match selector.role {
        Role::Ports => {
            let name = group_name(words);
            draft.row(PORTS_KEY, &PortGroup { name, external_ids: draft.mark(&[]), ..Default::default() });
        }
        Role::Addresses => {
            for family in inputs.settings.families() {
                let name = set_name(words, family);
                let external_ids = draft.mark(&[("ip-family", family.short())]);
                let uuid = draft.row(set_key(family), &AddressSet { name, external_ids, ..Default::default() });
                for address in addresses_of_nodes(selector, family, inputs) {
                    draft.member(AddressSet::addresses, uuid, &address);
                }
            }
        }
    }
    draft.finish()
}

/// The addresses of the nodes that a selector of nodes selects.
fn addresses_of_nodes(selector: &Selector, family: Family, inputs: Inputs<'_>) -> Vec<String> {
    let Scope::Nodes(labels) = &selector.scope else { return Vec::new() };
    let nodes = inputs.store.nodes().filter(|node| labels.matches(&node.labels));
    let addresses = nodes.flat_map(|node| node.host_addresses.valid().into_iter().flat_map(|all| all.iter()));
    addresses.filter(|address| family.matches(**address)).map(ToString::to_string).collect()
}
