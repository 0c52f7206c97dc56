//! Pods on two nodes that connect to each other on all ports: real packets, compared with what the API objects allow.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use lab::Pod;
use serde_json::{Value, json};
use truth::random::Tuple;
use truth::{Family, Protocol, TrafficEnd};

use crate::cluster::{Cluster, ClusterSpec, Network, until};

/// Limit of a connection attempt; longer than the first retransmission of a SYN.
const LIMIT: Duration = Duration::from_millis(1500);
/// Interval between retries of a datagram; the first may be lost during neighbour discovery.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
const DATAGRAM: usize = 8;

pub(crate) const TCP: [u16; 3] = [8080, 9090, 9095];
pub(crate) const UDP: [u16; 2] = [5353, 6000];

/// The cluster networks and the lab's own service networks, of both families.
pub(crate) const DUAL_STACK: [&str; 4] =
    ["--cluster-subnets", "10.128.0.0/14/23,fd01::/48/64", "--k8s-service-cidrs", "10.96.0.0/16,fd96::/112"];

/// A pod that listens on all ports.
pub(crate) struct Member {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) node: u32,
    pub(crate) network: Network,
    pub(crate) pod: Pod,
    tcp: Vec<TcpListener>,
    udp: Vec<(u16, UdpSocket)>,
}

impl Member {
    pub(crate) fn place(&self) -> TrafficEnd {
        TrafficEnd::pod(&self.namespace, &self.name)
    }

    pub(crate) fn address(&self, family: Family) -> Option<IpAddr> {
        let mut own = self.network.addresses.iter().map(|own| own.address());
        own.find(|address| Family::of(*address) == family)
    }
}

pub(crate) struct PodMesh {
    pub(crate) cluster: Cluster,
    pub(crate) members: Vec<Member>,
    /// Whether the CRDs of AdminNetworkPolicies are installed.
    has_admin_policies: bool,
}

pub(crate) fn namespace(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

pub(crate) fn labelled_pod(namespace: &str, name: &str, node: &str, labels: &Value, ports: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "none", "ports": ports}]}})
}

pub(crate) fn policy(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec})
}

/// Plurals of the custom resources.
const ADMIN_KINDS: [&str; 2] = ["adminnetworkpolicies", "baselineadminnetworkpolicies"];

/// A dual-stack cluster of two nodes with a leading controller.
pub(crate) fn two_nodes(purpose: &'static str) -> Cluster {
    let mut spec = ClusterSpec::new(purpose).nodes(2);
    spec.family = lab::Family::Dual;
    let cluster = spec.arguments(&DUAL_STACK).start();
    cluster.lead("c1");
    for node in 1..=2 {
        cluster.add_node(node);
    }
    cluster
}

impl PodMesh {
    /// Six pods in three namespaces on two nodes.
    pub(crate) fn start(purpose: &'static str) -> Self {
        let cluster = two_nodes(purpose);
        cluster.apply_all(&[
            namespace("shop", &json!({"team": "blue"})),
            namespace("office", &json!({"team": "red", "floor": "1"})),
            namespace("yard", &json!({})),
        ]);
        let http = |number: u16| json!([{"name": "http", "containerPort": number}]);
        let both =
            json!([{"name": "http", "containerPort": 8080}, {"name": "dns", "containerPort": 5353, "protocol": "UDP"}]);
        cluster.apply_all(&[
            labelled_pod("shop", "web", "n1", &json!({"app": "web", "tier": "front"}), &both),
            labelled_pod("shop", "db", "n2", &json!({"app": "db"}), &http(9090)),
            labelled_pod("shop", "job", "n1", &json!({"app": "job"}), &json!([])),
            labelled_pod("office", "desk", "n2", &json!({"app": "desk", "tier": "front"}), &http(9095)),
            labelled_pod("office", "robot", "n1", &json!({"app": "robot"}), &json!([])),
            labelled_pod("yard", "dog", "n2", &json!({}), &json!([])),
        ]);
        let mut mesh = Self { cluster, members: Vec::new(), has_admin_policies: false };
        for (namespace, name, node) in [
            ("shop", "web", 1),
            ("shop", "db", 2),
            ("shop", "job", 1),
            ("office", "desk", 2),
            ("office", "robot", 1),
            ("yard", "dog", 2),
        ] {
            mesh.add(namespace, name, node);
        }
        mesh.cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
        mesh
    }

