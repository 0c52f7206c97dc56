use serde_json::json;
use topology::identity::Owner;

use super::*;

fn preview() -> Preview {
    let cluster = vec!["10.128.0.0/14/23".parse().unwrap()];
    Preview::new(ClusterSettings::new(cluster, vec!["172.30.0.0/16".parse().unwrap()])).unwrap()
}

fn node(name: &str) -> Value {
    json!({"metadata": {"name": name, "uid": format!("node-{name}")}})
}

fn pod(name: &str, node: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("pod-{name}")}, "spec": {"nodeName": node}})
}

#[test]
fn objects_settle_and_get_their_annotations() {
    let mut preview = preview();
    let before = preview.snapshot();
    preview.put(ObjectKind::Node, node("n1")).unwrap();
    preview.put(ObjectKind::Pod, pod("a", "n1")).unwrap();
    preview.settle().unwrap();
    assert_eq!((preview.refused(), preview.warnings()), (vec![], vec![]));
    let annotated = preview.objects().filter(|(_, object)| object["metadata"]["annotations"].is_object()).count();
    assert_eq!(annotated, 2);
    let all = differences(&before, &preview.snapshot());
    assert!(all.iter().all(|row| row.change == RowChange::Added && row.owner.is_some()), "{all:?}");
    let port = all.iter().find(|row| row.label == "ns_a").unwrap();
    assert_eq!(port.owner, ObjectKey::parse("ns/a").map(Owner::Pod));
    assert_eq!(port.table, "Logical_Switch_Port");
    let switch = all.iter().find(|row| row.table == "Logical_Switch" && row.label == "n1").unwrap();
    let ports = switch.columns.iter().find(|column| column.name == "ports").unwrap();
    assert!(ports.new.to_string().contains("ns_a"), "references are by name: {}", ports.new);
    let external = port.columns.iter().find(|column| column.name == "external_ids");
    assert!(external.is_none_or(|ids| !ids.new.to_string().contains("owner-")), "owner keys are not shown");

    // The same again changes nothing.
    let before = preview.snapshot();
    let objects: Vec<(ObjectKind, Value)> = preview.objects().map(|(kind, object)| (kind, object.clone())).collect();
    for (kind, object) in objects {
        preview.put(kind, object).unwrap();
    }
    preview.settle().unwrap();
    assert_eq!(differences(&before, &preview.snapshot()), vec![]);
}

#[test]
fn a_later_object_changes_existing_rows() {
    let mut preview = preview();
    preview.put(ObjectKind::Node, node("n1")).unwrap();
    preview.settle().unwrap();
    let before = preview.snapshot();
    preview.put(ObjectKind::Pod, pod("a", "n1")).unwrap();
    preview.settle().unwrap();
    let all = differences(&before, &preview.snapshot());
    let change = |table: &str, label: &str| {
        all.iter().find(|row| row.table == table && row.label == label).map(|row| row.change)
    };
    assert_eq!(change("Logical_Switch_Port", "ns_a"), Some(RowChange::Added));
    assert_eq!(change("Logical_Switch", "n1"), Some(RowChange::Changed));
    // And back, as seen from the end.
    let back = differences(&preview.snapshot(), &before);
    assert!(back.iter().any(|row| row.label == "ns_a" && row.change == RowChange::Removed));
}

#[test]
fn a_preview_starts_with_the_rows_of_a_real_database() {
    let mut first = preview();
    first.put(ObjectKind::Node, node("n1")).unwrap();
    first.put(ObjectKind::Pod, pod("a", "n1")).unwrap();
    first.settle().unwrap();
    let rows = first.database.tables().map(|(table, uuid, values)| (table.to_owned(), uuid, values)).collect();
    let settings = first.engine.settings().clone();
    let mut second = Preview::over(settings, northbound::schema(), rows).unwrap();
    let before = second.snapshot();
    second.put(ObjectKind::Node, node("n1")).unwrap();
    second.settle().unwrap();
    let gone = differences(&before, &second.snapshot());
    assert!(gone.iter().any(|row| row.label == "ns_a" && row.change == RowChange::Removed), "{gone:?}");
    assert!(gone.iter().all(|row| row.change != RowChange::Added), "existing rows are kept: {gone:?}");
}

#[test]
fn an_impossible_request_is_refused_with_its_reason() {
    let mut preview = preview();
    preview.put(ObjectKind::Node, node("n1")).unwrap();
    let mut asks = pod("a", "n1");
    asks["metadata"]["annotations"]["v1.multus-cni.io/default-network"] =
        json!(r#"[{"name":"default","ips":["192.0.2.1/24"]}]"#);
    preview.put(ObjectKind::Pod, asks).unwrap();
    preview.settle().unwrap();
    let refused = preview.refused();
    assert_eq!((refused.len(), refused[0].kind, refused[0].name.as_str()), (1, "Pod", "ns/a"));
    assert!(refused[0].message.contains("192.0.2.1"), "{}", refused[0].message);
    assert!(preview.put(ObjectKind::Pod, json!({"metadata": {}})).is_err());
}
