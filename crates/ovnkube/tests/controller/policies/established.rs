//! Established connections under changing policies: they are cut when denied, and work again when allowed.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use lab::Pod;
use serde_json::{Value, json};

use crate::cluster::{Cluster, until};
use crate::guarded::{addresses, connect_pod, remove, wait_flows, wait_policy};
use crate::pod_mesh::{labelled_pod, namespace, policy, two_nodes, wait_connects};

const PORT: u16 = 7100;
const CONNECTIONS: usize = 10;
/// Datagrams per connection: OVN's `ct_mark.blocked` let every second packet pass, so several are needed.
const ROUNDS: usize = 6;

const ALLOWED: &[u8] = b"allowed";
const DENIED: &[u8] = b"denied";

/// Echoes every datagram, and counts those that must not arrive.
fn echo(pod: &Pod) -> Arc<AtomicUsize> {
    let socket = pod.with_network(|| UdpSocket::bind(("::", PORT))).unwrap().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let arrived = count.clone();
    std::thread::spawn(move || {
        let mut datagram = [0; 16];
        while let Ok((size, client)) = socket.recv_from(&mut datagram) {
            arrived.fetch_add(usize::from(&datagram[..size] == DENIED), Ordering::SeqCst);
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
    /// Opens sockets from each pod to an address; sends nothing yet.
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

    /// Waits until each connection has a reply, so that it is established.
    fn wait_open(&self, what: &str) {
        for socket in &self.sockets {
            until(&format!("{what}: a reply arrives"), || {
                socket.send(ALLOWED).ok()?;
                socket.recv(&mut [0; 16]).ok()
            });
        }
    }

    /// Sends several datagrams on each connection, none of which may arrive.
    fn assert_closed(&self, what: &str) {
        let before = self.arrived.load(Ordering::SeqCst);
        for _ in 0..ROUNDS {
            for socket in &self.sockets {
                socket.send(DENIED).unwrap();
            }
            // A datagram that passes is echoed within the read timeout. Late echoes of allowed datagrams do not count.
            let mut answer = [0; 16];
            while let Ok(size) = self.sockets[0].recv(&mut answer) {
                assert_ne!(&answer[..size], DENIED, "{what}: a denied datagram was echoed");
            }
        }
        let passed = self.arrived.load(Ordering::SeqCst) - before;
        assert_eq!(passed, 0, "{what}: {passed} of {} datagrams passed", ROUNDS * self.sockets.len());
    }
}

fn admin(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Without the ACLs of `topology::desired::blocked`, three of six datagrams of each connection passed in tiers 2 and 3.
#[test]
fn established_connections_are_cut_by_policies_of_every_tier() {
    let cluster = two_nodes("established");
    cluster.install_admin_policies();
    cluster.apply_all(&[namespace("shop", &json!({"team": "blue"})), namespace("yard", &json!({}))]);
    let web = connect_pod(&cluster, "shop", "web", 1, &json!({"app": "web"}));
    let near = connect_pod(&cluster, "yard", "near", 1, &json!({"app": "client"}));
    let far = connect_pod(&cluster, "yard", "far", 2, &json!({"app": "client"}));
    wait_flows(&cluster);
    let arrived = echo(&web);
    for address in addresses(&cluster, "shop", "web") {
        let connections = Connections::new(&[&near, &far], SocketAddr::new(address, PORT), arrived.clone());
        connections.wait_open("before all policies");

        cluster.apply(&policy("shop", "deny", &json!({"podSelector": {}})));
        wait_policy(&cluster, "shop/deny", true);
        connections.assert_closed("NetworkPolicy");
        let allow = json!({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {}}]}]});
        cluster.apply(&policy("shop", "allow", &allow));
        connections.wait_open("another NetworkPolicy allows it");
        remove(&cluster, &["networkpolicy", "-n", "shop", "allow"]);
        wait_policy(&cluster, "shop/allow", false);
        connections.assert_closed("NetworkPolicy, again");
        remove(&cluster, &["networkpolicy", "-n", "shop", "deny"]);
        connections.wait_open("without the NetworkPolicy");

        let subject = json!({"namespaces": {"matchLabels": {"team": "blue"}}});
        let deny = json!([{"action": "Deny", "from": [{"namespaces": {}}]}]);
        for (kind, name, spec) in [
            ("BaselineAdminNetworkPolicy", "default", json!({"subject": subject, "ingress": deny})),
            ("AdminNetworkPolicy", "deny", json!({"priority": 5, "subject": subject, "ingress": deny})),
        ] {
            cluster.apply(&admin(kind, name, &spec));
            wait_policy(&cluster, name, true);
            connections.assert_closed(kind);
            remove(&cluster, &[&kind.to_lowercase(), name]);
            connections.wait_open(&format!("without the {kind}"));
        }
    }
}

/// Changes labels of the clients that no selector uses.
fn relabel(cluster: &Cluster, times: usize) {
    for round in 0..times {
        for pod in ["near", "far"] {
            let label = format!("colour=c{round}");
            cluster.lab.kubectl(&["label", "--overwrite", "pod", "-n", "yard", pod, &label]).unwrap();
        }
    }
}

/// Nothing is written for labels that no selector uses, and no connection fails.
#[test]
fn labels_that_no_selector_uses_cause_no_write_and_no_loss() {
    let cluster = two_nodes("relabel");
    cluster.apply_all(&[namespace("shop", &json!({})), namespace("yard", &json!({}))]);
    let web = connect_pod(&cluster, "shop", "web", 1, &json!({"app": "web"}));
    let near = connect_pod(&cluster, "yard", "near", 1, &json!({"app": "client"}));
    let far = connect_pod(&cluster, "yard", "far", 2, &json!({"app": "client"}));
    let late = labelled_pod("yard", "late", "n2", &json!({"app": "other"}), &json!([]));
    cluster.apply_all(&[late]);
    cluster.network_of("yard", "late");
    let peer = json!({"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "client"}}});
    let spec = json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [peer]}]});
    cluster.apply(&policy("shop", "clients", &spec));
    wait_policy(&cluster, "shop/clients", true);
    let listener = web.listen(8080).unwrap();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let to = SocketAddr::new(addresses(&cluster, "shop", "web")[0], 8080);
    for client in [&near, &far] {
        wait_connects(client, to, true);
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
    // Events of one kind arrive in order: when this label is in the database, all earlier ones were seen.
    cluster.lab.kubectl(&["label", "--overwrite", "pod", "-n", "yard", "late", "app=client"]).unwrap();
    let late = addresses(&cluster, "yard", "late")[0].to_string();
    until("the pod is in the set of clients", || {
        let sets = cluster.column("Address_Set", "addresses");
        (sets.iter().filter(|set| set.split([' ', ',']).any(|own| own == late)).count() > 1).then_some(())
    });
    let (same, after) = cluster.sequence();
    // One commit for the last label, and some for raising nb_cfg; forty labels would be more.
    assert!(same == writer && after - before < 5, "unused labels caused {} commits", after - before);
}
