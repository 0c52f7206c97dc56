//! What each Service gets where: the one decision that all parts of ovnkube follow.
//!
//! ```text
//!  Services, EndpointSlices, Nodes ──▶ decide ──▶ desired::service: load balancers and template values (controller)
//!                                             ├─▶ NodeServices: flows of br-ex, packet filter, health checks (agents)
//!                                             └─▶ can: `plan --can`
//! ```
//!
//! An agent must never redirect what the controller refused: hosts would lose whatever is really there, such as the
//! cluster's DNS or a kubelet. So refusals, precedence and the choice of endpoints are decided here and nowhere else,
//! from objects alone; the order of events does not matter.

mod addresses;
mod affinity;
mod claims;
mod endpoints;
mod node;

use std::net::{IpAddr, SocketAddr};

pub(crate) use self::addresses::is_api_server;
pub(crate) use self::affinity::places;
pub(crate) use self::claims::{Claim, ServiceIndex, claims};
pub use self::endpoints::{Choice, Endpoints, Target};
pub use self::node::{Exposure, NodeServices, Place};
use crate::objects::{ServiceFacts, ServicePort, ServiceSpec};
use crate::refusal::{InTheWay, Refusal, in_the_way};
use crate::settings::ClusterSettings;
use crate::store::Store;

/// Everything that the decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The networks.
    pub settings: &'a ClusterSettings,
    /// The objects.
    pub store: &'a Store,
}

/// An address of a Service, or its port of all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vip {
    /// An address inside the cluster.
    Cluster(IpAddr),
    /// One of `externalIPs` or of a load balancer's.
    External(IpAddr),
    /// A port of every node, under its addresses of one family.
    NodePort {
        /// IPv6.
        v6: bool,
        /// The port.
        port: u16,
    },
}

impl Vip {
    /// Whether it is of IPv6.
    pub fn is_ipv6(self) -> bool {
        match self {
            Self::Cluster(address) | Self::External(address) => address.is_ipv6(),
            Self::NodePort { v6, .. } => v6,
        }
    }

    /// The address, unless it is the nodes' own.
    pub fn address(self) -> Option<IpAddr> {
        match self {
            Self::Cluster(address) | Self::External(address) => Some(address),
            Self::NodePort { .. } => None,
        }
    }
}

/// A VIP that a Service has, and which endpoints are behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// The address.
    pub vip: Vip,
    /// What pods get.
    pub switches: Choice,
    /// What hosts and clients outside of the cluster get.
    pub routers: Choice,
    /// Clients outside keep their address, because the endpoints are on the node that they come to. Where that node has
    /// none, their packets are dropped, as kube-proxy does.
    pub keeps_source: bool,
    /// `loadBalancerSourceRanges` say who may use it.
    pub guarded: bool,
}

/// One port of a Service in one family.
#[derive(Debug)]
pub struct ServedPort<'a> {
    /// The port.
    pub port: &'a ServicePort,
    /// IPv6.
    pub v6: bool,
    /// Its endpoints.
    pub endpoints: Endpoints<'a>,
    /// Its addresses, without those that were refused.
    pub vips: Vec<Served>,
}

/// What a Service gets.
#[derive(Debug, Default)]
pub struct Decision<'a> {
    /// Its ports.
    pub ports: Vec<ServedPort<'a>>,
    /// What it asked for and does not get; and warnings about what it does.
    pub refusals: Vec<Refusal>,
}

