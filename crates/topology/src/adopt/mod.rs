//! Adoption: rows of another controller that match rows of ours, by name or content, become ours and keep their UUIDs: a
//! datapath that keeps its UUID keeps its flows. The others are leftovers (`leftovers`): each is removed when the rows that
//! replace it are committed, and not before. Only on request, for a migration.

mod leftovers;

pub use leftovers::GO_CONTROLLER;
pub(crate) use leftovers::parents;

use std::collections::{BTreeMap, BTreeSet};

use ovn_schema::TableRow;
use ovn_schema::northbound::ChassisTemplateVar;
use ovsdb::datum::Atom;
use ovsdb::operation::RowValues;
use ovsdb::replica::{RowView, Snapshot};
use ovsdb::uuid::Uuid;

use crate::allocation::{Allocator, KnownNode};
use crate::contribution::{Aliases, Contribution, Member};
use crate::desired::{Inputs, desired};
use crate::identity::{Owner, RowId};
use crate::plan::{owner_of, table_name};
use crate::settings::ClusterSettings;
use crate::store::Store;

/// Rows of the other controller: those that become ours, and those that are removed once ours replace them.
#[derive(Debug, Clone, Default)]
pub struct Adopted {
    owners: BTreeMap<RowId, Owner>,
    leftovers: BTreeMap<RowId, BTreeSet<Owner>>,
}

impl Adopted {
    /// The owner that a row gets; none if it is not the other controller's.
    pub(crate) fn owner(&self, view: RowView<'_>) -> Option<Owner> {
        let id = RowId { table: table_name(&view.schema.name)?, uuid: view.uuid };
        let left = || self.leftovers.contains_key(&id).then_some(Owner::Adopted);
        self.owners.get(&id).cloned().or_else(left)
    }

    /// The leftovers, each with the owners whose rows replace it.
    pub(crate) fn into_leftovers(self) -> BTreeMap<RowId, BTreeSet<Owner>> {
        self.leftovers
    }
}

/// The network of another controller in this database: names a conflicting row; none if there is no such network.
pub fn foreign_network(snapshot: &Snapshot) -> Option<String> {
    let routers = snapshot.table("Logical_Router")?;
    let foreign = routers
        .iter()
        .find(|view| view.text("name").as_deref() == Some(crate::desired::ROUTER) && owner_of(*view).is_none());
    foreign.map(|view| format!("Logical_Router {} ({})", crate::desired::ROUTER, view.uuid))
}

/// Finds the rows that match rows of ours, adds them to the aliases, and returns all rows of the other controller.
pub(crate) fn adopt(settings: &ClusterSettings, store: &Store, snapshot: &Snapshot, aliases: &mut Aliases) -> Adopted {
    let mut adopted = Adopted::default();
    let Ok(mut allocator) = Allocator::new(settings) else { return adopted };
    for node in store.nodes() {
        let _ = allocator.allocate_node(node, &KnownNode::default());
    }
    for pod in store.pods() {
        let _ = allocator.allocate_pod(pod, None);
    }
    let plain = Aliases::default();
    let inputs = Inputs { settings, store, allocator: &allocator, aliases: &plain };
    let wanted = |owner: Owner| desired(&owner, inputs).ok().map(|wanted| (owner, wanted));
    let nodes: Vec<_> = store.nodes().filter_map(|node| wanted(Owner::Node(node.name.clone()))).collect();
    // A pod's port is adopted with its node's switch. While the node is refused, both stay as they are.
    let has_switch: BTreeSet<&Owner> = nodes.iter().map(|(owner, _)| owner).collect();
    let pods = store
        .pods()
        .filter(|pod| pod.node.as_ref().is_some_and(|node| has_switch.contains(&Owner::Node(node.clone()))));
    let pods: Vec<_> = pods.filter_map(|pod| wanted(Owner::Pod(pod.key.clone()))).collect();
    let namespaces = store.namespaces().filter_map(|namespace| wanted(Owner::Namespace(namespace.name.clone())));
    let services = store.services().filter_map(|service| wanted(Owner::Service(service.key.clone())));
    let rest = namespaces.chain(services).collect::<Vec<_>>();
    let wanted: Vec<(Owner, Contribution)> =
        wanted(Owner::Cluster).into_iter().chain(nodes).chain(rest).chain(pods).collect();
    let mut finder = Finder { snapshot, aliases, adopted: &mut adopted };
    for (owner, wanted) in &wanted {
        finder.named(owner, wanted);
    }
    // Rows without names are searched among the children of found rows; two passes reach the deepest ones.
    for _ in 0..2 {
        for (owner, wanted) in &wanted {
            finder.children(owner, wanted);
        }
    }
    leftovers::find(snapshot, store, &mut adopted);
    adopted
}

