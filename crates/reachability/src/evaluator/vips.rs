//! The addresses and ports of Services that a destination means.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use netmodel::Family;
use objects::{NodeFacts, ObjectKey, Protocol, ServiceFacts, ServicePort, ServiceSpec};
use topology::desired::host_addresses;
use topology::services::{Claim, ServiceInputs, decide};

use super::ends::End;
use super::{Destination, Evaluator, Holder, Party, Step, Undetermined, is_single, step};

/// An address of a Service.
#[derive(Clone, Copy)]
pub(super) struct Vip<'a> {
    pub(super) service: &'a ServiceFacts,
    pub(super) spec: &'a ServiceSpec,
    pub(super) field: &'static str,
    pub(super) socket: SocketAddr,
    pub(super) protocol: Protocol,
    /// The Service's own port, also for a node port.
    pub(super) port: u16,
    /// Set for a node port.
    pub(super) node: Option<&'a NodeFacts>,
}

impl Vip<'_> {
    pub(super) fn object(&self) -> String {
        format!("Service {}", self.service.key)
    }

    pub(super) fn is_external(&self) -> bool {
        self.field != CLUSTER
    }
}

const CLUSTER: &str = "spec.clusterIPs";
const EXTERNAL: &str = "spec.externalIPs";
pub(super) const INGRESS: &str = "status.loadBalancer.ingress";
const NODE_PORT: &str = "spec.ports.nodePort";

/// Whether a destination is a Service.
pub(super) enum ServiceMatch<'a> {
    /// No Service has the address: the destination is something else.
    NoService,
    /// Addresses and ports of Services.
    Vips(Vec<Vip<'a>>),
    /// A Service without such a port or address; the step says so.
    NoSuchPort(Step),
}

impl<'a> Evaluator<'a> {
    /// The addresses of Services that a destination means.
    pub(super) fn match_service(
        &self,
        sources: &[End<'a>],
        to: &Destination,
    ) -> Result<ServiceMatch<'a>, Undetermined> {
        match &to.party {
            Party::Pod(_) => Ok(ServiceMatch::NoService),
            Party::Service(key) => self.vips_of(key, sources, to),
            Party::Network(prefix) if is_single(*prefix) => Ok(self.vips_at(prefix.network(), to)),
            Party::Network(_) => Ok(ServiceMatch::NoService),
            Party::Node(name) => {
                let node = self.inputs.store.node(name);
                let addresses = node.into_iter().flat_map(|node| {
                    self.inputs.settings.families().filter_map(|family| host_addresses(node, family).first().copied())
                });
                let mut vips = Vec::new();
                for address in addresses {
                    if let ServiceMatch::Vips(more) = self.vips_at(address, to) {
                        vips.extend(more);
                    }
                }
                Ok(if vips.is_empty() { ServiceMatch::NoService } else { ServiceMatch::Vips(vips) })
            }
        }
    }

    /// The addresses of a Service that such clients use.
    fn vips_of(
        &self,
        key: &Arc<ObjectKey>,
        sources: &[End<'a>],
        to: &Destination,
    ) -> Result<ServiceMatch<'a>, Undetermined> {
        let Some(service) = self.inputs.store.service(key) else { return Ok(ServiceMatch::NoService) };
        let object = format!("Service {key}");
        if let Some(why) = self.balancers.broken(key) {
            return Err(Undetermined(format!("{object}: {why}")));
        }
        let Some(spec) = service.spec.as_deref() else {
            let why = "has no address (headless, ExternalName, or served by another proxy)";
            return Err(Undetermined(format!("{object} {why}: ask about its pods")));
        };
        let asked =
            |port: &&ServicePort| to.port.is_none_or(|asked| port.port == asked && port.protocol == to.protocol);
        let ports: Vec<&ServicePort> = spec.ports.iter().filter(asked).collect();
        if ports.is_empty() {
            let known = spec.ports.iter().map(|port| format!("{}/{}", port.port, port.protocol.ovn_name()));
            let says = format!("no such port; its ports are {}", known.collect::<Vec<_>>().join(", "));
            return Ok(ServiceMatch::NoSuchPort(step(object, "spec.ports", says)));
        }
        let inside = sources.iter().any(|source| !matches!(source.holder, Holder::Outside));
        let mut vips = Vec::new();
        for port in ports {
            let own = |field, address: &IpAddr| Vip {
                service,
                spec,
                field,
                socket: SocketAddr::new(*address, port.port),
                protocol: port.protocol,
                port: port.port,
                node: None,
            };
            if inside {
                vips.extend(spec.cluster_ips.iter().map(|address| own(CLUSTER, address)));
                continue;
            }
            let external = spec.external_ips.iter().map(|address| own(EXTERNAL, address));
            let external: Vec<Vip<'a>> =
                external.chain(spec.ingress_ips.iter().map(|address| own(INGRESS, address))).collect();
            if external.is_empty() {
                let nodes = self.inputs.store.nodes().filter(|_| port.node_port.is_some());
                vips.extend(nodes.flat_map(|node| self.node_ports(service, spec, port, node)));
            }
            vips.extend(external);
        }
        if vips.is_empty() {
            let says = "it has no address and no node port for clients outside the cluster";
            return Ok(ServiceMatch::NoSuchPort(step(object, "spec.type", says)));
        }
        Ok(ServiceMatch::Vips(vips))
    }

