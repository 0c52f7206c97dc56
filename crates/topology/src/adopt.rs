//! Adoption: the rows of another controller are taken over where they are what we would make, known by their names and
//! contents, and keep their identities: a datapath that keeps its identity keeps its flows. What nobody wants of the
//! rest goes last. Only on an administrator's word, once, for a migration.

use std::collections::{BTreeMap, BTreeSet};

use ovn_schema::TableRow;
use ovn_schema::northbound::ChassisTemplateVar;
use ovsdb::datum::Atom;
use ovsdb::operation::RowValues;
use ovsdb::replica::{RowView, Snapshot};
use ovsdb::uuid::Uuid;

use crate::allocation::{Allocator, KnownNode};
use crate::contribution::{Aliases, Contribution, Member};
use crate::desired::{Given, desired};
use crate::identity::{OWNER_CONTROLLER, Owner, RowId};
use crate::plan::{owner_of, set_column, table_name};
use crate::settings::ClusterSettings;
use crate::store::Store;

/// Rows that were found, and whose they are from now on.
#[derive(Debug, Clone, Default)]
pub struct Adopted(BTreeMap<RowId, Owner>);

impl Adopted {
    /// Whose a row is from now on.
    pub(crate) fn owner(&self, view: RowView<'_>) -> Option<Owner> {
        let table = table_name(&view.schema.name)?;
        self.0.get(&RowId { table, uuid: view.uuid }).cloned()
    }
}

/// The network of another controller in this database, if there is one: the name of a row that would be in the way.
pub fn foreign_network(snapshot: &Snapshot) -> Option<String> {
    let routers = snapshot.table("Logical_Router")?;
    let foreign = routers
        .iter()
        .find(|view| view.text("name").as_deref() == Some(crate::desired::ROUTER) && owner_of(*view).is_none());
    foreign.map(|view| format!("Logical_Router {} ({})", crate::desired::ROUTER, view.uuid))
}

/// Finds the rows that are what we would make, notes them as aliases, and says whose the others are.
pub(crate) fn adopt(settings: &ClusterSettings, store: &Store, snapshot: &Snapshot, aliases: &mut Aliases) -> Adopted {
    let mut adopted = Adopted::default();
    let Ok(mut allocator) = Allocator::new(settings) else { return adopted };
    for node in store.nodes() {
        let _ = allocator.settle_node(node, &KnownNode::default());
    }
    for pod in store.pods() {
        let _ = allocator.settle_pod(pod, None);
    }
    let plain = Aliases::default();
    let given = Given { settings, store, allocator: &allocator, aliases: &plain };
    let nodes = store.nodes().map(|node| Owner::Node(node.name.clone()));
    let namespaces = store.namespaces().map(|namespace| Owner::Namespace(namespace.name.clone()));
    let pods = store.pods().map(|pod| Owner::Pod(pod.key.clone()));
    let owners = std::iter::once(Owner::Cluster).chain(nodes).chain(namespaces).chain(pods);
    let wanted: Vec<(Owner, Contribution)> =
        owners.filter_map(|owner| desired(&owner, given).ok().map(|wanted| (owner, wanted))).collect();
    let mut finder = Finder { snapshot, aliases, adopted: &mut adopted, taken: BTreeSet::new() };
    for (owner, wanted) in &wanted {
        finder.named(owner, wanted);
    }
    // Children are looked for among the children of what was found, so twice: bands hang on meters, ports on switches.
    for _ in 0..2 {
        for (owner, wanted) in &wanted {
            finder.children(owner, wanted);
        }
    }
    finder.rest();
    adopted
}

struct Finder<'a> {
    snapshot: &'a Snapshot,
    aliases: &'a mut Aliases,
    adopted: &'a mut Adopted,
    taken: BTreeSet<RowId>,
}

