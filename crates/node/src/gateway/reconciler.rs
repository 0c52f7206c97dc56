//! Compares the node's gateway with its desired state, and applies the difference.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use gateway::{Bridge, ExposedPort, Facts, Network};
use kubernetes::Recorder;
use netmodel::Prefix;
use ovsdb::client::{Client, Remote, Subscription};
use ovsdb::transaction::Transaction;
use ovsdb::uuid::Uuid;
use tokio::sync::watch;

use super::GatewayStatus;
use super::bridge::{BridgeChoice, BridgeError, ExternalBridge, choose, patch_port, uplink};
use super::bridge_setup::BridgeSetup;
use super::error::GatewayError;
use super::flow_changes::{FlowChanges, Loss};
use super::health::HealthServers;
use super::host::{self, HostView};
use super::node_subnets::{self, Decision};
use super::openflow::OpenFlow;
use super::packet_filter::PacketFilter;
use super::progress::{Progress, Waiting};
use super::setup_failures::SetupFailures;
use super::view::{self, BridgeView};
use super::{management, sysctls};
use crate::host_settings::HostFacts;
use crate::kernel::Netlink;
use crate::node_status;
use crate::options::{INTEGRATION_BRIDGE, MANAGEMENT_PORT, Options};
use crate::own_node::OwnNode;
use crate::pod_mtu::{MtuDecision, PodMtu};

/// Key of the bridge's `external_ids`: the subnets of this node's pods, for a start without the API.
pub(super) const SUBNETS: &str = "ovnkube-subnets";

/// The gateway as it was last seen and written.
#[derive(Debug)]
pub(super) struct GatewayReconciler {
    options: Arc<Options>,
    recorder: Recorder,
    netlink: Netlink,
    managed: Option<ManagedBridge>,
    /// Bridges that were the external one before and may still have flows of ovnkube.
    former_bridges: BTreeSet<String>,
    filter: PacketFilter,
    pub(super) health: HealthServers,
    /// Relevant rows of the switch's database at the last reconciliation.
    seen: Seen,
    /// Devices of the external bridge and its uplink, once known.
    external_devices: Option<[String; 2]>,
    /// Inputs of the flows and rules that were written last.
    facts: Option<Facts>,
    /// False if another client may have changed flows or rules since.
    in_sync: bool,
    /// Why the annotation with the node's subnets is ignored, if it is.
    ignored_subnets: Option<String>,
    setup_failures: SetupFailures,
}

/// Rows of the switch's database that matter to the gateway.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    bridges: Vec<BridgeView>,
    /// Addresses of pods, while subnets are ignored because of them.
    pods: Vec<IpAddr>,
}

impl Seen {
    fn read(client: &Client, with_pods: bool) -> Self {
        let pods = if with_pods { node_subnets::pod_addresses(&client.snapshot()) } else { Vec::new() };
        Self { bridges: relevant_bridges(client), pods }
    }
}

/// The external bridge whose flows are reconciled. It may change: br-ex may appear later, or be recreated.
#[derive(Debug)]
struct ManagedBridge {
    name: String,
    uuid: Uuid,
    flows: OpenFlow,
    changes: FlowChanges,
    /// Whether ovs-vswitchd may have restarted since flows were written last.
    restarted: bool,
}

impl ManagedBridge {
    fn new(bridge: &BridgeView, switch: &Remote) -> Self {
        let flows = OpenFlow::of(&bridge.name, switch);
        let changes = FlowChanges::listen(flows.socket().to_path_buf());
        Self { name: bridge.name.clone(), uuid: bridge.uuid, flows, changes, restarted: false }
    }

    fn is(&self, bridge: &BridgeView) -> bool {
        (&self.name, self.uuid) == (&bridge.name, bridge.uuid)
    }
}

/// Networks of addresses that ovnkube adds to the host.
pub(super) fn own_networks(options: &Options) -> Vec<Prefix> {
    let cluster = &options.cluster;
    let pods = cluster.cluster.iter().map(|cidr| cidr.cidr);
    pods.chain(cluster.join.iter().copied()).chain(cluster.masquerade.iter().copied()).collect()
}

