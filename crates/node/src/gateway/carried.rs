//! One look at everything, and what differs carried.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use gateway::{Bridge, Exposed, Facts, Mode, Network};
use kubernetes::Recorder;
use netmodel::Prefix;
use ovsdb::client::{Client, Remote, Subscription};
use ovsdb::transaction::Transaction;
use ovsdb::uuid::Uuid;
use tokio::sync::watch;

use super::GatewayReport;
use super::bridge::{Choice, External, choose, interface_id, uplink};
use super::flow_changes::FlowChanges;
use super::health::HealthServers;
use super::host::{self, HostView};
use super::making::Workplace;
use super::openflow::OpenFlow;
use super::packet_filter::PacketFilter;
use super::view::{self, BridgeView};
use super::{management, settings};
use crate::host_settings::HostFacts;
use crate::kernel::Netlink;
use crate::options::{GatewayMode, INTEGRATION_BRIDGE, MANAGEMENT_PORT, Options};
use crate::own_node::OwnNode;
use crate::pod_mtu::{PodMtu, Verdict};
use crate::readiness::State;
use crate::report;

/// On the bridge: the subnets of this node's pods, for a start without the API.
pub(super) const SUBNETS: &str = "ovnkube-subnets";

/// What was carried so far.
#[derive(Debug)]
pub(super) struct Carried {
    options: Arc<Options>,
    recorder: Recorder,
    netlink: Netlink,
    bound: Option<Bound>,
    /// Bridges that were the external one before, whose flows of ours are still to be removed.
    former: BTreeSet<String>,
    filter: PacketFilter,
    pub(super) health: HealthServers,
    /// What the switch's database said when it was looked at last.
    seen: Vec<BridgeView>,
    /// The external bridge and its uplink, once they are known.
    external: Option<[String; 2]>,
    /// What flows and packet filter were last made from, whatever happened to them since.
    facts: Option<Facts>,
    /// Whether they still are as they were made, as far as is known.
    settled: bool,
}

/// The external bridge whose flows are kept. Another one may take its place: br-ex may appear later, or be recreated.
#[derive(Debug)]
struct Bound {
    name: String,
    uuid: Uuid,
    flows: OpenFlow,
    changes: FlowChanges,
}

impl Bound {
    fn to(bridge: &BridgeView, switch: &Remote) -> Self {
        let flows = OpenFlow::of(&bridge.name, switch);
        let changes = FlowChanges::listen(flows.socket().to_path_buf());
        Self { name: bridge.name.clone(), uuid: bridge.uuid, flows, changes }
    }

    fn is_to(&self, bridge: &BridgeView) -> bool {
        (&self.name, self.uuid) == (&bridge.name, bridge.uuid)
    }
}

/// The networks whose addresses are ours rather than the host's.
pub(super) fn own_networks(options: &Options) -> Vec<Prefix> {
    let cluster = &options.cluster;
    let pods = cluster.cluster.iter().map(|cidr| cidr.cidr);
    pods.chain(cluster.join.iter().copied()).chain(cluster.masquerade.iter().copied()).collect()
}

impl Carried {
    pub(super) fn new(options: Arc<Options>, recorder: Recorder, netlink: Netlink) -> Self {
        Self {
            options,
            recorder,
            netlink,
            bound: None,
            former: BTreeSet::new(),
            filter: PacketFilter::default(),
            health: HealthServers::default(),
            seen: Vec::new(),
            external: None,
            facts: None,
            settled: false,
        }
    }

    /// The devices that concern us; none while that is not known.
    pub(super) fn devices(&self) -> Vec<String> {
        let external = self.external.iter().flatten().cloned();
        if self.external.is_some() { external.chain([MANAGEMENT_PORT.to_owned()]).collect() } else { Vec::new() }
    }

    /// What was carried may have been changed by others.
    pub(super) fn forget(&mut self) {
        self.settled = false;
        self.filter.forget();
        if let Some(bound) = &mut self.bound {
            bound.flows.forget();
        }
    }

    /// The packet filter may have been changed by others.
    pub(super) fn forget_filter(&mut self) {
        self.settled = false;
        self.filter.forget();
    }

    /// Returns when the switch's database says something else that concerns us (not for every pod's port), or when flows may
    /// be gone.
    pub(super) async fn switch_changed(&mut self, client: &Client, switch: &mut Subscription) {
        let seen = &self.seen;
        let concern = async {
            loop {
                switch.next().await;
                if concerns(client) != *seen {
                    return;
                }
            }
        };
        let Some(Bound { flows, changes, .. }) = &mut self.bound else { return concern.await };
        tokio::select! {
            () = concern => {}
            () = changes.next() => {
                self.settled = false;
                flows.forget();
            }
        }
    }

