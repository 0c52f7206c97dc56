//! Creation, deletion and invalid states of objects; each test reproduces an outage of a similar system.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use lab::ChassisSpec;
use serde_json::{Value, json};

use crate::cluster::{Cluster, ClusterSpec, LONG_LEASE, node, pod, until};
use crate::webhook::Webhook;

const POD_NETWORKS: &str = "k8s.ovn.org/pod-networks";

fn annotated(cluster: &Cluster, selector: &str) -> usize {
    let pods = cluster.get(&["pods", "-A", "-l", selector]);
    let pods = pods["items"].as_array().unwrap();
    pods.iter().filter(|pod| pod["metadata"]["annotations"][POD_NETWORKS].is_string()).count()
}

fn labelled(name: &str, node: &str, label: &str) -> Value {
    let mut pod = pod("default", name, node);
    pod["metadata"]["labels"] = json!({ label: "true" });
    pod
}

fn namespace(cluster: &Cluster, name: &str) {
    cluster.create(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})]);
    let account = ["get", "serviceaccount", "-n", name, "default"];
    until("the namespace's service account", || cluster.lab.kubectl(&account).ok());
}

/// Waits until switches and pod ports match the objects, and no address is quarantined.
fn wait_rows_match_objects(cluster: &Cluster) {
    let names = |list: &Value, of: &dyn Fn(&Value) -> Option<String>| -> BTreeSet<String> {
        list["items"].as_array().unwrap().iter().filter_map(of).collect()
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let nodes = names(&cluster.get(&["nodes"]), &|node| Some(text(&node["metadata"]["name"])));
    let pods = names(&cluster.get(&["pods", "-A"]), &|pod| {
        let (space, name) = (text(&pod["metadata"]["namespace"]), text(&pod["metadata"]["name"]));
        nodes.contains(&text(&pod["spec"]["nodeName"])).then(|| format!("{space}_{name}"))
    });
    let mut switches: BTreeSet<String> = nodes.iter().flat_map(|name| [name.clone(), format!("ext_{name}")]).collect();
    switches.insert("join".into());
    until(&format!("rows match nodes {nodes:?} and pods {pods:?}, and nothing is quarantined"), || {
        let ports: BTreeSet<String> = cluster.column("Logical_Switch_Port", "name").into_iter().collect();
        let ports: BTreeSet<String> = ports.into_iter().filter(|name| name.contains('_') && is_of_pod(name)).collect();
        let held: BTreeSet<String> = cluster.column("Logical_Switch", "name").into_iter().collect();
        (ports == pods && held == switches && cluster.quarantined().is_empty()).then_some(())
    });
}

fn is_of_pod(port: &str) -> bool {
    port.starts_with("default_") || port.starts_with("team_")
}

/// Join addresses are unique, and the rows equal those that another controller writes into an empty database.
fn assert_no_leftover_rows(cluster: &Cluster, running: &str, fresh: &str) {
    wait_rows_match_objects(cluster);
    let networks = cluster.column("Logical_Router_Port", "networks");
    let join: Vec<&String> = networks.iter().filter(|network| network.starts_with("100.64.")).collect();
    assert_eq!(join.iter().collect::<BTreeSet<_>>().len(), join.len(), "{networks:?}");
    let rows = cluster.rows();
    cluster.stop(running);
    cluster.empty_northbound();
    cluster.lead(fresh);
    wait_rows_match_objects(cluster);
    let rebuilt = cluster.rows();
    let more: Vec<_> = rows.difference(&rebuilt).collect();
    let less: Vec<_> = rebuilt.difference(&rows).collect();
    assert!(more.is_empty() && less.is_empty(), "left over: {more:#?}\nmissing: {less:#?}");
}

/// Deletes and recreates objects in different orders. A node has room for four pods.
fn delete_and_recreate(cluster: &Cluster, round: u32) {
    // A node before its pods.
    cluster.delete("node", &["n1"]);
    cluster.delete("pod", &["a1", "b1"]);
    // Pods before their node.
    cluster.delete("pod", &["a2", "b2"]);
    cluster.delete("node", &["n2"]);
    // A node recreated with its annotations: its pods stay.
    let mut before = cluster.get(&["node", "n3"]);
    cluster.delete("node", &["n3"]);
    let mut again = node("n3");
    again["metadata"]["annotations"] = before["metadata"]["annotations"].take();
    cluster.create(&[again]);
    // A node recreated without them, and its pods after it.
    cluster.delete("node", &["n4"]);
    cluster.light_node("n4", 4, &[]);
    cluster.delete("pod", &["a4", "b4"]);
    // The namespace with everything in it.
    cluster.delete("namespace", &["team"]);
    cluster.light_node("n1", 1, &[]);
    cluster.light_node("n2", 2, &[]);
    // All addresses of a node can be allocated again.
    cluster.delete("pod", &["a3"]);
    let full: Vec<Value> = (1..=3).map(|number| labelled(&format!("full{round}-{number}"), "n3", "full")).collect();
    cluster.create(&full);
}

fn create_pods(cluster: &Cluster, nodes: &[u32]) {
    namespace(cluster, "team");
    let named =
        |space: &str, letter: &str, number: &u32| pod(space, &format!("{letter}{number}"), &format!("n{number}"));
    let mut pods: Vec<Value> =
        nodes.iter().flat_map(|number| [named("default", "a", number), named("default", "b", number)]).collect();
    pods.extend(nodes.iter().map(|number| named("team", "t", number)));
    cluster.create(&pods);
}

/// Lesson 9 (ovnk#4384, #575): deleting a node leaked ports and addresses, and two nodes got the same join address.
/// Shown to fail without the resync of orphaned rows in `Engine::promote`.
#[test]
fn ownership_does_not_depend_on_the_order_of_events() {
    let cluster = ClusterSpec::new("ownership")
        .arguments(&["--cluster-subnets", "10.128.0.0/24/29", "--disable-snat-multiple-gws", "true"])
        .arguments(&["--enable-multicast", "true"])
        .start();
    let _chassis = cluster.lab.light_chassis(&ChassisSpec::numbered("n", 4)).unwrap();
    cluster.lead("c1");
    for number in 1..=4 {
        cluster.light_node(&format!("n{number}"), number, &[]);
    }
    create_pods(&cluster, &[1, 2, 3, 4]);
    until("all pods have networks", || (annotated(&cluster, "") == 12).then_some(()));

    delete_and_recreate(&cluster, 1);
    until("a node's addresses are reused", || (annotated(&cluster, "full") == 3).then_some(()));
    assert_no_leftover_rows(&cluster, "c1", "c2");

    cluster.delete("pod", &["-l", "full"]);
    create_pods(&cluster, &[1, 2, 4]);
    cluster.create(&[pod("default", "a3", "n3")]);
    until("all pods have networks", || (annotated(&cluster, "") == 11).then_some(()));
    cluster.stop("c2");
    delete_and_recreate(&cluster, 2);
    cluster.lead("c3");
    until("a node's addresses are reused", || (annotated(&cluster, "full") == 3).then_some(()));
    assert_no_leftover_rows(&cluster, "c3", "c4");
    let given = || cluster.metric("ovnkube_clustermanager_allocated_v4_host_subnets");
    until("four nodes have four subnets", || (given() == 4.0).then_some(()));
}

/// Lesson 10 (ovnk#3546, #1074): completed pods left stale SNAT entries, or their deletion removed a successor's.
/// Shown to fail with a quarantine that ends at once, whatever the nodes have acknowledged.
#[test]
fn a_completed_pod_releases_its_addresses_once() {
    let cluster = ClusterSpec::new("completed")
        .arguments(&["--cluster-subnets", "10.128.0.0/24/29", "--disable-snat-multiple-gws", "true"])
        .start();
    let chassis = cluster.lab.light_chassis(&ChassisSpec::numbered("n", 1)).unwrap();
    cluster.lead("c1");
    cluster.light_node("n1", 1, &[]);
    cluster.create(&[pod("default", "job", "n1"), pod("default", "web", "n1")]);
    let address = |name: &str| cluster.network_of("default", name).address();
    let (job, web) = (address("job"), address("web"));
    let has = |wanted: &IpAddr| {
        let wanted = wanted.to_string();
        let nat = cluster.column("NAT", "logical_ip").contains(&wanted);
        let set = cluster.column("Address_Set", "addresses").iter().any(|set| set.split(' ').any(|one| one == wanted));
        let ports = cluster.column("Logical_Switch_Port", "addresses");
        (ports.iter().any(|words| words.split(' ').any(|word| word == wanted)), nat, set)
    };
    assert_eq!(has(&job), (true, true, true));
    cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    until("no address is quarantined", || cluster.quarantined().is_empty().then_some(()));

    chassis.pause("n1").unwrap();
    let complete = ["patch", "pod", "job", "--subresource=status", "-p", r#"{"status":{"phase":"Succeeded"}}"#];
    cluster.lab.kubectl(&complete).unwrap();
    until("the completed pod has no rows", || (has(&job) == (false, false, false)).then_some(()));
    assert!(cluster.lab.kubectl(&["get", "pod", "job"]).is_ok(), "the object still exists");
    assert_eq!(cluster.quarantined(), [job.to_string()]);
    // Its node may still have flows for it: other pods get other addresses, and the last one gets none.
    cluster.create(&[pod("default", "n-1", "n1"), pod("default", "n-2", "n1")]);
    let others = BTreeSet::from([web, address("n-1"), address("n-2")]);
    assert!(others.len() == 3 && !others.contains(&job), "{others:?} with {job}");
    cluster.create(&[pod("default", "late", "n1")]);
    cluster.event("late", "PodAddressesExhausted", &["10.128.0.0/29", "n1", "delete pods there"]);
    assert_eq!(cluster.annotation("pod", "late", POD_NETWORKS), None);

    chassis.resume("n1").unwrap();
    assert_eq!(address("late"), job);
    until("no address is quarantined", || cluster.quarantined().is_empty().then_some(()));
    // Deleting the completed pod does not affect the new owner of its address.
    cluster.delete("pod", &["job"]);
    cluster.create(&[pod("default", "later", "n1")]);
    cluster.event("later", "PodAddressesExhausted", &["no address is left"]);
    assert_eq!(has(&job), (true, true, true));
    assert_eq!(cluster.quarantined(), Vec::<String>::new());
    cluster.delete("pod", &["web"]);
    assert_eq!(address("later"), web);
}

/// Lesson 16 (ovnk#3431): a slow webhook, called under a mutex, blocked all policies.
/// Shown to fail with slow patches that occupy the slots for concurrent patches.
#[test]
fn a_slow_webhook_delays_no_other_pod() {
    let cluster = ClusterSpec::new("slow-webhook").start();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(cluster.lab.name());
    let webhook = Webhook::start(&cluster, &folder);
    cluster.lead("c1");
    cluster.create(&[node("n1")]);
    let many = |prefix: &str, label: &str, node: &str| -> Vec<Value> {
        (1..=40).map(|number| labelled(&format!("{prefix}-{number}"), node, label)).collect()
    };
    // The quick pods wait for a node that does not exist yet: a hanging call times out after 15 s, so little must happen
    // until then.
    cluster.create(&many("quick", "quick", "n2"));
    cluster.create(&many("slow", "slow", "n1"));
    until("calls hang at the webhook", || (webhook.waiting() >= 32).then_some(()));
    cluster.create(&[node("n2")]);
    until("the quick pods have networks", || (annotated(&cluster, "quick") == 40).then_some(()));
    assert_eq!(webhook.answered(), 0, "the webhook answered before the quick pods were done");
    let log = cluster.lab.log("c1").unwrap();
    assert!(
        !log.contains(controller::messages::API_WRITE_FAILED),
        "a slow patch timed out before the quick pods were done"
    );
    assert_eq!(annotated(&cluster, "slow"), 0);
    webhook.open();
    until("the slow pods have networks", || (annotated(&cluster, "slow") == 40).then_some(()));
    std::fs::remove_dir_all(folder).unwrap();
}

/// Lesson 20 (kube-ovn#4849): a restart took an hour with 2,000 nodes.
/// Shown to fail with ten objects per transaction, and with annotations that are rewritten unchanged.
#[test]
fn start_up_is_one_pass() {
    let cluster = ClusterSpec::new("start-up").start();
    let _chassis = cluster.lab.light_chassis(&ChassisSpec::numbered("n", 20)).unwrap();
    let nodes = (1..=20).map(|number| {
        let mut node = node(&format!("n{number}"));
        node["metadata"]["annotations"] = json!({"k8s.ovn.org/node-chassis-id": format!("n{number}")});
        node
    });
    cluster.create(&nodes.collect::<Vec<_>>());
    let pods = (0..300).map(|number| pod("default", &format!("p{number}"), &format!("n{}", number % 20 + 1)));
    cluster.create(&pods.collect::<Vec<_>>());
    cluster.lead("c1");
    until("all pods have networks", || (annotated(&cluster, "") == 300).then_some(()));
    let (_, transactions) = cluster.sequence();
    assert!(transactions <= 10, "the backlog took {transactions} transactions");
    cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    cluster.stop("c1");

    // From here on only the controller calls the API.
    let paused = ["kube-controller-manager", "kube-scheduler"].map(|name| cluster.lab.pause(name).unwrap());
    let rows = cluster.rows();
    let resources = ["pods", "nodes", "namespaces", "events"];
    let before = cluster.api_calls(&resources);
    cluster.controller("c2");
    until("resync complete", || cluster.lab.log("c2").unwrap().contains("resync complete").then_some(()));
    cluster.stop("c2");
    let mut after = cluster.api_calls(&resources);
    after.retain(|call, count| {
        *count -= before.get(call).unwrap_or(&0);
        *count > 0 && !call.starts_with("WATCH ")
    });
    let lists = ["LIST namespaces ", "LIST nodes ", "LIST pods "].map(|list| (list.to_owned(), 1));
    assert_eq!(after, lists.into(), "more than one list per kind");
    let (writer, number) = cluster.sequence();
    assert!(writer.starts_with("c2/") && number == 1, "it wrote more than its sequence value: {writer} {number}");
    assert_eq!(cluster.rows(), rows);
    for paused in paused {
        paused.resume().unwrap();
    }
}

/// Lesson 21 (okd#1760): one unusual Service put the controller into a crash loop during an upgrade.
/// Shown to fail with a refused object that ends the process.
#[test]
fn invalid_objects_are_parked_and_others_are_served() {
    let cluster = ClusterSpec::new("invalid").arguments(&LONG_LEASE).start();
    let annotated_node = |name: &str, key: &str, value: &str| {
        let mut node = node(name);
        node["metadata"]["annotations"] = json!({ key: value });
        node
    };
    let annotated_pod = |name: &str, key: &str, value: &str| {
        let mut pod = pod("default", name, "good");
        pod["metadata"]["annotations"] = json!({ key: value });
        pod
    };
    const GATEWAY: &str = "k8s.ovn.org/l3-gateway-config";
    cluster.create(&[
        node("good"),
        node("join"),
        annotated_node("invalid-subnets", "k8s.ovn.org/node-subnets", "{"),
        annotated_node("invalid-id", "k8s.ovn.org/node-id", "seven"),
        annotated_node("invalid-gateway", GATEWAY, r#"{"default":{"mode":"sideways"}}"#),
        annotated_pod("invalid-request", "v1.multus-cni.io/default-network", r#"[{"ips":["10.0.0"]}]"#),
        pod("default", "on-invalid-node", "invalid-id"),
        pod("default", "good", "good"),
    ]);
    cluster.lead("c1");
    cluster.network_of("default", "good");
    let remedy = "correct the annotation, or remove it";
    for (name, reason, words) in [
        ("join", "NodeNameRefused", ["named join", "under another name"]),
        ("invalid-subnets", "NodeAnnotationRefused", ["k8s.ovn.org/node-subnets", remedy]),
        ("invalid-id", "NodeAnnotationRefused", ["k8s.ovn.org/node-id", remedy]),
        ("invalid-gateway", "NodeAnnotationRefused", [GATEWAY, remedy]),
        ("invalid-request", "StaticAddressRefused", ["v1.multus-cni.io/default-network", "recreate the pod"]),
        ("on-invalid-node", "NodeWithoutNetwork", ["node invalid-id", "see its Events"]),
    ] {
        cluster.event(name, reason, &words);
    }
    let parked = |kind: &str| cluster.metric(&format!("ovnkube_controller_parked_objects{{kind=\"{kind}\"}}"));
    until("parked objects are counted", || ((parked("Node"), parked("Pod")) == (4.0, 2.0)).then_some(()));
    // Other objects are served, also new ones.
    cluster.create(&[node("better"), pod("default", "better", "better")]);
    cluster.network_of("default", "better");
    assert_eq!(cluster.lab.log("c1").unwrap().matches("\"started leading\"").count(), 1);
}
