//! Databases that another controller wrote, that another client changed, or that were emptied.

mod go_rows;
mod switching;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lab::SetOnDrop;
use serde_json::{Map, Value, json};

use crate::cluster::{Cluster, ClusterSpec, TIMEOUT, pod, until};
use crate::rows::{tables, text};

const VARIABLES: &str = "Chassis_Template_Var";
const GO: &str = "default-network-controller";

/// The `external_ids` that the Go controller writes, on some kinds of rows.
fn go_external_ids(table: &str, row: &Map<String, Value>) -> Value {
    let name = row.get("name").map(text).unwrap_or_default();
    let ours = text(&row["external_ids"]);
    let ours: BTreeMap<&str, &str> = ours.split(' ').filter_map(|pair| pair.split_once('=')).collect();
    let owner = ours.get("k8s.ovn.org/name").copied().unwrap_or_default();
    let marks: Vec<(&str, &str)> = match table {
        "Logical_Switch_Port" if ours.contains_key("pod") => vec![("namespace", ours["namespace"]), ("pod", "true")],
        "Address_Set" => vec![
            ("k8s.ovn.org/owner-controller", GO),
            ("k8s.ovn.org/owner-type", "Namespace"),
            ("k8s.ovn.org/name", owner),
            ("ip-family", "v4"),
        ],
        "ACL" => vec![("k8s.ovn.org/owner-controller", GO), ("k8s.ovn.org/owner-type", "NetpolNode")],
        "Logical_Router" if name == "ovn_cluster_router" => vec![("k8s-cluster-router", "yes")],
        "Logical_Router" => vec![("physical_ip", ours["physical_ip"]), ("physical_ips", ours["physical_ips"])],
        "Port_Group" => vec![("name", &name)],
        _ => Vec::new(),
    };
    json!(["map", marks])
}

/// UUID references as named UUIDs of the same transaction.
fn with_named_uuids(value: &Value) -> Value {
    match value {
        Value::Array(pair) if pair.first().is_some_and(|kind| kind == "uuid") => {
            json!(["named-uuid", row_name(pair[1].as_str().unwrap())])
        }
        Value::Array(items) => items.iter().map(with_named_uuids).collect(),
        other => other.clone(),
    }
}

fn row_name(uuid: &str) -> String {
    format!("row{}", uuid.replace('-', "_"))
}

impl Cluster {
    /// Operations that delete all rows but NB_Global, and clear its `external_ids`.
    fn delete_all_operations(&self) -> Vec<Value> {
        let mut operations: Vec<Value> =
            tables().map(|table| json!({"op": "delete", "table": table, "where": []})).collect();
        let ids = text(&self.raw("NB_Global")[0]["external_ids"]);
        let keys: Vec<&str> = ids.split(' ').filter_map(|pair| Some(pair.split_once('=')?.0)).collect();
        operations.push(json!({"op": "mutate", "table": "NB_Global", "where": [],
            "mutations": [["external_ids", "delete", ["set", keys]]]}));
        operations
    }

    /// Rewrites every row as the Go controller has it, with random UUIDs, and adds rows that only the Go controller has.
    fn convert_to_go(&self) {
        let mut operations = self.delete_all_operations();
        // Only their external_ids: ovn-controller fails an assertion if its row is replaced in one transaction.
        operations.retain(|operation| operation["table"] != VARIABLES);
        let unmarked = json!({"external_ids": ["map", []]});
        operations.push(json!({"op": "update", "table": VARIABLES, "where": [], "row": unmarked}));
        for table in tables().filter(|table| *table != VARIABLES) {
            for row in self.raw(table) {
                let uuid = row_name(&text(&row["_uuid"]));
                let mut columns = row.clone();
                columns.retain(|column, _| !["_uuid", "_version", "up", "status"].contains(&column.as_str()));
                if columns.contains_key("external_ids") {
                    columns.insert("external_ids".into(), go_external_ids(table, &row));
                }
                if table == "Address_Set" {
                    columns.insert("name".into(), json!(format!("{}7", text(&row["name"]))));
                }
                columns = columns.into_iter().map(|(column, value)| (column, with_named_uuids(&value))).collect();
                operations.push(json!({"op": "insert", "table": table, "uuid-name": uuid, "row": columns}));
            }
        }
        let egress =
            json!(["map", [["k8s.ovn.org/owner-controller", GO], ["k8s.ovn.org/owner-type", "EgressFirewall"]]]);
        operations.extend([
            json!({"op": "insert", "table": "ACL", "uuid-name": "egress", "row": {"action": "drop", "priority": 9999,
                "direction": "to-lport", "match": "ip4.dst == 192.0.2.0/24", "external_ids": egress}}),
            json!({"op": "insert", "table": "Port_Group", "row": {"name": "a4743249366342378346",
                "acls": ["named-uuid", "egress"], "external_ids": egress}}),
        ]);
        self.transact(&operations);
    }

