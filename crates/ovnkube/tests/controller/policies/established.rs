//! Established connections under policies that come and go: what is denied now never passes, what is allowed again does.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use lab::Pod;
use serde_json::{Value, json};

use crate::cluster::{Cluster, until};
use crate::crowd::{connects_or_not, labelled_pod, namespace, policy, two_nodes};
use crate::guarded::{addresses, bound, remove, settled, stands};

const PORT: u16 = 7100;
/// Connections from each client.
const CONNECTIONS: usize = 10;
/// OVN's mark of a cut connection made every second packet pass: several in a row show it.
const ROUNDS: usize = 6;

const OPEN: &[u8] = b"open";
const SHUT: &[u8] = b"shut";

/// Answers every datagram, and counts those that must not arrive.
fn echo(pod: &Pod) -> Arc<AtomicUsize> {
    let socket = pod.with_network(|| UdpSocket::bind(("::", PORT))).unwrap().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let arrived = count.clone();
    std::thread::spawn(move || {
        let mut datagram = [0; 16];
        while let Ok((size, client)) = socket.recv_from(&mut datagram) {
            arrived.fetch_add(usize::from(&datagram[..size] == SHUT), Ordering::SeqCst);
            let _ = socket.send_to(&datagram[..size], client);
        }
    });
    count
}

struct Connections {
    sockets: Vec<UdpSocket>,
    arrived: Arc<AtomicUsize>,
}

impl Connections {
    /// From each pod to an address; nothing is sent yet.
    fn new(clients: &[&Pod], to: SocketAddr, arrived: Arc<AtomicUsize>) -> Self {
        let open = |pod: &&Pod| {
            let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let bind = || {
                let socket = UdpSocket::bind(any).unwrap();
                socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
                socket.connect(to).unwrap();
                socket
            };
            (0..CONNECTIONS).map(|_| pod.with_network(bind).unwrap()).collect::<Vec<_>>()
        };
        Self { sockets: clients.iter().flat_map(open).collect(), arrived }
    }

    /// Waits until each connection has an answer: it is established, and open both ways.
    fn open(&self, what: &str) {
        for socket in &self.sockets {
            until(&format!("{what}: an answer comes"), || {
                socket.send(OPEN).ok()?;
                socket.recv(&mut [0; 16]).ok()
            });
        }
    }

    /// Several datagrams on each connection, none of which arrives.
    fn closed(&self, what: &str) {
        let before = self.arrived.load(Ordering::SeqCst);
        for _ in 0..ROUNDS {
            for socket in &self.sockets {
                socket.send(SHUT).unwrap();
            }
            // One that passes is answered before its sender gives up. Late answers to former ones do not count.
            let mut answer = [0; 16];
            while let Ok(size) = self.sockets[0].recv(&mut answer) {
                assert_ne!(&answer[..size], SHUT, "{what}: an answer came");
            }
        }
        let passed = self.arrived.load(Ordering::SeqCst) - before;
        assert_eq!(passed, 0, "{what}: {passed} of {} datagrams passed", ROUNDS * self.sockets.len());
    }
}

