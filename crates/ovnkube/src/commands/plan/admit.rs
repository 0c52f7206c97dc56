//! Defaults that an API server, a scheduler and a node agent would set in a manifest. Deterministic, so that two plans
//! can be compared.

use std::collections::{BTreeMap, BTreeSet};

use netmodel::Prefix;
use objects::ObjectKind;
use serde_json::{Map, Value, json};
use topology::identity::row_uuid;

use super::load::{Key, shown};

/// Creation time of manifests: later than that of all existing objects.
const NOW: &str = "9999-12-31T23:59:59Z";
/// Fields that the API server keeps if a manifest does not set them.
const KEPT_IN_POD: [&str; 1] = ["nodeName"];
const KEPT_IN_SERVICE: [&str; 4] = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"];

/// All objects after applying the manifests.
pub(super) type Objects = BTreeMap<Key, Value>;

/// Merges a manifest with the existing object: fields that only the server or other clients set stay.
pub(super) fn overlay(kind: ObjectKind, manifest: &mut Value, there: &Value) {
    for field in ["uid", "creationTimestamp"] {
        manifest["metadata"][field] = there["metadata"][field].clone();
    }
    fill(&mut manifest["metadata"]["annotations"], &there["metadata"]["annotations"]);
    if manifest["status"].is_null() && !there["status"].is_null() {
        manifest["status"] = there["status"].clone();
    }
    let kept: &[&str] = match kind {
        ObjectKind::Pod => &KEPT_IN_POD,
        ObjectKind::Service => &KEPT_IN_SERVICE,
        _ => &[],
    };
    for field in kept {
        if manifest["spec"][*field].is_null() && !there["spec"][*field].is_null() {
            manifest["spec"][*field] = there["spec"][*field].clone();
        }
    }
    if kind == ObjectKind::Service
        && let (Some(ports), Some(known)) =
            (manifest["spec"]["ports"].as_array_mut(), there["spec"]["ports"].as_array())
    {
        for port in ports.iter_mut().filter(|port| port.is_object() && port["nodePort"].is_null()) {
            let same = known.iter().find(|other| other["port"] == port["port"] && other["name"] == port["name"]);
            if let Some(number) = same.map(|other| &other["nodePort"]).filter(|number| !number.is_null()) {
                port["nodePort"] = number.clone();
            }
        }
    }
}

