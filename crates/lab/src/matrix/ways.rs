//! Which ways the matrix has, and which of them shall pass.

use std::net::{IpAddr, SocketAddr};

use super::Planned;
use super::cluster::{Cluster, End};
use super::probe::{Goal, Way};
use crate::control_plane::CLUSTER_DOMAIN;
use crate::outside::WEB_PORT;
use crate::underlay::BEYOND;

/// The port of the example's servers.
const POD_PORT: u16 = 8080;
/// The port of their Services.
const SERVICE_PORT: u16 = 80;
/// The port of the API server's Service.
const API_SERVICE_PORT: u16 = 443;
/// kubelet's port: a server that every node has.
const KUBELET_PORT: u16 = 10250;

/// All ways of all families that the cluster has.
pub(super) fn plan(cluster: &Cluster) -> Vec<Planned> {
    [false, true].into_iter().flat_map(|v6| Plan { cluster, v6, ways: Vec::new() }.all()).collect()
}

struct Plan<'a> {
    cluster: &'a Cluster,
    v6: bool,
    ways: Vec<Planned>,
}

impl Plan<'_> {
    fn all(mut self) -> Vec<Planned> {
        if self.cluster.pods.iter().all(|pod| pod.address(self.v6).is_none()) {
            return Vec::new();
        }
        self.ways_of_pods();
        self.ways_of_hosts();
        self.guarded();
        self.ways
    }

    fn add(&mut self, kind: &'static str, from: &End, to: impl Into<String>, goal: Goal) {
        let way = Way { network: from.network.clone(), goal };
        let planned =
            Planned { kind, v6: self.v6, from: from.name.clone(), to: to.into(), way, expected: true, guarded: false };
        self.ways.push(planned);
    }

    fn add_address(
        &mut self,
        kind: &'static str,
        from: &End,
        to: impl Into<String>,
        address: Option<IpAddr>,
        port: u16,
    ) {
        if let Some(address) = address {
            self.add(kind, from, to, Goal::Address(SocketAddr::new(address, port)));
        }
    }

    fn ways_of_pods(&mut self) {
        let (cluster, v6) = (self.cluster, self.v6);
        for pod in cluster.app("client") {
            for web in cluster.app("web") {
                let kind = if web.node == pod.node { "pod → pod, same node" } else { "pod → pod, other node" };
                self.add_address(kind, pod, &web.name, web.address(v6), POD_PORT);
            }
            self.add_address("pod → service", pod, "web", cluster.service("shop/web", v6), SERVICE_PORT);
            self.add_name("pod → DNS name", pod, "web.shop", SERVICE_PORT);
            self.add_name("pod → kubernetes.default", pod, "kubernetes.default", API_SERVICE_PORT);
            let beyond =
                BEYOND.iter().filter_map(|address| address.parse().ok()).find(|it: &IpAddr| it.is_ipv6() == v6);
            self.add_address("pod → outside", pod, BEYOND[usize::from(v6)], beyond, WEB_PORT);
            for node in &cluster.nodes {
                let kind = if node.name == pod.node { "pod → own node" } else { "pod → other node" };
                self.add_address(kind, pod, &node.name, node.address(v6), KUBELET_PORT);
            }
        }
    }

    /// By name, if the Service has an address of this family.
    fn add_name(&mut self, kind: &'static str, from: &End, name: &str, port: u16) {
        let (namespace, service) = name.split_once('.').map_or(("", ""), |(service, namespace)| (namespace, service));
        let has = self.cluster.service(&format!("{namespace}/{service}"), self.v6).is_some();
        let server = self.cluster.service("kube-system/kube-dns", self.v6);
        if let (true, Some(server)) = (has, server) {
            let service = SocketAddr::new(server, 53);
            let full = format!("{name}.svc.{CLUSTER_DOMAIN}");
            self.add(kind, from, &full, Goal::Name { service, name: full.clone(), port, v6: self.v6 });
        }
    }

    fn ways_of_hosts(&mut self) {
        let (cluster, v6, port) = (self.cluster, self.v6, self.cluster.node_port);
        let service = cluster.service("shop/web", v6);
        for (index, node) in cluster.nodes.iter().enumerate() {
            self.add_address("outside → NodePort", &cluster.outside, &node.name, node.address(v6), port);
            self.add_address("host → ClusterIP", node, "web", service, SERVICE_PORT);
            self.add_address("host → own NodePort", node, &node.name, node.address(v6), port);
            // One other stands for all: they would be as many as nodes, squared.
            if let Some(other) = cluster.nodes.get((index + 1) % cluster.nodes.len()).filter(|it| it.name != node.name)
            {
                self.add_address("host → other node's NodePort", node, &other.name, other.address(v6), port);
            }
            for web in cluster.app("web") {
                let kind = if web.node == node.name { "host → own pod" } else { "host → other node's pod" };
                self.add_address(kind, node, &web.name, web.address(v6), POD_PORT);
            }
        }
    }

    /// What the policy is about: its clients pass, strangers do not.
    fn guarded(&mut self) {
        let (cluster, v6) = (self.cluster, self.v6);
        let before = self.ways.len();
        for (app, to_pod, to_service) in [
            ("client", "client → guarded pod", "client → guarded service"),
            ("stranger", "stranger → guarded pod", "stranger → guarded service"),
        ] {
            for pod in cluster.app(app) {
                for store in cluster.app("store") {
                    self.add_address(to_pod, pod, &store.name, store.address(v6), POD_PORT);
                }
                self.add_address(to_service, pod, "store", cluster.service("shop/store", v6), SERVICE_PORT);
            }
        }
        for way in self.ways.iter_mut().skip(before) {
            way.guarded = true;
            way.expected = way.kind.starts_with("client");
        }
    }
}