    /// A node port, at the node's first address of each family.
    fn node_ports(
        &self,
        service: &'a ServiceFacts,
        spec: &'a ServiceSpec,
        port: &'a ServicePort,
        node: &'a NodeFacts,
    ) -> Vec<Vip<'a>> {
        let families =
            self.inputs.settings.families().filter(|family| spec.cluster_ips.iter().any(|ip| family.matches(*ip)));
        let addresses = families.filter_map(|family| host_addresses(node, family).first().copied());
        let vip = |address: IpAddr| {
            Some(Vip {
                service,
                spec,
                field: NODE_PORT,
                socket: SocketAddr::new(address, port.node_port?),
                protocol: port.protocol,
                port: port.port,
                node: Some(node),
            })
        };
        addresses.filter_map(vip).collect()
    }

    /// Services at an address.
    fn vips_at(&self, address: IpAddr, to: &Destination) -> ServiceMatch<'a> {
        let store = self.inputs.store;
        let fields = |spec: &ServiceSpec| {
            let all = [(CLUSTER, &spec.cluster_ips), (EXTERNAL, &spec.external_ips), (INGRESS, &spec.ingress_ips)];
            all.into_iter().find(|(_, addresses)| addresses.contains(&address)).map(|(field, _)| field)
        };
        let mut known = None;
        let mut vips = Vec::new();
        for service in self.services_at(address) {
            let Some(spec) = service.spec.as_deref() else { continue };
            let Some(field) = fields(spec) else { continue };
            // A refused address is not the Service's.
            let decision = decide(service, ServiceInputs { settings: self.inputs.settings, store });
            let served =
                decision.ports.iter().filter(|port| port.vips.iter().any(|one| one.vip.address() == Some(address)));
            for port in served.map(|served| served.port) {
                if field == CLUSTER {
                    known = Some(service);
                }
                if to.port.is_none_or(|asked| port.port == asked && port.protocol == to.protocol) {
                    let socket = SocketAddr::new(address, port.port);
                    let protocol = port.protocol;
                    vips.push(Vip { service, spec, field, socket, protocol, port: port.port, node: None });
                }
            }
        }
        if let (Holder::Node(node), Some(number)) = (self.addresses.end(address).holder, to.port) {
            let claim = Claim { address: None, port: number, protocol: to.protocol };
            let service = store.claimants(claim).next().and_then(|key| store.service(key));
            if let Some((service, spec)) = service.and_then(|service| Some((service, service.spec.as_deref()?))) {
                let serves = |port: &&ServicePort| port.node_port == Some(number) && port.protocol == to.protocol;
                let family = spec.cluster_ips.iter().any(|ip| Family::of(*ip) == Family::of(address));
                let own = host_addresses(node, Family::of(address)).contains(&address);
                if let Some(port) = spec.ports.iter().find(serves).filter(|_| family && own) {
                    let socket = SocketAddr::new(address, number);
                    let (protocol, port) = (port.protocol, port.port);
                    vips.push(Vip { service, spec, field: NODE_PORT, socket, protocol, port, node: Some(node) });
                }
            }
        }
        match known {
            _ if !vips.is_empty() => ServiceMatch::Vips(vips),
            Some(service) => {
                let says = format!("{address} is its address, but it has no such port");
                ServiceMatch::NoSuchPort(step(format!("Service {}", service.key), "spec.ports", says))
            }
            None => ServiceMatch::NoService,
        }
    }
}