impl GatewayReconciler {
    pub(super) fn new(options: Arc<Options>, recorder: Recorder, netlink: Netlink) -> Self {
        Self {
            options,
            recorder,
            netlink,
            managed: None,
            former_bridges: BTreeSet::new(),
            filter: PacketFilter::default(),
            health: HealthServers::default(),
            seen: Seen::default(),
            external_devices: None,
            facts: None,
            in_sync: false,
            ignored_subnets: None,
            setup_failures: SetupFailures::default(),
        }
    }

    /// Devices whose changes matter; empty, which means all, until the bridge is known.
    pub(super) fn devices(&self) -> Vec<String> {
        let external = self.external_devices.iter().flatten().cloned();
        if self.external_devices.is_some() {
            external.chain([MANAGEMENT_PORT.to_owned()]).collect()
        } else {
            Vec::new()
        }
    }

    /// Reads flows and rules again at the next reconciliation: another client may have changed them.
    pub(super) fn invalidate(&mut self) {
        self.in_sync = false;
        self.filter.invalidate();
        if let Some(managed) = &mut self.managed {
            managed.flows.invalidate();
        }
    }

    /// Reads the nftables rules again at the next reconciliation.
    pub(super) fn invalidate_filter(&mut self) {
        self.in_sync = false;
        self.filter.invalidate();
    }

    /// Returns when relevant rows of the switch's database change (ports of pods do not count), or when flows may be lost.
    pub(super) async fn switch_changed(&mut self, client: &Client, switch: &mut Subscription) {
        let (seen, with_pods) = (&self.seen, self.ignored_subnets.is_some());
        let rows_changed = async {
            loop {
                switch.next().await;
                if Seen::read(client, with_pods) != *seen {
                    return;
                }
            }
        };
        let Some(ManagedBridge { flows, changes, restarted, .. }) = &mut self.managed else {
            return rows_changed.await;
        };
        tokio::select! {
            () = rows_changed => {}
            loss = changes.next() => {
                *restarted |= loss == Loss::Disconnected;
                self.in_sync = false;
                flows.invalidate();
            }
        }
    }

