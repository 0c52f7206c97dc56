//! Reads the leader's state from the database at promotion: ledger, aliases, quarantine.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use objects::{Name, NodeFacts, PodFacts};
use ovn_schema::TableRow;
use ovn_schema::northbound::{
    Acl, AddressSet, GatewayChassis, LoadBalancer, LoadBalancerGroup, LogicalSwitch, LogicalSwitchPort, PortGroup,
};
use ovsdb::datum::{Atom, Datum};
use ovsdb::replica::{RowView, Snapshot};
use ovsdb::uuid::Uuid;

use crate::allocation::{Allocatable, Allocator, KnownNode, KnownPort};
use crate::contribution::{Aliases, Member};
use crate::desired::{NODE_ID_MARK, PORT_KEY, SUBNET, SUBNET_V6, SWITCH_KEY, variable_prefix};
use crate::identity::{ColumnRef, Owner, RowId, STANDS_FOR, is_computed, row_uuid};
use crate::ledger::{Entry, Ledger};
use crate::maps;
use crate::plan::{owner_of, set_column, table_name};
use crate::selector::named_in;
use crate::store::Store;

/// Prefix of the keys of `NB_Global.external_ids` that list quarantined items; northd does not read that column.
pub(crate) const QUARANTINE_PREFIX: &str = "k8s.ovn.org/resting/";

/// The only row of `NB_Global`.
pub(crate) fn global(snapshot: &Snapshot) -> Option<RowView<'_>> {
    snapshot.table("NB_Global")?.iter().next()
}

/// Restores the quarantine from the database.
///
/// Returns the chassis of nodes whose node IDs are quarantined: they must be removed, and delay all quarantines until then.
pub(super) fn quarantined(allocator: &mut Allocator, snapshot: &Snapshot) -> BTreeSet<Box<str>> {
    let mut chassis = BTreeSet::new();
    let Some(ids) = global(snapshot).and_then(|global| global.get("external_ids")) else { return chassis };
    for (key, value) in ids.pairs() {
        let (key, value) = (key.to_string(), value.to_string());
        let Some(Ok(item)) = key.strip_prefix(QUARANTINE_PREFIX).map(str::parse::<Allocatable>) else { continue };
        let mut words = value.splitn(3, '@');
        let (owner, node) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        allocator.restore_quarantined(item, owner, node);
        chassis.extend(words.next().map(Box::from));
    }
    chassis
}

/// The chassis that a node's router port is bound to, as the database has it.
pub(super) fn chassis_of(node: &str, snapshot: &Snapshot) -> Option<String> {
    let prefix = format!("rtos-{node}-");
    let mut rows = snapshot.table(GatewayChassis::TABLE)?.iter();
    rows.find_map(|view| {
        let chassis = view.text("chassis_name")?;
        (view.text("name")? == format!("{prefix}{chassis}")).then_some(chassis)
    })
}

/// Quarantines what rows of deleted or replaced objects have, until the nodes acknowledge that the rows are gone.
pub(super) fn quarantine_orphaned(allocator: &mut Allocator, ledger: &Ledger, snapshot: &Snapshot, ports: &Ports) {
    for owner in ledger.owners() {
        let rows = ledger.entry(owner).map(Entry::rows).unwrap_or_default();
        for id in rows {
            let Some(view) = snapshot.table(id.table).and_then(|table| table.get(id.uuid)) else { continue };
            match (owner, id.table) {
                (Owner::Pod(_), LogicalSwitchPort::TABLE) => {
                    let uid = view.get("options").and_then(|options| options.get_str("iface-id-ver"));
                    let Some(port) = ports.get(&view.uuid) else { continue };
                    let held = |address: &IpAddr| matches!(owner, Owner::Pod(key) if allocator.has(key, *address));
                    let lost: Vec<IpAddr> = port.addresses.iter().copied().filter(|address| !held(address)).collect();
                    for address in lost {
                        allocator.quarantine_former(
                            Allocatable::Address(address),
                            uid.as_deref().unwrap_or_default(),
                            owner,
                        );
                    }
                }
                (Owner::Node(name), LogicalSwitch::TABLE) => {
                    let KnownNode { subnets, id } = read_switch(|column| view.get(column));
                    let items = subnets.into_iter().map(Allocatable::Subnet).chain(id.map(Allocatable::NodeId));
                    for item in items {
                        allocator.quarantine_former(item, name, owner);
                    }
                }
                _ => {}
            }
        }
    }
}

