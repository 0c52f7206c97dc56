//! Release: hands the database over to another controller (OVN-Kubernetes in Go), with none of our rows in effect.
//!
//! ```text
//!  found by the other one, by name or content ──▶ kept, without our marks: switches, routers, ports, routes, SNAT, meters,
//!                                                 load balancers of cluster addresses
//!  ours alone ─────────────────────────────────▶ removed: ACLs, sets, groups, templates, retransmission marks, QoS, limits
//!                                                 of packets that the other one does not limit
//! ```
//!
//! Rows are removed only if the other controller has its own in place: for a policy the same ports and at least the same
//! addresses, for a Service its load balancers. Otherwise nothing is released: pods would be exposed, or a Service cut off,
//! in between.
//!
//! QoS rules are removed last, when nothing marks packets any more: Open vSwitch looks up a tunnel's route by the packet's
//! mark, finds none for that of retransmissions (`desired::retransmit`), and caches the drop without the mark in its match
//! (userspace datapath, 3.5). Without the rule that removes the mark, one marked packet in flight would have all later
//! packets dropped, as long as they keep coming.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use netmodel::Prefix;
use ovn_schema::TableRow;
use ovn_schema::northbound::{
    Acl, AddressSet, ChassisTemplateVar, Copp, LoadBalancer, LogicalSwitch, LogicalSwitchPort, Meter, MeterBand,
    PortGroup,
};
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::{Condition, Mutation, Mutator};
use ovsdb::replica::{RowView, Snapshot};
use ovsdb::transaction::{Row, Transaction};
use ovsdb::uuid::Uuid;

use crate::adopt::{GO_CONTROLLER, parents};
use crate::desired::{LIMIT_SUFFIX, NODE_ID_MARK};
use crate::engine::QUARANTINE_PREFIX;
use crate::identity::{ColumnRef, OWNER_CONTROLLER, OWNER_NAME, OWNER_TYPE, Owner, RowId, STANDS_FOR};
use crate::plan::{owner_of, row, set_column, table_name};
use crate::selector::named_in;

/// Groups that the other controller has under the same names.
const SHARED_GROUPS: [&str; 2] = ["clusterPortGroup", "clusterRtrPortGroup"];
/// Keys of `external_ids` that only ovnkube writes.
const MARKS: [&str; 5] = [OWNER_CONTROLLER, OWNER_TYPE, OWNER_NAME, STANDS_FOR, NODE_ID_MARK];

/// The transactions of a release, and what they do.
#[derive(Debug, Default)]
pub struct Release {
    /// The first transaction: everything but QoS rules.
    pub transaction: Transaction,
    /// The second transaction, for when all nodes have applied the first.
    pub last: Transaction,
    /// Number of removed rows, by table.
    pub removed: BTreeMap<&'static str, usize>,
    /// Number of rows that stay without our marks, by table.
    pub handed_over: BTreeMap<&'static str, usize>,
    /// Owners for which the other controller has nothing in place yet.
    pub unreplaced: BTreeSet<String>,
}

/// Plans the release of a database.
pub fn release(snapshot: &Snapshot) -> Release {
    let other = Other::read(snapshot);
    let (parents, unused) = (parents(snapshot), unused_limits(snapshot));
    let mut release = Release::default();
    let mut sets: BTreeMap<ColumnRef, BTreeSet<Atom>> = BTreeMap::new();
    for table in snapshot.tables() {
        let Some(name) = table_name(&table.schema().name) else { continue };
        for view in table.iter() {
            let Some(owner) = owner_of(view) else { continue };
            let id = RowId { table: name, uuid: view.uuid };
            if name == MeterBand::TABLE
                && parents.get(&id.uuid).is_some_and(|of| of.iter().all(|row| unused.contains(row)))
            {
                // It goes with its meter.
                *release.removed.entry(name).or_default() += 1;
                continue;
            }
            if is_found_by_name(id, view) && !unused.contains(&id) {
                release.hand_over(id, view);
                continue;
            }
            let in_place = match name {
                Acl::TABLE => other.replaces_rule(&owner, view, &parents, snapshot),
                LoadBalancer::TABLE => {
                    other.serves(&owner, view.text("name").is_some_and(|name| name.contains("_node_")))
                }
                _ => true,
            };
            if !in_place {
                release.unreplaced.insert(owner.to_string());
            }
            *release.removed.entry(name).or_default() += 1;
            if name == ChassisTemplateVar::TABLE {
                release.empty_variables(id, view, other.has_templates);
            } else if view.schema.is_root {
                release.transaction.delete(name, vec![Condition::uuid(view.uuid)]);
            } else {
                for (column, atom) in places(view.uuid, &parents, snapshot) {
                    sets.entry(column).or_default().insert(atom);
                }
            }
        }
    }
    for (ColumnRef { row, column }, atoms) in sets {
        let mutation = Mutation::new(column, Mutator::Delete, Datum::set(atoms));
        let is_last = column == LogicalSwitch::qos_rules.name();
        let step = if is_last { &mut release.last } else { &mut release.transaction };
        step.mutate(row.table, vec![Condition::uuid(row.uuid)], vec![mutation]);
    }
    release.clear_quarantine(snapshot);
    release
}

