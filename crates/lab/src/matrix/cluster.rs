//! What the matrix is measured between: the example's pods and Services, the nodes, the outside, as they are now.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::record::Record;
use crate::underlay::{CONTROL, OUTSIDE};
use crate::view;

/// One end of a way.
#[derive(Debug, Clone)]
pub(super) struct End {
    /// Its name for people.
    pub(super) name: String,
    /// The application it belongs to, if it is a pod.
    pub(super) app: String,
    /// The node it is on, or is.
    pub(super) node: String,
    /// Its addresses.
    pub(super) addresses: Vec<IpAddr>,
    /// The file of its network namespace.
    pub(super) network: PathBuf,
}

impl End {
    /// Its address of a family.
    pub(super) fn address(&self, v6: bool) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| address.is_ipv6() == v6)
    }
}

/// All of it.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) pods: Vec<End>,
    pub(super) nodes: Vec<End>,
    pub(super) outside: End,
    services: BTreeMap<String, Vec<IpAddr>>,
    pub(super) node_port: u16,
}

impl Cluster {
    /// Looks at a lab with the example application.
    pub(super) fn look(record: &Record) -> Result<Self> {
        let control = view::machine(record, CONTROL)?;
        let list = |words: &[&str]| -> Result<Vec<Value>> {
            let words = [&["kubectl", "get", "-o", "json"], words].concat();
            let mut list: Value = serde_json::from_str(&control.run(&words)?)
                .map_err(|error| Error::Invalid(format!("`{}` gave no JSON: {error}", words.join(" "))))?;
            Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
        };
        let mut services = BTreeMap::new();
        let mut node_port = None;
        for service in list(&["services", "--all-namespaces"])? {
            let name = format!("{}/{}", text(&service["metadata"]["namespace"]), text(&service["metadata"]["name"]));
            if name == "shop/web" {
                node_port = service["spec"]["ports"][0]["nodePort"].as_u64().and_then(|port| u16::try_from(port).ok());
            }
            services.insert(name, addresses(&service["spec"]["clusterIPs"], |address| address));
        }
        let mut pods = Vec::new();
        for pod in list(&["pods", "--namespace=shop"])? {
            // One that is on its way out is no part of the picture, nor is one that is none of the application's.
            let app = text(&pod["metadata"]["labels"]["app"]);
            if pod["metadata"]["deletionTimestamp"].is_null() && APPS.contains(&app) {
                pods.push(pod_end(record, &pod)?);
            }
        }
        let ends = |wanted: fn(&str) -> bool| -> Vec<End> {
            record.machines.iter().filter(|machine| wanted(&machine.name)).map(machine_end).collect()
        };
        let nodes = ends(|name| name.strip_prefix('n').is_some_and(|number| number.parse::<u32>().is_ok()));
        let outside = ends(|name| name == OUTSIDE).pop();
        let missing = "this lab has no example application; `lab up --network ovnkube` starts one that has";
        match (outside, node_port) {
            (Some(outside), Some(node_port)) => Ok(Self { pods, nodes, outside, services, node_port }),
            _ => Err(Error::Invalid(missing.into())),
        }
    }

    /// The pods of an application.
    pub(super) fn app<'a>(&'a self, app: &'a str) -> impl Iterator<Item = &'a End> {
        self.pods.iter().filter(move |pod| pod.app == app)
    }

    /// A Service's address of a family.
    pub(super) fn service(&self, name: &str, v6: bool) -> Option<IpAddr> {
        self.services.get(name)?.iter().copied().find(|address| address.is_ipv6() == v6)
    }
}

/// The example's applications.
const APPS: [&str; 4] = ["client", "stranger", "web", "store"];

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn addresses(list: &Value, address: fn(&Value) -> &Value) -> Vec<IpAddr> {
    list.as_array().into_iter().flatten().filter_map(|entry| text(address(entry)).parse().ok()).collect()
}

fn machine_end(machine: &crate::record::MachineRecord) -> End {
    let address = |text: &String| text.split('/').next()?.parse().ok();
    End {
        name: machine.name.clone(),
        app: String::new(),
        node: machine.name.clone(),
        addresses: machine.addresses.iter().filter_map(address).collect(),
        network: PathBuf::from(format!("/proc/{}/ns/net", machine.init.pid)),
    }
}

fn pod_end(record: &Record, pod: &Value) -> Result<End> {
    let node = text(&pod["spec"]["nodeName"]).to_owned();
    let app = text(&pod["metadata"]["labels"]["app"]).to_owned();
    let machine = view::machine(record, &node)?;
    Ok(End {
        name: format!("{app} on {node}"),
        network: pod_network(&machine, text(&pod["metadata"]["uid"]), text(&pod["metadata"]["name"]))?,
        addresses: addresses(&pod["status"]["podIPs"], |entry| &entry["ip"]),
        app,
        node,
    })
}

/// The network of a pod's sandbox, by a path that holds on the host.
fn pod_network(node: &Machine, uid: &str, name: &str) -> Result<PathBuf> {
    match sandbox_network(node, uid)? {
        Some(path) => Ok(on_host(node, &path)),
        None => Err(Error::Invalid(format!(
            "pod shop/{name} on {} has no network yet: `lab kubectl -n shop describe pod {name}` says why",
            node.name
        ))),
    }
}

fn on_host(node: &Machine, path: &str) -> PathBuf {
    Path::new(&format!("/proc/{}/root", node.init().pid)).join(path.trim_start_matches('/'))
}

/// The network namespace of a pod's sandbox as containerd knows it: a path on the pod's node, for `nsenter --net`.
pub fn sandbox_network(node: &Machine, uid: &str) -> Result<Option<String>> {
    let filter = format!("labels.\"io.cri-containerd.kind\"==sandbox,labels.\"io.kubernetes.pod.uid\"=={uid}");
    let sandboxes = node.run(&["ctr", "--namespace=k8s.io", "containers", "list", "--quiet", &filter])?;
    for sandbox in sandboxes.lines() {
        let described = node.run(&["ctr", "--namespace=k8s.io", "containers", "info", sandbox])?;
        let described: Value = serde_json::from_str(&described)
            .map_err(|error| Error::Invalid(format!("containerd on {} gave no JSON: {error}", node.name)))?;
        let namespaces = described["Spec"]["linux"]["namespaces"].as_array();
        let network = namespaces.into_iter().flatten().find(|one| text(&one["type"]) == "network");
        let Some(path) = network.map(|one| text(&one["path"])).filter(|path| !path.is_empty()) else { continue };
        // `/var/run` is an absolute link, which would lead out of the machine's root.
        let path = path.strip_prefix("/var").filter(|rest| rest.starts_with("/run/")).unwrap_or(path);
        if on_host(node, path).exists() {
            return Ok(Some(path.to_owned()));
        }
    }
    Ok(None)
}