/// The chassis of deleted nodes whose rows still exist.
pub(super) fn orphaned_chassis(ledger: &Ledger, store: &Store, snapshot: &Snapshot) -> BTreeSet<Box<str>> {
    let gone = ledger.owners().filter(|owner| matches!(owner, Owner::Node(name) if store.node(name).is_none()));
    let rows = gone.filter_map(|owner| ledger.entry(owner)).flat_map(Entry::rows);
    let chassis = rows.filter(|id| id.table == GatewayChassis::TABLE).filter_map(|id| {
        let view = snapshot.table(id.table)?.get(id.uuid)?;
        view.text("chassis_name").map(Into::into)
    });
    chassis.collect()
}

/// Rows that were adopted earlier, by the identity that they stand for.
pub(super) fn aliases(snapshot: &Snapshot) -> Aliases {
    let mut aliases = Aliases::default();
    for table in snapshot.tables().filter(|table| table_name(&table.schema().name).is_some()) {
        for view in table.iter().filter(|view| !is_computed(view.uuid)) {
            let Some(owner) = owner_of(view) else { continue };
            let computed = if view.schema.name == LoadBalancerGroup::TABLE {
                // No column for a mark: it stands for the one of its name.
                view.text("name").map(|name| row_uuid(LoadBalancerGroup::TABLE, owner.kind(), &owner.name(), &name))
            } else {
                let stands_for = view.get("external_ids").and_then(|marks| marks.get_str(STANDS_FOR));
                stands_for.as_deref().and_then(Uuid::parse)
            };
            if let Some(computed) = computed {
                aliases.insert(computed, view.uuid);
            }
        }
    }
    aliases
}

/// Addresses of pods' ports, by row.
pub(super) type Ports = HashMap<Uuid, KnownPort>;

/// What was read from the rows.
pub(super) struct Seeded {
    pub(super) ledger: Ledger,
    pub(super) ports: Ports,
}

/// Every owner's rows and members, as the database has them. So what an owner no longer wants is removed in the transaction
/// that writes what it wants, and orphaned rows are removed when their owner has its turn.
pub(super) fn ledger(snapshot: &Snapshot, adopted: Option<&crate::adopt::Adopted>) -> Seeded {
    let adopted = |view: RowView<'_>| adopted.and_then(|adopted| adopted.owner(view));
    let owner = |view: RowView<'_>| owner_of(view).or_else(|| adopted(view));
    let mut entries: BTreeMap<Owner, (Vec<RowId>, Vec<Member>)> = BTreeMap::new();
    let mut owners: HashMap<Uuid, Owner> = HashMap::new();
    let mut ports = Ports::new();
    // An address in a set belongs to the pod whose port has it.
    let mut addresses: HashMap<IpAddr, Owner> = HashMap::new();
    // A variable belongs to the Service whose load balancers use it.
    let mut variables: HashMap<String, Owner> = HashMap::new();
    for table in snapshot.tables() {
        let Some(name) = table_name(&table.schema().name) else { continue };
        for view in table.iter() {
            let Some(owner) = owner(view) else { continue };
            if name == LogicalSwitchPort::TABLE
                && matches!(owner, Owner::Pod(_))
                && let Some(port) = read_port(view)
            {
                addresses.extend(port.addresses.iter().map(|address| (*address, owner.clone())));
                ports.insert(view.uuid, port);
            }
            if name == LoadBalancer::TABLE
                && let Owner::Service(key) = &owner
            {
                variables.entry(variable_prefix(key)).or_insert_with(|| owner.clone());
            }
            owners.insert(view.uuid, owner.clone());
            entries.entry(owner).or_default().0.push(RowId { table: name, uuid: view.uuid });
        }
    }
    for table in snapshot.tables() {
        let Some(name) = table_name(&table.schema().name) else { continue };
        for view in table.iter() {
            // References of another client's row are not ours, even to our rows.
            let Some(of_set) = owners.get(&view.uuid) else { continue };
            let row = RowId { table: name, uuid: view.uuid };
            for (index, datum) in view.row.fields() {
                let column = &view.schema.columns[index];
                let Some(set) = set_column(name, &column.name) else { continue };
                for (key, value) in datum.pairs() {
                    let (key, value) = (key.to_string(), value.to_string());
                    let service = key.split_once('_').and_then(|(prefix, _)| variables.get(prefix));
                    let member = Member { column: ColumnRef { row, column: set }, atom: maps::member(&key, &value) };
                    entries.entry(service.unwrap_or(of_set).clone()).or_default().1.push(member);
                }
                if !datum.pairs().is_empty() {
                    continue;
                }
                for atom in datum.atoms() {
                    let whose = match &atom {
                        // Members of another controller's set stay as long as the set.
                        _ if *of_set == Owner::Adopted => Some(Owner::Adopted),
                        // The groups are the cluster's, but the reference is the node's: as the cluster's, it would be
                        // removed from every node that has its turn in a later batch.
                        Atom::Uuid(uuid) if set == LogicalSwitch::load_balancer_group.name() => {
                            owners.get(uuid).map(|_| of_set.clone())
                        }
                        Atom::Uuid(uuid) => owners.get(uuid).cloned(),
                        Atom::String(text) if name == AddressSet::TABLE => {
                            let address = text.as_str().parse().ok();
                            Some(address.and_then(|address| addresses.get(&address)).unwrap_or(of_set).clone())
                        }
                        _ => None,
                    };
                    if let Some(whose) = whose {
                        let member = Member { column: ColumnRef { row, column: set }, atom };
                        entries.entry(whose).or_default().1.push(member);
                    }
                }
            }
        }
    }
    let mut names = names(snapshot);
    let mut ledger = Ledger::default();
    for (owner, (rows, members)) in entries {
        let names = names.remove(&owner).unwrap_or_default();
        ledger.seed(&owner, rows, members, names);
    }
    Seeded { ledger, ports }
}