/// What a Service gets.
pub fn decide<'a>(service: &'a ServiceFacts, inputs: Inputs<'a>) -> Decision<'a> {
    let mut decision = Decision::default();
    let mut warnings = Vec::new();
    let Some(spec) = service.spec.as_deref() else { return decision };
    for port in &spec.ports {
        for v6 in inputs.settings.families() {
            let asked = asked(spec, port, v6);
            if asked.is_empty() {
                continue;
            }
            let endpoints = Endpoints::of(&service.key, port, v6, spec.publish_not_ready, inputs);
            let (hinted, none) = (endpoints.are_hinted(), endpoints.is_empty());
            let mut vips: Vec<Served> = Vec::new();
            for (field, vip) in asked {
                let warning = match check(field, vip, port, service, inputs) {
                    Ok(warning) => warning,
                    Err(refusal) => {
                        decision.refusals.push(refusal);
                        continue;
                    }
                };
                warnings.extend(warning);
                let guarded = vip.address().is_some_and(|address| spec.ingress_ips.contains(&address));
                let hinted = if hinted { Choice::Hinted } else { Choice::All };
                let (switches, routers) = match vip {
                    _ if none => (Choice::All, Choice::All),
                    Vip::Cluster(_) if spec.internal_local => (Choice::Local, Choice::Local),
                    // Pods are no clients from outside: they get everything, as they would by the cluster's own address.
                    Vip::External(_) | Vip::NodePort { .. } if spec.external_local => (hinted, Choice::Local),
                    _ => (hinted, hinted),
                };
                let keeps_source = routers == Choice::Local && !matches!(vip, Vip::Cluster(_));
                vips.push(Served { vip, switches, routers, keeps_source, guarded });
            }
            decision.ports.push(ServedPort { port, v6, endpoints, vips });
        }
    }
    decision.refusals.extend(warnings);
    decision
}

/// The VIPs of a family that a port asks for, each once, with the field that does.
fn asked(spec: &ServiceSpec, port: &ServicePort, v6: bool) -> Vec<(&'static str, Vip)> {
    let cluster = spec.cluster_ips.iter().map(|ip| ("spec.clusterIPs", Vip::Cluster(*ip)));
    let external = spec.external_ips.iter().map(|ip| ("spec.externalIPs", Vip::External(*ip)));
    let ingress = spec.ingress_ips.iter().map(|ip| ("status.loadBalancer.ingress.ip", Vip::External(*ip)));
    let node = port.node_port.map(|port| ("spec.ports.nodePort", Vip::NodePort { v6, port }));
    // A node has ports for the families that the Service has.
    let node = node.filter(|_| spec.cluster_ips.iter().any(|ip| ip.is_ipv6() == v6));
    let mut asked: Vec<(&'static str, Vip)> = Vec::new();
    for (field, vip) in cluster.chain(external).chain(ingress).chain(node).filter(|(_, vip)| vip.is_ipv6() == v6) {
        if vip.address().is_none() || !asked.iter().any(|(_, known)| known.address() == vip.address()) {
            asked.push((field, vip));
        }
    }
    asked
}

/// Whether a Service has what it asks for, perhaps with a warning.
fn check(
    field: &str,
    vip: Vip,
    port: &ServicePort,
    service: &ServiceFacts,
    inputs: Inputs<'_>,
) -> Result<Option<Refusal>, Refusal> {
    let cluster = matches!(vip, Vip::Cluster(_));
    if let Some(refusal) = vip.address().and_then(|address| addresses::refused(field, address, cluster, inputs)) {
        return Err(refusal);
    }
    let number = match vip {
        Vip::Cluster(_) | Vip::External(_) => port.port,
        Vip::NodePort { port, .. } => port,
    };
    let claim = Claim { address: vip.address(), port: number, protocol: port.protocol };
    if let Some(holder) = inputs.store.claimants(claim).next().filter(|holder| **holder != service.key) {
        let what = claim.address.map_or_else(|| number.to_string(), |ip| SocketAddr::new(ip, number).to_string());
        let InTheWay { shown, detail } = in_the_way("Service", &holder.namespace, holder, &service.key.namespace);
        let message = format!(
            "{field}: {what}/{} is taken by {shown}, which has precedence (cluster IPs first, then the older Service): use \
             another, or delete that Service",
            port.protocol.name()
        );
        return Err(Refusal::new("AddressTaken", message).with_detail(detail));
    }
    Ok(vip.address().filter(|_| cluster).and_then(|address| addresses::unknown(field, address, inputs)))
}
