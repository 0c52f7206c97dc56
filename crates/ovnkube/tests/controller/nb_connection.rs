//! A controller that loses its database connection, or replies of the database.

use std::collections::BTreeSet;

use crate::cluster::{Cluster, ClusterSpec, LONG_LEASE, Network, TIMEOUT, pod, until};
use crate::nb_proxy::NbProxy;
use crate::nb_states::{Observer, addresses, dangling, mark, now, pod_ports, rows, sequence, texts};

fn create_pods(cluster: &Cluster, prefix: &str, count: u32) -> Vec<String> {
    let names: Vec<String> = (1..=count).map(|number| format!("{prefix}-{number}")).collect();
    cluster.apply_all(&names.iter().map(|name| pod("default", name, "n1")).collect::<Vec<_>>());
    names
}

/// Lesson 3 (kube-ovn#7497): the database's node died, and the controller kept its Lease idle for 54 minutes.
///
/// Shown to fail with a controller that stops working and keeps the Lease: pods get no annotation.
#[test]
fn a_leader_that_cannot_commit_releases_its_lease() {
    let cluster = ClusterSpec::new("alive").start();
    let proxy = NbProxy::start(&cluster);
    let observer = Observer::start(&cluster);
    cluster.controller_at("c1", &proxy.address);
    cluster.wait_leader("c1");
    cluster.add_node(1);
    cluster.networks_of("default", &create_pods(&cluster, "before", 2));
    cluster.controller("c2");
    assert!(cluster.sequence().0.starts_with("c1/"));
    // It still reaches the API, and so could renew its Lease for ever.
    proxy.hold();
    let meanwhile = create_pods(&cluster, "meanwhile", 3);
    cluster.networks_of("default", &meanwhile);
    let (second, _) = cluster.sequence();
    assert!(second.starts_with("c2/"), "{second}");
    // The second one may lead before: it notices by itself that the first has lost its session.
    let says = |words: &str| cluster.lab.log("c1").unwrap().contains(words);
    until("the first controller releases its Lease", || says("releasing leader Lease").then_some(()));
    // The held messages of the first controller are delivered now, too late.
    proxy.open();
    cluster.networks_of("default", &create_pods(&cluster, "after", 3));
    until("the first controller reconnects", || says("\"database reconnected\"").then_some(()));
    until("its Lease is released", || says("leader Lease released").then_some(()));
    assert!(!says(&kubernetes::LossReason::Stopped.to_string()));
    cluster.networks_of("default", &create_pods(&cluster, "later", 2));
    let states = observer.take();
    let mut writers: Vec<String> = states.iter().filter_map(|changes| Some(sequence(&changes.snapshot)?.0)).collect();
    writers.dedup();
    assert_eq!(writers.len(), 2, "leadership alternated: {writers:?}");
    assert_eq!(writers[1], second);
    assert!(states.iter().all(|changes| dangling(&changes.snapshot).is_empty()));
    // The first is a ready standby: it takes over when the second ends.
    assert!(cluster.lab.terminate("c2", TIMEOUT).unwrap().success());
    cluster.networks_of("default", &create_pods(&cluster, "last", 2));
    let (third, _) = cluster.sequence();
    assert!(third.starts_with("c1/") && third != writers[0], "{third}");
    assert_eq!(pod_ports(&now(&cluster)).count(), 12);
}

/// Lesson 5 (eBay/go-ovn#147): rows deleted during a disconnect stayed in the cache for ever.
///
/// Shown to fail without drift repair, with a dump that deletes nothing from the replica, and with a ledger that is
/// trusted where another client changed a row.
#[test]
fn deletions_during_a_disconnect_are_not_missed() {
    let cluster = ClusterSpec::new("reconnect").start();
    let proxy = NbProxy::start(&cluster);
    cluster.controller_at("c1", &proxy.address);
    cluster.wait_leader("c1");
    cluster.add_node(1);
    let names = create_pods(&cluster, "p", 6);
    let networks = cluster.networks_of("default", &names);
    let address = |place: usize| networks[place].address().to_string();
    until("resync complete", || cluster.lab.log("c1").unwrap().contains("resync complete").then_some(()));
    let right = contents(&cluster);
    proxy.shut();
    // The server has no history: after a reconnect it sends a full dump, without the deleted rows.
    cluster.lab.kill("nb").unwrap();
    cluster.lab.restart("nb").unwrap();
    let set = rows(&now(&cluster), "Address_Set")
        .find(|set| mark(*set, "k8s.ovn.org/name").as_deref() == Some("default"))
        .unwrap()
        .uuid
        .to_string();
    cluster
        .lab
        .nbctl(
            &[
                ["lsp-del", "default_p-1", "--"].as_slice(),
                &["set", "Logical_Switch_Port", "default_p-2", "addresses=unknown", "--"],
                &["remove", "Address_Set", &set, "addresses", &address(2), "--"],
                &["lr-route-del", "GR_n1", "--", "clear", "Logical_Router_Port", "rtos-n1", "options"],
            ]
            .concat(),
        )
        .unwrap();
    cluster.lab.kubectl(&["delete", "--wait=false", "pod", "p-5", "p-6"]).unwrap();
    assert_ne!(contents(&cluster), right);
    let observer = Observer::start(&cluster);
    let harmed = observer.take().pop().unwrap().snapshot;
    proxy.open();
    let gone = [address(4), address(5)];
    let right: BTreeSet<String> = right
        .into_iter()
        .filter(|row| !row.contains("default_p-5") && !row.contains("default_p-6"))
        .map(|row| gone.iter().fold(row, |row, address| row.replace(&format!("{address} "), "")))
        .collect();
    until("all rows are restored, except those of deleted pods", || {
        let found = contents(&cluster);
        (found == right).then_some(()).or_else(|| {
            println!("differs: {:?}", found.symmetric_difference(&right).collect::<Vec<_>>());
            None
        })
    });
    // Nothing else was written.
    let touched: BTreeSet<String> = observer
        .take()
        .iter()
        .flat_map(|changes| {
            changes.changes.iter().map(|change| {
                let table = changes.snapshot.table_at(change.table).unwrap();
                let row = table.get(change.uuid).or_else(|| harmed.table(&table.schema().name)?.get(change.uuid));
                let name = row.and_then(|row| row.text("name").or_else(|| row.text("ip_prefix")));
                format!("{} {}", table.schema().name, name.unwrap_or_default())
            })
        })
        .collect();
    println!("{touched:?}");
    for row in &touched {
        let allowed = ["Logical_Switch n1", "Logical_Router GR_n1", "Logical_Router_Port rtos-n1", "NB_Global "];
        let ports = ["p-1", "p-2", "p-5", "p-6"].map(|name| format!("Logical_Switch_Port default_{name}"));
        let set = row.starts_with("Address_Set") || row.starts_with("Logical_Router_Static_Route");
        assert!(set || allowed.contains(&row.as_str()) || ports.contains(row), "{row} was written: {touched:?}");
    }
}

