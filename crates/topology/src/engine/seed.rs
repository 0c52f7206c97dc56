//! What the database tells at the beginning: who has which rows and members, what stands for what, what rests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use ovn_schema::TableRow;
use ovn_schema::northbound::{
    Acl, AddressSet, GatewayChassis, LoadBalancer, LoadBalancerGroup, LogicalSwitch, LogicalSwitchPort, PortGroup,
};
use ovsdb::datum::{Atom, Datum};
use ovsdb::replica::{RowView, Snapshot};
use ovsdb::uuid::Uuid;

use crate::allocation::{Allocator, KnownNode, KnownPort, Thing};
use crate::contribution::{Aliases, Member};
use crate::desired::{NODE_ID_MARK, PORT_KEY, SUBNET, SUBNET_V6, SWITCH_KEY, variable_prefix};
use crate::identity::{ColumnRef, Name, Owner, RowId, STANDS_FOR, is_computed, row_uuid};
use crate::ledger::{Entry, Ledger};
use crate::maps;
use crate::objects::{NodeFacts, PodFacts};
use crate::plan::{owner_of, set_column, table_name};
use crate::selector::named_in;
use crate::store::Store;

/// Keys of `NB_Global.external_ids` for what rests: northd does not read that column.
pub(crate) const RESTING: &str = "k8s.ovn.org/resting/";

/// The one row of settings and progress.
pub(crate) fn global(snapshot: &Snapshot) -> Option<RowView<'_>> {
    snapshot.table("NB_Global")?.iter().next()
}

/// Restores what the database says rests.
///
/// Returns the chassis of nodes whose numbers rest: they are to be removed, and hold everything back until they are.
pub(super) fn resting(allocator: &mut Allocator, snapshot: &Snapshot) -> BTreeSet<Box<str>> {
    let mut chassis = BTreeSet::new();
    let Some(ids) = global(snapshot).and_then(|global| global.get("external_ids")) else { return chassis };
    for (key, value) in ids.pairs() {
        let (key, value) = (key.to_string(), value.to_string());
        let Some(Ok(thing)) = key.strip_prefix(RESTING).map(str::parse::<Thing>) else { continue };
        let mut words = value.splitn(3, '@');
        let (owner, node) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        allocator.restore_resting(thing, owner, node);
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

/// What rows of objects have that are gone, or are others by now, is not free yet: it rests until those rows are gone
/// from the nodes.
pub(super) fn rest_of_the_gone(allocator: &mut Allocator, ledger: &Ledger, snapshot: &Snapshot, ports: &Ports) {
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
                        allocator.rest_former(Thing::Address(address), uid.as_deref().unwrap_or_default(), owner);
                    }
                }
                (Owner::Node(name), LogicalSwitch::TABLE) => {
                    let KnownNode { subnets, id } = switch_words(|column| view.get(column));
                    let things = subnets.into_iter().map(Thing::Subnet).chain(id.map(Thing::NodeId));
                    for thing in things {
                        allocator.rest_former(thing, name, owner);
                    }
                }
                _ => {}
            }
        }
    }
}

/// The chassis of nodes whose rows are still there though their objects are gone.
pub(super) fn chassis_of_the_gone(ledger: &Ledger, store: &Store, snapshot: &Snapshot) -> BTreeSet<Box<str>> {
    let gone = ledger.owners().filter(|owner| matches!(owner, Owner::Node(name) if store.node(name).is_none()));
    let rows = gone.filter_map(|owner| ledger.entry(owner)).flat_map(Entry::rows);
    let chassis = rows.filter(|id| id.table == GatewayChassis::TABLE).filter_map(|id| {
        let view = snapshot.table(id.table)?.get(id.uuid)?;
        view.text("chassis_name").map(Into::into)
    });
    chassis.collect()
}