struct Finder<'a> {
    snapshot: &'a Snapshot,
    aliases: &'a mut Aliases,
    adopted: &'a mut Adopted,
}

impl Finder<'_> {
    fn take(&mut self, owner: &Owner, table: &'static str, computed: Uuid, found: Uuid) {
        self.adopted.owners.insert(RowId { table, uuid: found }, owner.clone());
        if computed != found {
            self.aliases.insert(computed, found);
        }
    }

    fn is_free(&self, table: &'static str, view: RowView<'_>) -> bool {
        owner_of(view).is_none() && !self.adopted.owners.contains_key(&RowId { table, uuid: view.uuid })
    }

    /// Adopts rows that have the name of a wanted row.
    fn named(&mut self, owner: &Owner, wanted: &Contribution) {
        for row in &wanted.rows {
            let Some(table) = self.snapshot.table(row.id.table) else { continue };
            let identity = self.aliases.identity(row.id.uuid);
            if let Some(view) = table.get(identity) {
                // Ours, released to the other controller before.
                if self.is_free(row.id.table, view) {
                    self.take(owner, row.id.table, identity, identity);
                }
                continue;
            }
            let natural = if row.id.table == ChassisTemplateVar::TABLE { "chassis" } else { "name" };
            let Some(name) = row.values.get(natural) else { continue };
            let found =
                |view: &RowView<'_>| view.get(natural).as_deref() == Some(name) && self.is_free(row.id.table, *view);
            if let Some(view) = table.iter().find(found) {
                self.take(owner, row.id.table, row.id.uuid, view.uuid);
            }
        }
    }

    /// Finds rows without names by content, among the children of their adopted parent.
    fn children(&mut self, owner: &Owner, wanted: &Contribution) {
        for Member { column, atom } in &wanted.members {
            let Atom::Uuid(child) = atom else { continue };
            let Some(row) = wanted.rows.iter().find(|row| row.id.uuid == *child) else { continue };
            let known = self.aliases.resolve(*child) != *child || self.adopted.owners.contains_key(&row.id);
            if row.values.contains_key("name") || known {
                continue;
            }
            let parent = self.aliases.resolve(column.row.uuid);
            let parent = self.snapshot.table(column.row.table).and_then(|table| table.get(parent));
            let Some(held) = parent.and_then(|parent| parent.get(column.column)) else { continue };
            let Some(table) = self.snapshot.table(row.id.table) else { continue };
            let found = held.atoms().find_map(|atom| {
                let Atom::Uuid(uuid) = atom else { return None };
                let free = |view: &RowView<'_>| self.is_free(row.id.table, *view) && same_content(&row.values, *view);
                table.get(uuid).filter(free).map(|view| view.uuid)
            });
            if let Some(found) = found {
                self.take(owner, row.id.table, row.id.uuid, found);
            }
        }
    }
}

/// Whether a row has the content of ours, apart from its marks.
fn same_content(wanted: &RowValues, view: RowView<'_>) -> bool {
    const ESSENTIAL: [&str; 14] = [
        "ip_prefix",
        "nexthop",
        "policy",
        "output_port",
        "priority",
        "match",
        "action",
        "direction",
        "type",
        "external_ip",
        "logical_ip",
        "rate",
        "unit",
        "nexthops",
    ];
    ESSENTIAL.iter().filter(|column| view.schema.column_index(column).is_some()).all(|column| {
        match (wanted.get(*column), view.get(column)) {
            (Some(wanted), Some(held)) => *held == *wanted,
            (None, Some(held)) => view.schema.column(column).is_none_or(|column| column.kind.is_default(&held)),
            (Some(_), None) => false,
            (None, None) => true,
        }
    })
}