/// The controller's rows as texts that do not depend on UUIDs of references.
fn contents(cluster: &Cluster) -> BTreeSet<String> {
    let snapshot = now(cluster);
    let mut contents = BTreeSet::new();
    for table in ["Logical_Switch_Port", "Logical_Router_Port", "Address_Set", "Logical_Router_Static_Route", "NAT"] {
        for row in rows(&snapshot, table).filter(|row| mark(*row, "k8s.ovn.org/owner-type").is_some()) {
            let name = row.text("name").or_else(|| row.text("ip_prefix")).unwrap_or_default();
            let options = row.get("options").map(std::borrow::Cow::into_owned);
            let words: String = texts(row, "addresses").iter().map(|word| format!("{word} ")).collect();
            contents.insert(format!("{table} {} {name} {words}{options:?}", row.uuid));
        }
    }
    for table in ["Logical_Switch", "Logical_Router"] {
        for row in rows(&snapshot, table) {
            for column in ["static_routes", "nat", "policies", "acls"] {
                contents.insert(format!("{:?} {column} {:?}", row.text("name"), row.get(column).map(|set| set.len())));
            }
        }
    }
    contents
}

/// Lesson 8 (ovn b5387b3d7): a commit whose reply was lost was retried, and its rows existed twice.
///
/// Shown to fail with retries without the sequence guard: the second commit is rejected and pods are parked.
#[test]
fn a_lost_commit_reply_creates_no_duplicate_rows() {
    let cluster =
        ClusterSpec::new("twice").arguments(&["--disable-snat-multiple-gws", "true"]).arguments(&LONG_LEASE).start();
    let proxy = NbProxy::start(&cluster);
    cluster.controller_at("c1", &proxy.address);
    cluster.wait_leader("c1");
    cluster.add_node(1);
    cluster.networks_of("default", &create_pods(&cluster, "first", 1));
    let (writer, _) = cluster.sequence();
    proxy.lose_commits();
    let mut names = vec!["first-1".to_owned()];
    for batch in 1..=6 {
        names.extend(create_pods(&cluster, &format!("b{batch}"), 10));
        cluster.networks_of("default", &names);
    }
    let (replies, requests) = proxy.lost();
    println!("lost: {replies} replies, {requests} requests");
    assert!(replies >= 2 && requests >= 2, "too few messages were lost: {replies}, {requests}");
    let given: BTreeSet<String> = cluster
        .networks_of("default", &names)
        .iter()
        .map(Network::address)
        .map(|address| address.to_string())
        .collect();
    assert_eq!(given.len(), 61, "addresses were allocated twice");
    // Read now: a client that watched all the time may not have the last commit yet.
    let snapshot = now(&cluster);
    let ports: Vec<String> = pod_ports(&snapshot).filter_map(|port| port.text("name")).collect();
    assert_eq!((ports.len(), ports.iter().collect::<BTreeSet<_>>().len()), (61, 61));
    let [in_sets, on_ports] = addresses(&snapshot);
    assert_eq!((&in_sets["default"], &on_ports["default"]), (&given, &given));
    // NAT rows have no unique index in the schema.
    let translated: Vec<String> = rows(&snapshot, "NAT")
        .filter(|nat| mark(*nat, "k8s.ovn.org/owner-type").as_deref() == Some("Pod"))
        .filter_map(|nat| nat.text("logical_ip"))
        .collect();
    assert_eq!((translated.len(), translated.into_iter().collect::<BTreeSet<_>>()), (61, given));
    let log = cluster.lab.log("c1").unwrap();
    assert!(!log.contains(controller::messages::TRANSACTION_REFUSED), "something was parked");
    assert_eq!(cluster.sequence().0, writer, "it lost the Lease");
}