    /// Rows of another client with similar names, and optionally a port in one of the controller's switches.
    fn add_foreign(&self, switch: Option<&str>) {
        for words in [
            "ls-add n1-tenant -- lsp-add n1-tenant default_p1-tenant -- lsp-set-addresses default_p1-tenant unknown",
            "lr-add ovn_cluster_router_tenant -- lrp-add ovn_cluster_router_tenant rtos-tenant 0a:00:00:00:00:01 192.0.2.1/24",
            "lr-route-add ovn_cluster_router_tenant 198.51.100.0/24 192.0.2.9",
            "create Address_Set name=a1234567890 addresses=10.128.0.3 external_ids:k8s.ovn.org/owner-controller=tenant",
            "lb-add Service_default/tenant_TCP_cluster 192.0.2.80:80 10.128.0.3:80",
            "create Load_Balancer_Group name=clusterLBGroupTenant",
        ] {
            self.lab.nbctl(&words.split(' ').collect::<Vec<_>>()).unwrap();
        }
        if let Some(switch) = switch {
            self.lab
                .nbctl(&["lsp-add", switch, "default_guest", "--", "lsp-set-addresses", "default_guest", "unknown"])
                .unwrap();
        }
    }

    fn foreign(&self) -> BTreeMap<(String, String), String> {
        let foreign = |contents: &String| ["enant", "guest", "198.51.100"].iter().any(|word| contents.contains(word));
        self.all_rows().into_iter().filter(|(_, contents)| foreign(contents)).collect()
    }

    fn wait_resynced(&self, name: &str) {
        until(&format!("{name} has resynced"), || {
            self.lab.log(name).unwrap().contains("resync complete").then_some(())
        });
    }

    /// The addresses of pod ports, by port name.
    fn pods(&self) -> BTreeMap<String, String> {
        let rows = self.raw("Logical_Switch_Port").into_iter();
        let pods = rows.filter(|row| text(&row["external_ids"]).contains("pod=true"));
        pods.map(|row| (text(&row["name"]), text(&row["addresses"]))).collect()
    }

    fn wait_restored(&self, before: &BTreeMap<(String, String), String>) {
        let mut last = BTreeMap::new();
        let found = || {
            last = self.all_rows();
            (last == *before).then_some(())
        };
        let back = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| until("all rows are restored", found)));
        let differs = || {
            let missing = before.iter().filter(|(key, contents)| last.get(*key) != Some(contents));
            missing.map(|(key, contents)| format!("{key:?}: {contents}\n  now {:?}", last.get(key))).collect::<Vec<_>>()
        };
        assert!(back.is_ok(), "{}", differs().join("\n"));
    }
}

