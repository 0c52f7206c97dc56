//! Starts all tasks of the agent, and cleanup.

use std::sync::Arc;
use std::time::Duration;

use kubernetes::{Api, Recorder};
use pki::CHASSIS_ANNOTATION;
use prometheus_client::metrics::counter::Counter;
use remotes::{RemoteUpdates, Servers};
use telemetry::Telemetry;
use tokio::sync::watch;

use crate::certificate::{CertificateInputs, NodeCertificate};
use crate::error::NodeError;
use crate::gateway::{self, Gateway, GatewayInputs, GatewayStatus, HostPorts};
use crate::host_settings::{self, HostFacts};
use crate::integration::IntegrationBridge;
use crate::kernel::Netlink;
use crate::node_status::{Annotations, NodeStatusWriter};
use crate::options::{LiveSettings, MANAGEMENT_PORT, Options};
use crate::ovn_controller::OvnController;
use crate::own_node::OwnNode;
use crate::pod_mtu::PodMtu;
use crate::pods::Pods;
use crate::readiness::{Part, Readiness};
use crate::switch::Switch;
use crate::switch::ports::Ports;
use crate::{certificate, cluster_size, cni, node_status, own_node};

/// Runs the agent until shutdown.
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
        own.register("ready", "1 if pods can be connected on this node, else 0", readiness.gauge());
        own.register(
            "flow_deletions",
            "How often flows of br-int were deleted by a client other than ovn-controller, and reinstalled",
            deletions.clone(),
        );
    });
    let node = own_node::watch_node(&api, &options.node);
    let annotations = watch::Sender::new(Annotations::new());
    let mtu = PodMtu::new(live.clone(), former_mtu().await);
    let facts = watch::Sender::new(None::<HostFacts>);
    let nodes = watch::Sender::new(None::<usize>);

    let recorder = Recorder::new(&api, "ovnkube-node", &options.node);
    let status_writer = NodeStatusWriter {
        api: api.clone(),
        recorder: recorder.clone(),
        name: options.node.clone(),
        node: node.clone(),
        annotations: annotations.subscribe(),
        state: readiness.follow(),
        nodes: nodes.subscribe(),
    };
    let servers = Servers::follow(&api, &options.northbound, &options.southbound);
    let southbound = servers.southbound.clone();
    let inputs = SettingsInputs { facts: facts.subscribe(), nodes: nodes.subscribe(), southbound };
    let settings = write_ovn_controller_settings(options.clone(), switch.clone(), inputs, &readiness, &annotations);
    let pods = Pods::start(&api, &options.node);
    let host_ports = HostPorts { wanted: pods.published(), open: watch::Sender::new(None) };
    let server = cni::CniServer::new(
        cni::Dependencies {
            pods,
            ports: Ports::start(switch.client()),
            mtu: mtu.current(),
            state: readiness.follow(),
            host_ports: host_ports.open.subscribe(),
            recorder: recorder.clone(),
            directory: options.cni.socket_dir.clone(),
            add_timeout: options.cni.add_timeout,
        },
        telemetry,
    );
    let serving = server.serve(telemetry.shutdown());
    let files = cni::install::run(&options.cni, readiness.follow());
    let certificate = options.certificate.as_ref().map(|of| {
        let inputs = CertificateInputs {
            api: api.clone(),
            recorder: recorder.clone(),
            node: node.clone(),
            annotations: annotations.subscribe(),
        };
        NodeCertificate::new(of, &options.node, inputs, telemetry)
    });
    let controller = OvnController {
        part: readiness.part("ovn-controller"),
        switch: switch.client().clone(),
        node: node.clone(),
        tls: options.southbound.tls.clone(),
        certificate: certificate.as_ref().map(NodeCertificate::follow),
        recorder: recorder.clone(),
        name: options.node.clone(),
    };
    let integration = IntegrationBridge {
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
    let settings_errors = report_settings_errors(live, node.clone(), recorder.clone(), &options.node);
    let gateway_inputs = GatewayInputs { node: node.clone(), host_ports, servers };
    let (gateway, gateway_status) = Gateway::new(options.clone(), mtu, &api, recorder, switch.clone(), gateway_inputs);
    let gateway_part = readiness.part("gateway");
    let publish_gateway_status = publish_gateway_status(gateway_status, &gateway_part, &annotations, &facts);
    tokio::select! {
        () = shutdown.wait() => Ok(()),
        served = serving => served,
        () = files => Err(NodeError::TaskEnded("the task that writes the runtime's files")),
        () = status_writer.run() => Err(NodeError::TaskEnded("the node status writer")),
        () = settings_errors => Err(NodeError::TaskEnded("the task that reports refused settings")),
        () = settings => Err(NodeError::TaskEnded("the task that writes ovn-controller's settings")),
        () = gateway.run(shutdown.clone()) => Ok(()),
        () = publish_gateway_status => Err(NodeError::TaskEnded("the gateway task")),
        () = controller.follow() => Err(NodeError::TaskEnded("the check of ovn-controller")),
        () = integration.run() => Err(NodeError::TaskEnded("the check of br-int")),
        () = keep_certificate(certificate) => Err(NodeError::TaskEnded("the task that renews the node's certificate")),
        () = counting => Err(NodeError::TaskEnded("the count of nodes")),
    }
}

