//! A crowd of pods on two nodes that all serve and all ask: which connections come about is seen by real packets, and
//! held against what the objects say.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use lab::Pod;
use serde_json::{Value, json};
use truth::random::Tuple;
use truth::{Family, Place, Protocol};

use crate::cluster::{Cluster, Network, Wish, until};

/// How long a connection that does not come about is waited for: longer than the kernel waits before it asks again.
const LIMIT: Duration = Duration::from_millis(1500);
/// How often a datagram is sent again: the first ones may be lost while a neighbour is looked for.
const AGAIN: Duration = Duration::from_millis(50);
const DATAGRAM: usize = 8;

pub(crate) const TCP: [u16; 3] = [8080, 9090, 9095];
pub(crate) const UDP: [u16; 2] = [5353, 6000];

/// The cluster networks and the lab's own service networks, of both families.
pub(crate) const DUAL_STACK: [&str; 4] =
    ["--cluster-subnets", "10.128.0.0/14/23,fd01::/48/64", "--k8s-service-cidrs", "10.96.0.0/16,fd96::/112"];

/// A pod that serves on all ports, with its network.
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
    pub(crate) fn place(&self) -> Place {
        Place::pod(&self.namespace, &self.name)
    }

    pub(crate) fn address(&self, family: Family) -> Option<IpAddr> {
        let mut own = self.network.addresses.iter().map(|own| own.address());
        own.find(|address| Family::of(*address) == family)
    }
}

pub(crate) struct Crowd {
    pub(crate) cluster: Cluster,
    pub(crate) members: Vec<Member>,
    /// Whether there are AdminNetworkPolicies.
    administered: bool,
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

/// The types that an administrator installs.
const ADMIN_KINDS: [&str; 2] = ["adminnetworkpolicies", "baselineadminnetworkpolicies"];

/// Two real nodes with a controller that leads, for both families.
pub(crate) fn two_nodes(purpose: &'static str) -> Cluster {
    let mut wish = Wish::new(purpose).nodes(2);
    wish.family = lab::Family::Dual;
    let cluster = wish.arguments(&DUAL_STACK).start();
    cluster.lead("c1");
    for node in 1..=2 {
        cluster.add_node(node);
    }
    cluster
}

impl Crowd {
    /// Six pods of three namespaces on two nodes.
    pub(crate) fn gather(purpose: &'static str) -> Self {
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
        let mut crowd = Self { cluster, members: Vec::new(), administered: false };
        for (namespace, name, node) in [
            ("shop", "web", 1),
            ("shop", "db", 2),
            ("shop", "job", 1),
            ("office", "desk", 2),
            ("office", "robot", 1),
            ("yard", "dog", 2),
        ] {
            crowd.join(namespace, name, node);
        }
        crowd.cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
        crowd
    }

    /// Binds a pod, which serves from now on.
    fn join(&mut self, namespace: &str, name: &str, node: u32) {
        let pod = self.cluster.bind(node, namespace, name);
        let tcp = TCP.iter().map(|port| {
            let listener = pod.listen(*port).unwrap();
            listener.set_nonblocking(true).unwrap();
            listener
        });
        let (tcp, udp) = (tcp.collect(), UDP.iter().map(|port| (*port, datagrams(&pod, *port))).collect());
        let network = self.cluster.network_of(namespace, name);
        self.members.push(Member { namespace: namespace.into(), name: name.into(), node, network, pod, tcp, udp });
    }

    pub(crate) fn member(&self, name: &str) -> &Member {
        self.members.iter().find(|member| member.name == name).unwrap()
    }