/// A database of the Go controller is refused with the remedy; with `--adopt` its rows are taken over in place, and packets
/// pass throughout.
#[test]
fn go_controller_rows_are_adopted_in_place() {
    let cluster = ClusterSpec::new("adopt").nodes(2).start();
    cluster.controller("c1");
    cluster.wait_leader("c1");
    for node in 1..=2 {
        cluster.add_node(node);
        for name in [format!("web-{node}"), format!("job-{node}")] {
            cluster.apply(&pod("default", &name, &format!("n{node}")));
            cluster.network_of("default", &name);
        }
    }
    assert!(cluster.lab.terminate("c1", TIMEOUT).unwrap().success());
    cluster.convert_to_go();
    cluster.add_foreign(None);
    let (one, _two) = (cluster.bind(1, "default", "web-1"), cluster.bind(2, "default", "web-2"));
    cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    let target = cluster.network_of("default", "web-2").address().to_string();
    one.run(&["ping", "-c", "3", "-i", "0.2", "-w", "30", &target]).unwrap();

    let (before, settings) = (cluster.all_rows(), text(&cluster.raw("NB_Global")[0]["external_ids"]));
    cluster.controller("c2");
    assert_eq!(cluster.lab.wait_end("c2", TIMEOUT).unwrap().code(), Some(1));
    let log = cluster.lab.log("c2").unwrap();
    assert!(log.contains("--adopt") && log.contains("ovn_cluster_router"), "{log}");
    assert_eq!((&before, &settings), (&cluster.all_rows(), &text(&cluster.raw("NB_Global")[0]["external_ids"])));

    let names =
        ["Logical_Switch", "Logical_Router", "Logical_Switch_Port", "Logical_Router_Port", "Load_Balancer_Group"];
    let identities = || names.map(|table| cluster.identities(table));
    let (rows, keys, foreign, pods) = (identities(), cluster.tunnel_keys(), cluster.foreign(), cluster.pods());
    let (adopted, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let stream = scope.spawn(|| {
            let mut in_a_row = 0;
            while !adopted.load(Ordering::Acquire) {
                let answer = one.run(&["ping", "-c", "1", "-W", "1", &target]);
                in_a_row = if answer.is_ok() { 0 } else { in_a_row + 1 };
                answered.fetch_add(usize::from(answer.is_ok()), Ordering::AcqRel);
                // The lab's datapath may stall briefly; a lost path stays lost.
                assert!(in_a_row < 3, "no packet passes: {answer:?}");
            }
        });
        let end = SetOnDrop(&adopted);
        cluster.controller_with("c3", &["--adopt"]);
        cluster.wait_resynced("c3");
        cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
        until("packets pass", || (answered.load(Ordering::Acquire) > 5 || stream.is_finished()).then_some(()));
        drop(end);
        stream.join().unwrap();
    });
    assert_eq!(rows, identities());
    assert_eq!(keys, cluster.tunnel_keys());
    assert_eq!(foreign, cluster.foreign());
    assert_eq!(pods, cluster.pods());
    let whole = cluster.all_rows();
    let left: Vec<_> = whole.values().filter(|contents| contents.contains(GO)).collect();
    assert!(left.is_empty(), "{left:?}");

    assert!(cluster.lab.terminate("c3", TIMEOUT).unwrap().success());
    cluster.controller("c4");
    cluster.wait_resynced("c4");
    assert_eq!(cluster.sequence().1, 1, "it wrote more than its sequence value");
    assert_eq!(whole, cluster.all_rows());
    // Adopted rows are managed: a deleted pod's row is removed.
    cluster.lab.kubectl(&["delete", "pod", "job-1", "--force", "--grace-period=0"]).unwrap();
    until("the row of a deleted pod is removed", || (!cluster.pods().contains_key("default_job-1")).then_some(()));
}

/// Two nodes and four pods, as objects and rows only.
fn cluster_with_pods(purpose: &'static str) -> Cluster {
    let cluster = ClusterSpec::new(purpose).start();
    cluster.controller("c1");
    cluster.wait_leader("c1");
    for node in 1..=2 {
        cluster.add_node(node);
        for name in [format!("a-{node}"), format!("b-{node}")] {
            cluster.apply(&pod("default", &name, &format!("n{node}")));
        }
    }
    for name in ["a-1", "a-2", "b-1", "b-2"] {
        cluster.network_of("default", name);
    }
    cluster.wait_resynced("c1");
    cluster
}

