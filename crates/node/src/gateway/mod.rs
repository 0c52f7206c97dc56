//! The node's gateway: the external bridge and its flows, nftables rules, the management port, addresses and routes of the
//! host. The crate `gateway` computes the desired state; this module compares and applies it.
//!
//! ```text
//!  Open vSwitch's database ─┐                         ┌─▶ ovs-ofctl (one bundle), nft (one transaction)
//!  the kernel (netlink) ────┼─▶ facts ──▶ gateway:: ──┼─▶ addresses, routes, neighbours, settings of the kernel
//!  Services, slices, nodes ─┘                         └─▶ the management port
//! ```
//!
//! Every event wakes one loop, which compares everything and applies what differs. So a restart on an unchanged host changes
//! nothing, and the next reconciliation corrects what an event missed.

mod bridge;
mod bridge_setup;
mod cleanup;
mod error;
mod flow_changes;
mod health;
mod host;
mod management;
mod node_subnets;
mod openflow;
mod packet_filter;
mod process;
mod progress;
mod reconciler;
mod services;
mod setup_failures;
mod sysctls;
mod view;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use backoff::{Backoff, Retries};
use gateway::{ExposedPort, ListenAddress};
use kubernetes::{Api, Recorder};
use netmodel::Family;
use objects::{HostAddress, HostPort};
use remotes::Servers;
use telemetry::Shutdown;
use tokio::sync::watch;

use self::error::GatewayError;
use self::progress::{Progress, state};
use self::reconciler::GatewayReconciler;
use self::services::Services;
use crate::host_settings::HostFacts;
use crate::kernel::Netlink;
use crate::kernel::changes::HostChanges;
use crate::kernel::filter_changes::{FilterChanges, FilterScope};
use crate::node_status::Annotations;
use crate::options::Options;
use crate::own_node::OwnNode;
use crate::pod_mtu::PodMtu;
use crate::pods::PublishedPorts;
use crate::readiness::State;
use crate::switch::Switch;

pub(crate) use cleanup::clean_up;

/// Events within this time are handled together.
const BATCH_DELAY: Duration = Duration::from_millis(10);
/// Delay after a failure.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
/// Interval of a full comparison although no event arrived.
const RESYNC: Duration = Duration::from_secs(600);
/// Name of ovnkube's nftables tables, in every family.
const TABLES: &str = "ovnkube";

/// The exposed ports that follow from a host port of a pod.
fn exposed(addresses: &[IpAddr], port: &HostPort) -> impl Iterator<Item = ExposedPort> {
    // An invalid hostIP exposes nothing; the controller reports it on the pod.
    let opened = port.listen_address().ok();
    let listen = move |pod: &IpAddr| {
        let family = Family::of(*pod);
        match opened? {
            HostAddress::All => Some(ListenAddress::Node(family)),
            HostAddress::Family(own) => (own == family).then_some(ListenAddress::Node(family)),
            HostAddress::One(own) => family.matches(own).then_some(ListenAddress::Address(own)),
        }
    };
    addresses.iter().filter_map(move |pod| Some((pod, listen(pod)?))).map(move |(pod, listen)| ExposedPort {
        listen,
        protocol: services::protocol(port.protocol),
        port: port.host,
        host_target: Some((*pod, port.container)),
        preserves_source: true,
        endpoints: vec![(*pod, port.container)],
        source_ranges: Vec::new(),
        affinity: false,
    })
}

/// Host ports of this node's pods.
#[derive(Debug)]
pub(crate) struct HostPorts {
    /// Requested by pods; None until all pods are listed.
    pub(crate) wanted: watch::Receiver<Option<PublishedPorts>>,
    /// Applied to flows and nftables rules.
    pub(crate) open: watch::Sender<Option<PublishedPorts>>,
}

/// The gateway's state for the other parts of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GatewayStatus {
    /// For the node's condition: ready, or what is wrong.
    pub(crate) state: State,
    /// Annotations of the Node for the controller; empty until the bridge is known.
    pub(crate) annotations: Annotations,
    /// Inputs of ovn-controller's settings.
    pub(crate) host: Option<HostFacts>,
}

/// What the gateway follows, besides Services and the host.
#[derive(Debug)]
pub(crate) struct GatewayInputs {
    /// The agent's own Node.
    pub(crate) node: watch::Receiver<Option<Arc<OwnNode>>>,
    /// Host ports that pods of this node request.
    pub(crate) host_ports: HostPorts,
    /// Servers of the databases: no Service may have their addresses.
    pub(crate) servers: Servers,
}

/// The task that reconciles the gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    options: Arc<Options>,
    mtu: PodMtu,
    api: Api,
    recorder: Recorder,
    switch: Arc<Switch>,
    node: watch::Receiver<Option<Arc<OwnNode>>>,
    host_ports: HostPorts,
    /// Servers of the databases: no Service may have their addresses.
    servers: Servers,
    status: watch::Sender<GatewayStatus>,
}

