//! Services and their endpoints on this node, as the gateway needs them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use gateway::{Exposed, Place, Protocol};
use kubernetes::{Api, Identity, Observed, Resource, Watch, watch};
use serde::Deserialize;
use topology::ClusterSettings;
use topology::identity::ObjectKey;
use topology::objects::{ServiceFacts, ServicePort, ServiceSpec, SliceFacts};
use topology::store::ObjectKind;

/// So many events are taken at once at most.
const BATCH: usize = 256;

/// What is kept of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) facts: ServiceFacts,
    /// Where others ask whether this node has endpoints of it.
    pub(super) health_port: Option<u16>,
}

impl Service {
    fn parse(json: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Object {
            #[serde(default)]
            spec: Spec,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            health_check_node_port: Option<u16>,
        }
        let object: Object = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let health_port = object.spec.health_check_node_port.filter(|port| *port > 0);
        Ok(Self { facts: ServiceFacts::parse(json)?, health_port })
    }
}

/// An endpoint on this node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Local {
    name: Box<str>,
    protocol: Protocol,
    address: IpAddr,
    port: u16,
    ready: bool,
    lingering: bool,
}

/// What the API says of Services, so far.
#[derive(Debug)]
pub(super) struct Services {
    node: String,
    services: BTreeMap<ObjectKey, (Service, bool)>,
    /// The endpoints of this node by slice, with their Service.
    slices: BTreeMap<ObjectKey, (Arc<ObjectKey>, Vec<Local>, bool)>,
    listed: [bool; 2],
    watches: (Watch<Service>, Watch<SliceFacts>),
}

pub(super) fn protocol(of: topology::objects::Protocol) -> Protocol {
    match of {
        topology::objects::Protocol::Tcp => Protocol::Tcp,
        topology::objects::Protocol::Udp => Protocol::Udp,
        topology::objects::Protocol::Sctp => Protocol::Sctp,
    }
}

fn key_of(identity: &Identity) -> ObjectKey {
    ObjectKey::new(&identity.namespace, &identity.name)
}

impl Services {
    pub(super) fn watch(api: &Api, node: &str) -> Self {
        let services = watch(api, Resource::at(ObjectKind::Service.collection()), Service::parse);
        let slices = watch(api, Resource::at(ObjectKind::EndpointSlice.collection()), SliceFacts::parse);
        Self {
            node: node.to_owned(),
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            listed: [false; 2],
            watches: (services, slices),
        }
    }

    /// Whether all were told once: before that, what is not there says nothing.
    pub(super) fn complete(&self) -> bool {
        self.listed.iter().all(|listed| *listed)
    }

    /// Waits for news and takes them; returns whether something may have changed for the gateway.
    pub(super) async fn next(&mut self) -> bool {
        let (mut services, mut slices) = (Vec::new(), Vec::new());
        tokio::select! {
            count = self.watches.0.next_batch(&mut services, BATCH) => if count == 0 { std::future::pending().await },
            count = self.watches.1.next_batch(&mut slices, BATCH) => if count == 0 { std::future::pending().await },
        }
        let mut changed = false;
        for event in services {
            changed |= self.service(event);
        }
        for event in slices {
            changed |= self.slice(event);
        }
        changed
    }

    fn service(&mut self, event: Observed<Service>) -> bool {
        match event {
            Observed::Relisting => self.services.values_mut().for_each(|(_, seen)| *seen = false),
            Observed::Upsert(service) => {
                let key = (*service.facts.key).clone();
                // What is refused keeps what it had, as the controller does.
                if service.facts.broken.is_some() && self.services.contains_key(&key) {
                    self.services.entry(key).and_modify(|(_, seen)| *seen = true);
                    return false;
                }
                let before = self.services.insert(key, (service.clone(), true));
                return before.is_none_or(|(before, _)| before != service);
            }
            Observed::Deleted(identity) => return self.services.remove(&key_of(&identity)).is_some(),
            Observed::Unreadable { object, error } => {
                tracing::warn!(service = %key_of(&object), error, "cannot be read; what it had stays");
                self.services.entry(key_of(&object)).and_modify(|(_, seen)| *seen = true);
            }
            Observed::Listed => {
                self.services.retain(|_, (_, seen)| *seen);
                self.listed[0] = true;
                return true;
            }
            Observed::Trouble(why) => tracing::warn!(why, "Services cannot be watched"),
            Observed::Resumed | Observed::Absent => {}
        }
        false
    }

    fn slice(&mut self, event: Observed<SliceFacts>) -> bool {
        match event {
            Observed::Relisting => self.slices.values_mut().for_each(|(_, _, seen)| *seen = false),
            Observed::Upsert(slice) => {
                let key = (*slice.key).clone();
                if slice.broken.is_some() {
                    self.slices.entry(key).and_modify(|(_, _, seen)| *seen = true);
                    return false;
                }
                let own = self.own_endpoints(&slice);
                let Some(service) = slice.service.filter(|_| !own.is_empty()) else {
                    return self.slices.remove(&key).is_some();
                };
                let matters = self.keeps_source(&service);
                let after = (service, own, true);
                return self.slices.insert(key, after.clone()).is_none_or(|before| before != after) && matters;
            }
            Observed::Deleted(identity) => return self.slices.remove(&key_of(&identity)).is_some(),
            Observed::Unreadable { object, .. } => {
                self.slices.entry(key_of(&object)).and_modify(|(_, _, seen)| *seen = true);
            }
            Observed::Listed => {
                self.slices.retain(|_, (_, _, seen)| *seen);
                self.listed[1] = true;
                return true;
            }
            Observed::Trouble(why) => tracing::warn!(why, "EndpointSlices cannot be watched"),
            Observed::Resumed | Observed::Absent => {}
        }
        false
    }