/// Whether the other controller finds a row by its name or content, and keeps it.
fn is_found_by_name(id: RowId, view: RowView<'_>) -> bool {
    let is_set = |column: &str| view.text(column).is_some_and(|text| !text.is_empty());
    match id.table {
        // Rows with these columns serve retransmissions (`desired::retransmit`).
        "NAT" => !is_set("match"),
        "Logical_Router_Policy" => view.get("options").is_none_or(|options| options.is_empty()),
        "Logical_Router_Static_Route" => !is_route_of_services(view),
        PortGroup::TABLE => view.text("name").is_some_and(|name| SHARED_GROUPS.contains(&&*name)),
        LoadBalancer::TABLE => view.text("name").is_some_and(|name| name.ends_with("_cluster")),
        table => ![Acl::TABLE, AddressSet::TABLE, "QoS", ChassisTemplateVar::TABLE].contains(&table),
    }
}

/// Meters of kinds of packets that the other controller does not limit: it has written the `Copp` row without them.
fn unused_limits(snapshot: &Snapshot) -> BTreeSet<RowId> {
    let rows = |table: &str| snapshot.table(table).into_iter().flat_map(ovsdb::replica::Table::iter);
    let limits: Vec<_> = rows(Copp::TABLE).filter_map(|view| view.get(Copp::meters.name())).collect();
    let used: BTreeSet<String> =
        limits.iter().flat_map(|limits| limits.pairs()).map(|(_, meter)| meter.to_string()).collect();
    let is_unused = |view: &RowView<'_>| {
        let name = view.text("name").unwrap_or_default();
        owner_of(*view).is_some() && name.ends_with(LIMIT_SUFFIX) && !used.contains(&*name)
    };
    rows(Meter::TABLE).filter(is_unused).map(|view| RowId { table: Meter::TABLE, uuid: view.uuid }).collect()
}

/// Whether a route of a gateway router is for the rejection of unserved Service addresses (`desired::gateway`): it has the
/// external port, and a next hop outside of its own prefix.
fn is_route_of_services(view: RowView<'_>) -> bool {
    let text = |column: &str| view.text(column).filter(|text| !text.is_empty());
    let prefix = text("ip_prefix").and_then(|prefix| prefix.parse::<Prefix>().ok());
    let next_hop = text("nexthop").and_then(|next_hop| next_hop.parse::<IpAddr>().ok());
    let (Some(prefix), Some(next_hop)) = (prefix, next_hop) else { return false };
    text("output_port").is_some() && !prefix.contains(next_hop)
}

/// The sets that a row is a member of.
fn places(child: Uuid, parents: &BTreeMap<Uuid, Vec<RowId>>, snapshot: &Snapshot) -> Vec<(ColumnRef, Atom)> {
    let atom = Atom::Uuid(child);
    let mut places = Vec::new();
    for parent in parents.get(&child).into_iter().flatten() {
        let Some(view) = row(snapshot, *parent) else { continue };
        for (index, datum) in view.row.fields() {
            let column = set_column(parent.table, &view.schema.columns[index].name);
            if let Some(column) = column.filter(|_| datum.contains(&atom)) {
                places.push((ColumnRef { row: *parent, column }, atom.clone()));
            }
        }
    }
    places
}