    /// Connects a pod and listens on its ports.
    fn add(&mut self, namespace: &str, name: &str, node: u32) {
        let pod = self.cluster.bind(node, namespace, name);
        let tcp = TCP.iter().map(|port| {
            let listener = pod.listen(*port).unwrap();
            listener.set_nonblocking(true).unwrap();
            listener
        });
        let (tcp, udp) = (tcp.collect(), UDP.iter().map(|port| (*port, udp_socket(&pod, *port))).collect());
        let network = self.cluster.network_of(namespace, name);
        self.members.push(Member { namespace: namespace.into(), name: name.into(), node, network, pod, tcp, udp });
    }

    pub(crate) fn member(&self, name: &str) -> &Member {
        self.members.iter().find(|member| member.name == name).unwrap()
    }

    /// Every pair of different pods, on every port, in both families.
    pub(crate) fn tuples(&self) -> Vec<Tuple> {
        let ports = TCP.map(|port| (Protocol::Tcp, port)).into_iter().chain(UDP.map(|port| (Protocol::Udp, port)));
        let ports: Vec<(Protocol, u16)> = ports.collect();
        let mut all = Vec::new();
        for from in &self.members {
            for to in self.members.iter().filter(|to| to.name != from.name) {
                for family in [Family::V4, Family::V6] {
                    all.extend(ports.iter().map(|(protocol, port)| Tuple {
                        from: from.place(),
                        to: to.place(),
                        protocol: *protocol,
                        port: *port,
                        family,
                    }));
                }
            }
        }
        all
    }

    fn at(&self, place: &TrafficEnd) -> &Member {
        self.members.iter().find(|member| member.place() == *place).unwrap()
    }

