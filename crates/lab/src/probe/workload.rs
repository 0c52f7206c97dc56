//! The workload that is probed: three pods and a Service in namespace `probe`, and the paths between them, the nodes
//! and the outside. The pods run `pause`; client and server are sockets of the prober in their network namespaces.

use std::fs::{File, TryLockError};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use netmodel::{Family, Prefix};
use serde_json::Value;

use super::plan::{Network, PathSpec, Plan, Protocol, Server};
use crate::directories::Directories;
use crate::error::{Error, Result};
use crate::inspect;
use crate::machine::Machine;
use crate::matrix::sandbox_network;
use crate::record::Record;
use crate::underlay::{CONTROL, EXTERNAL_ADDRESSES, OUTSIDE};

const NAMESPACE: &str = "probe";
/// Port of the echo servers.
const PORT: u16 = 7007;
/// Through the same switches as all other paths, but not through OVN.
const REFERENCE: &str = "host → host";
/// How long pods may take to become ready, or to be deleted. Generous: it only ends what would hang forever.
const LIMIT: Duration = Duration::from_secs(200);

/// The pods and the Service; [`Workload::remove`] deletes them.
#[derive(Debug)]
pub struct Workload {
    control: Machine,
    record: Record,
    nodes: Vec<String>,
    client: Network,
    client_address: IpAddr,
    servers: Vec<(Network, IpAddr, String)>,
    service: IpAddr,
    node_port: u16,
    _lock: File,
}

impl Workload {
    /// Creates it on the first two Ready nodes; returns when its pods have their networks.
    pub fn create(record: &Record) -> Result<Self> {
        record.require_pod_network()?;
        let control = inspect::machine(record, CONTROL)?;
        // A node may be about to become Ready; otherwise it is not used.
        let _ = control.run(&["kubectl", "wait", "--for=condition=Ready", "node", "--all", "--timeout=60s"]);
        Self::create_on(record, &ready_nodes(&control)?)
    }

    /// Like [`Workload::create`], on the first two of these nodes.
    pub fn create_on(record: &Record, nodes: &[String]) -> Result<Self> {
        record.require_pod_network()?;
        let lock = lock(record)?;
        let control = inspect::machine(record, CONTROL)?;
        let (first, second) = match nodes {
            [first, second, ..] => (first, second),
            [only] => (only, only),
            [] => return Err(Error::Invalid("no node is Ready; see `lab kubectl describe nodes`".into())),
        };
        control.run_with_input(&["kubectl", "apply", "-f", "-"], &manifest(first, second))?;
        let wait = ["kubectl", "-n", NAMESPACE, "wait", "--for=condition=Ready", "pod", "--all", "--timeout=180s"];
        control.run_within(LIMIT, &wait)?;
        let (client, client_address, _) = pod(record, &control, "client")?;
        let servers =
            ["near", "far"].map(|name| pod(record, &control, name)).into_iter().collect::<Result<Vec<_>>>()?;
        let service = get(&control, &["service", "echo"])?;
        let invalid = || Error::Invalid(format!("Service {NAMESPACE}/echo has no ClusterIP or no NodePort"));
        Ok(Self {
            record: record.clone(),
            service: service["spec"]["clusterIP"].as_str().and_then(|ip| ip.parse().ok()).ok_or_else(invalid)?,
            node_port: node_port(&service).ok_or_else(invalid)?,
            nodes: nodes.iter().take(2).cloned().collect(),
            client,
            client_address,
            servers,
            control,
            _lock: lock,
        })
    }

