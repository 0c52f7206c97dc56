//! Watches Services, EndpointSlices and Nodes. `topology::services` derives the exposed ports from them, for the controller and
//! every agent alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use gateway::{ExposedPort, ListenAddress, Protocol};
use kubernetes::{Api, Identity, Observed, Resource, Watch, watch};
use objects::{HostPort, NodeFacts, ObjectKey, ObjectKind, ServiceFacts, SliceFacts};
use topology::ClusterSettings;
use topology::services::{Exposure, NodeServices};

/// Largest number of events that are handled at once.
const BATCH: usize = 256;

/// Services as far as the watches have reported them.
#[derive(Debug)]
pub(super) struct Services {
    known: NodeServices,
    services: Watch<ServiceFacts>,
    slices: Watch<SliceFacts>,
    /// A Service cannot have the address of any node.
    nodes: Watch<NodeFacts>,
}

pub(super) fn protocol(of: objects::Protocol) -> Protocol {
    match of {
        objects::Protocol::Tcp => Protocol::Tcp,
        objects::Protocol::Udp => Protocol::Udp,
        objects::Protocol::Sctp => Protocol::Sctp,
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
            // Addresses of nodes are in annotations.
            nodes: watch(api, of(ObjectKind::Node).metadata_only(), NodeFacts::parse),
        }
    }

    /// True once all kinds are listed: before that, a missing object may exist.
    pub(super) fn complete(&self) -> bool {
        self.known.is_complete()
    }

    /// Waits for events and stores them; returns whether the gateway may have to change.
    pub(super) async fn next(&mut self) -> bool {
        let (mut services, mut slices, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
        tokio::select! {
            count = self.services.next_batch(&mut services, BATCH) => if count == 0 { std::future::pending().await },
            count = self.slices.next_batch(&mut slices, BATCH) => if count == 0 { std::future::pending().await },
            count = self.nodes.next_batch(&mut nodes, BATCH) => if count == 0 { std::future::pending().await },
        }
        let mut changed = false;
        for event in services {
            changed |= self.handle(ObjectKind::Service, event, NodeServices::put_service);
        }
        for event in slices {
            changed |= self.handle(ObjectKind::EndpointSlice, event, NodeServices::put_slice);
        }
        for event in nodes {
            changed |= self.handle(ObjectKind::Node, event, NodeServices::put_node);
        }
        changed
    }

    fn handle<T>(&mut self, kind: ObjectKind, event: Observed<T>, put: fn(&mut NodeServices, T) -> bool) -> bool {
        match event {
            Observed::Relisting => self.known.relisting(kind),
            Observed::Upsert(object) => return put(&mut self.known, object),
            Observed::Deleted(identity) => return self.known.remove(kind, &key_of(&identity), None),
            Observed::Malformed { object, error } => {
                let key = key_of(&object);
                tracing::warn!(kind = kind.name(), object = %key, error, "cannot read object; keeping its last valid version");
                self.known.seen_unreadable(kind, &Arc::new(key));
            }
            Observed::Listed => {
                self.known.listed(kind);
                return true;
            }
            Observed::Failed(error) => tracing::warn!(resource = kind.plural(), error, "watch failed; retrying"),
            Observed::Resumed | Observed::Absent => {}
        }
        false
    }

    /// True if a Service uses the port: a Service has precedence over host ports, as in the controller.
    pub(super) fn has(&self, port: &HostPort) -> bool {
        self.known.has_node_port(port.host, port.protocol)
    }

    /// Ports of all Services that are exposed on this node.
    pub(super) fn exposed(&self, settings: &ClusterSettings) -> Vec<ExposedPort> {
        self.known.exposures(settings).into_iter().map(exposed).collect()
    }

    /// Health-check node ports, with the Service and its number of endpoints on this node.
    pub(super) fn health(&self, settings: &ClusterSettings) -> BTreeMap<u16, (ObjectKey, usize)> {
        self.known.health(settings)
    }
}

fn exposed(exposure: Exposure) -> ExposedPort {
    ExposedPort {
        listen: match exposure.listen {
            topology::services::ListenAddress::Node(family) => ListenAddress::Node(family),
            topology::services::ListenAddress::Address(address) => ListenAddress::Address(address),
        },
        protocol: protocol(exposure.protocol),
        port: exposure.port,
        host_target: exposure.host_target,
        preserves_source: exposure.preserves_source,
        endpoints: exposure.endpoints,
        source_ranges: exposure.source_ranges,
        affinity: exposure.affinity,
    }
}
