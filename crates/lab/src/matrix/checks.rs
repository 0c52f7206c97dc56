//! The connections of the matrix, and which of them are expected to pass.

use std::net::{IpAddr, SocketAddr};

use netmodel::Family;

use super::Check;
use super::cluster::{Cluster, Endpoint};
use super::connection::{Connection, Target};
use crate::control_plane::CLUSTER_DOMAIN;
use crate::outside::WEB_PORT;
use crate::underlay::EXTERNAL_ADDRESSES;

/// Port of the example's servers.
const POD_PORT: u16 = 8080;
/// Port of the example's Services, which forward to [`POD_PORT`].
const SERVICE_PORT: u16 = 80;
/// `kubernetes.default` listens on this port.
const API_SERVICE_PORT: u16 = 443;
/// kubelet's port: a server on every node.
const KUBELET_PORT: u16 = 10250;

/// All connections of all address families of the cluster.
pub(super) fn plan(cluster: &Cluster) -> Vec<Check> {
    Family::BOTH.into_iter().flat_map(|family| Plan { cluster, family, checks: Vec::new() }.all()).collect()
}

struct Plan<'a> {
    cluster: &'a Cluster,
    family: Family,
    checks: Vec<Check>,
}

impl Plan<'_> {
    fn all(mut self) -> Vec<Check> {
        if self.cluster.pods.iter().all(|pod| pod.address(self.family).is_none()) {
            return Vec::new();
        }
        self.checks_from_pods();
        self.checks_from_hosts();
        self.checks_under_policy();
        self.checks
    }

    fn add(&mut self, kind: &'static str, from: &Endpoint, to: impl Into<String>, target: Target) {
        let connection = Connection { network: from.network.clone(), target };
        let check = Check {
            kind,
            family: self.family,
            from: from.name.clone(),
            to: to.into(),
            connection,
            expected: true,
            guarded: false,
        };
        self.checks.push(check);
    }

    fn add_address(
        &mut self,
        kind: &'static str,
        from: &Endpoint,
        to: impl Into<String>,
        address: Option<IpAddr>,
        port: u16,
    ) {
        if let Some(address) = address {
            self.add(kind, from, to, Target::Address(SocketAddr::new(address, port)));
        }
    }

    fn checks_from_pods(&mut self) {
        let (cluster, family) = (self.cluster, self.family);
        for pod in cluster.app("client") {
            for web in cluster.app("web") {
                let kind = if web.node == pod.node { "pod → pod, same node" } else { "pod → pod, other node" };
                self.add_address(kind, pod, &web.name, web.address(family), POD_PORT);
            }
            self.add_address("pod → service", pod, "web", cluster.service("shop/web", family), SERVICE_PORT);
            self.add_name("pod → DNS name", pod, "web.shop", SERVICE_PORT);
            self.add_name("pod → kubernetes.default", pod, "kubernetes.default", API_SERVICE_PORT);
            let beyond = EXTERNAL_ADDRESSES
                .iter()
                .filter_map(|address| address.parse().ok())
                .find(|it: &IpAddr| family.matches(*it));
            self.add_address("pod → outside", pod, EXTERNAL_ADDRESSES[family.index()], beyond, WEB_PORT);
            for node in &cluster.nodes {
                let kind = if node.name == pod.node { "pod → own node" } else { "pod → other node" };
                self.add_address(kind, pod, &node.name, node.address(family), KUBELET_PORT);
            }
        }
    }

    /// By DNS name, if the Service has an address of this family.
    fn add_name(&mut self, kind: &'static str, from: &Endpoint, name: &str, port: u16) {
        let (namespace, service) = name.split_once('.').map_or(("", ""), |(service, namespace)| (namespace, service));
        let has = self.cluster.service(&format!("{namespace}/{service}"), self.family).is_some();
        let server = self.cluster.service("kube-system/kube-dns", self.family);
        if let (true, Some(server)) = (has, server) {
            let service = SocketAddr::new(server, 53);
            let full = format!("{name}.svc.{CLUSTER_DOMAIN}");
            self.add(kind, from, &full, Target::Name { service, name: full.clone(), port, family: self.family });
        }
    }

    fn checks_from_hosts(&mut self) {
        let (cluster, family, port) = (self.cluster, self.family, self.cluster.node_port);
        let service = cluster.service("shop/web", family);
        for (index, node) in cluster.nodes.iter().enumerate() {
            self.add_address("outside → NodePort", &cluster.outside, &node.name, node.address(family), port);
            self.add_address("host → ClusterIP", node, "web", service, SERVICE_PORT);
            self.add_address("host → own NodePort", node, &node.name, node.address(family), port);
            // One other node is enough: all pairs would be the square of the nodes.
            if let Some(other) = cluster.nodes.get((index + 1) % cluster.nodes.len()).filter(|it| it.name != node.name)
            {
                self.add_address("host → other node's NodePort", node, &other.name, other.address(family), port);
            }
            for web in cluster.app("web") {
                let kind = if web.node == node.name { "host → own pod" } else { "host → other node's pod" };
                self.add_address(kind, node, &web.name, web.address(family), POD_PORT);
            }
        }
    }

    /// What the NetworkPolicy affects: `client` pods pass, `stranger` pods do not.
    fn checks_under_policy(&mut self) {
        let (cluster, family) = (self.cluster, self.family);
        let before = self.checks.len();
        for (app, to_pod, to_service) in [
            ("client", "client → guarded pod", "client → guarded service"),
            ("stranger", "stranger → guarded pod", "stranger → guarded service"),
        ] {
            for pod in cluster.app(app) {
                for store in cluster.app("store") {
                    self.add_address(to_pod, pod, &store.name, store.address(family), POD_PORT);
                }
                self.add_address(to_service, pod, "store", cluster.service("shop/store", family), SERVICE_PORT);
            }
        }
        for check in self.checks.iter_mut().skip(before) {
            check.guarded = true;
            check.expected = check.kind.starts_with("client");
        }
    }
}