impl Release {
    fn hand_over(&mut self, id: RowId, view: RowView<'_>) {
        let Some(ids) = view.get("external_ids") else { return };
        let ours = |key: &Atom| MARKS.contains(&key.to_string().as_str());
        let kept = ids.pairs().iter().filter(|(key, _)| !ours(key)).cloned();
        let update = Row::new().set("external_ids", Datum::map(kept));
        self.transaction.update(id.table, vec![Condition::uuid(id.uuid)], update);
        *self.handed_over.entry(id.table).or_default() += 1;
    }

    /// Removes our variables from a chassis' row. The row stays: an ovn-controller whose row is removed and recreated fails
    /// an assertion, and the other controller may have variables in it.
    fn empty_variables(&mut self, id: RowId, view: RowView<'_>, shared: bool) {
        let variables = view.get(ChassisTemplateVar::variables.name());
        let keys = variables.iter().flat_map(|variables| variables.pairs()).map(|(key, _)| key.clone());
        // The other controller uses the same names for nodes' addresses.
        let keys: Vec<Atom> = keys.filter(|key| !(shared && key.to_string().starts_with("NODEIP_"))).collect();
        let mut mutations = vec![Mutation::new(
            "external_ids",
            Mutator::Delete,
            Datum::set(MARKS.map(|mark| Atom::String(mark.into()))),
        )];
        if !keys.is_empty() {
            mutations.push(Mutation::new(ChassisTemplateVar::variables.name(), Mutator::Delete, Datum::set(keys)));
        }
        self.transaction.mutate(id.table, vec![Condition::uuid(id.uuid)], mutations);
    }

    fn clear_quarantine(&mut self, snapshot: &Snapshot) {
        let Some(global) = snapshot.table("NB_Global").and_then(|table| table.iter().next()) else { return };
        let ids = global.get("external_ids");
        let keys = ids.iter().flat_map(|ids| ids.pairs()).map(|(key, _)| key.clone());
        let keys: Vec<Atom> = keys.filter(|key| key.to_string().starts_with(QUARANTINE_PREFIX)).collect();
        if !keys.is_empty() {
            let mutation = Mutation::new("external_ids", Mutator::Delete, Datum::set(keys));
            self.transaction.mutate("NB_Global", vec![Condition::uuid(global.uuid)], vec![mutation]);
        }
    }
}

/// The rows that the other controller has in place.
struct Other {
    /// The ports of its groups, by the object that its marks name and the direction.
    groups: BTreeMap<(String, String, String), BTreeSet<Atom>>,
    /// The objects that it has ACLs for, with the addresses that these name.
    rules: BTreeMap<(String, String), BTreeSet<String>>,
    /// Services that it has load balancers for, as `namespace/name`, and whether some of these are per node.
    services: BTreeMap<String, bool>,
    /// Whether it uses variables itself.
    has_templates: bool,
    sets: BTreeMap<String, BTreeSet<String>>,
}

