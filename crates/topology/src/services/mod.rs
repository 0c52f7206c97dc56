//! Decides which addresses a Service gets, and which endpoints clients of each node get, for all parts of ovnkube.
//!
//! ```text
//!  Services, EndpointSlices, Nodes ──▶ decide ──▶ desired::service: load balancers and template values (controller)
//!                                             ├─▶ NodeServices: flows of br-ex, packet filter, health checks (agents)
//!                                             └─▶ reachability::evaluator: `plan --can`
//! ```
//!
//! An agent must never redirect packets to an address that the controller refused: hosts would lose what really has it, such
//! as the cluster's DNS or a kubelet. So refusals, precedence and endpoint selection are decided here only, from objects
//! alone, whatever the order of events.

mod addresses;
mod affinity;
mod claims;
mod endpoints;
mod node;

use std::net::{IpAddr, SocketAddr};

use netmodel::Family;
use objects::{ServiceFacts, ServicePort, ServiceSpec};

pub(crate) use self::addresses::is_api_server;
pub(crate) use self::affinity::affinity_slots;
pub use self::claims::Claim;
pub(crate) use self::claims::{ServiceIndex, claims};
pub use self::endpoints::{EndpointSelection, Endpoints, Target};
pub use self::node::{Exposure, ListenAddress, NodeServices};
use crate::refusal::{Conflict, Refusal, describe_conflict};
use crate::settings::ClusterSettings;
use crate::store::Store;

/// What the addresses and endpoints of a Service follow from.
#[derive(Debug, Clone, Copy)]
pub struct ServiceInputs<'a> {
    /// Networks and databases.
    pub settings: &'a ClusterSettings,
    /// Services, slices and nodes.
    pub store: &'a Store,
}

/// An address of a Service, or a node port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vip {
    /// An address of `spec.clusterIPs`, unique in the cluster.
    Cluster(IpAddr),
    /// An external IP, or an ingress IP of a load balancer.
    External(IpAddr),
    /// A port of every node, at its addresses of one family.
    NodePort {
        /// Only addresses of this family.
        family: Family,
        /// Port on every node, from the API server's range.
        port: u16,
    },
}

impl Vip {
    /// Endpoints have the same: OVN does not translate between families.
    pub fn family(self) -> Family {
        match self {
            Self::Cluster(address) | Self::External(address) => Family::of(address),
            Self::NodePort { family, .. } => family,
        }
    }

    /// None for a node port.
    pub fn address(self) -> Option<IpAddr> {
        match self {
            Self::Cluster(address) | Self::External(address) => Some(address),
            Self::NodePort { .. } => None,
        }
    }
}

/// A VIP that a Service has, and its endpoint selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServedVip {
    /// The address, which no other Service has.
    pub vip: Vip,
    /// At the switches of nodes.
    pub for_pods: EndpointSelection,
    /// For hosts and outside clients, at the gateway routers.
    pub for_others: EndpointSelection,
    /// Outside clients keep their address, because the endpoints are on the node that they reach. If that node has none,
    /// their packets are dropped, as with kube-proxy.
    pub preserves_source: bool,
    /// Whether `loadBalancerSourceRanges` restrict its clients.
    pub source_ranges_apply: bool,
}

/// One port of a Service in one family.
#[derive(Debug)]
pub struct ServedPort<'a> {
    /// Port in the Service's spec.
    pub port: &'a ServicePort,
    /// Family of its addresses and endpoints.
    pub family: Family,
    /// Those of the same family as the addresses.
    pub endpoints: Endpoints<'a>,
    /// Without refused ones.
    pub vips: Vec<ServedVip>,
}

/// What a Service gets, and what it does not.
#[derive(Debug, Default)]
pub struct Decision<'a> {
    /// One for each port and family.
    pub ports: Vec<ServedPort<'a>>,
    /// Refused addresses, then warnings.
    pub refusals: Vec<Refusal>,
}

