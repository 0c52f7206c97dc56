//! Optional pod settings by packets: bandwidth limits and host ports.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use lab::{Family, Pod};
use serde_json::{Value, json};

use crate::cluster::{Cluster, ClusterSpec, TIMEOUT, pod, until};
use crate::services::{Client, LIMIT, Outcome, Targets, attempt, last_client, wait_outcome};

/// A limited pod gets about a hundredth of an unlimited one's rate here; this much less is required.
const RATIO: u64 = 3;
const PORT: u16 = 7001;

fn start(family: Family) -> Cluster {
    let pods = if family == Family::V6 { "fd01::/48/64" } else { "10.128.0.0/14/23" };
    let services = if family == Family::V6 { "fd96::/112" } else { "10.96.0.0/16" };
    let mut spec = ClusterSpec::new("pod-options").nodes(2);
    spec.family = family;
    let cluster = spec.arguments(&["--cluster-subnets", pods, "--k8s-service-cidrs", services]).start();
    cluster.lead("c1");
    cluster.add_node(1);
    cluster.add_node(2);
    cluster
}

/// An endless TCP stream from one pod to another that counts received bytes.
struct Stream {
    arrived: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Stream {
    fn open(from: &Pod, to: &Pod, address: IpAddr, port: u16) -> Self {
        let listener = to.listen(port).unwrap();
        let stream = until("the connection is open", || from.connect(SocketAddr::new(address, port), LIMIT).ok());
        let (arrived, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let threads = vec![receiver(&listener, arrived.clone(), stop.clone()), sender(stream, stop.clone())];
        Self { arrived, stop, threads }
    }

    fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn sender(mut stream: TcpStream, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    std::thread::spawn(move || {
        let data = [7; 16 * 1024];
        while !stop.load(Ordering::Relaxed) {
            // A timed-out write is retried.
            let _ = stream.write(&data);
        }
    })
}

fn receiver(listener: &TcpListener, arrived: Arc<AtomicU64>, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    listener.set_nonblocking(true).unwrap();
    let (mut stream, _) = until("the connection is accepted", || listener.accept().ok());
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    std::thread::spawn(move || {
        let mut data = [0; 16 * 1024];
        while !stop.load(Ordering::Relaxed) {
            if let Ok(bytes) = stream.read(&mut data) {
                arrived.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        }
    })
}

/// Bytes received on both streams in the time in which the unlimited one receives this many.
fn side_by_side(limited: &Stream, free: &Stream, bytes: u64) -> (u64, u64) {
    let (before, begin) = (limited.arrived(), free.arrived());
    until("the unlimited stream has enough bytes", || (free.arrived() - begin > bytes).then_some(()));
    (limited.arrived() - before, free.arrived() - begin)
}

fn limited(name: &str, limits: &Value) -> Value {
    let mut object = pod("default", name, "n1");
    object["metadata"]["annotations"] = limits.clone();
    object
}

/// Limited pods send or receive far less than an unlimited one, in the limited direction only.
#[test]
fn bandwidth_limits_apply_per_direction() {
    let cluster = start(Family::V4);
    cluster.apply(&limited("gets", &json!({"kubernetes.io/ingress-bandwidth": "1M"})));
    cluster.apply(&limited("sends", &json!({"kubernetes.io/egress-bandwidth": "1M"})));
    cluster.apply(&limited("free", &json!({"kubernetes.io/egress-bandwidth": "quick"})));
    cluster.apply(&pod("default", "peer", "n2"));
    cluster.event("free", "BandwidthRefused", &["kubernetes.io/egress-bandwidth", "quick", "1k to 1P"]);
    let [gets, sends, free] = ["gets", "sends", "free"].map(|name| cluster.bind(1, "default", name));
    let peer = cluster.bind(2, "default", "peer");
    cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    let address = |name: &str| cluster.network_of("default", name).address();
    // More than the burst of a limit.
    let enough = 8_000_000;
    let beyond_the_limit = 2 * TIMEOUT.as_secs() * 1_000_000 / 8;

    for (limited, name, inwards) in [(&gets, "gets", true), (&sends, "sends", false)] {
        let open = |one: &Pod, name: &str, inwards: bool, port: u16| match inwards {
            true => Stream::open(&peer, one, address(name), port),
            false => Stream::open(one, &peer, address("peer"), port),
        };
        // The other direction has no limit. It is measured first: a slow stream's buffered data would delay its
        // acknowledgements. It is measured alone: its acknowledgements are limited, and a parallel stream would push them
        // aside.
        let other = open(limited, name, !inwards, PORT + 2);
        until(&format!("{name} exceeds the limit in the other direction"), || {
            (other.arrived() > beyond_the_limit).then_some(())
        });
        drop(other);
        let (slow, fast) = (open(limited, name, inwards, PORT), open(&free, "free", inwards, PORT + 1));
        until("something arrives", || (slow.arrived() > 0).then_some(()));
        let (little, much) = side_by_side(&slow, &fast, enough);
        assert!(much > RATIO * little, "{name}: {little} bytes with a limit, {much} without");
    }

    // A removed limit ends for a running pod.
    let stream = Stream::open(&peer, &gets, address("gets"), PORT + 4);
    cluster.lab.kubectl(&["annotate", "pod", "gets", "kubernetes.io/ingress-bandwidth-"]).unwrap();
    let begin = stream.arrived();
    until("the limit is gone", || (stream.arrived() - begin > enough).then_some(()));
}

fn with_host_port(name: &str, node: &str, port: &Value) -> Value {
    let mut object = pod("default", name, node);
    object["spec"]["containers"][0]["ports"] = json!([port]);
    object
}

fn check_host_ports(family: Family) {
    let cluster = start(family);
    let places = Targets::of(family);
    let [near, far] = places.nodes.map(|node| SocketAddr::new(node.ip(), 9080));
    let outside = cluster.lab.machine("outside").unwrap();
    cluster.apply(&with_host_port("first", "n1", &json!({"containerPort": 8080, "hostPort": 9080})));
    cluster.apply(&with_host_port("second", "n1", &json!({"containerPort": 8080, "hostPort": 9080})));
    cluster.apply(&pod("default", "near", "n1"));
    cluster.apply(&pod("default", "far", "n2"));
    let (web, late) = (cluster.bind(1, "default", "first"), cluster.bind(1, "default", "second"));
    let clients = [cluster.bind(1, "default", "near"), cluster.bind(2, "default", "far")];
    let (listener, other) = (web.listen(8080).unwrap(), late.listen(8080).unwrap());
    cluster.event("second", "AddressTaken", &["9080/TCP", "Pod default/first"]);
    // An Event in another namespace does not disclose the holder; the log does.
    cluster.lab.kubectl(&["create", "namespace", "elsewhere"]).unwrap();
    let mut stranger = with_host_port("third", "n1", &json!({"containerPort": 8080, "hostPort": 9080}));
    stranger["metadata"]["namespace"] = json!("elsewhere");
    cluster.apply(&stranger);
    let message = cluster.event_in("elsewhere", "third", "AddressTaken", &["9080/TCP", "a Pod of another namespace"]);
    assert!(!message.contains("default") && !message.contains("first"), "{message}");
    until("the log names the holder", || {
        cluster.lab.log("c1").unwrap().contains("it is Pod default/first").then_some(())
    });

    // From outside with the client's address; from pods of the same and of another node; from the pod itself.
    wait_outcome(&outside, near, &Outcome::Connected);
    until("the pod sees the client's address", || (last_client(&listener) == Some(places.outside)).then_some(()));
    for client in &clients {
        wait_outcome(client, near, &Outcome::Connected);
    }
    wait_outcome(&web, near, &Outcome::Connected);
    assert_ne!(attempt(&outside, far), Outcome::Connected, "a host port is on one node only");
    assert_eq!(last_client(&other), None);

    // The second pod gets the port when the first is deleted.
    cluster.delete("pod", &["first"]);
    until("the second pod is reached", || {
        let _ = Client::connect(&outside, near);
        last_client(&other).filter(|client| *client == places.outside)
    });
}

#[test]
fn host_ports_lead_to_pods() {
    check_host_ports(Family::V4);
}

#[test]
fn host_ports_lead_to_pods_v6() {
    check_host_ports(Family::V6);
}
