//! The endpoints of the matrix: the example's pods and Services, the nodes, the outside, in their current state.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use netmodel::Family;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::inspect;
use crate::machine::Machine;
use crate::record::Record;
use crate::underlay::{CONTROL, OUTSIDE};

/// One end of a connection: a pod, or a machine itself.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    /// For the table: `web on n1`, `n1`.
    pub(super) name: String,
    /// The `app` label; empty for a machine.
    pub(super) app: String,
    /// Node that the pod is on; for a machine, its own name.
    pub(super) node: String,
    pub(super) addresses: Vec<IpAddr>,
    /// Path of its network namespace on the host.
    pub(super) network: PathBuf,
}

impl Endpoint {
    pub(super) fn address(&self, family: Family) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| family.matches(*address))
    }
}

#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) pods: Vec<Endpoint>,
    pub(super) nodes: Vec<Endpoint>,
    pub(super) outside: Endpoint,
    services: BTreeMap<String, Vec<IpAddr>>,
    pub(super) node_port: u16,
}

impl Cluster {
    /// Reads a lab with the example application.
    pub(super) fn read(record: &Record) -> Result<Self> {
        let control = inspect::machine(record, CONTROL)?;
        let list = |args: &[&str]| -> Result<Vec<Value>> {
            let args = [&["kubectl", "get", "-o", "json"], args].concat();
            let mut list: Value = serde_json::from_str(&control.run(&args)?)
                .map_err(|error| Error::Invalid(format!("`{}` gave no JSON: {error}", args.join(" "))))?;
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
            // Skip terminating pods and pods that are not part of the application.
            let app = text(&pod["metadata"]["labels"]["app"]);
            if pod["metadata"]["deletionTimestamp"].is_null() && APPS.contains(&app) {
                pods.push(pod_endpoint(record, &pod)?);
            }
        }
        let ends = |wanted: fn(&str) -> bool| -> Vec<Endpoint> {
            record.machines.iter().filter(|machine| wanted(&machine.name)).map(machine_endpoint).collect()
        };
        let nodes = ends(|name| name.strip_prefix('n').is_some_and(|number| number.parse::<u32>().is_ok()));
        let outside = ends(|name| name == OUTSIDE).pop();
        let missing = "this lab has no example application; `lab up --network ovnkube` starts one";
        match (outside, node_port) {
            (Some(outside), Some(node_port)) => Ok(Self { pods, nodes, outside, services, node_port }),
            _ => Err(Error::Invalid(missing.into())),
        }
    }

    pub(super) fn app<'a>(&'a self, app: &'a str) -> impl Iterator<Item = &'a Endpoint> {
        self.pods.iter().filter(move |pod| pod.app == app)
    }

    pub(super) fn service(&self, name: &str, family: Family) -> Option<IpAddr> {
        self.services.get(name)?.iter().copied().find(|address| family.matches(*address))
    }
}

/// Values of label `app` of the example.
const APPS: [&str; 4] = ["client", "stranger", "web", "store"];

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn addresses(list: &Value, address: fn(&Value) -> &Value) -> Vec<IpAddr> {
    list.as_array().into_iter().flatten().filter_map(|entry| text(address(entry)).parse().ok()).collect()
}

fn machine_endpoint(machine: &crate::record::MachineRecord) -> Endpoint {
    let address = |text: &String| text.split('/').next()?.parse().ok();
    Endpoint {
        name: machine.name.clone(),
        app: String::new(),
        node: machine.name.clone(),
        addresses: machine.addresses.iter().filter_map(address).collect(),
        network: PathBuf::from(format!("/proc/{}/ns/net", machine.init.pid)),
    }
}

fn pod_endpoint(record: &Record, pod: &Value) -> Result<Endpoint> {
    let node = text(&pod["spec"]["nodeName"]).to_owned();
    let app = text(&pod["metadata"]["labels"]["app"]).to_owned();
    let machine = inspect::machine(record, &node)?;
    Ok(Endpoint {
        name: format!("{app} on {node}"),
        network: pod_network(&machine, text(&pod["metadata"]["uid"]), text(&pod["metadata"]["name"]))?,
        addresses: addresses(&pod["status"]["podIPs"], |entry| &entry["ip"]),
        app,
        node,
    })
}

/// The network namespace of a pod's sandbox, as a path on the host.
fn pod_network(node: &Machine, uid: &str, name: &str) -> Result<PathBuf> {
    match sandbox_network(node, uid)? {
        Some(path) => Ok(on_host(node, &path)),
        None => Err(Error::Invalid(format!(
            "pod shop/{name} on {} has no network yet; see `lab kubectl -n shop describe pod {name}`",
            node.name
        ))),
    }
}

fn on_host(node: &Machine, path: &str) -> PathBuf {
    Path::new(&format!("/proc/{}/root", node.init().pid)).join(path.trim_start_matches('/'))
}

/// The network namespace of a pod's sandbox from containerd: a path on the pod's node, for `nsenter --net`.
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
