//! The node's gateway: the external bridge and its flows, the packet filter, the management port, addresses and routes of
//! the host. What they shall be is decided in the crate `gateway`; here it is looked at, compared and carried.
//!
//! ```text
//!  Open vSwitch's database ─┐                         ┌─▶ ovs-ofctl (one bundle), nft (one transaction)
//!  the kernel (netlink) ────┼─▶ facts ──▶ gateway:: ──┼─▶ addresses, routes, neighbours, settings of the kernel
//!  Services, slices, nodes ─┘                         └─▶ the management port
//! ```
//!
//! Everything that is told wakes one loop, which looks at all and carries what differs. So a restart over an unchanged host
//! changes nothing, and what was missed is made good by the next look.

mod bridge;
mod carried;
mod cleanup;
mod flow_changes;
mod health;
mod host;
mod making;
mod management;
mod openflow;
mod packet_filter;
mod services;
mod settings;
mod view;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use gateway::{Exposed, Place};
use kubernetes::{Api, Recorder};
use telemetry::Shutdown;
use tokio::sync::watch;
use topology::objects::{HostAddress, HostPort};

use self::carried::Carried;
use self::services::Services;
use crate::host_settings::HostFacts;
use crate::kernel::Netlink;
use crate::kernel::changes::HostChanges;
use crate::kernel::filter_changes::{Concern, FilterChanges};
use crate::options::Options;
use crate::own_node::OwnNode;
use crate::pod_mtu::PodMtu;
use crate::pods::Published;
use crate::readiness::State;
use crate::report::Annotations;
use crate::switch::Switch;

pub use cleanup::clean_up;

/// What comes together is looked at together.
const SETTLING: Duration = Duration::from_millis(10);
/// How soon something that failed is tried again.
const SOON: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);
/// The name of our tables in nftables, in every family.
const TABLES: &str = "ovnkube";

/// A port of the host that leads to a pod of this node.
fn exposed(addresses: &[IpAddr], port: &HostPort) -> impl Iterator<Item = Exposed> {
    // One that cannot be told is nowhere: the controller says so on the pod.
    let opened = port.opened_on().ok();
    let place = move |pod: &IpAddr| {
        let v6 = pod.is_ipv6();
        match opened? {
            HostAddress::All => Some(Place::Node { v6 }),
            HostAddress::Family { v6: own } => (own == v6).then_some(Place::Node { v6 }),
            HostAddress::One(own) => (own.is_ipv6() == v6).then_some(Place::Address(own)),
        }
    };
    addresses.iter().filter_map(move |pod| Some((pod, place(pod)?))).map(move |(pod, place)| Exposed {
        place,
        protocol: services::protocol(port.protocol),
        port: port.host,
        inside: Some((*pod, port.container)),
        keeps_source: true,
        endpoints: vec![(*pod, port.container)],
        ranges: Vec::new(),
        affinity: false,
    })
}

/// Ports of the host that lead to pods of this node.
#[derive(Debug)]
pub struct HostPorts {
    /// Those that pods ask for.
    pub wanted: watch::Receiver<Option<Published>>,
    /// Those that flows and packet filter have.
    pub open: watch::Sender<Option<Published>>,
}

/// What others have to know of the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayReport {
    /// Whether it works, or why not.
    pub state: State,
    /// What stands on the node for the controller; empty while nothing is known.
    pub annotations: Annotations,
    /// What ovn-controller has to know.
    pub host: Option<HostFacts>,
}

/// The node's gateway.
#[derive(Debug)]
pub struct Gateway {
    options: Arc<Options>,
    mtu: PodMtu,
    api: Api,
    recorder: Recorder,
    switch: Arc<Switch>,
    node: watch::Receiver<Option<Arc<OwnNode>>>,
    host_ports: HostPorts,
    report: watch::Sender<GatewayReport>,
}