    /// All paths, at this many packets per second.
    pub fn plan(&self, rate: u32) -> Result<Plan> {
        use Protocol::{Icmp, TcpEstablished, TcpNew, Udp};
        let family = Family::of(self.client_address);
        let beyond: IpAddr =
            EXTERNAL_ADDRESSES[family.index()].parse().map_err(|_| Error::Invalid("no outside address".into()))?;
        let outside = machine_network(&self.record, OUTSIDE)?;
        let host = machine_network(&self.record, &self.nodes[0])?;
        let mut servers: Vec<(Network, SocketAddr)> = self
            .servers
            .iter()
            .map(|(network, address, _)| (network.clone(), SocketAddr::new(*address, PORT)))
            .collect();
        servers.push((outside.clone(), SocketAddr::new(beyond, PORT)));
        let mut paths = Vec::new();
        let mut add = |route: &str, from: &Network, to: SocketAddr, sources: &[Prefix], protocols: &[Protocol]| {
            paths.extend(protocols.iter().map(|protocol| PathSpec {
                route: route.to_owned(),
                protocol: *protocol,
                from: from.clone(),
                to,
                server: Server::Echo,
                sources: sources.to_vec(),
                reference: route == REFERENCE,
            }));
        };
        let own = vec![host_prefix(self.client_address)?];
        for (network, address, node) in &self.servers {
            let route = if *node == self.nodes[0] { "pod → pod, same node" } else { "pod → pod, other node" };
            debug_assert!(network.own);
            add(route, &self.client, SocketAddr::new(*address, PORT), &own, &[TcpEstablished, TcpNew, Udp, Icmp]);
        }
        let service = SocketAddr::new(self.service, PORT);
        add("pod → Service", &self.client, service, &own, &[TcpEstablished, TcpNew, Udp]);
        let node = [host_prefix(self.address(&self.nodes[0], family)?)?];
        add("pod → outside", &self.client, SocketAddr::new(beyond, PORT), &node, &[TcpEstablished, TcpNew, Udp, Icmp]);
        let non_pod_sources = self.non_pod_sources(family)?;
        for name in &self.nodes {
            let to = SocketAddr::new(self.address(name, family)?, self.node_port);
            let route = format!("outside → NodePort of {name}");
            add(&route, &outside, to, &non_pod_sources, &[TcpEstablished, TcpNew, Udp]);
        }
        add("host → Service", &host, service, &non_pod_sources, &[TcpEstablished, TcpNew, Udp]);
        if let [_, second] = self.nodes.as_slice() {
            let to = SocketAddr::new(self.address(second, family)?, PORT);
            servers.push((machine_network(&self.record, second)?, to));
            add(REFERENCE, &host, to, &node, &[Udp, Icmp]);
        }
        Ok(Plan { paths, servers, rate })
    }

    /// The client addresses that a Service's endpoint sees of clients outside the pod network (externalTrafficPolicy
    /// Cluster): the join address of a gateway router, or a node's own address (on br-ex or on its management port).
    fn non_pod_sources(&self, family: Family) -> Result<Vec<Prefix>> {
        let join = match family {
            Family::V4 => "100.64.0.0/16",
            Family::V6 => "fd98::/64",
        };
        let mut sources = vec![join.parse().map_err(plan_error)?];
        for name in &self.nodes {
            sources.push(host_prefix(self.address(name, family)?)?);
            let node = get(&self.control, &["node", name])?;
            let subnets = node["metadata"]["annotations"]["k8s.ovn.org/node-subnets"].as_str().unwrap_or("{}");
            let subnets: Value = serde_json::from_str(subnets).unwrap_or_default();
            let listed = match &subnets["default"] {
                Value::Array(all) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
                Value::String(one) => vec![one.clone()],
                _ => Vec::new(),
            };
            for subnet in listed.iter().filter_map(|subnet| subnet.parse::<Prefix>().ok()) {
                if let Some(management) = subnet.nth(2).filter(|address| family.matches(*address)) {
                    sources.push(host_prefix(management)?);
                }
            }
        }
        Ok(sources)
    }

    fn address(&self, machine: &str, family: Family) -> Result<IpAddr> {
        let record = self.record.machine(machine)?;
        let addresses = record.addresses.iter().filter_map(|text| text.split('/').next()?.parse::<IpAddr>().ok());
        addresses
            .into_iter()
            .find(|address| family.matches(*address))
            .ok_or_else(|| Error::Invalid(format!("machine {machine} has no address of the pods' family")))
    }

    /// A node's address of the pods' family.
    pub(crate) fn node_address(&self, node: &str) -> Result<IpAddr> {
        self.address(node, Family::of(self.client_address))
    }

    /// The network of the client pod.
    pub fn client(&self) -> &Network {
        &self.client
    }

    /// The client pod is on the first node.
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// Deletes the namespace; returns when the pods are gone.
    pub fn remove(self) -> Result<()> {
        let args = ["kubectl", "delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=180s"];
        self.control.run_within(LIMIT, &args).map(|_| ())
    }
}