/// The rows are restored with the same addresses.
#[test]
fn an_emptied_database_is_refilled() {
    let cluster = cluster_with_pods("emptied");
    let before = cluster.all_rows();
    cluster.transact(&cluster.delete_all_operations());
    cluster.wait_restored(&before);
    // Once more, with the NB_Global row.
    let mut operations = cluster.delete_all_operations();
    operations.push(json!({"op": "delete", "table": "NB_Global", "where": []}));
    cluster.transact(&operations);
    cluster.wait_restored(&before);

    // The database file is replaced by an empty one.
    cluster.lab.kill("nb").unwrap();
    let control = cluster.lab.machine("control").unwrap();
    let file = "/var/lib/ovn/ovnnb.db";
    control
        .run(&["sh", "-c", &format!("rm {file} && ovsdb-tool create {file} /usr/share/ovn/ovn-nb.ovsschema")])
        .unwrap();
    cluster.lab.restart("nb").unwrap();
    cluster.wait_restored(&before);
}

/// Rows of other clients are never touched; changed rows of the controller are restored.
#[test]
fn drift_is_repaired_and_foreign_rows_are_left_alone() {
    let cluster = cluster_with_pods("by-hand");
    cluster.add_foreign(Some("n1"));
    let foreign = cluster.foreign();
    assert_eq!(foreign.len(), 9, "{foreign:?}");
    change_rows_externally(&cluster, true);
    // Also while no controller runs.
    cluster.apply(&pod("default", "c-1", "n1"));
    cluster.network_of("default", "c-1");
    cluster.lab.kubectl(&["delete", "pod", "b-1", "--force", "--grace-period=0"]).unwrap();
    until("the pod's port is gone", || (!cluster.pods().contains_key("default_b-1")).then_some(()));
    change_rows_externally(&cluster, false);
    assert_eq!(foreign, cluster.foreign());
}

/// Many kinds of external changes: one by one under a running controller, or all while none runs.
fn change_rows_externally(cluster: &Cluster, running: bool) {
    let sets = cluster.raw("Address_Set");
    let set = sets.iter().find(|set| text(&set["external_ids"]).contains("k8s.ovn.org/name=default")).unwrap();
    let set = text(&set["name"]);
    let address = cluster.network_of("default", "a-1").address().to_string();
    let changes = [
        "clear Logical_Switch_Port default_a-2 port_security".to_owned(),
        "lsp-set-addresses default_a-1 unknown".to_owned(),
        "lsp-del default_b-2".to_owned(),
        "lr-route-del ovn_cluster_router".to_owned(),
        "lr-policy-del ovn_cluster_router".to_owned(),
        "lr-nat-del GR_n1".to_owned(),
        "clear Logical_Switch n1 acls other_config load_balancer_group".to_owned(),
        format!("remove Address_Set {set} addresses {address}"),
        format!("destroy Address_Set {set}"),
        "clear Port_Group clusterPortGroup ports acls".to_owned(),
        "lrp-del rtos-n1".to_owned(),
        "ls-del join".to_owned(),
        "lr-del GR_n2".to_owned(),
        "lr-del ovn_cluster_router".to_owned(),
        "--all destroy Copp -- destroy Meter arp-rate-limiter".to_owned(),
        "--all destroy Static_MAC_Binding".to_owned(),
        "clear Logical_Switch n2 external_ids".to_owned(),
    ];
    let before = cluster.all_rows();
    if !running {
        assert!(cluster.lab.terminate("c1", TIMEOUT).unwrap().success());
    }
    for words in &changes {
        eprintln!("{words}");
        cluster.lab.nbctl(&words.split(' ').collect::<Vec<_>>()).unwrap();
        if running {
            cluster.wait_restored(&before);
        }
    }
    if !running {
        cluster.lab.restart("c1").unwrap();
        cluster.wait_restored(&before);
    }
}