/// The selectors that the ACLs of policies name.
fn names(snapshot: &Snapshot) -> BTreeMap<Owner, Vec<Name>> {
    let mut words: HashMap<String, Name> = HashMap::new();
    for table in [PortGroup::TABLE, AddressSet::TABLE].iter().filter_map(|table| snapshot.table(table)) {
        for view in table.iter() {
            if let (Some(Owner::Selector(of)), Some(name)) = (owner_of(view), view.text("name")) {
                words.insert(name.to_string(), of);
            }
        }
    }
    let mut names: BTreeMap<Owner, Vec<Name>> = BTreeMap::new();
    for view in snapshot.table(Acl::TABLE).iter().flat_map(|table| table.iter()).filter(|_| !words.is_empty()) {
        let policy = owner_of(view)
            .filter(|owner| matches!(owner, Owner::Policy(_) | Owner::AdminPolicy(_) | Owner::BaselinePolicy(_)));
        let (Some(owner), Some(matching)) = (policy, view.text("match")) else { continue };
        let named = named_in(&matching).filter_map(|name| words.get(name).cloned());
        names.entry(owner).or_default().extend(named);
    }
    names
}

/// The MAC and addresses of a port.
pub(super) fn read_port(view: RowView<'_>) -> Option<KnownPort> {
    view.get("addresses").as_deref().and_then(parse_port)
}

/// Parses a port's `addresses`.
pub(super) fn parse_port(addresses: &Datum) -> Option<KnownPort> {
    addresses.atoms().find_map(|atom| KnownPort::parse(&atom.to_string()))
}

/// The MAC and addresses of a pod's port in the database.
pub(super) fn known_port(pod: &PodFacts, snapshot: &Snapshot, aliases: &Aliases) -> Option<KnownPort> {
    read_port(snapshot.table(LogicalSwitchPort::TABLE)?.get(port_of(pod, aliases))?)
}

/// The row of a pod's port.
pub(super) fn port_of(pod: &PodFacts, aliases: &Aliases) -> Uuid {
    port_row(&pod.uid, aliases).uuid
}

/// The row of the port of the pod with this UID.
pub(super) fn port_row(uid: &str, aliases: &Aliases) -> RowId {
    let uuid = aliases.resolve(row_uuid(LogicalSwitchPort::TABLE, "Pod", uid, PORT_KEY));
    RowId { table: LogicalSwitchPort::TABLE, uuid }
}

/// The row of a node's switch.
pub(super) fn switch_of(node: &NodeFacts, aliases: &Aliases) -> RowId {
    let uuid = aliases.resolve(row_uuid(LogicalSwitch::TABLE, "Node", &node.uid, SWITCH_KEY));
    RowId { table: LogicalSwitch::TABLE, uuid }
}

/// The subnets and the node ID of a node's switch in the database.
pub(super) fn known_node(node: &NodeFacts, snapshot: &Snapshot, aliases: &Aliases) -> KnownNode {
    let view = snapshot.table(LogicalSwitch::TABLE).and_then(|table| table.get(switch_of(node, aliases).uuid));
    view.map(|view| read_switch(|column| view.get(column))).unwrap_or_default()
}

/// Reads subnets and node ID from the columns of a switch.
pub(super) fn read_switch<D: std::ops::Deref<Target = Datum>>(get: impl Fn(&str) -> Option<D>) -> KnownNode {
    let config = get("other_config");
    let subnet = |key| config.as_ref()?.get_str(key)?.parse().ok();
    let id = get("external_ids").and_then(|marks| marks.get_str(NODE_ID_MARK)?.parse().ok());
    KnownNode { subnets: [SUBNET, SUBNET_V6].into_iter().filter_map(subnet).collect(), id }
}