    /// Reads the state of the host, and applies what differs from the desired state.
    pub(super) async fn reconcile(
        &mut self,
        client: &Client,
        node: Option<&OwnNode>,
        exposed: Vec<ExposedPort>,
        complete: bool,
        mtu: &mut PodMtu,
        status: &watch::Sender<GatewayStatus>,
    ) -> Result<Progress, GatewayError> {
        self.seen = Seen::read(client, self.ignored_subnets.is_some());
        self.external_devices = None;
        let bridges = view::bridges(&client.snapshot());
        let host = HostView::read(&self.netlink).await?;
        let options = self.options.clone();
        let name = match choose(&options, &bridges, &host)? {
            BridgeChoice::Bridge(name) => name,
            BridgeChoice::Device(device) => return self.create_bridge(client, &host, &device, &bridges).await,
        };
        let bridge = bridges.get(&name).ok_or_else(|| BridgeError::BridgeGone(name.clone()))?;
        let own_networks = own_networks(&options);
        if let Some((root, _)) = view::root(&client.snapshot())
            && self.setup_failures.note(
                (BridgeSetup { client, netlink: &self.netlink, host: &host, root, own_networks: &own_networks })
                    .move_addresses(bridge)
                    .await,
                Instant::now(),
            )?
        {
            tracing::info!(bridge = name, "moved the host's addresses and routes to the bridge");
            return Ok(Progress::Waiting(Waiting::AddressesMoved { bridge: name }));
        }
        let external = match ExternalBridge::inspect(bridge, &host, &options, &own_networks)? {
            Progress::Done(external) => external,
            Progress::Waiting(waiting) => return Ok(Progress::Waiting(waiting)),
        };
        self.external_devices = Some([name.clone(), uplink(bridge)?.name.clone()]);
        let mtu = self.pod_mtu(mtu, &external, node)?;
        publish(status, &external, &options);
        let Some(subnets) = self.subnets(client, bridge, node).await? else {
            return Ok(Progress::Waiting(Waiting::Subnet));
        };
        let Some(integration) = bridges.get(INTEGRATION_BRIDGE) else {
            return Ok(Progress::Waiting(Waiting::IntegrationBridge));
        };
        let facts = facts(&options, &external, subnets, exposed, mtu);
        if let Some(mac) = gateway::host(&facts).management_mac
            && let Some(transaction) =
                management::plan(integration, &options.node, mac, mtu, host.device(MANAGEMENT_PORT))
        {
            commit(client, &transaction).await?;
        }
        let changed = host::apply(&self.netlink, &host, &facts).await?;
        if host.device(MANAGEMENT_PORT).is_none() {
            return Ok(Progress::Waiting(Waiting::ManagementPort));
        }
        sysctls::apply(client, bridge, &facts).await?;
        if changed {
            tracing::info!(bridge = name, "updated addresses and routes of the host");
        }
        let same_bridge = self.former_bridges.is_empty() && self.managed.as_ref().is_some_and(|known| known.is(bridge));
        if complete && self.in_sync && same_bridge && self.facts.as_ref() == Some(&facts) {
            return Ok(Progress::Done(()));
        }
        self.in_sync = false;
        if let Progress::Waiting(waiting) =
            self.apply_flows_and_filter(&facts, bridge, external.patch, complete).await?
        {
            return Ok(Progress::Waiting(waiting));
        }
        self.remove_former_flows(&bridges).await;
        self.facts = Some(facts);
        self.in_sync = true;
        Ok(Progress::Done(()))
    }

    /// The pods' MTU that is in effect; a refused setting is reported once.
    fn pod_mtu(
        &self,
        mtu: &mut PodMtu,
        external: &ExternalBridge,
        node: Option<&OwnNode>,
    ) -> Result<u32, GatewayError> {
        Ok(match mtu.decide(|mtu| external.check_mtu(&self.options, mtu))? {
            MtuDecision::Unchanged(mtu) | MtuDecision::Refused(mtu, None) => mtu,
            MtuDecision::Changed(mtu) => {
                tracing::info!(mtu, "pod MTU changed; it applies to new pods, running pods keep theirs");
                mtu
            }
            MtuDecision::Refused(mtu, Some(error)) => {
                let message = format!("{error}; {mtu} stays in effect");
                tracing::warn!(mtu, %error, "refused the configured pod MTU; the former one stays in effect");
                if let Some(node) = node {
                    self.recorder.record(node_status::node_event(
                        &self.options.node,
                        &node.uid,
                        "MtuRefused",
                        &message,
                    ));
                }
                mtu
            }
        })
    }

    /// Creates a bridge from a device. The host's addresses move when ovs-vswitchd has set it up.
    async fn create_bridge(
        &self,
        client: &Client,
        host: &HostView,
        device: &str,
        bridges: &BTreeMap<String, BridgeView>,
    ) -> Result<Progress, GatewayError> {
        self.setup_failures.check(device, Instant::now())?;
        let root = view::root(&client.snapshot());
        let (Some(device), Some((root, requested))) = (host.device(device), root) else {
            return Err(BridgeError::DeviceGone(device.to_owned()).into());
        };
        // Like the other bridges: datapaths are not mixed.
        let userspace = requested || (!bridges.is_empty() && bridges.values().all(|bridge| bridge.userspace));
        let own_networks = own_networks(&self.options);
        let setup = BridgeSetup { client, netlink: &self.netlink, host, root, own_networks: &own_networks };
        let bridge = setup.create(device, userspace).await?;
        tracing::info!(bridge, device = device.name, "created the external bridge");
        Ok(Progress::Waiting(Waiting::BridgeCreated { bridge, device: device.name.clone() }))
    }

