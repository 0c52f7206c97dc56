//! A hand-made logical network, like the controller's: a cluster router, a switch with one pod for each node, and a
//! gateway router on the external bridge for each node.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::Duration;

use lab::{Family, Lab, Pod, PodInterface};
use netmodel::{InterfaceAddress, Mac, Prefix};

/// Every pod answers on this port with its name and the client's address.
pub(crate) const PORT: u16 = 8080;
/// After this time a test counts a packet as lost. Only a broken network takes as long.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct NodeNetwork {
    pub(crate) pod: Pod,
    pub(crate) pod_addresses: Vec<IpAddr>,
    pub(crate) gateway_addresses: Vec<IpAddr>,
}

fn prefixes(family: Family, v4: &str, v6: &str) -> Vec<Prefix> {
    let mut all = Vec::new();
    all.extend(family.has_v4().then(|| v4.parse::<Prefix>().unwrap()));
    all.extend(family.has_v6().then(|| v6.parse::<Prefix>().unwrap()));
    all
}

fn at(prefixes: &[Prefix], n: u128) -> Vec<InterfaceAddress> {
    prefixes.iter().map(|prefix| prefix.nth_interface(n).unwrap()).collect()
}

fn addresses(interfaces: &[InterfaceAddress]) -> Vec<IpAddr> {
    interfaces.iter().map(|interface| interface.address()).collect()
}

fn everything(prefix: &Prefix) -> &'static str {
    if prefix.is_ipv6() { "::/0" } else { "0.0.0.0/0" }
}

/// One `ovn-nbctl` transaction.
struct Script(Vec<String>);

impl Script {
    fn line(&mut self, line: impl AsRef<str>) {
        if !self.0.is_empty() {
            self.0.push("--".into());
        }
        self.0.extend(line.as_ref().split_whitespace().map(String::from));
    }

    /// A router port and its switch port.
    fn router_port(&mut self, router: &str, port: &str, mac: Mac, networks: &[InterfaceAddress], switch: &str) {
        let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
        self.line(format!("lrp-add {router} {port} {mac} {}", networks.join(" ")));
        self.line(format!("lsp-add {switch} to-{port}"));
        self.line(format!("lsp-set-type to-{port} router"));
        self.line(format!("lsp-set-addresses to-{port} router"));
        self.line(format!("lsp-set-options to-{port} router-port={port}"));
    }

