//! Leftovers: rows of the other controller that match none of ours.
//!
//! Each is replaced by rows of certain owners: a load balancer by its Service's and by the variables of the nodes that
//! have it, an ACL by its policy's and by the groups that the pods join. It is removed when all of them are committed; while
//! one of them is parked it stays, so that nothing is cut off or exposed meanwhile.
//!
//! The other controller marks some rows; others are recognized by name, or as children of its routers. A row with another
//! client's mark, or to which none of this applies, is never touched.

use std::collections::{BTreeMap, BTreeSet};

use objects::ObjectKey;
use ovn_schema::TableRow;
use ovn_schema::northbound::{
    Acl, AddressSet, LoadBalancer, LoadBalancerGroup, LogicalRouterPort, LogicalSwitchPort, Meter, PortGroup,
};
use ovsdb::datum::{Atom, Datum};
use ovsdb::replica::{RowView, Snapshot};
use ovsdb::uuid::Uuid;

use super::Adopted;
use crate::desired::LOGGING_METER;
use crate::identity::{OWNER_CONTROLLER, OWNER_NAME, OWNER_TYPE, Owner, RowId};
use crate::plan::{owner_of, row, set_column, table_name};
use crate::selector::named_in;
use crate::store::Store;

/// The name under which the Go controller of the cluster's default network marks its rows. Its controllers of other
/// networks use the same key with other names.
pub const GO_CONTROLLER: &str = "default-network-controller";
/// Tables whose rows it does not mark: they are children of its routers and meters.
const UNMARKED: [&str; 5] =
    ["Gateway_Chassis", "Logical_Router_Policy", "Logical_Router_Static_Route", "Meter_Band", "NAT"];
/// Name prefixes of its ports that are not pods'.
const PORTS: [&str; 7] = ["etor-", "jtor-", "k8s-", "rtoe-", "rtoj-", "rtos-", "stor-"];

/// Adds the leftovers, and children of adopted rows.
pub(super) fn find(snapshot: &Snapshot, store: &Store, adopted: &mut Adopted) {
    let search = Search { snapshot, store, owners: &adopted.owners, parents: parents(snapshot) };
    let (mut children, mut left) = (Vec::new(), BTreeMap::new());
    for table in snapshot.tables() {
        let Some(name) = table_name(&table.schema().name) else { continue };
        for view in table.iter() {
            let id = RowId { table: name, uuid: view.uuid };
            if search.owners.contains_key(&id) || owner_of(view).is_some() {
                continue;
            }
            if let Some(owner) = search.goes_with(id, view) {
                children.push((id, owner));
            } else if search.is_left_over(id, view) {
                left.insert(id, search.replaced_by(id, view));
            }
        }
    }
    search.keep_named(&mut left);
    adopted.owners.extend(children);
    adopted.leftovers = left;
}

/// Whether the Go controller marked a row as its own.
fn is_marked(view: RowView<'_>) -> bool {
    let Some(marks) = view.get("external_ids") else { return false };
    let controller = marks.get_str(OWNER_CONTROLLER);
    let service = controller.is_none() && marks.get_str("k8s.ovn.org/kind").as_deref() == Some("Service");
    let pod = controller.is_none() && marks.get_str("pod").as_deref() == Some("true");
    service || pod || controller.as_deref() == Some(GO_CONTROLLER)
}

/// The rows that reference each row, in the columns that the ledger counts.
pub(crate) fn parents(snapshot: &Snapshot) -> BTreeMap<Uuid, Vec<RowId>> {
    let mut parents: BTreeMap<Uuid, Vec<RowId>> = BTreeMap::new();
    for table in snapshot.tables() {
        let Some(name) = table_name(&table.schema().name) else { continue };
        for view in table.iter() {
            for (index, datum) in view.row.fields() {
                if set_column(name, &view.schema.columns[index].name).is_none() {
                    continue;
                }
                for child in uuids(datum) {
                    parents.entry(child).or_default().push(RowId { table: name, uuid: view.uuid });
                }
            }
        }
    }
    parents
}

fn uuids(datum: &Datum) -> impl Iterator<Item = Uuid> {
    datum.atoms().filter_map(|atom| if let Atom::Uuid(uuid) = atom { Some(uuid) } else { None })
}

struct Search<'a> {
    snapshot: &'a Snapshot,
    store: &'a Store,
    /// Rows that were adopted, with their new owners: these are not leftovers.
    owners: &'a BTreeMap<RowId, Owner>,
    parents: BTreeMap<Uuid, Vec<RowId>>,
}

