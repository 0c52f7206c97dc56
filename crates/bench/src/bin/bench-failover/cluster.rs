//! The cluster: three control-plane nodes with the databases in pods, and two workers.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lab::disruption::Testbed;
use lab::{Database, Databases, GatewayMode, Lab, LabSpec, Machine, Ovn, PowerCut, Product};

use crate::fault::Fault;
use crate::northd::SETTLE;

const CONTROL_PLANES: u32 = 3;
/// Workers: pods are created on the first one.
pub(crate) const WORKERS: [&str; 2] = ["n4", "n5"];
/// Limit of every wait. Generous: it only ends what would hang forever.
const LIMIT: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(200);

/// Times since the fault began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// Until the flows of the pod's port were installed.
    pub(crate) wired: Duration,
    /// Until the API said that the pod is Ready.
    pub(crate) ready: Duration,
}

/// A fault that is in effect.
pub(crate) enum Injected {
    Nothing,
    /// A process of a node that was stopped.
    Stopped(String, u32),
    Power(PowerCut),
}

/// Starts the lab with ovnkube from `target/image`.
pub(crate) fn start() -> Result<Lab> {
    let binaries = bench::figures_directory()?.parent().map(Path::to_owned).unwrap_or_default().join("image");
    let ovn = Ovn { databases: Databases::Pods, ..Ovn::default() };
    let mut spec = LabSpec::for_test("failover")?.nodes(CONTROL_PLANES + 2).control_planes(CONTROL_PLANES).ovn(ovn);
    spec = spec.product(Product { binaries, gateway: GatewayMode::Shared });
    Ok(Lab::start(spec)?)
}

pub(crate) struct Cluster<'a> {
    lab: &'a Lab,
    testbed: Testbed<'a>,
    pods: u32,
}

impl<'a> Cluster<'a> {
    pub(crate) fn new(lab: &'a Lab) -> Result<Self> {
        let testbed = Testbed::of(lab);
        // Kubelets then restart a killed container without backoff, as after a first failure.
        testbed.prepare()?;
        Ok(Self { lab, testbed, pods: 0 })
    }

    fn control(&self) -> Result<Machine> {
        Ok(self.lab.machine("control")?)
    }

    /// Injects a fault, creates a pod, and waits until it is connected and Ready.
    pub(crate) fn measure(&mut self, fault: Fault) -> Result<(Times, Injected)> {
        let prepared = self.locate(fault)?;
        let begun = Instant::now();
        let injected = self.inject(fault, prepared)?;
        let pod = self.create_pod()?;
        // The flows of its port are installed: the agent waits for the same before it lets the pod start.
        let installed = format!(
            "until ovs-vsctl find Interface external_ids:iface-id=default_{pod} external_ids:ovn-installed=true | grep -q .; \
             do sleep 0.05; done"
        );
        let context = || format!("pod {pod} after {}", fault.title());
        self.lab.machine(WORKERS[0])?.run_within(LIMIT, &["sh", "-c", &installed]).with_context(context)?;
        let wired = begun.elapsed();
        let wait = format!("--timeout={}s", LIMIT.as_secs());
        let ready = ["kubectl", "-n", "default", "wait", "--for=condition=Ready", "pod", &pod, &wait];
        self.control()?.run_within(LIMIT, &ready).with_context(context)?;
        let times = Times { wired, ready: begun.elapsed() };
        self.control()?.run(&["kubectl", "-n", "default", "delete", "--wait=false", "pod", &pod])?;
        Ok((times, injected))
    }