impl Gateway {
    /// The task before it runs, and its status.
    pub(crate) fn new(
        options: Arc<Options>,
        mtu: PodMtu,
        api: &Api,
        recorder: Recorder,
        switch: Arc<Switch>,
        inputs: GatewayInputs,
    ) -> (Self, watch::Receiver<GatewayStatus>) {
        let GatewayInputs { node, host_ports, servers } = inputs;
        let state = Err("starting".to_owned());
        let (status, receiver) = watch::channel(GatewayStatus { state, annotations: Annotations::new(), host: None });
        (Self { options, mtu, api: api.clone(), recorder, switch, node, host_ports, servers, status }, receiver)
    }

    /// Reconciles until shutdown. Flows, rules and routes stay then: connections continue.
    pub(crate) async fn run(self, shutdown: Shutdown) {
        tokio::select! {
            () = shutdown.wait() => {}
            () = self.reconcile_forever() => {}
        }
    }

    async fn reconcile_forever(mut self) {
        let mut services = Services::watch(&self.api, &self.options.node);
        let (netlink, mut changes) = loop {
            match Netlink::host().and_then(|netlink| Ok((netlink, HostChanges::subscribe()?))) {
                Ok(both) => break both,
                Err(error) => {
                    self.set_state(Err(GatewayError::Netlink(error).to_string()));
                    tokio::time::sleep(BACKOFF.longest).await;
                }
            }
        };
        let client = self.switch.client().clone();
        let (mut status, mut switch) = (client.status(), client.subscribe());
        let mut reconciler = GatewayReconciler::new(self.options.clone(), self.recorder.clone(), netlink);
        let mut filter = FilterChanges::subscribe(FilterScope::Table(TABLES))
            .inspect_err(|error| {
                tracing::warn!(%error, "cannot subscribe to nftables events; drift is repaired by the 10-minute resync");
            })
            .ok();
        let mut retries = Retries::without_jitter(BACKOFF);
        let mut cluster = self.options.cluster.clone();
        loop {
            cluster.databases = self.servers.addresses();
            let connected = status.borrow_and_update().connected;
            let node = self.node.borrow_and_update().clone();
            let mut exposed = services.exposed(&cluster);
            // A Service has precedence over host ports, as in the controller.
            let host_ports = self.host_ports.wanted.borrow_and_update().clone();
            let free = host_ports.iter().flat_map(|ports| ports.iter()).filter(|(.., port)| !services.has(port));
            exposed.extend(free.flat_map(|(_, addresses, port)| self::exposed(addresses, port)));
            // Until everything is listed, flows and rules of an earlier agent stay.
            let complete = services.complete() && host_ports.is_some();
            let outcome = if connected {
                reconciler.reconcile(&client, node.as_deref(), exposed, complete, &mut self.mtu, &self.status).await
            } else {
                Err(GatewayError::Disconnected)
            };
            let is_done = matches!(outcome, Ok(Progress::Done(())));
            if is_done {
                self.host_ports.open.send_replace(host_ports);
            }
            changes.only_devices(reconciler.devices());
            if services.complete() {
                reconciler.health.apply(services.health(&cluster)).await;
            }
            let again = if is_done {
                retries.reset();
                RESYNC
            } else {
                retries.next_delay()
            };
            self.set_state(state(&outcome));
            let wake = async {
                tokio::select! {
                    changed = status.changed() => if changed.is_err() { std::future::pending().await },
                    () = reconciler.switch_changed(&client, &mut switch) => {}
                    () = changes.next() => {}
                    () = self.mtu.changed() => {}
                    () = next_filter_change(&mut filter) => reconciler.invalidate_filter(),
                    () = next_service(&mut services) => {}
                    () = self.servers.changed() => {}
                    changed = self.node.changed() => if changed.is_err() { std::future::pending().await },
                    changed = self.host_ports.wanted.changed() => if changed.is_err() { std::future::pending().await },
                }
                true
            };
            if tokio::time::timeout(again, wake).await.is_ok() {
                tokio::time::sleep(BATCH_DELAY).await;
            } else if is_done {
                // The resync also reads flows and rules again.
                reconciler.invalidate();
            }
        }
    }

    fn set_state(&self, state: State) {
        self.status.send_if_modified(|status| {
            let changed = status.state != state;
            status.state = state;
            changed
        });
    }
}

async fn next_filter_change(filter: &mut Option<FilterChanges>) {
    match filter {
        Some(filter) => filter.next().await,
        None => std::future::pending().await,
    }
}

async fn next_service(services: &mut Services) {
    while !services.next().await {}
}