impl Search<'_> {
    fn parents_of(&self, uuid: Uuid) -> impl Iterator<Item = RowId> {
        self.parents.get(&uuid).into_iter().flatten().copied()
    }

    fn text(view: RowView<'_>, key: &str) -> Option<String> {
        view.get("external_ids")?.get_str(key)
    }

    /// The owner whose transaction removes a row: a route, policy or NAT of an adopted router is replaced by those of the
    /// router's owner.
    fn goes_with(&self, id: RowId, view: RowView<'_>) -> Option<Owner> {
        if id.table == "Static_MAC_Binding" {
            // The table has no column for a mark: it is replaced with the node's own.
            let port = view.text("logical_port")?;
            return port.strip_prefix("rtoe-GR_").map(|node| Owner::Node(node.into()));
        }
        let marked_by_others = Self::text(view, OWNER_CONTROLLER).is_some_and(|controller| controller != GO_CONTROLLER);
        if marked_by_others {
            return None;
        }
        let is_its = match id.table {
            LogicalSwitchPort::TABLE | LogicalRouterPort::TABLE => {
                // A pod's port is marked, and its namespace may have such a prefix.
                let name = view.text("name").unwrap_or_default();
                let named = PORTS.iter().any(|prefix| name.starts_with(prefix));
                !is_marked(view) && (named || view.text("type").as_deref() == Some("localnet"))
            }
            table => UNMARKED.contains(&table),
        };
        self.parents_of(view.uuid).filter(|_| is_its).find_map(|parent| self.owners.get(&parent).cloned())
    }

    fn is_left_over(&self, id: RowId, view: RowView<'_>) -> bool {
        // The meter of logged ACLs has no mark: recognized by its name and empty marks.
        let logging = id.table == Meter::TABLE
            && view.text("name").as_deref() == Some(LOGGING_METER)
            && view.get("external_ids").is_none_or(|marks| marks.is_empty());
        logging || is_marked(view)
    }

    /// The owners whose rows replace a row. Always includes the cluster: everything depends on its router and groups.
    fn replaced_by(&self, id: RowId, view: RowView<'_>) -> BTreeSet<Owner> {
        let mut owners = BTreeSet::from([Owner::Cluster]);
        self.add_object(view, &mut owners);
        match id.table {
            LoadBalancer::TABLE => {
                for parent in self.parents_of(view.uuid) {
                    if parent.table == LoadBalancerGroup::TABLE {
                        owners.extend(self.store.nodes().map(|node| Owner::Node(node.name.clone())));
                    }
                    owners.extend(self.owners.get(&parent).cloned());
                }
            }
            PortGroup::TABLE => {
                for port in view.get("ports").iter().flat_map(|ports| uuids(ports)) {
                    let port = RowId { table: LogicalSwitchPort::TABLE, uuid: port };
                    owners.extend(self.owners.get(&port).cloned());
                    if let Some(view) = row(self.snapshot, port) {
                        self.add_object(view, &mut owners);
                    }
                }
            }
            Acl::TABLE => {
                for parent in self.parents_of(view.uuid) {
                    match (self.owners.get(&parent), row(self.snapshot, parent)) {
                        (Some(owner), _) => {
                            owners.insert(owner.clone());
                        }
                        (None, Some(group)) if parent.table == PortGroup::TABLE => {
                            owners.extend(self.replaced_by(parent, group));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        owners
    }

    /// Adds the existing objects that a row's marks name.
    fn add_object(&self, view: RowView<'_>, owners: &mut BTreeSet<Owner>) {
        let Some(marks) = view.get("external_ids") else { return };
        let mark = |key| marks.get_str(key).unwrap_or_default();
        let name = mark(OWNER_NAME);
        let store = self.store;
        match &*mark(OWNER_TYPE) {
            "NetworkPolicy" => {
                let key = name.split_once(':').map(|(namespace, name)| ObjectKey::new(namespace, name));
                owners.extend(key.and_then(|key| store.policy(&key)).map(|policy| Owner::Policy(policy.key.clone())));
            }
            // The default-deny groups of a namespace serve all its policies.
            "NetpolNamespace" => {
                owners.extend(store.policies_in(&name).map(|policy| Owner::Policy(policy.key.clone())));
            }
            "Namespace" => owners.extend(store.namespace(&name).map(|found| Owner::Namespace(found.name.clone()))),
            "NetpolNode" => owners.extend(store.node(&name).map(|node| Owner::Node(node.name.clone()))),
            "AdminNetworkPolicy" if store.admin_policy(&name, false).is_some() => {
                owners.insert(Owner::AdminPolicy(name.as_str().into()));
            }
            "BaselineAdminNetworkPolicy" if store.admin_policy(&name, true).is_some() => {
                owners.insert(Owner::BaselinePolicy(name.as_str().into()));
            }
            _ => {}
        }
        if mark("k8s.ovn.org/kind") == "Service" {
            let service = ObjectKey::parse(&mark("k8s.ovn.org/owner")).and_then(|key| store.service(&key));
            owners.extend(service.map(|service| Owner::Service(service.key.clone())));
        }
        if mark("pod") == "true" {
            let namespace = mark("namespace");
            let port = view.text("name").unwrap_or_default();
            let name = port.strip_prefix(&*namespace).and_then(|rest| rest.strip_prefix('_'));
            let pod = name.and_then(|name| store.pod(&ObjectKey::new(&namespace, name)));
            owners.extend(pod.filter(|pod| pod.wants_port().is_some()).map(|pod| Owner::Pod(pod.key.clone())));
        }
    }

    /// Sets, groups and meters stay as long as ACLs that name them: without them, an ACL matches other packets.
    fn keep_named(&self, left: &mut BTreeMap<RowId, BTreeSet<Owner>>) {
        let mut names: BTreeMap<String, BTreeSet<Owner>> = BTreeMap::new();
        for (id, owners) in left.iter().filter(|(id, _)| id.table == Acl::TABLE) {
            let Some(view) = row(self.snapshot, *id) else { continue };
            let matching = view.text("match").unwrap_or_default();
            let meter = view.text("meter");
            for name in named_in(&matching).map(String::from).chain(meter) {
                names.entry(name).or_default().extend(owners.iter().cloned());
            }
        }
        for (id, owners) in left.iter_mut() {
            if ![AddressSet::TABLE, PortGroup::TABLE, Meter::TABLE].contains(&id.table) {
                continue;
            }
            let name = row(self.snapshot, *id).and_then(|view| view.text("name")).unwrap_or_default();
            owners.extend(names.get(&*name).into_iter().flatten().cloned());
        }
    }
}