impl Finder<'_> {
    fn take(&mut self, owner: &Owner, table: &'static str, computed: Uuid, found: Uuid) {
        let id = RowId { table, uuid: found };
        self.taken.insert(id);
        self.adopted.0.insert(id, owner.clone());
        self.aliases.insert(computed, found);
    }

    /// Rows that have names.
    fn named(&mut self, owner: &Owner, wanted: &Contribution) {
        for row in &wanted.rows {
            let natural = if row.id.table == ChassisTemplateVar::TABLE { "chassis" } else { "name" };
            let (Some(name), Some(table)) = (row.values.get(natural), self.snapshot.table(row.id.table)) else {
                continue;
            };
            if table.get(row.id.uuid).is_some() {
                continue;
            }
            let free = |view: &RowView<'_>| {
                view.get(natural).as_deref() == Some(name)
                    && !self.taken.contains(&RowId { table: row.id.table, uuid: view.uuid })
                    && owner_of(*view).is_none()
            };
            if let Some(view) = table.iter().find(free) {
                self.take(owner, row.id.table, row.id.uuid, view.uuid);
            }
        }
    }

    /// Rows without names, among the members of the same set of the row that stands for their parent.
    fn children(&mut self, owner: &Owner, wanted: &Contribution) {
        for Member { column, atom } in &wanted.members {
            let Atom::Uuid(child) = atom else { continue };
            let Some(row) = wanted.rows.iter().find(|row| row.id.uuid == *child) else { continue };
            if row.values.contains_key("name") || self.aliases.resolve(*child) != *child {
                continue;
            }
            let parent = self.aliases.resolve(column.row.uuid);
            let parent = self.snapshot.table(column.row.table).and_then(|table| table.get(parent));
            let Some(held) = parent.and_then(|parent| parent.get(column.column)) else { continue };
            let Some(table) = self.snapshot.table(row.id.table) else { continue };
            let found = held.atoms().find_map(|atom| {
                let Atom::Uuid(uuid) = atom else { return None };
                let free = !self.taken.contains(&RowId { table: row.id.table, uuid });
                table.get(uuid).filter(|view| free && same_content(&row.values, *view)).map(|view| view.uuid)
            });
            if let Some(found) = found {
                self.take(owner, row.id.table, row.id.uuid, found);
            }
        }
    }

    /// What the other controller made and we do not want: it goes with the owner that replaces it, or at the end.
    fn rest(&mut self) {
        let mut children: BTreeSet<Uuid> = BTreeSet::new();
        for RowId { table, uuid } in &self.taken {
            let Some(view) = self.snapshot.table(table).and_then(|table| table.get(*uuid)) else { continue };
            for (index, datum) in view.row.fields() {
                let column = &view.schema.columns[index];
                let strong = column.kind.key.refers_to.as_ref().is_some_and(|reference| reference.strong);
                if strong && set_column(table, &column.name).is_some() {
                    children.extend(datum.atoms().filter_map(|atom| match atom {
                        Atom::Uuid(uuid) => Some(uuid),
                        _ => None,
                    }));
                }
            }
        }
        for table in self.snapshot.tables() {
            let Some(name) = table_name(&table.schema().name) else { continue };
            for view in table.iter() {
                let id = RowId { table: name, uuid: view.uuid };
                if self.taken.contains(&id) || owner_of(view).is_some() {
                    continue;
                }
                if name == "Static_MAC_Binding" {
                    // No room for a mark: it is made anew together with the node's own.
                    let port = view.text("logical_port").unwrap_or_default();
                    if let Some(node) = port.strip_prefix("rtoe-GR_") {
                        self.adopted.0.insert(id, Owner::Node(node.into()));
                    }
                } else if theirs(view) || !view.schema.is_root && children.contains(&view.uuid) {
                    self.adopted.0.insert(id, Owner::Adopted);
                }
            }
        }
    }
}

/// How the Go controller of the cluster's own network calls itself. Others mark their rows with that key as well.
const THEIRS: &str = "default-network-controller";

/// Whether the Go controller marked a row as its own.
fn theirs(view: RowView<'_>) -> bool {
    let Some(marks) = view.get("external_ids") else { return false };
    let controller = marks.get_str(OWNER_CONTROLLER);
    let service = controller.is_none() && marks.get_str("k8s.ovn.org/kind").as_deref() == Some("Service");
    service || controller.as_deref() == Some(THEIRS) || marks.get_str("pod").as_deref() == Some("true")
}

/// Whether a row says what we would say, but for its marks.
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