/// Rows that were adopted before and stand for computed ones.
pub(super) fn aliases(snapshot: &Snapshot) -> Aliases {
    let mut aliases = Aliases::default();
    for table in snapshot.tables().filter(|table| table_name(&table.schema().name).is_some()) {
        for view in table.iter().filter(|view| !is_computed(view.uuid)) {
            let Some(owner) = owner_of(view) else { continue };
            let computed = if view.schema.name == LoadBalancerGroup::TABLE {
                // No room for a mark: it stands for the one of its name.
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

/// What the ports of pods have, by their rows.
pub(super) type Ports = HashMap<Uuid, KnownPort>;

/// What the database tells of rows.
pub(super) struct Seeded {
    pub(super) ledger: Ledger,
    pub(super) ports: Ports,
}

/// Every owner's rows and members, as the database has them. So what an owner no longer wants goes in the same
/// transaction in which it gets what it wants, and what belongs to nobody any more goes when its owner has its turn.
pub(super) fn ledger(snapshot: &Snapshot, adopted: Option<&crate::adopt::Adopted>) -> Seeded {
    let adopted = |view: RowView<'_>| adopted.and_then(|adopted| adopted.owner(view));
    let owner = |view: RowView<'_>| owner_of(view).or_else(|| adopted(view));
    let mut entries: BTreeMap<Owner, (Vec<RowId>, Vec<Member>)> = BTreeMap::new();
    let mut owners: HashMap<Uuid, Owner> = HashMap::new();
    let mut ports = Ports::new();
    // Whose an address in a set is: the pod's whose port has it.
    let mut addresses: HashMap<IpAddr, Owner> = HashMap::new();
    // Whose a variable is: the Service's whose load balancers use it.
    let mut variables: HashMap<String, Owner> = HashMap::new();
    for table in snapshot.tables() {
        let Some(name) = table_name(&table.schema().name) else { continue };
        for view in table.iter() {
            let Some(owner) = owner(view) else { continue };
            if name == LogicalSwitchPort::TABLE
                && matches!(owner, Owner::Pod(_))
                && let Some(port) = port_words(view)
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
            // What somebody else's row refers to is theirs to say, also where it is ours.
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
                        // What another controller put into a set of its own stays there as long as the set.
                        _ if *of_set == Owner::Adopted => Some(Owner::Adopted),
                        // The groups are the cluster's, but that a switch or router has them is its own node's wish: as
                        // the cluster's, they would be taken from every node that has its turn in a later batch.
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

/// The selectors that policies' rules name, by their words.
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

/// What a port has.
pub(super) fn port_words(view: RowView<'_>) -> Option<KnownPort> {
    view.get("addresses").as_deref().and_then(port_in)
}

/// What stands in a port's `addresses`.
pub(super) fn port_in(addresses: &Datum) -> Option<KnownPort> {
    addresses.atoms().find_map(|atom| KnownPort::parse(&atom.to_string()))
}

/// What the database says that a pod has.
pub(super) fn known_port(pod: &PodFacts, snapshot: &Snapshot, aliases: &Aliases) -> Option<KnownPort> {
    port_words(snapshot.table(LogicalSwitchPort::TABLE)?.get(port_of(pod, aliases))?)
}

/// The row of a pod's port.
pub(super) fn port_of(pod: &PodFacts, aliases: &Aliases) -> Uuid {
    port_row(&pod.uid, aliases).uuid
}

/// The row of the port of the pod of this identity.
pub(super) fn port_row(uid: &str, aliases: &Aliases) -> RowId {
    let uuid = aliases.resolve(row_uuid(LogicalSwitchPort::TABLE, "Pod", uid, PORT_KEY));
    RowId { table: LogicalSwitchPort::TABLE, uuid }
}

/// The row of a node's switch.
pub(super) fn switch_of(node: &NodeFacts, aliases: &Aliases) -> RowId {
    let uuid = aliases.resolve(row_uuid(LogicalSwitch::TABLE, "Node", &node.uid, SWITCH_KEY));
    RowId { table: LogicalSwitch::TABLE, uuid }
}

/// What the database says that a node has.
pub(super) fn known_node(node: &NodeFacts, snapshot: &Snapshot, aliases: &Aliases) -> KnownNode {
    let view = snapshot.table(LogicalSwitch::TABLE).and_then(|table| table.get(switch_of(node, aliases).uuid));
    view.map(|view| switch_words(|column| view.get(column))).unwrap_or_default()
}

/// What a node's switch says of its subnets and number.
pub(super) fn switch_words<D: std::ops::Deref<Target = Datum>>(get: impl Fn(&str) -> Option<D>) -> KnownNode {
    let config = get("other_config");
    let subnet = |key| config.as_ref()?.get_str(key)?.parse().ok();
    let id = get("external_ids").and_then(|marks| marks.get_str(NODE_ID_MARK)?.parse().ok());
    KnownNode { subnets: [SUBNET, SUBNET_V6].into_iter().filter_map(subnet).collect(), id }
}
