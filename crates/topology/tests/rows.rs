//! All rows of the smallest cluster: one node with a shared gateway, one namespace, one pod with bandwidth limits and a host
//! port, one Service with a node port, IPv4. To be read as
//! documentation beside OVN-Kubernetes (Go), whose names and shapes they keep.
//!
//! What differs from it, and why:
//!
//! - No meter `acl-logging`: no ACL logs, and unused meters are not created.
//! - The switch of a node has its node ID in `external_ids`: a controller that starts before the annotation was written
//!   finds it there.
//! - A pod's port, its addresses in the namespace's set and its groups are one transaction with each other, and the rows
//!   of a node are one too: no port ever names a missing router port.
//! - A node port is one load balancer for all nodes, with template variables per chassis, not one for each
//!   node and Service.
//! - Bandwidth limits are QoS rows, not queues of the interface: they work on every datapath. A host port is a load balancer
//!   of that node only.
//! - No timestamps are written: `nb_cfg` is raised only when an acknowledgement is needed.
//! - SNAT has a fixed port range, not that of the controller's host.
//! - Every row names its owner in `external_ids` where the table has that column (`of …` below); `Load_Balancer_Group` and
//!   `Static_MAC_Binding` have none and are identified by their computed UUIDs.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::fmt::Write;

use objects::ObjectKind;
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::RowValues;
use ovsdb::uuid::Uuid;
use serde_json::json;
use topology::ClusterSettings;
use topology::identity::{OWNER_CONTROLLER, OWNER_NAME, OWNER_TYPE};

use crate::support::schema;
use crate::support::test_cluster::TestCluster;

type Rows = BTreeMap<(String, Uuid), RowValues>;

/// A row's name, or its identifying columns.
fn label(values: &RowValues) -> String {
    let columns = [
        "name",
        "chassis",
        "direction",
        "priority",
        "match",
        "policy",
        "ip_prefix",
        "type",
        "logical_ip",
        "logical_port",
        "rate",
    ];
    let column = |column: &&str| values.get(*column).filter(|datum| !datum.is_empty()).map(ToString::to_string);
    match column(&"name").filter(|name| !name.is_empty()) {
        Some(name) => name,
        None => columns
            .iter()
            .filter_map(column)
            .filter(|text| !text.is_empty() && text != "0")
            .collect::<Vec<_>>()
            .join(" "),
    }
}

fn value(datum: &Datum, rows: &Rows) -> String {
    let atom = |atom: &Atom| match atom {
        Atom::Uuid(uuid) => {
            rows.iter().find(|((_, own), _)| own == uuid).map_or("?".into(), |(_, values)| label(values))
        }
        other => other.to_string(),
    };
    let mut parts: Vec<String> = if datum.pairs().is_empty() {
        datum.atoms().map(|one| atom(&one)).collect()
    } else {
        datum.pairs().iter().map(|(key, value)| format!("{}={}", atom(key), atom(value))).collect()
    };
    parts.sort();
    parts.join(" | ")
}

/// All rows of the controller as text.
fn render(world: &TestCluster) -> String {
    let mut rows = world.nb.rows();
    rows.retain(|_, values| !values.get("name").is_some_and(|name| name.to_string().starts_with("foreign")));
    let mut text: BTreeMap<(String, String), usize> = BTreeMap::new();
    for ((table, _), values) in &rows {
        let schema = &world.nb.database.schema().tables[table];
        let marks = values.get("external_ids").cloned();
        let mark = |key: &str| marks.as_ref().and_then(|marks| marks.get_str(key)).unwrap_or_default();
        let mut rendered = match mark(OWNER_TYPE).as_str() {
            "" => String::new(),
            kind => format!("  of {kind} {}\n", mark(OWNER_NAME)),
        };
        for (column, datum) in values {
            let plain = schema.column(column).is_some_and(|column| !column.kind.is_default(datum));
            let datum = match column.as_str() {
                "external_ids" => Datum::map(
                    datum
                        .pairs()
                        .iter()
                        .filter(|(key, _)| {
                            ![OWNER_CONTROLLER, OWNER_NAME, OWNER_TYPE].contains(&key.to_string().as_str())
                        })
                        .cloned(),
                ),
                _ => datum.clone(),
            };
            if plain && column != "name" && !datum.is_empty() {
                writeln!(rendered, "  {column}: {}", value(&datum, &rows)).unwrap();
            }
        }
        *text.entry((format!("{table} {}", label(values)), rendered)).or_default() += 1;
    }
    let times = |count: usize| if count == 1 { String::new() } else { format!(", {count} times") };
    text.iter().map(|((title, rendered), count)| format!("{title}{}\n{rendered}", times(*count))).collect()
}

#[test]
fn rows_of_the_smallest_cluster_match_the_golden_file() {
    let settings =
        ClusterSettings::new(vec!["10.128.0.0/14/23".parse().unwrap()], vec!["172.30.0.0/16".parse().unwrap()]);
    let mut world = TestCluster::new(&schema::schema(), settings);
    world.api.create(ObjectKind::Node, "", "n1", json!({"metadata": {"annotations": {}}}));
    world.annotate_node("n1", "shared", 10);
    world.api.create(ObjectKind::Namespace, "", "shop", json!({"metadata": {}}));
    let limits = json!({"kubernetes.io/ingress-bandwidth": "10M", "kubernetes.io/egress-bandwidth": "2G"});
    let containers = json!([{"ports": [{"containerPort": 8080, "hostPort": 9080}]}]);
    let pod = json!({"metadata": {"annotations": limits}, "spec": {"nodeName": "n1", "containers": containers}});
    world.api.create(ObjectKind::Pod, "shop", "web", pod);
    let ports = json!([{"port": 80, "nodePort": 30080}]);
    let spec = json!({"type": "NodePort", "clusterIP": "172.30.0.7", "ports": ports, "externalTrafficPolicy": "Local"});
    world.api.create(ObjectKind::Service, "shop", "web", json!({"metadata": {}, "spec": spec}));
    let endpoints = json!([{"addresses": ["10.128.0.3"], "nodeName": "n1"}]);
    let labels = json!({"labels": {"kubernetes.io/service-name": "web"}});
    let slice = json!({"metadata": labels, "addressType": "IPv4", "ports": [{"port": 8080}], "endpoints": endpoints});
    world.api.create(ObjectKind::EndpointSlice, "shop", "web-1", slice);
    world.run_until_idle();
    let rendered = render(&world);
    let expected = include_str!("rows.txt");
    if rendered != expected && std::env::var("ROWS_WRITE").is_ok() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rows.txt"), &rendered).unwrap();
    }
    for (line, (is, was)) in rendered.lines().zip(expected.lines()).enumerate() {
        assert_eq!(is, was, "tests/rows.txt, line {}; ROWS_WRITE=1 rewrites it for review", line + 1);
    }
    assert_eq!(rendered.lines().count(), expected.lines().count(), "the number of rows changed:\n{rendered}");
}