    fn create_pod(&mut self) -> Result<String> {
        self.pods += 1;
        let name = format!("wired-{}", self.pods);
        let manifest = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "nodeName": WORKERS[0], "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "wait", "image": "localhost/agnhost:lab", "args": ["pause"]}],
            },
        });
        self.control()?.run_with_input(&["kubectl", "create", "-f", "-"], &manifest.to_string())?;
        Ok(name)
    }

    /// The node and the process that a fault is for.
    fn locate(&self, fault: Fault) -> Result<Option<(String, u32)>> {
        let node = match fault {
            Fault::None => return Ok(None),
            Fault::NbLeader | Fault::NbLeaderHangs => self.database_leader(Database::Northbound)?,
            Fault::SbLeader | Fault::SbLeaderHangs => self.database_leader(Database::Southbound)?,
            Fault::Controller | Fault::ControllerHangs | Fault::Node => self.testbed.leading_node()?,
        };
        let command = match fault {
            Fault::NbLeader | Fault::NbLeaderHangs => server_command(Database::Northbound),
            Fault::SbLeader | Fault::SbLeaderHangs => server_command(Database::Southbound),
            _ => "ovnkube controller".to_owned(),
        };
        let process = self.testbed.process(&node, &command);
        let process = process.with_context(|| format!("{command:?} does not run on {node}"))?;
        Ok(Some((node, process)))
    }

    fn inject(&self, fault: Fault, target: Option<(String, u32)>) -> Result<Injected> {
        let Some((node, process)) = target else { return Ok(Injected::Nothing) };
        let signal = |signal: &str| self.lab.machine(&node)?.run(&["kill", signal, &process.to_string()]);
        match fault {
            Fault::NbLeaderHangs | Fault::SbLeaderHangs | Fault::ControllerHangs => {
                signal("-STOP")?;
                Ok(Injected::Stopped(node, process))
            }
            Fault::Node => Ok(Injected::Power(self.lab.cut_power(&node)?)),
            _ => {
                signal("-KILL")?;
                Ok(Injected::Nothing)
            }
        }
    }

    /// The node whose server leads a database.
    fn database_leader(&self, database: Database) -> Result<String> {
        let script = format!(
            "ovn-appctl --timeout=2 -t {} cluster/status {} | grep -q 'Role: leader'",
            database.control_socket(),
            database.schema()
        );
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            for number in 1..=CONTROL_PLANES {
                let node = format!("n{number}");
                if self.lab.machine(&node)?.output(&["sh", "-c", &script])?.status.success() {
                    return Ok(node);
                }
            }
            std::thread::sleep(POLL);
        }
        bail!("{} has had no leader for {} s", database.schema(), LIMIT.as_secs())
    }

    /// Undoes a fault, and waits until every pod of the network is ready again.
    pub(crate) fn recover(&self, injected: Injected) -> Result<()> {
        match injected {
            Injected::Nothing => {}
            Injected::Stopped(node, process) => {
                // Its supervisor may have replaced it by now.
                let _ = self.lab.machine(&node)?.run(&["kill", "-CONT", &process.to_string()]);
            }
            Injected::Power(cut) => self.lab.restore_power(cut)?,
        }
        let wait = format!("--timeout={}s", LIMIT.as_secs());
        let control = self.control()?;
        control.run_within(LIMIT, &["kubectl", "wait", "--for=condition=Ready", "node", "--all", &wait])?;
        for set in ["ovnkube-db", "ovnkube-master", "ovnkube"] {
            let set = format!("daemonset/{set}");
            control.run_within(LIMIT, &["kubectl", "-n", "ovn-kubernetes", "rollout", "status", &set, &wait])?;
        }
        self.await_members(Database::Northbound)?;
        self.await_members(Database::Southbound)?;
        std::thread::sleep(SETTLE);
        Ok(())
    }

    /// Waits until a leader has heard of three members lately.
    fn await_members(&self, database: Database) -> Result<()> {
        let script = format!(
            "ovn-appctl --timeout=2 -t {} cluster/status {} | grep -c 'last msg [0-9]\\{{1,3\\}} ms ago'",
            database.control_socket(),
            database.schema()
        );
        let deadline = Instant::now() + LIMIT;
        loop {
            let leader = self.database_leader(database)?;
            let counted = self.lab.machine(&leader)?.output(&["sh", "-c", &script])?;
            if String::from_utf8_lossy(&counted.stdout).trim() == "2" {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("{} has not had three members for {} s", database.schema(), LIMIT.as_secs());
            }
            std::thread::sleep(POLL);
        }
    }
}

/// The start of the command line of a database's server.
fn server_command(database: Database) -> String {
    format!("ovsdb-server -vconsole:info -vsyslog:off -vfile:off --pidfile=/run/ovn/ovn{}_db.pid", database.short())
}