    /// Every connection that could be: from everybody to everybody else, on every port, by both families.
    pub(crate) fn questions(&self) -> Vec<Tuple> {
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

    fn at(&self, place: &Place) -> &Member {
        self.members.iter().find(|member| member.place() == *place).unwrap()
    }

    /// Which of these connections come about, by their places in the list. All are tried at once.
    pub(crate) fn measure(&self, questions: &[Tuple]) -> BTreeSet<usize> {
        for listener in self.members.iter().flat_map(|member| &member.tcp) {
            while listener.accept().is_ok() {}
        }
        let udp = |place: &usize| questions[*place].protocol == Protocol::Udp;
        let all: Vec<usize> = (0..questions.len()).collect();
        let (datagrams, streams): (Vec<usize>, Vec<usize>) = all.into_iter().partition(udp);
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| self.datagrams_that_arrive(questions, &datagrams));
            let mut found = BTreeSet::new();
            for own in self
                .members
                .iter()
                .map(|member| {
                    let own = streams.iter().copied().filter(|place| questions[*place].from == member.place());
                    let targets: Vec<(usize, SocketAddr)> =
                        own.map(|place| (place, self.target(&questions[place]))).collect();
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

    fn target(&self, question: &Tuple) -> SocketAddr {
        SocketAddr::new(self.at(&question.to).address(question.family).unwrap(), question.port)
    }

    /// Sends each of these datagrams until it has arrived or too much time has gone by.
    fn datagrams_that_arrive(&self, questions: &[Tuple], asked: &[usize]) -> BTreeSet<usize> {
        let sockets: Vec<UdpSocket> = self.members.iter().map(|member| datagrams(&member.pod, 0)).collect();
        let mut arrived = BTreeSet::new();
        // What an earlier measurement left behind is no answer to this one.
        self.collect(&mut BTreeSet::new());
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline && arrived.len() < asked.len() {
            for place in asked.iter().filter(|place| !arrived.contains(*place)) {
                let question = &questions[*place];
                let own = self.members.iter().position(|member| member.place() == question.from).unwrap();
                // A send that fails now is tried again.
                let _ = sockets[own].send_to(&place.to_be_bytes(), self.target(question));
            }
            std::thread::sleep(AGAIN);
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

    /// The objects, with the addresses that a kubelet would write into the pods' status, as the second opinion sees them.
    pub(crate) fn documented(&self) -> truth::Cluster {
        let mut objects = Vec::new();
        let kinds = ["nodes", "namespaces", "pods", "networkpolicies", "services", "endpointslices"];
        let admin = ADMIN_KINDS.into_iter().filter(|_| self.administered);
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

    /// Waits until what comes about is what the objects say, no more and no less; tells how many are denied.
    pub(crate) fn agrees(&self, what: &str) -> usize {
        let (questions, documented) = (self.questions(), self.documented());
        let verdicts: Vec<truth::Verdict> = questions.iter().map(|question| question.verdict(&documented)).collect();
        let mut wrong = String::new();
        let deadline = Instant::now() + crate::cluster::PATIENCE;
        loop {
            // What was written takes its time to the flows of all nodes.
            self.cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
            let found = self.measure(&questions);
            let differs = |place: &usize| verdicts[*place].allowed != found.contains(place);
            let differing: Vec<usize> = (0..questions.len()).filter(differs).collect();
            if differing.is_empty() {
                return verdicts.iter().filter(|verdict| !verdict.allowed).count();
            }
            assert!(
                Instant::now() < deadline,
                "{what}: {} connections are not as the objects say:{wrong}",
                differing.len()
            );
            wrong.clear();
            for place in differing.into_iter().take(8) {
                let Tuple { from, to, protocol, port, family } = &questions[place];
                let said = if found.contains(&place) { "comes about" } else { "does not come about" };
                let why = verdicts[place].why.join("; ");
                wrong.push_str(&format!("\n  {from} to {to} {port}/{protocol} {family} {said}, but: {why}"));
            }
        }
    }

    /// AdminNetworkPolicies are a type of this cluster from now on.
    pub(crate) fn administer(&mut self) {
        self.cluster.install_admin_policies();
        self.administered = true;
    }

    /// Some of all connections are denied while these policies stand.
    pub(crate) fn under(&self, what: &str, policies: &[Value]) {
        self.cluster.apply_all(policies);
        let (denied, all) = (self.agrees(what), self.questions().len());
        assert!(denied > 0 && denied < all, "{what}: {denied} of {all} are denied, which shows little");
    }

    /// Without policies everything works: what was denied before was denied by them, and not by a broken network.
    pub(crate) fn without(&self, what: &str) {
        self.cluster.lab.kubectl(&["delete", "networkpolicies", "-A", "--all"]).unwrap();
        for kind in ADMIN_KINDS.into_iter().filter(|_| self.administered) {
            self.cluster.lab.kubectl(&["delete", kind, "--all"]).unwrap();
        }
        assert_eq!(self.agrees(&format!("after: {what}")), 0);
    }

    /// Gives an object other labels; one that ends with `-` goes.
    pub(crate) fn label(&self, words: &[&str]) {
        self.cluster.lab.kubectl(&[&["label", "--overwrite"], words].concat()).unwrap();
    }
}

/// A socket for datagrams of both families in a pod.
pub(crate) fn datagrams(pod: &Pod, port: u16) -> UdpSocket {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let socket = pod.with_network(|| UdpSocket::bind(any)).unwrap().unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Which of these targets a pod can connect to, all at once.
fn connections(pod: &Pod, targets: &[(usize, SocketAddr)]) -> Vec<usize> {
    pod.with_network(|| {
        // Threads begin in the network of the one that starts them.
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

/// Whether a pod can connect to a target.
pub(crate) fn connects(pod: &Pod, to: SocketAddr) -> bool {
    !connections(pod, &[(0, to)]).is_empty()
}

/// Waits until a pod can, or cannot, connect to a target.
pub(crate) fn connects_or_not(pod: &Pod, to: SocketAddr, can: bool) {
    let word = if can { "connects" } else { "does not connect" };
    until(&format!("{} {word} to {to}", pod.name), || (connects(pod, to) == can).then_some(()));
}