/// One prober at a time: another one would use the same pod names, and its faults would be counted here.
fn lock(record: &Record) -> Result<File> {
    let path = Directories::from_environment()?.lab(&record.name).join("probe.lock");
    let context = format!("cannot lock {}", path.display());
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(Error::io(context.clone()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Invalid(format!(
            "lab {:?} is being probed by another command (`fuser -v {}` shows it); wait until it ends",
            record.name,
            path.display()
        ))),
        Err(TryLockError::Error(error)) => Err(Error::Io { context, source: error }),
    }
}

fn plan_error(error: impl std::fmt::Display) -> Error {
    Error::Invalid(format!("invalid address in the prober's plan: {error}"))
}

fn host_prefix(address: IpAddr) -> Result<Prefix> {
    Prefix::new(address, Family::of(address).bits()).map_err(plan_error)
}

fn get(control: &Machine, args: &[&str]) -> Result<Value> {
    let text = control.run(&[&["kubectl", "-n", NAMESPACE, "get", "-o", "json"], args].concat())?;
    serde_json::from_str(&text)
        .map_err(|error| Error::Invalid(format!("`kubectl get {}` gave no JSON: {error}", args.join(" "))))
}

/// Ready and schedulable.
fn ready_nodes(control: &Machine) -> Result<Vec<String>> {
    let list = get(control, &["nodes"])?;
    let ready = |node: &&Value| {
        let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        let is_ready = conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
        is_ready && node["spec"]["unschedulable"] != true
    };
    let nodes = list["items"].as_array().into_iter().flatten().filter(ready);
    Ok(nodes.filter_map(|node| node["metadata"]["name"].as_str().map(str::to_owned)).collect())
}

fn machine_network(record: &Record, name: &str) -> Result<Network> {
    Ok(Network { name: name.to_owned(), file: inspect::machine(record, name)?.network(), own: false })
}

/// A pod's network, address and node.
fn pod(record: &Record, control: &Machine, name: &str) -> Result<(Network, IpAddr, String)> {
    let pod = get(control, &["pod", name])?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let node = text(&pod["spec"]["nodeName"]);
    let missing = || {
        Error::Invalid(format!(
            "pod {NAMESPACE}/{name} has no network yet; see `lab kubectl -n {NAMESPACE} describe pod {name}`"
        ))
    };
    let machine = inspect::machine(record, &node)?;
    let path = sandbox_network(&machine, &text(&pod["metadata"]["uid"]))?.ok_or_else(missing)?;
    let file = PathBuf::from(format!("/proc/{}/root{path}", record.machine(&node)?.init.pid));
    let address = text(&pod["status"]["podIP"]).parse().map_err(|_| missing())?;
    Ok((Network { name: format!("pod {name} on {node}"), file, own: true }, address, node))
}

fn node_port(service: &Value) -> Option<u16> {
    u16::try_from(service["spec"]["ports"][0]["nodePort"].as_u64()?).ok()
}

fn manifest(first: &str, second: &str) -> String {
    let mut text = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n");
    for (name, node, app) in [("client", first, "client"), ("near", first, "echo"), ("far", second, "echo")] {
        text.push_str(&format!(
            "---\napiVersion: v1\nkind: Pod\n\
             metadata: {{name: {name}, namespace: {NAMESPACE}, labels: {{app: {app}}}}}\n\
             spec:\n  nodeName: {node}\n  terminationGracePeriodSeconds: 1\n  tolerations: [{{operator: Exists}}]\n  \
             securityContext: {{seccompProfile: {{type: RuntimeDefault}}}}\n  \
             containers: [{{name: wait, image: \"localhost/agnhost:lab\", args: [pause]}}]\n"
        ));
    }
    text.push_str(&format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: echo, namespace: {NAMESPACE}}}\n\
         spec:\n  type: NodePort\n  selector: {{app: echo}}\n  ports:\n"
    ));
    for protocol in ["TCP", "UDP"] {
        let node_port = NODE_PORT;
        text.push_str(&format!(
            "    - {{name: {}, protocol: {protocol}, port: {PORT}, targetPort: {PORT}, nodePort: {node_port}}}\n",
            protocol.to_lowercase()
        ));
    }
    text
}

/// The same port for TCP and UDP, outside the range that the API server allocates from first.
const NODE_PORT: u16 = 30077;