    /// Looks at everything and carries what differs.
    pub(super) async fn pass(
        &mut self,
        client: &Client,
        node: Option<&OwnNode>,
        exposed: Vec<Exposed>,
        complete: bool,
        mtu: &mut PodMtu,
        report: &watch::Sender<GatewayReport>,
    ) -> State {
        self.seen = concerns(client);
        self.external = None;
        let bridges = view::bridges(&client.snapshot());
        let host = HostView::look(&self.netlink).await.map_err(|error| error.to_string())?;
        let options = self.options.clone();
        let name = match choose(&options, &bridges, &host)? {
            Choice::Bridge(name) => name,
            Choice::Device(device) => return self.make(client, &host, &device, &bridges).await,
        };
        let Some(bridge) = bridges.get(&name) else { return Err(format!("bridge {name} is gone")) };
        let ours = own_networks(&options);
        if let Some((root, _)) = view::root(&client.snapshot())
            && (Workplace { client, netlink: &self.netlink, host: &host, root, ours: &ours }).settle(bridge).await?
        {
            tracing::info!(bridge = name, "the host's addresses and routes were moved to the bridge");
            return Err(format!("the host's addresses were just moved to bridge {name}"));
        }
        let external = External::look(bridge, &host, &options, &ours)?;
        self.external = Some([name.clone(), uplink(bridge)?.name.clone()]);
        let mtu = self.settle_mtu(mtu, &external, node)?;
        tell(report, &external, &options);
        let subnets = self.subnets(client, bridge, node).await?;
        let integration = bridges
            .get(INTEGRATION_BRIDGE)
            .ok_or_else(|| format!("ovn-controller has not made bridge {INTEGRATION_BRIDGE} yet: is it running?"))?;
        let facts = facts(&options, &external, subnets, exposed, mtu);
        if let Some(mac) = gateway::host(&facts).management_mac
            && let Some(transaction) =
                management::plan(integration, &options.node, mac, mtu, host.device(MANAGEMENT_PORT))
        {
            commit(client, &transaction).await?;
        }
        let changed = host::carry(&self.netlink, &host, &facts).await?;
        if host.device(MANAGEMENT_PORT).is_none() {
            return Err(format!("the device {MANAGEMENT_PORT} is not there yet: is ovs-vswitchd running?"));
        }
        settings::carry(client, bridge, &facts).await?;
        if changed {
            tracing::info!(bridge = name, "addresses and routes of the host were set");
        }
        let bound = self.former.is_empty() && self.bound.as_ref().is_some_and(|bound| bound.is_to(bridge));
        if complete && self.settled && bound && self.facts.as_ref() == Some(&facts) {
            return Ok(());
        }
        self.settled = false;
        self.flows_and_filter(&facts, bridge, external.patch, complete).await?;
        self.clear_former(&bridges).await;
        self.facts = Some(facts);
        self.settled = true;
        Ok(())
    }

    /// The pods' MTU that is in force.
    fn settle_mtu(&self, mtu: &mut PodMtu, external: &External, node: Option<&OwnNode>) -> Result<u32, String> {
        Ok(match mtu.settle(|mtu| external.check_mtu(&self.options, mtu))? {
            Verdict::AsBefore(mtu) | Verdict::Kept(mtu, None) => mtu,
            Verdict::New(mtu) => {
                tracing::info!(mtu, "new pods have another MTU; those that run keep theirs");
                mtu
            }
            Verdict::Kept(mtu, Some(why)) => {
                let message = format!("{why}; {mtu} stays in force");
                tracing::warn!(why = message, "the MTU of the settings is not used");
                if let Some(node) = node {
                    self.recorder.record(report::note(&self.options.node, &node.uid, "MtuRefused", &message));
                }
                mtu
            }
        })
    }

    /// Makes a bridge of a device; what the host has there moves when the bridge is there.
    async fn make(
        &self,
        client: &Client,
        host: &HostView,
        device: &str,
        bridges: &BTreeMap<String, BridgeView>,
    ) -> State {
        let root = view::root(&client.snapshot());
        let (Some(device), Some((root, told))) = (host.device(device), root) else {
            return Err(format!("device {device} is gone: connect it again"));
        };
        // As the other bridges are: what forwards in userspace is not mixed with what does not.
        let userspace = told || (!bridges.is_empty() && bridges.values().all(|bridge| bridge.userspace));
        let ours = own_networks(&self.options);
        let workplace = Workplace { client, netlink: &self.netlink, host, root, ours: &ours };
        let name = workplace.make(device, userspace).await?;
        tracing::info!(bridge = name, device = device.name, "a bridge was made");
        Err(format!("bridge {name} was just made of {}: is ovs-vswitchd running?", device.name))
    }

    /// Removes flows of ours from bridges that are not the external one any more; what fails is tried again by the next look.
    async fn clear_former(&mut self, bridges: &BTreeMap<String, BridgeView>) {
        for bridge in std::mem::take(&mut self.former) {
            // With a bridge its flows went.
            if !bridges.contains_key(&bridge) {
                continue;
            }
            match OpenFlow::of(&bridge, &self.options.switch).carry(&[], true).await {
                Ok(lines) => tracing::info!(bridge, lines, "removed our flows: this is no longer the external bridge"),
                Err(error) => {
                    tracing::warn!(bridge, error, "cannot remove our flows from the former external bridge; retrying");
                    self.former.insert(bridge);
                }
            }
        }
    }

