//! A random cluster with pod addresses allocated by the core.

use std::net::IpAddr;

use netmodel::Prefix;
use objects::{ObjectKey, ObjectKind, Protocol};
use reachability::evaluator::{Destination, Party};
use reachability::preview::Preview;
use serde_json::{Value, json};
use topology::ClusterSettings;
use topology::desired::Inputs;
use truth::random::{Options, Rng, pods, policies, services};
use truth::{Cluster, Family, TrafficEnd};

pub(crate) struct World {
    pub(crate) objects: Vec<Value>,
    pub(crate) preview: Preview,
    pub(crate) documented: Cluster,
}

/// The contents of a seed's cluster: one family or both, with or without AdminNetworkPolicies.
pub(crate) fn options(seed: u64) -> Options {
    const FAMILIES: [&[Family]; 3] = [&[Family::V4, Family::V6], &[Family::V4], &[Family::V6]];
    let families = FAMILIES[usize::try_from(seed % 3).unwrap()];
    Options { families, admin: seed.is_multiple_of(2), services: true }
}

impl World {
    pub(crate) fn new(rng: &mut Rng, options: Options) -> Self {
        let networks = |family: &Family| match family {
            Family::V4 => ("10.128.0.0/14/23", "10.96.0.0/16"),
            Family::V6 => ("fd01::/48/64", "fd96::/112"),
        };
        let wanted = || options.families.iter().map(networks);
        let settings = ClusterSettings::new(
            wanted().map(|(pods, _)| pods.parse().unwrap()).collect(),
            wanted().map(|(_, services)| services.parse().unwrap()).collect(),
        );
        let mut preview = Preview::new(settings).unwrap();
        let mut objects = pods(rng, options);
        for object in &mut objects {
            if object["kind"] == "Node" {
                annotate(object);
            }
            put(&mut preview, object);
        }
        preview.settle().unwrap();
        for object in objects.iter_mut().filter(|object| object["kind"] == "Pod") {
            let own = preview.engine().allocator().unwrap().pod(&key(object));
            if let Some(own) = own {
                let addresses: Vec<Value> = own.addresses().map(|address| json!({"ip": address})).collect();
                object["status"]["podIPs"] = json!(addresses);
            }
        }
        let mut more = policies(rng, options, &objects);
        if options.services {
            // Completed pods are not endpoints.
            let ended = |object: &&Value| object["status"]["phase"] != "Succeeded";
            let alive: Vec<Value> = objects.iter().filter(ended).cloned().collect();
            more.extend(services(rng, &alive));
        }
        for object in &mut more {
            put(&mut preview, object);
        }
        preview.settle().unwrap();
        objects.extend(more);
        let networks: Vec<&str> = wanted().map(|(_, services)| services).collect();
        let documented = Cluster::from_objects(&objects).unwrap().filter_egress_to_own_node();
        let mut documented = documented.service_networks(&networks).unwrap();
        for (name, own) in preview.engine().allocator().unwrap().nodes() {
            let hosts: Vec<IpAddr> = own.subnets().filter_map(|subnet| subnet.nth(2)).collect();
            documented = documented.node_speaks_from(name, &hosts);
        }
        Self { objects, preview, documented }
    }