    /// Where clients do not keep their address, the gateway router knows the endpoints, and we need not.
    fn keeps_source(&self, service: &ObjectKey) -> bool {
        let spec = self.services.get(service).and_then(|(service, _)| service.facts.spec.as_ref());
        spec.is_some_and(|spec| spec.external_local)
    }

    fn own_endpoints(&self, slice: &SliceFacts) -> Vec<Local> {
        let here = slice.spec.endpoints.iter().filter(|endpoint| endpoint.node.as_deref() == Some(&self.node));
        let mut own: Vec<Local> = here
            .flat_map(|endpoint| {
                slice.spec.ports.iter().map(|port| Local {
                    name: port.name.clone(),
                    protocol: protocol(port.protocol),
                    address: endpoint.address,
                    port: port.port,
                    ready: endpoint.ready,
                    lingering: endpoint.serving && endpoint.terminating,
                })
            })
            .collect();
        own.sort();
        own
    }

    /// The endpoints of a Service's port on this node: those that are ready, else those that still answer.
    fn endpoints(&self, key: &ObjectKey, spec: &ServiceSpec, port: &ServicePort, v6: bool) -> Vec<(IpAddr, u16)> {
        let of_port = |local: &&Local| {
            local.name == port.name && local.protocol == protocol(port.protocol) && local.address.is_ipv6() == v6
        };
        let all = || {
            let slices = self.slices.values().filter(|(service, ..)| **service == *key);
            slices.flat_map(|(_, locals, _)| locals.iter()).filter(of_port)
        };
        let chosen = |good: fn(&Local) -> bool| {
            let mut places: Vec<(IpAddr, u16)> = all()
                .filter(|local| good(local) || spec.publish_not_ready)
                .map(|local| (local.address, local.port))
                .collect();
            places.sort_unstable();
            places.dedup();
            places
        };
        let ready = chosen(|local| local.ready);
        if ready.is_empty() { chosen(|local| local.lingering) } else { ready }
    }

    /// What all Services expose, the oldest first: of two that ask for the same, it has it.
    pub(super) fn exposed(&self, settings: &ClusterSettings) -> Vec<Exposed> {
        let mut services: Vec<&ServiceFacts> = self.services.values().map(|(service, _)| &service.facts).collect();
        services.sort_by(|one, two| (&one.created, &one.key).cmp(&(&two.created, &two.key)));
        let mut exposed = Vec::new();
        for service in services {
            let Some(spec) = &service.spec else { continue };
            for port in &spec.ports {
                self.expose(&service.key, spec, port, settings, &mut exposed);
            }
        }
        exposed
    }

    fn expose(
        &self,
        key: &ObjectKey,
        spec: &ServiceSpec,
        port: &ServicePort,
        settings: &ClusterSettings,
        exposed: &mut Vec<Exposed>,
    ) {
        for v6 in settings.families() {
            let inside = spec.cluster_ips.iter().copied().find(|ip| ip.is_ipv6() == v6);
            let node = port.node_port.filter(|_| inside.is_some()).map(|number| (Place::Node { v6 }, number));
            let addresses = spec.external_ips.iter().chain(&spec.ingress_ips).copied();
            let addresses = addresses
                .filter(|address| address.is_ipv6() == v6 && !is_ours(*address, settings))
                .map(|address| (Place::Address(address), port.port));
            for (place, number) in node.into_iter().chain(addresses) {
                let guarded = matches!(place, Place::Address(address) if spec.ingress_ips.contains(&address));
                exposed.push(Exposed {
                    place,
                    protocol: protocol(port.protocol),
                    port: number,
                    inside: inside.map(|inside| (inside, port.port)),
                    keeps_source: spec.external_local,
                    endpoints: if spec.external_local { self.endpoints(key, spec, port, v6) } else { Vec::new() },
                    ranges: if guarded { spec.source_ranges.to_vec() } else { Vec::new() },
                    affinity: spec.affinity,
                });
            }
        }
    }

    /// The ports at which others ask whether a Service has endpoints here, and how many it has.
    pub(super) fn health(&self) -> BTreeMap<u16, (ObjectKey, usize)> {
        let mut health = BTreeMap::new();
        for (key, (service, _)) in &self.services {
            let (Some(port), Some(spec)) = (service.health_port, &service.facts.spec) else { continue };
            if !spec.external_local {
                continue;
            }
            let mut addresses: Vec<IpAddr> = Vec::new();
            for port in &spec.ports {
                for v6 in [false, true] {
                    addresses.extend(self.endpoints(key, spec, port, v6).into_iter().map(|(address, _)| address));
                }
            }
            addresses.sort_unstable();
            addresses.dedup();
            // As kube-proxy has it: an endpoint that is on its way out takes no new clients of a load balancer.
            health.insert(port, (key.clone(), if self.any_ready(key) { addresses.len() } else { 0 }));
        }
        health
    }

    fn any_ready(&self, key: &ObjectKey) -> bool {
        let slices = self.slices.values().filter(|(service, ..)| **service == *key);
        slices.flat_map(|(_, locals, _)| locals).any(|local| local.ready)
    }
}

/// Addresses that no Service can have: the controller refuses them too.
fn is_ours(address: IpAddr, settings: &ClusterSettings) -> bool {
    let v6 = address.is_ipv6();
    let networks = settings.cluster_of(v6).chain(settings.join_of(v6)).chain(settings.masquerade_of(v6));
    networks.into_iter().any(|network| network.contains(address))
}