    fn commit(self, lab: &Lab) {
        lab.nbctl(&self.0.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    }
}

/// Creates the network with one pod on each node; pods have both address families, whatever the underlay has.
pub(crate) fn build(lab: &Lab, nodes: u32) -> Vec<NodeNetwork> {
    let family = lab.record().spec.family;
    let join = prefixes(Family::Dual, "100.64.0.0/16", "fd98::/64");
    let outside = prefixes(family, "10.99.0.0/24", "fd99::/64");
    let mut script = Script(Vec::new());
    script.line("lr-add cluster");
    script.line("ls-add join");
    script.router_port(
        "cluster",
        "rtoj",
        Mac::for_addresses(&addresses(&at(&join, 1))).unwrap(),
        &at(&join, 1),
        "join",
    );
    for node in 1..=nodes {
        let subnets = pod_subnets(node);
        let first = at(&subnets, 1);
        script.line(format!("ls-add sw{node}"));
        script.router_port(
            "cluster",
            &format!("rtos{node}"),
            Mac::for_addresses(&addresses(&first)).unwrap(),
            &first,
            &format!("sw{node}"),
        );
        add_gateway(&mut script, node, &join, &outside);
        let own = at(&subnets, 3);
        let texts: Vec<String> = addresses(&own).iter().map(ToString::to_string).collect();
        script.line(format!("lsp-add sw{node} pod{node}"));
        // One argument with spaces in it: not with `line`.
        script.0.extend(["--", "lsp-set-addresses"].map(String::from));
        script.0.push(format!("pod{node}"));
        script.0.push(format!("{} {}", Mac::for_addresses(&addresses(&own)).unwrap(), texts.join(" ")));
    }
    script.commit(lab);
    let networks: Vec<NodeNetwork> = (1..=nodes).map(|node| add_pod(lab, node, &outside)).collect();
    for node in 1..=nodes {
        lab.nbctl(&["wait-until", "Logical_Switch_Port", &format!("pod{node}"), "up=true"]).unwrap();
    }
    lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    warm_tunnels(&networks);
    networks
}

/// A userspace tunnel loses its first packet while the neighbour resolves, and a load balancer on a router never
/// recovers a connection whose first packet was lost. So send packets first that may be lost.
fn warm_tunnels(networks: &[NodeNetwork]) {
    for from in networks {
        for to in networks {
            from.pod.run(&["ping", "-c", "1", "-i", "0.2", "-w", "30", &to.pod_addresses[0].to_string()]).unwrap();
        }
    }
}

fn pod_subnets(node: u32) -> Vec<Prefix> {
    prefixes(Family::Dual, &format!("10.244.{node}.0/24"), &format!("fd44:{node:x}::/64"))
}

fn add_gateway(script: &mut Script, node: u32, join: &[Prefix], outside: &[Prefix]) {
    let router = format!("gr{node}");
    let own_join = at(join, u128::from(node) + 1);
    let own_outside = at(outside, 220 + u128::from(node));
    script.line(format!("lr-add {router}"));
    script.line(format!(
        "set logical_router {router} options:chassis=n{node} options:lb_force_snat_ip=router_ip options:snat-ct-zone=0"
    ));
    script.router_port(
        &router,
        &format!("gtoj{node}"),
        Mac::for_addresses(&addresses(&own_join)).unwrap(),
        &own_join,
        "join",
    );
    script.line(format!("ls-add ext{node}"));
    script.router_port(
        &router,
        &format!("gtoe{node}"),
        Mac::for_addresses(&addresses(&own_outside)).unwrap(),
        &own_outside,
        &format!("ext{node}"),
    );
    script.line(format!("lsp-add ext{node} ln{node}"));
    script.line(format!("lsp-set-type ln{node} localnet"));
    script.line(format!("lsp-set-addresses ln{node} unknown"));
    script.line(format!("lsp-set-options ln{node} network_name=physnet"));
    for prefix in outside {
        script.line(format!("lr-route-add {router} {} {} gtoe{node}", everything(prefix), prefix.nth(254).unwrap()));
    }
    let cluster = prefixes(Family::Dual, "10.244.0.0/16", "fd44::/16");
    for ((cluster, join), subnet) in cluster.iter().zip(join).zip(pod_subnets(node)) {
        let hop = join.nth(u128::from(node) + 1).unwrap();
        script.line(format!("lr-route-add {router} {cluster} {}", join.nth(1).unwrap()));
        script.line(format!("--policy=src-ip lr-route-add cluster {subnet} {hop}"));
        // Without a host route for the join address, replies to a load balancer's client are lost.
        script.line(format!("lr-route-add cluster {hop} {hop}"));
        if let Some(own) = own_outside.iter().find(|own| own.address().is_ipv6() == cluster.is_ipv6()) {
            script.line(format!("lr-nat-add {router} snat {} {cluster}", own.address()));
        }
    }
}

fn add_pod(lab: &Lab, node: u32, outside: &[Prefix]) -> NodeNetwork {
    let subnets = pod_subnets(node);
    let own = at(&subnets, 3);
    let name = format!("pod{node}");
    let wiring = PodInterface {
        port: &name,
        mac: Mac::for_addresses(&addresses(&own)).unwrap(),
        addresses: &own,
        gateways: &addresses(&at(&subnets, 1)),
        mtu: 1400,
        version: None,
    };
    let pod = Pod::create(lab.node(node).unwrap(), &name, &wiring).unwrap();
    answer(pod.listen(PORT).unwrap(), name);
    NodeNetwork {
        pod,
        pod_addresses: addresses(&own),
        gateway_addresses: addresses(&at(outside, 220 + u128::from(node))),
    }
}

/// Answers every connection with a name and the client's address, until the test process exits.
pub(crate) fn answer(listener: TcpListener, name: String) {
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            if let Ok(peer) = client.peer_addr() {
                let _ = writeln!(client, "{name} {}", peer.ip().to_canonical());
            }
        }
    });
}

/// Connects from a pod and returns the answer.
pub(crate) fn ask(pod: &Pod, address: IpAddr, port: u16) -> String {
    let mut stream = pod.connect(SocketAddr::new(address, port), TIMEOUT).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.trim().to_owned()
}
