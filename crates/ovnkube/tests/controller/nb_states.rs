//! Every committed state of the northbound database, as another client sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use ovsdb::client::{Client, Config, Remote, TableMonitor};
use ovsdb::datum::Atom;
use ovsdb::replica::{Changes, RowView, Snapshot};
use ovsdb::uuid::Uuid;
use tokio::sync::oneshot;

use crate::cluster::{Cluster, TIMEOUT};

/// The key of `NB_Global.external_ids` that every commit of a controller changes.
pub(crate) const SEQUENCE: &str = "k8s.ovn.org/controller-sequence";

/// Records every state from its start on.
pub(crate) struct Observer {
    seen: Arc<Mutex<Vec<Changes>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Observer {
    pub(crate) fn start(cluster: &Cluster) -> Self {
        let remotes = Remote::parse_list(&cluster.lab.record().endpoints.northbound.unwrap()).unwrap();
        let (stop, mut stopped) = oneshot::channel();
        let (ready, begun) = std::sync::mpsc::channel();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let keep = seen.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut config = Config::new(remotes, "OVN_Northbound");
                config.tables = topology::plan::TABLES.into_iter().map(TableMonitor::new).collect();
                let client = Client::start(config);
                client.connected(TIMEOUT).await.unwrap();
                let mut changes = client.subscribe();
                let first = tokio::time::timeout(TIMEOUT, changes.next()).await.expect("no initial state");
                keep.lock().unwrap().push(first);
                ready.send(()).unwrap();
                loop {
                    tokio::select! {
                        // Evaluated later, so that no state is missed.
                        change = changes.next() => keep.lock().unwrap().push(change),
                        _ = &mut stopped => return,
                    }
                }
            });
        });
        // Twice the limit: to connect, and for the first state.
        begun.recv_timeout(2 * TIMEOUT).expect("the observer has not started");
        Self { seen, stop: Some(stop), thread: Some(thread) }
    }

    /// The states since the last call.
    pub(crate) fn take(&self) -> Vec<Changes> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) fn now(cluster: &Cluster) -> Snapshot {
    Observer::start(cluster).take().pop().unwrap().snapshot
}

pub(crate) fn rows<'a>(snapshot: &'a Snapshot, table: &str) -> impl Iterator<Item = RowView<'a>> {
    snapshot.table(table).into_iter().flat_map(ovsdb::replica::Table::iter)
}

pub(crate) fn mark(row: RowView<'_>, key: &str) -> Option<String> {
    row.get("external_ids")?.get_str(key)
}

pub(crate) fn texts(row: RowView<'_>, column: &str) -> BTreeSet<String> {
    let atoms = row.get(column).map(|datum| datum.atoms().collect::<Vec<_>>()).unwrap_or_default();
    atoms.iter().filter_map(|atom| if let Atom::String(text) = atom { Some(text.to_string()) } else { None }).collect()
}

fn uuids(row: RowView<'_>, column: &str) -> BTreeSet<Uuid> {
    let atoms = row.get(column).map(|datum| datum.atoms().collect::<Vec<_>>()).unwrap_or_default();
    atoms.iter().filter_map(|atom| if let Atom::Uuid(uuid) = atom { Some(*uuid) } else { None }).collect()
}

/// The writer of a state and the number of its commit.
pub(crate) fn sequence(snapshot: &Snapshot) -> Option<(String, u64)> {
    let value = mark(rows(snapshot, "NB_Global").next()?, SEQUENCE)?;
    let (writer, number) = value.rsplit_once(':')?;
    Some((writer.to_owned(), number.parse().ok()?))
}

pub(crate) fn pod_ports(snapshot: &Snapshot) -> impl Iterator<Item = RowView<'_>> {
    rows(snapshot, "Logical_Switch_Port").filter(|port| mark(*port, "pod").is_some())
}

