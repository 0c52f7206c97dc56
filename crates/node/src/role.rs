//! The agent's parts, put together.

use std::sync::Arc;
use std::time::Duration;

use kubernetes::{Api, Recorder};
use prometheus_client::metrics::counter::Counter;
use telemetry::Telemetry;
use tokio::sync::watch;

use crate::error::NodeError;
use crate::gateway::{self, Gateway, GatewayReport, HostPorts};
use crate::host_settings::{self, HostFacts};
use crate::integration::Integration;
use crate::kernel::Netlink;
use crate::options::{LiveSettings, MANAGEMENT_PORT, Options};
use crate::ovn_controller::OvnController;
use crate::own_node::OwnNode;
use crate::pod_mtu::PodMtu;
use crate::pods::Pods;
use crate::readiness::{Part, Readiness};
use crate::report::{Annotations, Report};
use crate::switch::Switch;
use crate::switch::ports::Ports;
use crate::{cluster_size, cni, own_node, report};

/// Runs the agent until it is told to stop.
pub async fn run(
    options: Options,
    live: watch::Receiver<LiveSettings>,
    telemetry: &Telemetry,
) -> Result<(), NodeError> {
    let options = Arc::new(options);
    let api = Api::from_kubeconfig(options.kubeconfig.as_deref(), None).await?;
    let switch = Arc::new(Switch::start(options.switch.clone()));
    let readiness = Readiness::new(telemetry.health());
    let deletions = Counter::default();
    telemetry.registry(|registry| {
        let own = registry.sub_registry_with_prefix("ovnkube_node");
        own.register("ready", "1 if pods can be wired on this node, else 0", readiness.gauge());
        own.register(
            "flow_deletions",
            "How often flows of br-int were deleted by a client other than ovn-controller, and reinstalled",
            deletions.clone(),
        );
    });
    let node = own_node::follow(&api, &options.node);
    let annotations = watch::Sender::new(Annotations::new());
    let mtu = PodMtu::new(live.clone(), mtu_before().await);
    let facts = watch::Sender::new(None::<HostFacts>);
    let nodes = watch::Sender::new(None::<usize>);

    let recorder = Recorder::new(&api, "ovnkube-node", &options.node);
    let report = Report {
        api: api.clone(),
        recorder: recorder.clone(),
        name: options.node.clone(),
        node: node.clone(),
        annotations: annotations.subscribe(),
        state: readiness.follow(),
        nodes: nodes.subscribe(),
    };
    let known = Known { facts: facts.subscribe(), nodes: nodes.subscribe() };
    let settings = keep_settings(options.clone(), switch.clone(), known, &readiness, &annotations);
    let pods = Pods::start(&api, &options.node);
    let host_ports = HostPorts { wanted: pods.published(), open: watch::Sender::new(None) };
    let service = cni::Service::new(
        cni::Parts {
            pods,
            ports: Ports::start(switch.client()),
            mtu: mtu.in_force(),
            state: readiness.follow(),
            host_ports: host_ports.open.subscribe(),
            recorder: recorder.clone(),
            folder: options.cni.socket_folder.clone(),
            patience: options.cni.patience,
        },
        telemetry,
    );
    let serving = service.serve(telemetry.shutdown());
    let files = cni::install::keep(&options.cni, readiness.follow(), |kept| {
        if let Err(why) = kept {
            tracing::warn!(why, "the runtime's files are not as they should be");
        }
    });
    let controller = OvnController {
        part: readiness.part("ovn-controller"),
        southbound: options.ovn_controller.southbound.clone(),
        switch: switch.client().clone(),
        node: node.clone(),
    };
    let integration = Integration {
        part: readiness.part("integration bridge"),
        switch: options.switch.clone(),
        wait_before_clear: Duration::from_millis(options.ovn_controller.wait_before_clear.into()),
        recorder: recorder.clone(),
        name: options.node.clone(),
        node: node.clone(),
        deletions,
    };
    let counting = cluster_size::follow(api.clone(), &nodes);
    let shutdown = telemetry.shutdown();
    let problems = tell_problems(live, node.clone(), recorder.clone(), &options.node);
    let (gateway, told) = Gateway::new(options.clone(), mtu, &api, recorder, switch.clone(), node.clone(), host_ports);
    let gateway_part = readiness.part("gateway");
    let tell_gateway = tell_gateway(told, &gateway_part, &annotations, &facts);
    tokio::select! {
        () = shutdown.wait() => Ok(()),
        served = serving => served.map_err(NodeError::Cni),
        () = files => Err(NodeError::Ended("the look after the runtime's files")),
        () = report.run() => Err(NodeError::Ended("the node's report")),
        () = problems => Err(NodeError::Ended("the look after the settings")),
        () = settings => Err(NodeError::Ended("the switch's settings")),
        () = gateway.run(shutdown.clone()) => Ok(()),
        () = tell_gateway => Err(NodeError::Ended("the gateway")),
        () = controller.follow() => Err(NodeError::Ended("the look at ovn-controller")),
        () = integration.run() => Err(NodeError::Ended("the look after the integration bridge")),
        () = counting => Err(NodeError::Ended("the count of nodes")),
    }
}