impl Gateway {
    /// A gateway that has not begun yet, and what it will say.
    pub(crate) fn new(
        options: Arc<Options>,
        mtu: PodMtu,
        api: &Api,
        recorder: Recorder,
        switch: Arc<Switch>,
        node: watch::Receiver<Option<Arc<OwnNode>>>,
        host_ports: HostPorts,
    ) -> (Self, watch::Receiver<GatewayReport>) {
        let state = Err("not begun yet".to_owned());
        let (report, told) = watch::channel(GatewayReport { state, annotations: Annotations::new(), host: None });
        (Self { options, mtu, api: api.clone(), recorder, switch, node, host_ports, report }, told)
    }

    /// Keeps the gateway until it is told to stop. It stays as it is then: connections go on.
    pub async fn run(self, shutdown: Shutdown) {
        tokio::select! {
            () = shutdown.wait() => {}
            () = self.keep() => {}
        }
    }

    async fn keep(mut self) {
        let mut services = Services::watch(&self.api, &self.options.node);
        let (netlink, mut changes) = loop {
            match Netlink::host().and_then(|netlink| Ok((netlink, HostChanges::listen()?))) {
                Ok(both) => break both,
                Err(error) => {
                    self.say(Err(format!("the kernel cannot be asked about its network: {error}")));
                    tokio::time::sleep(LONGEST).await;
                }
            }
        };
        let client = self.switch.client().clone();
        let (mut status, mut switch) = (client.status(), client.subscribe());
        let mut carried = Carried::new(self.options.clone(), self.recorder.clone(), netlink);
        let mut filter = FilterChanges::listen(Concern::Table(TABLES))
            .inspect_err(|error| tracing::warn!(%error, "what others do to the packet filter is noticed late"))
            .ok();
        let mut pause = SOON;
        loop {
            let connected = status.borrow_and_update().connected;
            let node = self.node.borrow_and_update().clone();
            let mut exposed = services.exposed(&self.options.cluster);
            // What a Service has is no pod's, here as in the controller.
            let host_ports = self.host_ports.wanted.borrow_and_update().clone();
            let doors = host_ports.iter().flat_map(|ports| ports.iter()).filter(|(.., port)| !services.has(port));
            exposed.extend(doors.flat_map(|(_, addresses, port)| self::exposed(addresses, port)));
            // What an earlier one of us left for those who are not known yet stays.
            let complete = services.complete() && host_ports.is_some();
            let state = if connected {
                carried.pass(&client, node.as_deref(), exposed, complete, &mut self.mtu, &self.report).await
            } else {
                Err("Open vSwitch's database cannot be reached".to_owned())
            };
            if state.is_ok() {
                self.host_ports.open.send_replace(host_ports);
            }
            changes.only_devices(carried.devices());
            if services.complete() {
                carried.health.carry(services.health(&self.options.cluster)).await;
            }
            let again = if state.is_ok() { LONGEST * 20 } else { pause };
            pause = if state.is_ok() { SOON } else { (pause * 2).min(LONGEST) };
            self.say(state);
            let wake = async {
                tokio::select! {
                    changed = status.changed() => if changed.is_err() { std::future::pending().await },
                    () = carried.switch_changed(&client, &mut switch) => {}
                    () = changes.next() => {}
                    () = self.mtu.changed() => {}
                    () = next_deletion(&mut filter) => carried.forget_filter(),
                    () = next_service(&mut services) => {}
                    changed = self.node.changed() => if changed.is_err() { std::future::pending().await },
                    changed = self.host_ports.wanted.changed() => if changed.is_err() { std::future::pending().await },
                }
                true
            };
            if tokio::time::timeout(again, wake).await.is_ok() {
                tokio::time::sleep(SETTLING).await;
            } else if again > LONGEST {
                // Now and then everything is looked at as if for the first time.
                carried.forget();
            }
        }
    }

    fn say(&self, state: State) {
        self.report.send_if_modified(|report| {
            let changed = report.state != state;
            report.state = state;
            changed
        });
    }
}

async fn next_deletion(filter: &mut Option<FilterChanges>) {
    match filter {
        Some(filter) => filter.next().await,
        None => std::future::pending().await,
    }
}

async fn next_service(services: &mut Services) {
    while !services.next().await {}
}