/// The addresses of each namespace: in its address sets, and on its pods' ports.
pub(crate) fn addresses(snapshot: &Snapshot) -> [BTreeMap<String, BTreeSet<String>>; 2] {
    let mut both = [BTreeMap::new(), BTreeMap::new()];
    let of_namespace = |set: &RowView<'_>| mark(*set, "k8s.ovn.org/owner-type").as_deref() == Some("Namespace");
    for set in rows(snapshot, "Address_Set").filter(of_namespace) {
        let of: &mut BTreeSet<String> = both[0].entry(mark(set, "k8s.ovn.org/name").unwrap()).or_default();
        of.extend(texts(set, "addresses"));
    }
    for port in pod_ports(snapshot) {
        let of = both[1].entry(mark(port, "namespace").unwrap()).or_default();
        for words in texts(port, "addresses") {
            of.extend(words.split(' ').skip(1).map(String::from));
        }
    }
    both.map(|by_name| by_name.into_iter().filter(|(_, addresses)| !addresses.is_empty()).collect())
}

/// References of a state to missing rows, and other inconsistencies.
pub(crate) fn dangling(snapshot: &Snapshot) -> Vec<String> {
    let mut wrong = Vec::new();
    let names =
        |table: &str| -> BTreeSet<String> { rows(snapshot, table).filter_map(|row| row.text("name")).collect() };
    let (sets, groups, router_ports) = (names("Address_Set"), names("Port_Group"), names("Logical_Router_Port"));
    let ports: BTreeSet<Uuid> = rows(snapshot, "Logical_Switch_Port").map(|port| port.uuid).collect();
    for group in rows(snapshot, "Port_Group") {
        for port in uuids(group, "ports").difference(&ports) {
            wrong.push(format!("group {:?} has a port {port} that is not there", group.text("name")));
        }
    }
    for table in ["ACL", "Logical_Router_Policy"] {
        for row in rows(snapshot, table) {
            for (sigil, name) in named(&row.text("match").unwrap_or_default()) {
                let set_of_group = name.strip_suffix("_ip4").or(name.strip_suffix("_ip6"));
                let known = match sigil {
                    '$' => sets.contains(&name) || set_of_group.is_some_and(|group| groups.contains(group)),
                    _ => groups.contains(&name),
                };
                if !known {
                    wrong.push(format!("{table} {} names {sigil}{name}, which is not there", row.uuid));
                }
            }
        }
    }
    let mut homes: BTreeMap<Uuid, u32> = BTreeMap::new();
    for switch in rows(snapshot, "Logical_Switch") {
        for port in uuids(switch, "ports") {
            *homes.entry(port).or_default() += 1;
        }
    }
    for port in rows(snapshot, "Logical_Switch_Port") {
        let name = port.text("name").unwrap_or_default();
        let peer = port.get("options").and_then(|options| options.get_str("router-port"));
        if let Some(peer) = peer.filter(|peer| !router_ports.contains(peer)) {
            wrong.push(format!("port {name} faces router port {peer}, which is not there"));
        }
        if homes.get(&port.uuid) != Some(&1) {
            wrong.push(format!("port {name} is on {:?} switches", homes.get(&port.uuid)));
        }
    }
    let [in_sets, on_ports] = addresses(snapshot);
    if in_sets != on_ports {
        wrong.push(format!("sets hold {in_sets:?}, ports have {on_ports:?}"));
    }
    wrong
}

/// Pod ports that are missing from their namespace's group.
pub(crate) fn outside_their_groups(snapshot: &Snapshot) -> Vec<String> {
    let mut wrong = Vec::new();
    for group in rows(snapshot, "Port_Group") {
        let words = mark(group, "k8s.ovn.org/name").unwrap_or_default();
        let namespace = words.strip_prefix("ports in namespace ").and_then(|rest| rest.strip_suffix("; pods *"));
        let members = uuids(group, "ports");
        let own =
            pod_ports(snapshot).filter(|port| namespace.is_some() && mark(*port, "namespace").as_deref() == namespace);
        wrong.extend(own.filter(|port| !members.contains(&port.uuid)).filter_map(|port| port.text("name")));
    }
    wrong
}

/// The `$sets` and `@groups` in a match.
fn named(text: &str) -> Vec<(char, String)> {
    let parts = text.match_indices(['$', '@']).map(|(place, sigil)| {
        let name = text[place + 1..].chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
        (sigil.chars().next().unwrap(), name.collect())
    });
    parts.collect()
}