    /// Removes flows of ovnkube from bridges that are no longer the external one; the next reconciliation retries a failure.
    async fn remove_former_flows(&mut self, bridges: &BTreeMap<String, BridgeView>) {
        for bridge in std::mem::take(&mut self.former_bridges) {
            // Its flows are gone with it.
            if !bridges.contains_key(&bridge) {
                continue;
            }
            match OpenFlow::of(&bridge, &self.options.switch).apply(&[], true).await {
                Ok(applied) => tracing::info!(
                    bridge,
                    flows = applied.changed,
                    "removed flows: this is no longer the external bridge"
                ),
                Err(error) => {
                    tracing::warn!(bridge, %error, "cannot remove flows from the former external bridge; retrying");
                    self.former_bridges.insert(bridge);
                }
            }
        }
    }

    async fn apply_flows_and_filter(
        &mut self,
        facts: &Facts,
        bridge: &BridgeView,
        patch: Option<u32>,
        complete: bool,
    ) -> Result<Progress, GatewayError> {
        let (name, table) = (&facts.bridge.name, gateway::TABLE);
        // Until all Services are listed, the rules of an earlier agent are more complete than ours.
        let changed = self.filter.apply(facts, complete).await?;
        // A difference although the inputs are the same is another client's doing.
        let is_drift = self.facts.as_ref() == Some(facts);
        if changed && is_drift {
            tracing::warn!(table, "another client changed or deleted the nftables table; restored");
        } else if changed {
            tracing::info!(table, "updated the nftables table");
        }
        if patch.is_none() {
            let port = patch_port(name, &self.options.node);
            return Ok(Progress::Waiting(Waiting::PatchPort { bridge: name.clone(), port }));
        }
        if let Some(before) = self.managed.take_if(|known| !known.is(bridge)) {
            tracing::info!(bridge = name, before = before.name, "external bridge changed or was recreated");
            if before.name != *name {
                self.former_bridges.insert(before.name);
            }
        }
        self.former_bridges.remove(name);
        let managed = self.managed.get_or_insert_with(|| ManagedBridge::new(bridge, &self.options.switch));
        let applied = managed.flows.apply(&gateway::flows(facts), complete).await?;
        let (flows, restarted) = (applied.changed, std::mem::take(&mut managed.restarted));
        if flows > 0 && is_drift && restarted && applied.was_empty {
            tracing::info!(
                bridge = name,
                flows,
                "flows were missing after ovs-vswitchd restarted; installed them again"
            );
        } else if flows > 0 && is_drift {
            tracing::warn!(bridge = name, flows, "another client changed or deleted flows; restored");
        } else if flows > 0 {
            tracing::info!(bridge = name, flows, "updated flows");
        }
        Ok(if complete { Progress::Done(()) } else { Progress::Waiting(Waiting::Objects) })
    }

    /// Subnets of this node's pods, from the Node object or else as saved on the bridge; None if none were allocated.
    async fn subnets(
        &mut self,
        client: &Client,
        bridge: &BridgeView,
        node: Option<&OwnNode>,
    ) -> Result<Option<Vec<Prefix>>, GatewayError> {
        let text = bridge.external_ids.get(SUBNETS).map(String::as_str).unwrap_or_default();
        let saved: Vec<Prefix> = text.split(',').filter_map(|text| text.parse().ok()).collect();
        let annotated = node.map(|node| node.subnets.as_slice()).unwrap_or_default();
        if annotated.is_empty() {
            self.report_ignored(node, None, &saved);
            // An invalid annotation does not break a working node: the saved subnets stay in effect.
            let broken = node.and_then(|node| node.broken.as_deref());
            return match (saved.is_empty(), broken) {
                (false, _) => Ok(Some(saved)),
                (true, Some(why)) => Err(GatewayError::Subnets(why.to_owned())),
                (true, None) => Ok(None),
            };
        }
        let pods = node_subnets::pod_addresses(&client.snapshot());
        let Decision { subnets, ignored } =
            node_subnets::decide(&saved, annotated, &pods, &self.options.cluster.cluster);
        if let (true, Some(why)) = (subnets.is_empty(), &ignored) {
            return Err(GatewayError::Subnets(why.clone()));
        }
        self.report_ignored(node, ignored, &subnets);
        let words = node_subnets::list(&subnets);
        if text != words {
            let mut transaction = Transaction::new();
            transaction.set_key("Bridge", bridge.uuid, "external_ids", SUBNETS, &words);
            commit(client, &transaction).await?;
        }
        Ok(Some(subnets))
    }

