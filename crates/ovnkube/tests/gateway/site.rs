//! A cluster in the lab with the controller and a node agent on every node. There are no kubelets: tests connect pods and
//! write EndpointSlices themselves.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lab::{Family, Kubernetes, Lab, LabSpec, Machine, Ovn, Pod, PodInterface, Program};
use netmodel::InterfaceAddress;
use serde_json::{Value, json};

pub(crate) use crate::cluster::{TIMEOUT, until};
use crate::networks::networks;

/// Limit of one attempt; the first packets over a tunnel may be lost.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct Site {
    pub(crate) lab: Lab,
    pub(crate) family: Family,
    pub(crate) mode: &'static str,
}

#[derive(Clone, Copy)]
pub(crate) enum Client<'a> {
    Machine(&'a Machine),
    Pod(&'a Pod),
}

impl Client<'_> {
    pub(crate) fn connect(self, target: SocketAddr) -> Result<TcpStream, String> {
        let stream = match self {
            Self::Machine(machine) => machine.connect(target, ATTEMPT_TIMEOUT),
            Self::Pod(pod) => pod.connect(target, ATTEMPT_TIMEOUT),
        };
        stream.map_err(|error| error.to_string())
    }

    /// One attempt: the server's reply.
    pub(crate) fn ask(self, target: SocketAddr) -> Result<Reply, String> {
        let mut stream = self.connect(target)?;
        stream.set_read_timeout(Some(ATTEMPT_TIMEOUT)).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).map_err(|error| error.to_string())?;
        let (name, client) = text.trim().split_once(' ').ok_or_else(|| format!("unexpected reply {text:?}"))?;
        Ok(Reply { name: name.to_owned(), client: client.parse().unwrap() })
    }

    /// Retries until the server replies.
    pub(crate) fn reaches(self, target: SocketAddr) -> Reply {
        let mut last = String::new();
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            match self.ask(target) {
                Ok(answer) => return answer,
                Err(error) => last = error,
            }
        }
        panic!("{target} does not answer: {last}");
    }
}

/// The server's name, and the client address that it saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) name: String,
    pub(crate) client: IpAddr,
}

/// Answers each connection with a name and the client's address.
pub(crate) fn serve(name: &str, listener: TcpListener) {
    let name = name.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let peer = stream.peer_addr().map(|peer| peer.ip().to_canonical().to_string()).unwrap_or_default();
            let _ = stream.write_all(format!("{name} {peer}\n").as_bytes());
        }
    });
}

impl Site {
    pub(crate) fn start(purpose: &str, family: Family, mode: &'static str) -> Self {
        let site = Self::without_agents(purpose, family, mode);
        for node in 1..=2 {
            site.run_agent(node);
        }
        for node in 1..=2 {
            site.wait_ready(node);
        }
        site.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
        site
    }

    pub(crate) fn without_agents(purpose: &str, family: Family, mode: &'static str) -> Self {
        let ovn = Ovn { databases: lab::Databases::Standalone, ..Ovn::default() };
        let spec = LabSpec::for_test(purpose).unwrap().nodes(2).family(family).ovn(ovn);
        let lab = Lab::start(spec.kubernetes(Kubernetes::default())).unwrap();
        let site = Self { lab, family, mode };
        let record = site.lab.record();
        let controller = Program::new("controller", PathBuf::from(env!("CARGO_BIN_EXE_ovnkube")))
            .environment("OVNKUBE_METRICS_BIND_ADDRESS", "off")
            .arguments(["controller", "--identity", "controller"])
            .arguments(["--nb-address", &record.endpoints.northbound.unwrap()])
            .arguments(["--sb-address", &record.endpoints.southbound.unwrap()])
            .arguments(networks(family));
        site.lab.run(&controller).unwrap();
        for node in 1..=2 {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{node}")}});
            site.lab.apply(&node.to_string()).unwrap();
        }
        site
    }

    /// Arguments of a node's agent.
    pub(crate) fn agent_arguments(&self, node: u32) -> Vec<String> {
        let southbound = self.lab.record().endpoints.southbound_remote.unwrap();
        let mut words: Vec<String> = networks(self.family).map(String::from).into();
        for word in ["--node", &format!("n{node}"), "--sb-address", &southbound, "--gateway-mode", self.mode] {
            words.push(word.to_owned());
        }
        words
    }

    pub(crate) fn run_agent(&self, node: u32) {
        self.run_agent_with(node, &[]);
    }

    pub(crate) fn run_agent_with(&self, node: u32, more: &[&str]) {
        self.run_agent_as(&agent(node), node, more);
    }

    pub(crate) fn run_agent_as(&self, name: &str, node: u32, more: &[&str]) {
        let agent = Program::new(name, PathBuf::from(env!("CARGO_BIN_EXE_ovnkube")))
            .on(&format!("n{node}"))
            .environment("OVNKUBE_METRICS_BIND_ADDRESS", "off")
            .arguments(["node"])
            .arguments(self.agent_arguments(node))
            .arguments(more.iter().copied());
        self.lab.run(&agent).unwrap();
    }

    /// Waits for a text in a component's log.
    pub(crate) fn wait_log(&self, component: &str, words: &str) {
        until(&format!("{component} logs {words:?}"), || {
            self.lab.log(component).unwrap().contains(words).then_some(())
        });
    }

    /// Waits until the node's condition is True.
    pub(crate) fn wait_ready(&self, node: u32) {
        until(&format!("n{node} is ready"), || (self.condition(node)?.0 == "True").then_some(()));
    }

