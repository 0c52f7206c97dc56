//! Services and EndpointSlices from numbers: each bit selects a property.

use netmodel::Family;
use objects::ObjectKind;
use serde_json::{Value, json};

use crate::support::api::{Api, Key};

pub(crate) fn service_key(namespace: &str, service: u8) -> Key {
    (ObjectKind::Service, namespace.to_owned(), format!("s{service}"))
}

pub(crate) fn slice_key(namespace: &str, slice: u8) -> Key {
    (ObjectKind::EndpointSlice, namespace.to_owned(), format!("e{slice}"))
}

fn bit(number: u16, place: u16) -> bool {
    number >> place & 1 == 1
}

/// Creates or changes a Service.
pub(crate) fn put_service(api: &mut Api, namespace: &str, service: u8, like: u16) {
    let kind = ["ClusterIP", "NodePort", "LoadBalancer", "ClusterIP"][usize::from(like & 3)];
    let policy = |local| if local { "Local" } else { "Cluster" };
    let mut ports = vec![json!({"name": "a", "port": 80})];
    if bit(like, 2) {
        ports.push(json!({"name": "b", "port": 80, "protocol": "UDP"}));
    }
    if kind != "ClusterIP" {
        // Some node ports conflict.
        ports[0]["nodePort"] = json!(30_000 + u32::from(service / 2 * u8::from(bit(like, 3))));
    }
    let mut cluster_ips = vec![format!("172.30.0.{}", service + 1)];
    if bit(like, 4) {
        cluster_ips.push(format!("fd02::{}", service + 1));
    }
    let mut spec = json!({"type": kind, "clusterIPs": cluster_ips, "ports": ports,
        "internalTrafficPolicy": policy(bit(like, 5)), "publishNotReadyAddresses": bit(like, 6)});
    if kind != "ClusterIP" {
        spec["externalTrafficPolicy"] = json!(policy(bit(like, 7)));
    }
    if bit(like, 8) && bit(like, 9) {
        spec["clusterIPs"] = json!(["None"]);
    }
    if bit(like, 10) {
        // Some conflict with a host's or another Service's address.
        let clash = if bit(like, 0) { "192.0.2.10".to_owned() } else { format!("172.30.0.{}", service / 2 + 1) };
        let own = format!("198.51.100.{}", service / 2);
        spec["externalIPs"] = if bit(like, 15) { json!([own, clash]) } else { json!([own]) };
    }
    if bit(like, 11) {
        spec["sessionAffinity"] = json!("ClientIP");
    }
    let mut status = json!({});
    if bit(like, 12) {
        status = json!({"loadBalancer": {"ingress": [{"ip": format!("198.51.100.{}", 100 + service)}]}});
    }
    if bit(like, 13) {
        spec["loadBalancerSourceRanges"] = match bit(like, 14) {
            true => json!(["203.0.113.0/24", "2001:db8::/32"]),
            false => json!(["203.0.113.0/25"]),
        };
    }
    put(api, &service_key(namespace, service), &json!({"metadata": {}, "spec": spec, "status": status}));
}

/// Creates or changes a slice; slices may overlap, and move between Services.
pub(crate) fn put_slice(api: &mut Api, namespace: &str, slice: u8, service: u8, endpoints: u16) {
    let family = if bit(endpoints, 0) { Family::V6 } else { Family::V4 };
    let hints = bit(endpoints, 1) && bit(endpoints, 2);
    let mut list: Vec<Value> = Vec::new();
    for n in 0..4 {
        if !bit(endpoints, 3 + n) {
            continue;
        }
        let address = match (family, n) {
            // A host's own address.
            (Family::V4, 3) => "192.0.2.10".to_owned(),
            (Family::V4, _) => format!("10.128.0.{}", 40 + n),
            (Family::V6, _) => format!("fd01::{}", 40 + n),
        };
        let mut endpoint = json!({"addresses": [address], "nodeName": format!("n{}", n % 3)});
        endpoint["conditions"] = match (bit(endpoints, 7 + n), bit(endpoints, 11)) {
            (true, true) => json!({"ready": false, "serving": true, "terminating": true}),
            (true, false) => json!({"ready": false}),
            (false, _) => json!({"ready": true}),
        };
        if hints {
            endpoint["hints"] = json!({"forNodes": [{"name": format!("n{}", n % 2)}], "forZones": [{"name": "z"}]});
        }
        list.push(endpoint);
    }
    if bit(endpoints, 12) {
        list.reverse();
    }
    let labels = json!({"kubernetes.io/service-name": format!("s{service}")});
    let ports = json!([{"name": "a", "port": 8080 + u32::from(bit(endpoints, 13))},
        {"name": "b", "port": 53, "protocol": "UDP"}]);
    let object = json!({"metadata": {"labels": labels}, "addressType": family, "ports": ports, "endpoints": list});
    put(api, &slice_key(namespace, slice), &object);
}

/// Moves the API servers to an address that Services may claim as well.
pub(crate) fn move_api_server(api: &mut Api, last: u8) {
    let key = (ObjectKind::EndpointSlice, "default".to_owned(), "kubernetes".to_owned());
    let object = json!({"metadata": {"labels": {"kubernetes.io/service-name": "kubernetes"}}, "addressType": "IPv4",
        "ports": [{"name": "https", "port": 6443}], "endpoints": [{"addresses": [format!("198.51.100.{last}")]}]});
    put(api, &key, &object);
}

/// Creates or replaces an object.
fn put(api: &mut Api, key: &Key, object: &Value) {
    if api.create(key.0, &key.1, &key.2, object.clone()) {
        return;
    }
    api.change(key, |old| {
        let metadata = old["metadata"].clone();
        *old = object.clone();
        for field in ["name", "namespace", "uid", "creationTimestamp"] {
            old["metadata"][field] = metadata[field].clone();
        }
    });
}