/// Keeps the node's certificate valid, if it has one of its own. Never returns.
async fn keep_certificate(certificate: Option<NodeCertificate>) {
    match certificate {
        Some(certificate) => certificate.run().await,
        None => std::future::pending().await,
    }
}

/// MTU that an earlier agent set on this host, read from the management port.
async fn former_mtu() -> Option<u32> {
    let netlink = Netlink::host().ok()?;
    netlink.device(MANAGEMENT_PORT).await.ok()?.map(|device| device.mtu)
}

/// Writes an Event for each refused configuration file. Never returns.
async fn report_settings_errors(
    mut live: watch::Receiver<LiveSettings>,
    mut node: watch::Receiver<Option<Arc<OwnNode>>>,
    recorder: Recorder,
    name: &str,
) {
    loop {
        if live.changed().await.is_err() {
            return std::future::pending().await;
        }
        let error = live.borrow_and_update().error.clone();
        if let Some(error) = error
            && let Ok(known) =
                node.wait_for(Option::is_some).await.map(|node| node.as_ref().map(|node| node.uid.clone()))
        {
            recorder.record(node_status::node_event(name, &known.unwrap_or_default(), "SettingsRefused", &error));
        }
    }
}

/// Removes everything from this host that the agent created. The agent must not run.
pub async fn clean_up(options: Options) -> Result<(), NodeError> {
    let switch = Switch::start(options.switch.clone());
    let client = switch.client();
    let reached = client.connected(Duration::from_secs(10)).await;
    reached.map_err(|error| NodeError::CleanUp(format!("not connected to Open vSwitch's database: {error}")))?;
    let mut failures: Vec<String> = Vec::new();
    failures.extend(cni::clean_up(&options.cni, &Ports::start(client)).await.iter().map(ToString::to_string));
    failures.extend(gateway::clean_up(&options, &switch).await.iter().map(ToString::to_string));
    failures.extend(options.certificate.as_ref().and_then(|of| certificate::clean_up(of).err()));
    if let Some(transaction) = host_settings::plan_removal(&client.snapshot()) {
        failures.extend(client.transact(&transaction).await.err().map(|error| error.to_string()));
    }
    if failures.is_empty() { Ok(()) } else { Err(NodeError::CleanUp(failures.join("; "))) }
}

/// Distributes the gateway's status to readiness, annotations and ovn-controller's settings. Returns when the gateway ends.
async fn publish_gateway_status(
    mut gateway_status: watch::Receiver<GatewayStatus>,
    part: &Part,
    annotations: &watch::Sender<Annotations>,
    facts: &watch::Sender<Option<HostFacts>>,
) {
    loop {
        let status = gateway_status.borrow_and_update().clone();
        part.set(&status.state);
        for (key, value) in status.annotations {
            set_annotation(annotations, key, value);
        }
        facts.send_if_modified(|before| {
            let changed = *before != status.host;
            *before = status.host;
            changed
        });
        if gateway_status.changed().await.is_err() {
            return;
        }
    }
}

/// What ovn-controller's settings depend on, besides the configuration.
struct SettingsInputs {
    facts: watch::Receiver<Option<HostFacts>>,
    nodes: watch::Receiver<Option<usize>>,
    southbound: RemoteUpdates,
}

impl SettingsInputs {
    /// What they are now. Cloned: a borrow across the transaction would block the senders.
    fn current(&mut self) -> host_settings::Inputs {
        host_settings::Inputs {
            facts: self.facts.borrow_and_update().clone(),
            nodes: *self.nodes.borrow_and_update(),
            southbound: self.southbound.borrow_and_update().clone(),
        }
    }
}

/// Writes ovn-controller's settings to the switch's database, and the chassis' name to the Node. Never returns.
async fn write_ovn_controller_settings(
    options: Arc<Options>,
    switch: Arc<Switch>,
    mut inputs: SettingsInputs,
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
            if let Some(transaction) = host_settings::plan(&options, &inputs.current(), &snapshot)
                && let Err(error) = client.transact(&transaction).await
            {
                part.not_ready(format!("cannot write ovn-controller's settings: {error}"));
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
            if let Some(chassis) = host_settings::chassis(&client.snapshot()) {
                set_annotation(annotations, CHASSIS_ANNOTATION, chassis);
            }
        } else {
            part.not_ready(match &status.borrow().last_error {
                Some(error) => format!("not connected to its database: {error}; start Open vSwitch"),
                None => "connecting to its database".to_owned(),
            });
        }
        tokio::select! {
            changed = status.changed() => if changed.is_err() { return },
            changed = inputs.facts.changed() => if changed.is_err() { return },
            changed = inputs.nodes.changed() => if changed.is_err() { return },
            // Without a Service there is no sender.
            Ok(()) = inputs.southbound.changed() => {}
            _ = changes.next() => {}
        }
    }
}

fn set_annotation(annotations: &watch::Sender<Annotations>, key: &'static str, value: String) {
    annotations.send_if_modified(|all| {
        let changed = all.get(key) != Some(&value);
        all.insert(key, value);
        changed
    });
}
