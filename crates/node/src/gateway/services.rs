//! Watches what the gateway needs to know of Services. What follows from it is decided in `topology::services`, for the
//! controller and every agent alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use gateway::{Exposed, Place, Protocol};
use kubernetes::{Api, Identity, Observed, Resource, Watch, watch};
use topology::ClusterSettings;
use topology::identity::ObjectKey;
use topology::objects::{HostPort, NodeFacts, ServiceFacts, SliceFacts};
use topology::services::{Exposure, NodeServices};
use topology::store::ObjectKind;

/// So many events are taken at once at most.
const BATCH: usize = 256;

/// What the API says of Services, so far.
#[derive(Debug)]
pub(super) struct Services {
    known: NodeServices,
    services: Watch<ServiceFacts>,
    slices: Watch<SliceFacts>,
    /// No Service has a host's address, whichever node it is.
    nodes: Watch<NodeFacts>,
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
        let of = |kind: ObjectKind| Resource::at(kind.collection());
        Self {
            known: NodeServices::new(node),
            services: watch(api, of(ObjectKind::Service), ServiceFacts::parse),
            slices: watch(api, of(ObjectKind::EndpointSlice), SliceFacts::parse),
            // Their addresses are annotations.
            nodes: watch(api, of(ObjectKind::Node).metadata_only(), NodeFacts::parse),
        }
    }

    /// Whether all were listed once: before that, what is not there says nothing.
    pub(super) fn complete(&self) -> bool {
        self.known.is_complete()
    }

    /// Waits for events and takes them; returns whether something may have changed for the gateway.
    pub(super) async fn next(&mut self) -> bool {
        let (mut services, mut slices, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
        tokio::select! {
            count = self.services.next_batch(&mut services, BATCH) => if count == 0 { std::future::pending().await },
            count = self.slices.next_batch(&mut slices, BATCH) => if count == 0 { std::future::pending().await },
            count = self.nodes.next_batch(&mut nodes, BATCH) => if count == 0 { std::future::pending().await },
        }
        let mut changed = false;
        for event in services {
            changed |= self.take(ObjectKind::Service, event, NodeServices::put_service);
        }
        for event in slices {
            changed |= self.take(ObjectKind::EndpointSlice, event, NodeServices::put_slice);
        }
        for event in nodes {
            changed |= self.take(ObjectKind::Node, event, NodeServices::put_node);
        }
        changed
    }

    fn take<T>(&mut self, kind: ObjectKind, event: Observed<T>, put: fn(&mut NodeServices, T) -> bool) -> bool {
        match event {
            Observed::Relisting => self.known.relisting(kind),
            Observed::Upsert(object) => return put(&mut self.known, object),
            Observed::Deleted(identity) => return self.known.remove(kind, &key_of(&identity), None),
            Observed::Unreadable { object, error } => {
                let key = key_of(&object);
                tracing::warn!(kind = kind.name(), object = %key, error, "cannot read object; keeping its last valid version");
                self.known.seen_unreadable(kind, &Arc::new(key));
            }
            Observed::Listed => {
                self.known.listed(kind);
                return true;
            }
            Observed::Trouble(error) => tracing::warn!(kind = kind.name(), error, "watch failed; retrying"),
            Observed::Resumed | Observed::Absent => {}
        }
        false
    }

    /// Whether a Service has what a pod asks for: it is the Service's, here as in the controller.
    pub(super) fn has(&self, port: &HostPort) -> bool {
        self.known.has_node_port(port.host, port.protocol)
    }

    /// What all Services expose on this node.
    pub(super) fn exposed(&self, settings: &ClusterSettings) -> Vec<Exposed> {
        self.known.exposures(settings).into_iter().map(exposed).collect()
    }

    /// The ports at which load balancers ask whether a Service has endpoints here, and how many it has.
    pub(super) fn health(&self, settings: &ClusterSettings) -> BTreeMap<u16, (ObjectKey, usize)> {
        self.known.health(settings)
    }
}

fn exposed(exposure: Exposure) -> Exposed {
    Exposed {
        place: match exposure.place {
            topology::services::Place::Node { v6 } => Place::Node { v6 },
            topology::services::Place::Address(address) => Place::Address(address),
        },
        protocol: protocol(exposure.protocol),
        port: exposure.port,
        inside: exposure.inside,
        keeps_source: exposure.keeps_source,
        endpoints: exposure.endpoints,
        ranges: exposure.ranges,
        affinity: exposure.affinity,
    }
}