    async fn flows_and_filter(
        &mut self,
        facts: &Facts,
        bridge: &BridgeView,
        patch: Option<u32>,
        complete: bool,
    ) -> State {
        let name = &facts.bridge.name;
        // Until all Services are known, what an earlier one of us left is better than what we know.
        let changed = self.filter.carry(facts, complete).await?;
        // What is different though nothing new was asked for, others did.
        let put_back = self.facts.as_ref() == Some(facts);
        if changed && put_back {
            let table = gateway::TABLE;
            tracing::warn!(table, "somebody changed or deleted our table of the packet filter; it was set again");
        } else if changed {
            tracing::info!("the packet filter was set");
        }
        if patch.is_none() {
            return Err(format!(
                "bridge {name} is not connected with OVN yet: ovn-controller makes the port patch-{}-to-{INTEGRATION_BRIDGE} when the \
                 controller has seen this node",
                interface_id(name, &self.options.node)
            ));
        }
        if let Some(before) = self.bound.take_if(|bound| !bound.is_to(bridge)) {
            tracing::info!(bridge = name, before = before.name, "the external bridge is another one now");
            if before.name != *name {
                self.former.insert(before.name);
            }
        }
        self.former.remove(name);
        let bound = self.bound.get_or_insert_with(|| Bound::to(bridge, &self.options.switch));
        let lines = bound.flows.carry(&gateway::flows(facts), complete).await?;
        if lines > 0 && put_back {
            tracing::warn!(bridge = name, lines, "flows of ours were gone or changed; they were set again");
        } else if lines > 0 {
            tracing::info!(bridge = name, lines, "flows were changed");
        }
        if complete {
            Ok(())
        } else {
            Err("Services and pods are not known yet: is the API server reachable?".to_owned())
        }
    }

    /// The subnets of this node's pods: from the API, or as they were when it last answered.
    async fn subnets(
        &self,
        client: &Client,
        bridge: &BridgeView,
        node: Option<&OwnNode>,
    ) -> Result<Vec<Prefix>, String> {
        let remembered = bridge.external_ids.get(SUBNETS).map(String::as_str).unwrap_or_default();
        let subnets = node.map(|node| node.subnets.clone()).unwrap_or_default();
        if subnets.is_empty() {
            // An annotation that was spoilt does not take a working node down: what it had stays.
            let found: Vec<Prefix> = remembered.split(',').filter_map(|text| text.parse().ok()).collect();
            let broken = node.and_then(|node| node.broken.as_deref());
            return match (found.is_empty(), broken) {
                (false, _) => Ok(found),
                (true, Some(why)) => Err(format!("{why}; correct the annotation, or remove it")),
                (true, None) => Err("the controller has given this node no subnet yet: is it running?".to_owned()),
            };
        }
        let words: Vec<String> = subnets.iter().map(ToString::to_string).collect();
        if remembered != words.join(",") {
            let mut transaction = Transaction::new();
            transaction.set_key("Bridge", bridge.uuid, "external_ids", SUBNETS, &words.join(","));
            commit(client, &transaction).await?;
        }
        Ok(subnets)
    }
}

pub(super) async fn commit(client: &Client, transaction: &Transaction) -> Result<(), String> {
    let done = client.transact(transaction).await;
    done.map(drop).map_err(|error| format!("Open vSwitch's database refused a change: {error}"))
}

/// What of the switch concerns the gateway: all bridges, but of the integration bridge only the management port.
fn concerns(client: &Client) -> Vec<BridgeView> {
    let mut bridges = view::bridges(&client.snapshot());
    if let Some(integration) = bridges.get_mut(INTEGRATION_BRIDGE) {
        integration.interfaces.retain(|interface| interface.name == MANAGEMENT_PORT);
        // ovn-controller says there how far it is.
        integration.external_ids.clear();
        for interface in &mut integration.interfaces {
            interface.external_ids.retain(|key, _| key == "iface-id" || key == "attached_mac");
        }
    }
    bridges.into_values().collect()
}

fn tell(report: &watch::Sender<GatewayReport>, external: &External, options: &Options) {
    let annotations = external.annotations(options);
    let encapsulation: Option<IpAddr> = external.encapsulation(options);
    let host = encapsulation.map(|encapsulation| HostFacts {
        encapsulation,
        bridge: Some(external.name.clone()),
        userspace: external.userspace,
    });
    report.send_if_modified(|report| {
        let changed = report.annotations != annotations || report.host != host;
        report.annotations = annotations;
        report.host = host;
        changed
    });
}

fn facts(options: &Options, external: &External, subnets: Vec<Prefix>, exposed: Vec<Exposed>, mtu: u32) -> Facts {
    let cluster = &options.cluster;
    let shielded = external.shielded.clone();
    Facts {
        mode: match options.gateway.mode {
            GatewayMode::Shared => Mode::Shared,
            GatewayMode::Local => Mode::Local,
        },
        bridge: Bridge {
            name: external.name.clone(),
            mac: external.mac,
            uplink: external.uplink,
            patch: external.patch.unwrap_or_default(),
            addresses: external.addresses.clone(),
            shielded,
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