    pub(crate) fn inputs(&self) -> Inputs<'_> {
        self.preview.engine().inputs().unwrap()
    }

    /// The object of a kind and name.
    fn object(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        self.objects.iter().find(|object| {
            object["kind"] == kind && text(object, "name") == name && text(object, "namespace") == namespace
        })
    }

    /// A place's address of a family.
    pub(crate) fn address(&self, place: &TrafficEnd, family: Family) -> Option<IpAddr> {
        let listed = |list: &Value, field: &str| -> Vec<IpAddr> {
            let entries = list.as_array().into_iter().flatten();
            entries.filter_map(|entry| entry[field].as_str()?.parse().ok()).collect()
        };
        let own = match place {
            TrafficEnd::Pod { namespace, name } => {
                listed(&self.object("Pod", namespace, name)?["status"]["podIPs"], "ip")
            }
            TrafficEnd::Node(name) => listed(&self.object("Node", "", name)?["status"]["addresses"], "address"),
            TrafficEnd::External(address) => vec![*address],
        };
        own.into_iter().find(|address| Family::of(*address) == family)
    }

    /// A Service's cluster IP of a family.
    pub(crate) fn service_address(&self, (namespace, name): (&str, &str), family: Family) -> Option<IpAddr> {
        let addresses = self.object("Service", namespace, name)?["spec"]["clusterIPs"].as_array()?.iter();
        addresses.filter_map(|address| address.as_str()?.parse().ok()).find(|address| Family::of(*address) == family)
    }

    /// The objects that may affect a query about these places, as text.
    pub(crate) fn related_objects(&self, places: &[&TrafficEnd]) -> String {
        let namespaces: Vec<&str> = places
            .iter()
            .filter_map(|place| match place {
                TrafficEnd::Pod { namespace, .. } => Some(namespace.as_str()),
                TrafficEnd::Node(_) | TrafficEnd::External(_) => None,
            })
            .collect();
        let concerned = |object: &&Value| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            match object["kind"].as_str().unwrap_or_default() {
                "Namespace" => namespaces.contains(&name),
                "Node" => places.iter().any(|place| matches!(place, TrafficEnd::Node(node) if node == name)),
                "Pod" => places.contains(&&TrafficEnd::pod(namespace, name)),
                "NetworkPolicy" | "Service" | "EndpointSlice" => namespaces.contains(&namespace),
                _ => true,
            }
        };
        let lines: Vec<String> = self.objects.iter().filter(concerned).map(ToString::to_string).collect();
        lines.join("\n")
    }
}

fn key(object: &Value) -> ObjectKey {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    ObjectKey::new(text("namespace"), text("name"))
}

/// Adds UID and creation time, as an API server does.
fn put(preview: &mut Preview, object: &mut Value) {
    let kind = object["kind"].as_str().unwrap().to_owned();
    object["metadata"]["uid"] = json!(format!("{kind} {}", key(object)));
    object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    let kind = ObjectKind::ALL.into_iter().find(|known| known.name() == kind).unwrap();
    preview.put(kind, object.clone()).unwrap();
}

/// The agent's annotations.
fn annotate(node: &mut Value) {
    let name = node["metadata"]["name"].as_str().unwrap().to_owned();
    let number: u8 = name[1..].parse().unwrap();
    let addresses: Vec<String> = node["status"]["addresses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            let address = entry["address"].as_str().unwrap();
            format!("{address}/{}", if address.contains(':') { 64 } else { 24 })
        })
        .collect();
    let hops: Vec<&str> =
        addresses.iter().map(|own| if own.contains(':') { "fd18::ff" } else { "172.18.0.254" }).collect();
    let gateway = json!({"default": {"mode": "shared", "interface-id": format!("br-ex_{name}"),
        "mac-address": format!("52:54:00:00:00:{number:02x}"), "ip-addresses": addresses, "next-hops": hops}});
    node["metadata"]["annotations"] = json!({
        "k8s.ovn.org/node-chassis-id": format!("chassis-{number}"),
        "k8s.ovn.org/host-cidrs": json!(addresses).to_string(),
        "k8s.ovn.org/l3-gateway-config": gateway.to_string(),
    });
}

/// A place as a query of the core.
pub(crate) fn party(place: &TrafficEnd) -> Party {
    match place {
        TrafficEnd::Pod { namespace, name } => Party::Pod(ObjectKey::new(namespace, name).into()),
        TrafficEnd::Node(name) => Party::Node(name.as_str().into()),
        TrafficEnd::External(address) => single(*address),
    }
}

pub(crate) fn single(address: IpAddr) -> Party {
    Party::Network(Prefix::new(address, if address.is_ipv6() { 128 } else { 32 }).unwrap())
}

/// A destination as a query of the core.
pub(crate) fn destination(address: IpAddr, of: truth::Protocol, port: u16) -> Destination {
    Destination { party: single(address), protocol: protocol(of), port: Some(port) }
}

pub(crate) fn protocol(protocol: truth::Protocol) -> Protocol {
    match protocol {
        truth::Protocol::Tcp => Protocol::Tcp,
        truth::Protocol::Udp => Protocol::Udp,
        truth::Protocol::Sctp => Protocol::Sctp,
    }
}
