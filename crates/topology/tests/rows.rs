//! The rows of the smallest cluster, whole: one node with a shared gateway, one namespace, one pod with limits and a port of
//! its node, one Service with a node port, IPv4. To be read as
//! documentation beside OVN-Kubernetes (Go), whose names and shapes they keep.
//!
//! What differs from it, and why:
//!
//! - No meter `acl-logging`: no rule logs yet, and a meter that nothing uses is not made.
//! - The switch of a node has its number in `external_ids`: a controller that starts before the annotation was written
//!   finds it there.
//! - A pod's port, its addresses in the namespace's set and its groups are one transaction with each other, and the rows
//!   of a node are one too: no port ever names a router port that is not there.
//! - A node port is one load balancer for all nodes, with variables that each node has a value for, not one for each
//!   node and Service.
//! - Limits of a pod are rules of the database, not queues of its interface: they work on every datapath. A port of the node
//!   that leads to a pod is a load balancer of that node alone.
//! - Nothing writes a timestamp: time is asked for by `nb_cfg`, and only when somebody needs the answer.
//! - Translations have a fixed port range, not that of the controller's own host.
//! - Every row names its owner in `external_ids` where the table has room for it (`of …` below); `Load_Balancer_Group` and
//!   `Static_MAC_Binding` have none and are known by their computed identities.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::fmt::Write;

use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::RowValues;
use ovsdb::uuid::Uuid;
use serde_json::json;
use topology::ClusterSettings;
use topology::identity::{OWNER_CONTROLLER, OWNER_NAME, OWNER_TYPE};
use topology::store::ObjectKind;

use crate::support::quiet::Quiet;
use crate::support::schema;

type Rows = BTreeMap<(String, Uuid), RowValues>;

/// What a row is called: its name, or what tells it from its like.
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

/// Every row that is ours, one after the other, with what it says.
fn told(world: &Quiet) -> String {
    let mut rows = world.nb.rows();
    rows.retain(|_, values| !values.get("name").is_some_and(|name| name.to_string().starts_with("foreign")));
    let mut text: BTreeMap<(String, String), usize> = BTreeMap::new();
    for ((table, _), values) in &rows {
        let schema = &world.nb.database.schema().tables[table];
        let marks = values.get("external_ids").cloned();
        let mark = |key: &str| marks.as_ref().and_then(|marks| marks.get_str(key)).unwrap_or_default();
        let mut told = match mark(OWNER_TYPE).as_str() {
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
                writeln!(told, "  {column}: {}", value(&datum, &rows)).unwrap();
            }
        }
        *text.entry((format!("{table} {}", label(values)), told)).or_default() += 1;
    }
    let times = |count: usize| if count == 1 { String::new() } else { format!(", {count} times") };
    text.iter().map(|((title, told), count)| format!("{title}{}\n{told}", times(*count))).collect()
}

#[test]
fn one_node_one_namespace_one_pod_one_service() {
    let settings =
        ClusterSettings::new(vec!["10.128.0.0/14/23".parse().unwrap()], vec!["172.30.0.0/16".parse().unwrap()]);
    let mut world = Quiet::new(&schema::schema(), settings);
    world.api.create(ObjectKind::Node, "", "n1", json!({"metadata": {"annotations": {}}}));
    world.wire("n1", "shared", 10);
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
    world.rest();
    let told = told(&world);
    let expected = include_str!("rows.txt");
    if told != expected && std::env::var("ROWS_WRITE").is_ok() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rows.txt"), &told).unwrap();
    }
    for (line, (is, was)) in told.lines().zip(expected.lines()).enumerate() {
        assert_eq!(is, was, "tests/rows.txt, line {}; ROWS_WRITE=1 writes it anew, for you to read", line + 1);
    }
    assert_eq!(told.lines().count(), expected.lines().count(), "rows came or went:\n{told}");
}