    /// The indices of the connections that succeed. All are tried concurrently.
    pub(crate) fn measure(&self, tuples: &[Tuple]) -> BTreeSet<usize> {
        for listener in self.members.iter().flat_map(|member| &member.tcp) {
            while listener.accept().is_ok() {}
        }
        let udp = |place: &usize| tuples[*place].protocol == Protocol::Udp;
        let all: Vec<usize> = (0..tuples.len()).collect();
        let (datagrams, streams): (Vec<usize>, Vec<usize>) = all.into_iter().partition(udp);
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| self.delivered_datagrams(tuples, &datagrams));
            let mut found = BTreeSet::new();
            for own in self
                .members
                .iter()
                .map(|member| {
                    let own = streams.iter().copied().filter(|place| tuples[*place].from == member.place());
                    let targets: Vec<(usize, SocketAddr)> =
                        own.map(|place| (place, self.target(&tuples[place]))).collect();
                    scope.spawn(move || connections(&member.pod, &targets))
                })
                .collect::<Vec<_>>()
            {
                found.extend(own.join().unwrap());
            }
            found.extend(asked.join().unwrap());
            found
        })
    }

    fn target(&self, tuple: &Tuple) -> SocketAddr {
        SocketAddr::new(self.at(&tuple.to).address(tuple.family).unwrap(), tuple.port)
    }

    /// Sends each of these datagrams repeatedly until it has arrived or [`LIMIT`] is over.
    fn delivered_datagrams(&self, tuples: &[Tuple], asked: &[usize]) -> BTreeSet<usize> {
        let sockets: Vec<UdpSocket> = self.members.iter().map(|member| udp_socket(&member.pod, 0)).collect();
        let mut arrived = BTreeSet::new();
        // Discard datagrams of an earlier measurement.
        self.collect(&mut BTreeSet::new());
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline && arrived.len() < asked.len() {
            for place in asked.iter().filter(|place| !arrived.contains(*place)) {
                let tuple = &tuples[*place];
                let own = self.members.iter().position(|member| member.place() == tuple.from).unwrap();
                // A failed send is retried.
                let _ = sockets[own].send_to(&place.to_be_bytes(), self.target(tuple));
            }
            std::thread::sleep(RETRY_INTERVAL);
            self.collect(&mut arrived);
        }
        arrived
    }

    fn collect(&self, arrived: &mut BTreeSet<usize>) {
        for (_, socket) in self.members.iter().flat_map(|member| &member.udp) {
            let mut datagram = [0; DATAGRAM];
            while let Ok((DATAGRAM, _)) = socket.recv_from(&mut datagram) {
                arrived.insert(usize::from_be_bytes(datagram));
            }
        }
    }

    /// The API objects for the independent evaluation, with pod addresses as a kubelet would write them into the status.
    pub(crate) fn api_truth(&self) -> truth::Cluster {
        let mut objects = Vec::new();
        let kinds = ["nodes", "namespaces", "pods", "networkpolicies", "services", "endpointslices"];
        let admin = ADMIN_KINDS.into_iter().filter(|_| self.has_admin_policies);
        for kind in kinds.into_iter().chain(admin) {
            objects.extend(self.cluster.get(&[kind, "-A"])["items"].as_array().unwrap().iter().cloned());
        }
        for member in &self.members {
            let own = objects.iter_mut().find(|object| {
                let meta = &object["metadata"];
                object["kind"] == "Pod" && meta["name"] == member.name && meta["namespace"] == member.namespace
            });
            let addresses: Vec<Value> =
                member.network.addresses.iter().map(|own| json!({"ip": own.address().to_string()})).collect();
            if let Some(own) = own {
                own["status"]["podIPs"] = json!(addresses);
            }
        }
        truth::Cluster::from_objects(&objects).unwrap()
    }

    /// Waits until exactly the connections that the API allows succeed; returns how many are denied.
    pub(crate) fn wait_matches_api(&self, what: &str) -> usize {
        let (tuples, api_truth) = (self.tuples(), self.api_truth());
        let verdicts: Vec<truth::Verdict> = tuples.iter().map(|tuple| tuple.verdict(&api_truth)).collect();
        let mut wrong = String::new();
        let deadline = Instant::now() + crate::cluster::TIMEOUT;
        loop {
            // Wait until the rows are flows on all nodes.
            self.cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
            let found = self.measure(&tuples);
            let differs = |place: &usize| verdicts[*place].allowed != found.contains(place);
            let differing: Vec<usize> = (0..tuples.len()).filter(differs).collect();
            if differing.is_empty() {
                return verdicts.iter().filter(|verdict| !verdict.allowed).count();
            }
            assert!(Instant::now() < deadline, "{what}: {} connections differ from the API:{wrong}", differing.len());
            wrong.clear();
            for place in differing.into_iter().take(8) {
                let Tuple { from, to, protocol, port, family } = &tuples[place];
                let seen = if found.contains(&place) { "succeeds" } else { "fails" };
                let why = verdicts[place].why.join("; ");
                wrong.push_str(&format!("\n  {from} to {to} {port}/{protocol} {family} {seen}, but: {why}"));
            }
        }
    }

    /// Installs the CRDs of AdminNetworkPolicies.
    pub(crate) fn install_admin_policies(&mut self) {
        self.cluster.install_admin_policies();
        self.has_admin_policies = true;
    }

    /// Applies policies and checks all connections; some must be denied and some allowed.
    pub(crate) fn check_with(&self, what: &str, policies: &[Value]) {
        self.cluster.apply_all(policies);
        let (denied, all) = (self.wait_matches_api(what), self.tuples().len());
        assert!(denied > 0 && denied < all, "{what}: {denied} of {all} are denied, which proves little");
    }

    /// Deletes all policies and checks that everything is allowed, so that denials were not those of a broken network.
    pub(crate) fn check_without(&self, what: &str) {
        self.cluster.lab.kubectl(&["delete", "networkpolicies", "-A", "--all"]).unwrap();
        for kind in ADMIN_KINDS.into_iter().filter(|_| self.has_admin_policies) {
            self.cluster.lab.kubectl(&["delete", kind, "--all"]).unwrap();
        }
        assert_eq!(self.wait_matches_api(&format!("after: {what}")), 0);
    }

    /// Runs `kubectl label --overwrite`.
    pub(crate) fn label(&self, words: &[&str]) {
        self.cluster.lab.kubectl(&[&["label", "--overwrite"], words].concat()).unwrap();
    }
}

/// A dual-stack UDP socket in a pod.
pub(crate) fn udp_socket(pod: &Pod, port: u16) -> UdpSocket {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let socket = pod.with_network(|| UdpSocket::bind(any)).unwrap().unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// The indices of the targets that a pod can connect to, tried concurrently.
fn connections(pod: &Pod, targets: &[(usize, SocketAddr)]) -> Vec<usize> {
    pod.with_network(|| {
        // New threads inherit the network namespace.
        std::thread::scope(|scope| {
            let attempts = targets.iter().map(|(place, to)| {
                scope.spawn(move || TcpStream::connect_timeout(to, LIMIT).is_ok().then_some(*place))
            });
            let attempts: Vec<_> = attempts.collect();
            attempts.into_iter().filter_map(|attempt| attempt.join().unwrap()).collect()
        })
    })
    .unwrap()
}

/// One attempt.
pub(crate) fn connects(pod: &Pod, to: SocketAddr) -> bool {
    !connections(pod, &[(0, to)]).is_empty()
}

/// Waits until a pod can, or cannot, connect to a target.
pub(crate) fn wait_connects(pod: &Pod, to: SocketAddr, can: bool) {
    let word = if can { "connects" } else { "does not connect" };
    until(&format!("{} {word} to {to}", pod.name), || (connects(pod, to) == can).then_some(()));
}