    /// Status and message of `NodeNetworkReady`.
    pub(crate) fn condition(&self, node: u32) -> Option<(String, String)> {
        let object = self.get(&["node", &format!("n{node}")]);
        let conditions = object["status"]["conditions"].as_array()?;
        let found = conditions.iter().find(|one| one["type"] == "k8s.ovn.org/NodeNetworkReady")?;
        Some((found["status"].as_str()?.to_owned(), found["message"].as_str()?.to_owned()))
    }

    pub(crate) fn get(&self, what: &[&str]) -> Value {
        let mut arguments = vec!["get", "-o", "json"];
        arguments.extend(what);
        serde_json::from_str(&self.lab.kubectl(&arguments).unwrap()).unwrap()
    }

    pub(crate) fn apply(&self, items: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        until("the objects are applied", || self.lab.apply(&list).ok());
    }

    /// Creates and connects a pod that answers on port 8080.
    pub(crate) fn pod(&self, node: u32, name: &str, spec: &Value) -> (Pod, Vec<IpAddr>) {
        let mut object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": format!("n{node}"), "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "none"}]}});
        if let Some(ports) = spec.get("ports") {
            object["spec"]["containers"][0]["ports"] = ports.clone();
        }
        self.apply(&[object]);
        let (uid, network) = until(&format!("pod {name} has its annotation"), || {
            let pod = self.get(&["pod", name]);
            let text = pod["metadata"]["annotations"]["k8s.ovn.org/pod-networks"].as_str()?;
            let network: Value = serde_json::from_str(text).unwrap();
            Some((pod["metadata"]["uid"].as_str()?.to_owned(), network["default"].clone()))
        });
        let list = |key: &str| -> Vec<String> {
            network[key].as_array().unwrap().iter().map(|item| item.as_str().unwrap().to_owned()).collect()
        };
        let addresses: Vec<InterfaceAddress> = list("ip_addresses").iter().map(|text| text.parse().unwrap()).collect();
        let gateways: Vec<IpAddr> = list("gateway_ips").iter().map(|text| text.parse().unwrap()).collect();
        let port = format!("default_{name}");
        let wiring = PodInterface {
            port: &port,
            mac: network["mac_address"].as_str().unwrap().parse().unwrap(),
            addresses: &addresses,
            gateways: &gateways,
            mtu: 1400,
            version: Some(&uid),
        };
        let pod = Pod::create(self.lab.node(node).unwrap(), name, &wiring).unwrap();
        self.lab.nbctl(&["wait-until", "Logical_Switch_Port", &port, "up=true"]).unwrap();
        serve(name, pod.listen(8080).unwrap());
        (pod, addresses.iter().map(|address| address.address()).collect())
    }

    /// A server in a machine's own network.
    pub(crate) fn serve_on(&self, machine: &Machine, port: u16) {
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        serve(&machine.name, machine.with_network(|| TcpListener::bind(any)).unwrap().unwrap());
    }

    /// The families of the cluster, IPv4 first.
    pub(crate) fn families(&self) -> Vec<netmodel::Family> {
        self.family.families()
    }

    /// The pod web-2 on n2, behind port 30080 of all nodes.
    pub(crate) fn web_behind_a_node_port(&self) -> (Pod, Vec<IpAddr>) {
        let (pod, addresses) = self.pod(2, "web-2", &json!({}));
        let spec = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]});
        self.service("web", spec, &[(addresses[0], 2, 8080)]);
        (pod, addresses)
    }

    /// A Service with these endpoints (address, node, port); returns its cluster IPs.
    pub(crate) fn service(&self, name: &str, spec: Value, endpoints: &[(IpAddr, u32, u16)]) -> Vec<IpAddr> {
        self.service_of(name, spec, endpoints, "TCP")
    }

    /// Like [`Self::service`], for UDP.
    pub(crate) fn datagram_service(&self, name: &str, spec: Value, endpoints: &[(IpAddr, u32, u16)]) -> Vec<IpAddr> {
        self.service_of(name, spec, endpoints, "UDP")
    }

    fn service_of(&self, name: &str, mut spec: Value, endpoints: &[(IpAddr, u32, u16)], protocol: &str) -> Vec<IpAddr> {
        spec["ipFamilyPolicy"] = json!("PreferDualStack");
        let mut items =
            vec![json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
            "spec": spec})];
        for family in self.families() {
            let own: Vec<_> = endpoints.iter().filter(|(address, ..)| family.matches(*address)).collect();
            let Some((_, _, port)) = own.first() else { continue };
            let endpoints: Vec<Value> = own
                .iter()
                .map(|(address, node, _)| {
                    json!({"addresses": [address.to_string()], "nodeName": format!("n{node}"), "conditions": {"ready": true}})
                })
                .collect();
            items.push(json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
                "metadata": {"name": format!("{name}-{}", family.to_string().to_lowercase()), "namespace": "default",
                    "labels": {"kubernetes.io/service-name": name}},
                "ports": [{"port": port, "protocol": protocol, "name": ""}], "endpoints": endpoints}));
        }
        self.apply(&items);
        let object = self.get(&["service", name]);
        let ips = object["spec"]["clusterIPs"].as_array().unwrap();
        ips.iter().map(|ip| ip.as_str().unwrap().parse().unwrap()).collect()
    }
}

pub(crate) fn agent(node: u32) -> String {
    format!("n{node}-agent")
}

/// The address of a node, or of the outside, on the underlay.
pub(crate) fn underlay(number: u8, family: netmodel::Family) -> IpAddr {
    match family {
        netmodel::Family::V4 => IpAddr::from([10, 99, 0, number]),
        netmodel::Family::V6 => format!("fd99::{number:x}").parse().unwrap(),
    }
}
