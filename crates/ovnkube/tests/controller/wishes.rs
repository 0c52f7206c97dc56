//! What few pods ask for, by real packets: limits in both directions, and ports of their node.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use lab::{Family, Pod};
use serde_json::{Value, json};

use crate::cluster::{Cluster, PATIENCE, Wish, pod, until};
use crate::services::{Client, End, LIMIT, Places, attempt, ends, last_client};

/// A pod of the limited kind gets a hundred times less than what others do here, and is measured side by side with one.
const RATIO: u64 = 3;
const PORT: u16 = 7001;

fn start(family: Family) -> Cluster {
    let pods = if family == Family::V6 { "fd01::/48/64" } else { "10.128.0.0/14/23" };
    let services = if family == Family::V6 { "fd96::/112" } else { "10.96.0.0/16" };
    let mut wish = Wish::new("wishes").nodes(2);
    wish.family = family;
    let cluster = wish.arguments(&["--cluster-subnets", pods, "--k8s-service-cidrs", services]).start();
    cluster.lead("c1");
    cluster.add_node(1);
    cluster.add_node(2);
    cluster
}

/// A stream from one pod to another that never ends by itself, and how much of it has arrived.
struct Stream {
    arrived: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Stream {
    fn open(from: &Pod, to: &Pod, address: IpAddr, port: u16) -> Self {
        let listener = to.listen(port).unwrap();
        let way = until("the way is open", || from.connect(SocketAddr::new(address, port), LIMIT).ok());
        let (arrived, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let threads = vec![ear(&listener, arrived.clone(), stop.clone()), mouth(way, stop.clone())];
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

fn mouth(mut way: TcpStream, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    way.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    std::thread::spawn(move || {
        let words = [7; 16 * 1024];
        while !stop.load(Ordering::Relaxed) {
            // What the limit holds back is tried again.
            let _ = way.write(&words);
        }
    })
}

fn ear(listener: &TcpListener, arrived: Arc<AtomicU64>, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    listener.set_nonblocking(true).unwrap();
    let (mut way, _) = until("the way has its other end", || listener.accept().ok());
    way.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    std::thread::spawn(move || {
        let mut words = [0; 16 * 1024];
        while !stop.load(Ordering::Relaxed) {
            if let Ok(bytes) = way.read(&mut words) {
                arrived.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        }
    })
}

/// What arrives by two ways in the same span, once the second has brought so many bytes.
fn side_by_side(limited: &Stream, free: &Stream, bytes: u64) -> (u64, u64) {
    let (before, begin) = (limited.arrived(), free.arrived());
    until("the free way brings enough", || (free.arrived() - begin > bytes).then_some(()));
    (limited.arrived() - before, free.arrived() - begin)
}

fn limited(name: &str, limits: &Value) -> Value {
    let mut object = pod("default", name, "n1");
    object["metadata"]["annotations"] = limits.clone();
    object
}

/// Each of three pods of one node sends to a pod of the other, and gets from it: the limited ones far less, in their own
/// direction alone.
#[test]
fn limits_hold_in_their_own_direction() {
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
    // More than the burst that a limit lets pass at once.
    let enough = 8_000_000;
    let beyond_the_limit = 2 * PATIENCE.as_secs() * 1_000_000 / 8;

    for (limited, name, inwards) in [(&gets, "gets", true), (&sends, "sends", false)] {
        let open = |one: &Pod, name: &str, inwards: bool, port: u16| match inwards {
            true => Stream::open(&peer, one, address(name), port),
            false => Stream::open(one, &peer, address("peer"), port),
        };
        // The other direction knows no limit. It is looked at first: what a slow stream left in its buffer goes on for a while,
        // and its acknowledgements would wait behind that. No other pod is beside it: acknowledgements are limited, too, and
        // of two streams that one would be pushed aside.
        let other = open(limited, name, !inwards, PORT + 2);
        until(&format!("{name} has more in the other direction than the limit would let pass meanwhile"), || {
            (other.arrived() > beyond_the_limit).then_some(())
        });
        drop(other);
        let (slow, fast) = (open(limited, name, inwards, PORT), open(&free, "free", inwards, PORT + 1));
        until("something arrives", || (slow.arrived() > 0).then_some(()));
        let (little, much) = side_by_side(&slow, &fast, enough);
        assert!(much > RATIO * little, "{name}: {little} bytes with a limit, {much} without");
    }

    // A limit that goes is gone for a pod that runs.
    let stream = Stream::open(&peer, &gets, address("gets"), PORT + 4);
    cluster.lab.kubectl(&["annotate", "pod", "gets", "kubernetes.io/ingress-bandwidth-"]).unwrap();
    let begin = stream.arrived();
    until("the limit is gone", || (stream.arrived() - begin > enough).then_some(()));
}

fn opened(name: &str, node: &str, port: &Value) -> Value {
    let mut object = pod("default", name, node);
    object["spec"]["containers"][0]["ports"] = json!([port]);
    object
}

fn ports_of_a_node_lead_to_pods(family: Family) {
    let cluster = start(family);
    let places = Places::of(family);
    let [near, far] = places.nodes.map(|node| SocketAddr::new(node.ip(), 9080));
    let outside = cluster.lab.machine("outside").unwrap();
    cluster.apply(&opened("first", "n1", &json!({"containerPort": 8080, "hostPort": 9080})));
    cluster.apply(&opened("second", "n1", &json!({"containerPort": 8080, "hostPort": 9080})));
    cluster.apply(&pod("default", "near", "n1"));
    cluster.apply(&pod("default", "far", "n2"));
    let (web, late) = (cluster.bind(1, "default", "first"), cluster.bind(1, "default", "second"));
    let clients = [cluster.bind(1, "default", "near"), cluster.bind(2, "default", "far")];
    let (listener, other) = (web.listen(8080).unwrap(), late.listen(8080).unwrap());
    cluster.event("second", "AddressTaken", &["9080/TCP", "Pod default/first"]);
    // To another namespace the Event does not say whose it is; the log does.
    cluster.lab.kubectl(&["create", "namespace", "elsewhere"]).unwrap();
    let mut stranger = opened("third", "n1", &json!({"containerPort": 8080, "hostPort": 9080}));
    stranger["metadata"]["namespace"] = json!("elsewhere");
    cluster.apply(&stranger);
    let told = cluster.event_in("elsewhere", "third", "AddressTaken", &["9080/TCP", "a Pod of another namespace"]);
    assert!(!told.contains("default") && !told.contains("first"), "{told}");
    until("the log names the holder", || {
        cluster.lab.log("c1").unwrap().contains("it is Pod default/first").then_some(())
    });

    // From outside, and the pod sees who it is; from pods of its own node and of another one; from itself.
    ends(&outside, near, &End::Connected);
    until("the pod sees who it is", || (last_client(&listener) == Some(places.outside)).then_some(()));
    for client in &clients {
        ends(client, near, &End::Connected);
    }
    ends(&web, near, &End::Connected);
    assert_ne!(attempt(&outside, far), End::Connected, "it is a port of one node");
    assert_eq!(last_client(&other), None);

    // Who waited has it when the first one is gone.
    cluster.delete("pod", &["first"]);
    until("the other pod is there", || {
        let _ = Client::connect(&outside, near);
        last_client(&other).filter(|client| *client == places.outside)
    });
}

#[test]
fn ports_of_a_node_lead_to_its_pods() {
    ports_of_a_node_lead_to_pods(Family::V4);
}

#[test]
fn ports_of_a_node_lead_to_its_pods_v6() {
    ports_of_a_node_lead_to_pods(Family::V6);
}