impl Other {
    fn read(snapshot: &Snapshot) -> Self {
        let rows = |table: &str| snapshot.table(table).into_iter().flat_map(ovsdb::replica::Table::iter);
        let mark = |view: RowView<'_>, key: &str| view.get("external_ids").and_then(|marks| marks.get_str(key));
        let is_its = |view: &RowView<'_>| mark(*view, OWNER_CONTROLLER).as_deref() == Some(GO_CONTROLLER);
        let object = |view: RowView<'_>| {
            let word = |key| mark(view, key).unwrap_or_default();
            (word(OWNER_TYPE), word(OWNER_NAME), word("direction"))
        };
        // Addresses of deleted pods do not count.
        let mut present: BTreeSet<String> = BTreeSet::new();
        for view in rows(LogicalSwitchPort::TABLE) {
            let words = view
                .get("addresses")
                .iter()
                .flat_map(|all| all.atoms())
                .map(|atom| atom.to_string())
                .collect::<Vec<_>>();
            present.extend(words.iter().flat_map(|words| words.split(' ').skip(1)).map(String::from));
        }
        let mut sets = BTreeMap::new();
        for view in rows(AddressSet::TABLE) {
            let addresses = view.get("addresses");
            let addresses = addresses.iter().flat_map(|all| all.atoms()).map(|atom| atom.to_string());
            let name = view.text("name").map(|name| name.to_string()).unwrap_or_default();
            sets.insert(name, addresses.filter(|address| present.contains(address)).collect());
        }
        let mut groups: BTreeMap<_, BTreeSet<Atom>> = BTreeMap::new();
        for view in rows(PortGroup::TABLE).filter(is_its) {
            let ports = view.get("ports");
            groups.entry(object(view)).or_default().extend(ports.iter().flat_map(|ports| ports.atoms()));
        }
        let balancers: Vec<_> = rows(LoadBalancer::TABLE).filter(|view| owner_of(*view).is_none()).collect();
        let mut services: BTreeMap<String, bool> = BTreeMap::new();
        for view in &balancers {
            let Some(service) = mark(*view, "k8s.ovn.org/owner") else { continue };
            let of_node = view.text("name").is_some_and(|name| name.contains("_node_"));
            *services.entry(service).or_default() |= of_node;
        }
        let has_templates = balancers
            .iter()
            .any(|view| view.get("options").and_then(|options| options.get_str("template")).as_deref() == Some("true"));
        let mut other = Self { groups, rules: BTreeMap::new(), services, has_templates, sets };
        for view in rows(Acl::TABLE).filter(is_its) {
            let (kind, name, _) = object(view);
            let addresses = other.addresses_in(view);
            other.rules.entry((kind, name)).or_default().extend(addresses);
        }
        other
    }

    /// The members of the address sets that an ACL names.
    fn addresses_in(&self, rule: RowView<'_>) -> BTreeSet<String> {
        let matching = rule.text("match").unwrap_or_default();
        named_in(&matching).filter_map(|name| self.sets.get(name)).flatten().cloned().collect()
    }

    fn has_rule(&self, kind: &str, name: &str) -> bool {
        self.rules.contains_key(&(kind.to_owned(), name.to_owned()))
    }

    /// Whether its port group of an object and direction has these ports.
    fn has_ports(&self, kind: &str, name: &str, direction: &str, ports: &BTreeSet<Atom>) -> bool {
        let key = (kind.to_owned(), name.to_owned(), direction.to_owned());
        self.groups.get(&key).is_some_and(|group| group.is_superset(ports))
    }

    /// Whether it has load balancers for a Service; with `by_nodes`, also such per node.
    fn serves(&self, owner: &Owner, by_nodes: bool) -> bool {
        let Owner::Service(key) = owner else { return true };
        self.services.get(&key.to_string()).is_some_and(|of_nodes| *of_nodes || !by_nodes)
    }

    /// Whether its ACLs replace one of ours.
    fn replaces_rule(
        &self,
        owner: &Owner,
        rule: RowView<'_>,
        parents: &BTreeMap<Uuid, Vec<RowId>>,
        snapshot: &Snapshot,
    ) -> bool {
        let matching = rule.text("match").unwrap_or_default();
        let groups = parents.get(&rule.uuid).into_iter().flatten().filter(|parent| parent.table == PortGroup::TABLE);
        let groups = groups.filter_map(|group| row(snapshot, *group)?.get("ports"));
        let ports: BTreeSet<Atom> = groups.flat_map(|ports| ports.atoms().collect::<Vec<_>>()).collect();
        match owner {
            Owner::Policy(key) => {
                let name = format!("{}:{}", key.namespace, key.name);
                let direction =
                    rule.get("external_ids").and_then(|marks| marks.get_str("direction")).unwrap_or_default();
                let isolated = self.has_ports("NetpolNamespace", &key.namespace, &direction, &ports);
                let rules = self.rules.get(&("NetworkPolicy".to_owned(), name.clone()));
                let none = BTreeSet::new();
                let allowed = rules.unwrap_or(&none).is_superset(&self.addresses_in(rule));
                isolated && allowed && self.has_ports("NetworkPolicy", &name, "", &ports)
            }
            Owner::AdminPolicy(name) => self.has_ports("AdminNetworkPolicy", name, "", &ports),
            Owner::BaselinePolicy(name) => self.has_ports("BaselineAdminNetworkPolicy", name, "", &ports),
            Owner::Node(name) => self.has_rule("NetpolNode", name),
            Owner::Namespace(name) => self.has_rule("MulticastNS", name),
            Owner::Cluster if matching.contains("mcast") => {
                self.rules.keys().any(|(kind, _)| kind == "MulticastCluster")
            }
            Owner::Cluster => self.rules.keys().any(|(kind, _)| kind == "NetpolDefault"),
            Owner::Service(_) => self.serves(owner, false),
            Owner::Selector(_) | Owner::Pod(_) | Owner::Adopted => true,
        }
    }
}