fn admin(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Without the ACLs of `topology::desired::blocked`, three of six datagrams of each connection passed under the policies of
/// tiers 2 and 3.
#[test]
fn established_connections_are_cut_by_policies_of_every_tier() {
    let cluster = two_nodes("established");
    cluster.install_admin_policies();
    cluster.apply_all(&[namespace("shop", &json!({"team": "blue"})), namespace("yard", &json!({}))]);
    let web = bound(&cluster, "shop", "web", 1, &json!({"app": "web"}));
    let near = bound(&cluster, "yard", "near", 1, &json!({"app": "client"}));
    let far = bound(&cluster, "yard", "far", 2, &json!({"app": "client"}));
    settled(&cluster);
    let arrived = echo(&web);
    for address in addresses(&cluster, "shop", "web") {
        let connections = Connections::new(&[&near, &far], SocketAddr::new(address, PORT), arrived.clone());
        connections.open("before all policies");

        cluster.apply(&policy("shop", "deny", &json!({"podSelector": {}})));
        stands(&cluster, "shop/deny", true);
        connections.closed("NetworkPolicy");
        let allow = json!({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {}}]}]});
        cluster.apply(&policy("shop", "allow", &allow));
        connections.open("another NetworkPolicy allows it");
        remove(&cluster, &["networkpolicy", "-n", "shop", "allow"]);
        stands(&cluster, "shop/allow", false);
        connections.closed("NetworkPolicy, again");
        remove(&cluster, &["networkpolicy", "-n", "shop", "deny"]);
        connections.open("without the NetworkPolicy");

        let subject = json!({"namespaces": {"matchLabels": {"team": "blue"}}});
        let deny = json!([{"action": "Deny", "from": [{"namespaces": {}}]}]);
        for (kind, name, spec) in [
            ("BaselineAdminNetworkPolicy", "default", json!({"subject": subject, "ingress": deny})),
            ("AdminNetworkPolicy", "deny", json!({"priority": 5, "subject": subject, "ingress": deny})),
        ] {
            cluster.apply(&admin(kind, name, &spec));
            stands(&cluster, name, true);
            connections.closed(kind);
            remove(&cluster, &[&kind.to_lowercase(), name]);
            connections.open(&format!("without the {kind}"));
        }
    }
}

/// Relabels clients between values that no selector asks for.
fn relabel(cluster: &Cluster, times: usize) {
    for round in 0..times {
        for pod in ["near", "far"] {
            let label = format!("colour=c{round}");
            cluster.lab.kubectl(&["label", "--overwrite", "pod", "-n", "yard", pod, &label]).unwrap();
        }
    }
}

/// Labels that no selector asks for are no change of the network: nothing is written, and no connection fails.
#[test]
fn relabelling_beside_all_selectors_writes_nothing_and_costs_no_connection() {
    let cluster = two_nodes("relabel");
    cluster.apply_all(&[namespace("shop", &json!({})), namespace("yard", &json!({}))]);
    let web = bound(&cluster, "shop", "web", 1, &json!({"app": "web"}));
    let near = bound(&cluster, "yard", "near", 1, &json!({"app": "client"}));
    let far = bound(&cluster, "yard", "far", 2, &json!({"app": "client"}));
    let late = labelled_pod("yard", "late", "n2", &json!({"app": "other"}), &json!([]));
    cluster.apply_all(&[late]);
    cluster.network_of("yard", "late");
    let peer = json!({"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "client"}}});
    let spec = json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [peer]}]});
    cluster.apply(&policy("shop", "clients", &spec));
    stands(&cluster, "shop/clients", true);
    let listener = web.listen(8080).unwrap();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let to = SocketAddr::new(addresses(&cluster, "shop", "web")[0], 8080);
    for client in [&near, &far] {
        connects_or_not(client, to, true);
    }
    let (writer, before) = cluster.sequence();
    let (stop, stopped) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let attempts = [&near, &far].map(|client| {
            let connect = move || client.connect(to, Duration::from_secs(20)).map(drop).map_err(|why| why.to_string());
            (client.name.clone(), connect)
        });
        let tried = scope.spawn(move || {
            let mut tries = 0;
            while matches!(stopped.try_recv(), Err(mpsc::TryRecvError::Empty)) {
                for (client, connect) in &attempts {
                    connect().unwrap_or_else(|why| panic!("{client}: {why}"));
                    tries += 1;
                }
            }
            tries
        });
        relabel(&cluster, 20);
        drop(stop);
        assert!(tried.join().unwrap() > 0);
    });
    // Watches keep the order of a kind: when this label is in the database, all others before it were seen.
    cluster.lab.kubectl(&["label", "--overwrite", "pod", "-n", "yard", "late", "app=client"]).unwrap();
    let late = addresses(&cluster, "yard", "late")[0].to_string();
    until("the pod is in the set of clients", || {
        let sets = cluster.column("Address_Set", "addresses");
        (sets.iter().filter(|set| set.split([' ', ',']).any(|own| own == late)).count() > 1).then_some(())
    });
    let (same, after) = cluster.sequence();
    // One commit for the last label, and some slack for what the controller asks the nodes; forty labels are more.
    assert!(same == writer && after - before < 5, "relabelling beside all selectors made {} commits", after - before);
}