/// Adds missing pairs.
fn fill(held: &mut Value, more: &Value) {
    let Some(more) = more.as_object() else { return };
    if held.is_null() {
        *held = Value::Object(Map::new());
    }
    if let Some(held) = held.as_object_mut() {
        for (key, value) in more {
            held.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

/// Sets the defaults of every object.
pub(super) fn admit((kind, namespace, name): &Key, object: &mut Value) {
    let metadata = &mut object["metadata"];
    if metadata["uid"].as_str().is_none_or(str::is_empty) {
        let uid = row_uuid("plan", kind.name(), &shown(*kind, namespace, name), "uid");
        metadata["uid"] = json!(uid.to_string());
    }
    if metadata["creationTimestamp"].as_str().is_none_or(str::is_empty) {
        metadata["creationTimestamp"] = json!(NOW);
    }
    // Templates often have it empty, which the server treats as absent.
    for field in ["annotations", "labels"] {
        if metadata[field].is_null()
            && let Some(metadata) = metadata.as_object_mut()
        {
            metadata.remove(field);
        }
    }
    if *kind == ObjectKind::Namespace {
        metadata["labels"]["kubernetes.io/metadata.name"] = json!(name);
    }
}

/// Whether a pod has terminated.
pub(super) fn has_ended(pod: &Value) -> bool {
    ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default())
}

/// Schedules pods of manifests without a node onto these, round-robin. Returns those that stay without.
pub(super) fn place_pods(objects: &mut Objects, nodes: &[String], is_manifest: impl Fn(&Key) -> bool) -> Vec<String> {
    let mut left = Vec::new();
    let mut turns = nodes.iter().cycle();
    let pods = objects.iter_mut().filter(|(key, _)| key.0 == ObjectKind::Pod && is_manifest(key));
    for ((_, namespace, name), pod) in pods {
        let placed = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
        if placed || has_ended(pod) {
            continue;
        }
        match turns.next() {
            Some(node) => pod["spec"]["nodeName"] = json!(node),
            None => left.push(format!("{namespace}/{name}")),
        }
    }
    left
}

/// Allocates missing addresses and node ports of Services, in the order of their names.
pub(super) fn serve(objects: &mut Objects, networks: &[Prefix]) {
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let mut ports: BTreeSet<u64> = BTreeSet::new();
    let services = |objects: &Objects| -> Vec<Key> {
        objects.keys().filter(|(kind, ..)| *kind == ObjectKind::Service).cloned().collect()
    };
    for key in services(objects) {
        let spec = &objects[&key]["spec"];
        taken.extend(spec["clusterIP"].as_str().map(str::to_owned));
        let listed = spec["clusterIPs"].as_array().into_iter().flatten();
        taken.extend(listed.filter_map(|one| one.as_str().map(str::to_owned)));
        ports.extend(spec["ports"].as_array().into_iter().flatten().filter_map(|port| port["nodePort"].as_u64()));
    }
    for key in services(objects) {
        let Some(object) = objects.get_mut(&key) else { continue };
        let spec = &mut object["spec"];
        if !spec.is_object() {
            continue;
        }
        let kind = spec["type"].as_str().unwrap_or("ClusterIP").to_owned();
        spec["type"] = json!(kind);
        if kind == "ExternalName" {
            continue;
        }
        if spec["clusterIP"].as_str().is_none_or(str::is_empty) {
            let dual = spec["ipFamilyPolicy"].as_str().is_some_and(|policy| policy != "SingleStack");
            let networks = networks.iter().take(if dual { 2 } else { 1 });
            // As in the server, the first few are reserved for Services of the cluster itself.
            let free = |network: &Prefix| {
                (10..network.size().min(1 << 20))
                    .find_map(|place| network.nth(place).map(|one| one.to_string()).filter(|one| !taken.contains(one)))
            };
            let addresses: Vec<String> = networks.filter_map(free).collect();
            taken.extend(addresses.iter().cloned());
            if let Some(first) = addresses.first() {
                spec["clusterIP"] = json!(first);
                spec["clusterIPs"] = json!(addresses);
            }
        } else if spec["clusterIPs"].is_null() {
            spec["clusterIPs"] = json!([spec["clusterIP"]]);
        }
        let wants = kind == "NodePort"
            || kind == "LoadBalancer" && spec["allocateLoadBalancerNodePorts"].as_bool().unwrap_or(true);
        for port in spec["ports"].as_array_mut().into_iter().flatten().filter(|port| port.is_object()) {
            if port["protocol"].is_null() {
                port["protocol"] = json!("TCP");
            }
            if wants
                && port["nodePort"].is_null()
                && let Some(number) = (30000..32768).find(|number| !ports.contains(number))
            {
                ports.insert(number);
                port["nodePort"] = json!(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: ObjectKind, namespace: &str, name: &str) -> Key {
        (kind, namespace.to_owned(), name.to_owned())
    }

    #[test]
    fn defaults_are_deterministic() {
        let pod = key(ObjectKind::Pod, "a", "b");
        let make = || {
            let mut object = json!({"metadata": {"name": "b", "namespace": "a", "annotations": null}});
            admit(&pod, &mut object);
            object
        };
        assert_eq!(make(), make());
        assert!(make()["metadata"]["uid"].as_str().unwrap().len() == 36);
        let mut namespace = json!({"metadata": {"name": "a", "uid": "mine"}});
        admit(&key(ObjectKind::Namespace, "", "a"), &mut namespace);
        assert_eq!(namespace["metadata"]["uid"], "mine");
        assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], "a");
    }

    #[test]
    fn fields_of_the_server_and_of_other_clients_are_kept() {
        let there = json!({"metadata": {"uid": "u", "creationTimestamp": "t", "annotations": {"a": "old", "b": "kept"}},
            "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}});
        let mut manifest = json!({"metadata": {"uid": "other", "annotations": {"a": "new"}}, "spec": {}});
        overlay(ObjectKind::Pod, &mut manifest, &there);
        assert_eq!(
            manifest,
            json!({"metadata": {"uid": "u", "creationTimestamp": "t", "annotations": {"a": "new", "b": "kept"}},
                "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}})
        );
        let there =
            json!({"metadata": {}, "spec": {"clusterIP": "172.30.0.9", "ports": [{"port": 80, "nodePort": 30007}]}});
        let mut manifest = json!({"metadata": {}, "spec": {"ports": [{"port": 80}, {"port": 81}]}});
        overlay(ObjectKind::Service, &mut manifest, &there);
        assert_eq!(manifest["spec"]["clusterIP"], "172.30.0.9");
        assert_eq!(manifest["spec"]["ports"][0]["nodePort"], 30007);
        assert!(manifest["spec"]["ports"][1].get("nodePort").is_none_or(Value::is_null));
    }

    #[test]
    fn services_get_unused_addresses_and_node_ports() {
        let mut objects = Objects::new();
        for (name, spec) in [
            ("a", json!({"ports": [{"port": 80}]})),
            ("b", json!({"clusterIP": "172.30.0.10", "type": "NodePort", "ports": [{"port": 80}, {"port": 81}]})),
            ("c", json!({"clusterIP": "None"})),
            ("d", json!({"type": "ExternalName", "externalName": "x"})),
        ] {
            objects.insert(key(ObjectKind::Service, "ns", name), json!({"metadata": {"name": name}, "spec": spec}));
        }
        serve(&mut objects, &["172.30.0.0/16".parse().unwrap()]);
        let spec = |name: &str| objects[&key(ObjectKind::Service, "ns", name)]["spec"].clone();
        assert_eq!(spec("a")["clusterIPs"], json!(["172.30.0.11"]));
        assert_eq!(spec("a")["ports"][0]["protocol"], "TCP");
        assert_eq!(
            (&spec("b")["ports"][0]["nodePort"], &spec("b")["ports"][1]["nodePort"]),
            (&json!(30000), &json!(30001))
        );
        assert_eq!(spec("c")["clusterIP"], "None");
        assert!(spec("d").get("clusterIP").is_none_or(Value::is_null));
    }

    #[test]
    fn pods_are_scheduled_round_robin_and_terminated_ones_are_skipped() {
        let mut objects = Objects::new();
        for (name, spec, phase) in [
            ("a", json!({}), "Pending"),
            ("b", json!({"nodeName": "n9"}), "Running"),
            ("c", json!({}), "Pending"),
            ("d", json!({}), "Failed"),
        ] {
            let pod = json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}});
            objects.insert(key(ObjectKind::Pod, "ns", name), pod);
        }
        assert_eq!(place_pods(&mut objects.clone(), &[], |_| true), ["ns/a", "ns/c"]);
        assert!(
            place_pods(&mut objects.clone(), &[], |_| false).is_empty(),
            "pods of the cluster are left to its scheduler"
        );
        assert!(place_pods(&mut objects, &["n1".to_owned(), "n2".to_owned()], |_| true).is_empty());
        let nodes: Vec<_> = objects.values().map(|pod| pod["spec"]["nodeName"].as_str()).collect();
        assert_eq!(nodes, [Some("n1"), Some("n9"), Some("n2"), None]);
    }
}