/// The pods' MTU of an earlier agent of this host.
async fn mtu_before() -> Option<u32> {
    let netlink = Netlink::host().ok()?;
    netlink.device(MANAGEMENT_PORT).await.ok()?.map(|device| device.mtu)
}

/// Says on the node what is wrong with its settings. Never ends.
async fn tell_problems(
    mut live: watch::Receiver<LiveSettings>,
    mut node: watch::Receiver<Option<Arc<OwnNode>>>,
    recorder: Recorder,
    name: &str,
) {
    loop {
        if live.changed().await.is_err() {
            return std::future::pending().await;
        }
        let problem = live.borrow_and_update().problem.clone();
        if let Some(why) = problem
            && let Ok(known) =
                node.wait_for(Option::is_some).await.map(|node| node.as_ref().map(|node| node.uid.clone()))
        {
            recorder.record(report::note(name, &known.unwrap_or_default(), "SettingsRefused", &why));
        }
    }
}

/// Takes everything that the agent made off this host again.
pub async fn clean_up(options: Options) -> Result<(), NodeError> {
    let switch = Switch::start(options.switch.clone());
    let client = switch.client();
    let reached = client.connected(Duration::from_secs(10)).await;
    reached.map_err(|error| NodeError::CleanUp(format!("Open vSwitch's database cannot be reached: {error}")))?;
    let mut failures: Vec<String> = Vec::new();
    failures.extend(cni::clean_up(&options.cni, &Ports::start(client)).await.err());
    failures.extend(gateway::clean_up(&options, &switch).await.err());
    if let Some(transaction) = host_settings::plan_removal(&client.snapshot()) {
        failures.extend(client.transact(&transaction).await.err().map(|error| error.to_string()));
    }
    if failures.is_empty() { Ok(()) } else { Err(NodeError::CleanUp(failures.join("; "))) }
}

/// What the gateway says reaches those whom it concerns. Ends with the gateway.
async fn tell_gateway(
    mut told: watch::Receiver<GatewayReport>,
    part: &Part,
    annotations: &watch::Sender<Annotations>,
    facts: &watch::Sender<Option<HostFacts>>,
) {
    loop {
        let report = told.borrow_and_update().clone();
        part.say(&report.state);
        for (key, value) in report.annotations {
            tell(annotations, key, value);
        }
        facts.send_if_modified(|before| {
            let changed = *before != report.host;
            *before = report.host;
            changed
        });
        if told.changed().await.is_err() {
            return;
        }
    }
}

/// What ovn-controller's settings depend on.
struct Known {
    facts: watch::Receiver<Option<HostFacts>>,
    nodes: watch::Receiver<Option<usize>>,
}

/// Keeps our keys in the switch's database, and tells the chassis' name. Never ends.
async fn keep_settings(
    options: Arc<Options>,
    switch: Arc<Switch>,
    mut known: Known,
    readiness: &Readiness,
    annotations: &watch::Sender<Annotations>,
) {
    let part = readiness.part("open vswitch");
    let client = switch.client();
    let (mut status, mut changes) = (client.status(), client.subscribe());
    loop {
        if status.borrow_and_update().connected {
            part.ready();
            let snapshot = client.snapshot();
            // Not looked at within the condition: who tells facts would wait for the end of what is written here.
            let facts = known.facts.borrow_and_update().clone();
            let nodes = *known.nodes.borrow_and_update();
            if let Some(transaction) = host_settings::plan(&options, facts.as_ref(), nodes, &snapshot)
                && let Err(error) = client.transact(&transaction).await
            {
                part.not_ready(format!("its settings cannot be written: {error}"));
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
            if let Some(chassis) = host_settings::chassis(&client.snapshot()) {
                tell(annotations, "k8s.ovn.org/node-chassis-id", chassis);
            }
        } else {
            let why = status.borrow().last_error.clone().unwrap_or_else(|| "not connected yet".into());
            part.not_ready(format!("its database cannot be reached: {why}; start Open vSwitch"));
        }
        tokio::select! {
            changed = status.changed() => if changed.is_err() { return },
            changed = known.facts.changed() => if changed.is_err() { return },
            changed = known.nodes.changed() => if changed.is_err() { return },
            _ = changes.next() => {}
        }
    }
}

fn tell(annotations: &watch::Sender<Annotations>, key: &'static str, value: String) {
    annotations.send_if_modified(|all| {
        let changed = all.get(key) != Some(&value);
        all.insert(key, value);
        changed
    });
}