/// Decides what a Service gets.
pub fn decide<'a>(service: &'a ServiceFacts, inputs: ServiceInputs<'a>) -> Decision<'a> {
    let mut decision = Decision::default();
    let mut warnings = Vec::new();
    let Some(spec) = service.spec.as_deref() else { return decision };
    for port in &spec.ports {
        for family in inputs.settings.families() {
            let requested = requested(spec, port, family);
            if requested.is_empty() {
                continue;
            }
            let endpoints = Endpoints::of(&service.key, port, family, spec.publish_not_ready, inputs);
            let (hinted, none) = (endpoints.are_hinted(), endpoints.is_empty());
            let mut vips: Vec<ServedVip> = Vec::new();
            for (field, vip) in requested {
                let warning = match check(field, vip, port, service, inputs) {
                    Ok(warning) => warning,
                    Err(refusal) => {
                        decision.refusals.push(refusal);
                        continue;
                    }
                };
                warnings.extend(warning);
                let source_ranges_apply = vip.address().is_some_and(|address| spec.ingress_ips.contains(&address));
                let hinted = if hinted { EndpointSelection::Hinted } else { EndpointSelection::All };
                let (for_pods, for_others) = match vip {
                    _ if none => (EndpointSelection::All, EndpointSelection::All),
                    Vip::Cluster(_) if spec.internal_local => (EndpointSelection::Local, EndpointSelection::Local),
                    // Pods are not outside clients: they get all endpoints, as at the cluster IP.
                    Vip::External(_) | Vip::NodePort { .. } if spec.external_local => {
                        (hinted, EndpointSelection::Local)
                    }
                    _ => (hinted, hinted),
                };
                let preserves_source = for_others == EndpointSelection::Local && !matches!(vip, Vip::Cluster(_));
                vips.push(ServedVip { vip, for_pods, for_others, preserves_source, source_ranges_apply });
            }
            decision.ports.push(ServedPort { port, family, endpoints, vips });
        }
    }
    decision.refusals.extend(warnings);
    decision
}

/// The VIPs of a family that a port requests, each once, with the field.
fn requested(spec: &ServiceSpec, port: &ServicePort, family: Family) -> Vec<(&'static str, Vip)> {
    let cluster = spec.cluster_ips.iter().map(|ip| ("spec.clusterIPs", Vip::Cluster(*ip)));
    let external = spec.external_ips.iter().map(|ip| ("spec.externalIPs", Vip::External(*ip)));
    let ingress = spec.ingress_ips.iter().map(|ip| ("status.loadBalancer.ingress.ip", Vip::External(*ip)));
    let node = port.node_port.map(|port| ("spec.ports.nodePort", Vip::NodePort { family, port }));
    // Node ports exist for the families of the cluster IPs.
    let node = node.filter(|_| spec.cluster_ips.iter().any(|ip| family.matches(*ip)));
    let mut requested: Vec<(&'static str, Vip)> = Vec::new();
    for (field, vip) in cluster.chain(external).chain(ingress).chain(node).filter(|(_, vip)| vip.family() == family) {
        if vip.address().is_none() || !requested.iter().any(|(_, known)| known.address() == vip.address()) {
            requested.push((field, vip));
        }
    }
    requested
}

/// Refuses a VIP, or accepts it, possibly with a warning.
fn check(
    field: &str,
    vip: Vip,
    port: &ServicePort,
    service: &ServiceFacts,
    inputs: ServiceInputs<'_>,
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
        let requested = claim.address.map_or_else(|| number.to_string(), |ip| SocketAddr::new(ip, number).to_string());
        let Conflict { shown, detail } =
            describe_conflict("Service", &holder.namespace, holder, &service.key.namespace);
        let message = format!(
            "{field}: {requested}/{} is taken by {shown}, which has precedence (cluster IPs first, then the older Service): use \
             another, or delete that Service",
            port.protocol.name()
        );
        return Err(Refusal::new("AddressTaken", message).with_detail(detail));
    }
    Ok(vip.address().filter(|_| cluster).and_then(|address| addresses::unknown(field, address, inputs)))
}