    /// Reports once that the annotation with the subnets is ignored, and why; or that it no longer is.
    fn report_ignored(&mut self, node: Option<&OwnNode>, ignored: Option<String>, subnets: &[Prefix]) {
        if self.ignored_subnets == ignored {
            return;
        }
        let subnets = node_subnets::list(subnets);
        if let Some(why) = &ignored {
            tracing::warn!(
                error = why,
                subnets,
                "ignoring the node's annotated subnets; the former ones stay in effect"
            );
            if let Some(node) = node {
                let message = format!(
                    "{why}: the agent ignores the annotation, and {subnets} stays in effect; revert it, or drain the node first"
                );
                self.recorder.record(node_status::node_event(
                    &self.options.node,
                    &node.uid,
                    "NodeSubnetsIgnored",
                    &message,
                ));
            }
        } else {
            tracing::info!(subnets, "the node's annotated subnets are in effect again");
        }
        self.ignored_subnets = ignored;
    }
}

pub(super) async fn commit(client: &Client, transaction: &Transaction) -> Result<(), GatewayError> {
    client.transact(transaction).await.map(drop).map_err(GatewayError::from)
}

/// Rows of the switch that matter to the gateway: all bridges, but of br-int only the management port.
fn relevant_bridges(client: &Client) -> Vec<BridgeView> {
    let mut bridges = view::bridges(&client.snapshot());
    if let Some(integration) = bridges.get_mut(INTEGRATION_BRIDGE) {
        integration.interfaces.retain(|interface| interface.name == MANAGEMENT_PORT);
        // ovn-controller updates nb_cfg there.
        integration.external_ids.clear();
        for interface in &mut integration.interfaces {
            interface.external_ids.retain(|key, _| key == "iface-id" || key == "attached_mac");
        }
    }
    bridges.into_values().collect()
}

fn publish(status: &watch::Sender<GatewayStatus>, external: &ExternalBridge, options: &Options) {
    let annotations = external.annotations(options);
    let encapsulation: Option<IpAddr> = external.encapsulation(options);
    let host = encapsulation.map(|encapsulation| HostFacts {
        encapsulation,
        bridge: Some(external.name.clone()),
        userspace: external.userspace,
    });
    status.send_if_modified(|status| {
        let changed = status.annotations != annotations || status.host != host;
        status.annotations = annotations;
        status.host = host;
        changed
    });
}

fn facts(
    options: &Options,
    external: &ExternalBridge,
    subnets: Vec<Prefix>,
    exposed: Vec<ExposedPort>,
    mtu: u32,
) -> Facts {
    let cluster = &options.cluster;
    let isolated_uplink = external.isolated_uplink.clone();
    Facts {
        mode: options.gateway.mode,
        bridge: Bridge {
            name: external.name.clone(),
            mac: external.mac,
            uplink: external.uplink,
            patch: external.patch.unwrap_or_default(),
            addresses: external.addresses.clone(),
            isolated_uplink,
        },
        network: Network {
            cluster: cluster.cluster.iter().map(|cidr| cidr.cidr).collect(),
            services: cluster.services.clone(),
            masquerade: cluster.masquerade.clone(),
            subnets,
            management: MANAGEMENT_PORT.to_owned(),
            mtu,
            tunnel_port: options.encapsulation.port,
        },
        exposed,
    }
}
