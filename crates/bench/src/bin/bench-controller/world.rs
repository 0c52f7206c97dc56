//! A lab for one size of cluster: real API server, databases and northd, light chassis, and nodes that are objects.

use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kubernetes::Api;
use lab::{ChassisSpec, Databases, Kubernetes, Lab, LabSpec, LightChassis, Ovn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::controller::{Controller, METRICS};
use crate::object_watch::{ObjectWatch, TIMEOUT};
use crate::objects::{Pods, create_nodes};
use crate::rows::{NORTHBOUND, count};

/// How long the servers must be idle before a measurement.
const QUIET: Duration = Duration::from_millis(500);

pub(crate) struct World {
    // Before the lab, so that they end before their database does.
    _chassis: Option<LightChassis>,
    northd: bool,
    pub(crate) lab: Lab,
    pub(crate) nodes: usize,
    pub(crate) northbound: String,
    pub(crate) southbound: String,
    kubeconfig: PathBuf,
}

/// More nodes than this are too much for northd on a machine of two cores: with 500 gateway routers on one join switch
/// its first look alone takes more than 100 s. Then it is left out, and with it the chassis that would wait for it.
const NODES_OF_NORTHD: usize = 200;

/// How long pods took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grown {
    /// From the first create to the last annotation.
    pub(crate) seconds: f64,
    /// From the first create to the last one's answer.
    pub(crate) creating: f64,
}

impl World {
    /// Starts everything but controller and nodes.
    pub(crate) fn start(nodes: usize) -> Result<Self> {
        eprintln!("a lab for {nodes} nodes");
        let ovn = Ovn { databases: Databases::Standalone, ..Ovn::default() };
        let lab = Lab::start(LabSpec::for_test("bench-controller")?.ovn(ovn).kubernetes(Kubernetes::default()))?;
        let endpoints = lab.record().endpoints;
        let northbound = endpoints.northbound.context("the lab has no northbound database")?;
        let southbound = endpoints.southbound.context("the lab has no southbound database")?;
        let chassis = ChassisSpec::numbered("node-", u32::try_from(nodes)?);
        if nodes > NODES_OF_NORTHD {
            lab.kill("northd")?;
            return Self::around(lab, nodes, [northbound, southbound], &[]);
        }
        Ok(Self::around(lab, nodes, [northbound, southbound], &chassis)?.with_northd())
    }

    /// A lab with the northbound and the southbound database at these remotes, and without northd; adds light chassis.
    pub(crate) fn around(lab: Lab, nodes: usize, databases: [String; 2], chassis: &[ChassisSpec]) -> Result<Self> {
        // Nodes without kubelets would be marked unreachable, and their pods evicted.
        for component in ["kube-controller-manager", "kube-scheduler"] {
            lab.kill(component)?;
        }
        let [northbound, southbound] = databases;
        let light = if chassis.is_empty() { None } else { Some(LightChassis::start(&southbound, chassis)?) };
        let kubeconfig = lab.record().endpoints.machine_kubeconfig.context("the lab has no API server")?;
        Ok(Self { _chassis: light, northd: false, nodes, northbound, southbound, kubeconfig, lab })
    }

    /// The same with a northd that runs.
    pub(crate) fn with_northd(self) -> Self {
        Self { northd: true, ..self }
    }

    /// The number of nodes, for the names of figures.
    pub(crate) fn label(&self) -> String {
        let without = if self.northd { "" } else { " (without northd and chassis)" };
        format!("{} nodes{without}", self.nodes)
    }

    /// Waits until northd has caught up, if it runs.
    pub(crate) fn await_northd(&self) -> Result<()> {
        if self.northd {
            self.lab.nbctl(&["--wait=sb", "sync"])?;
        }
        Ok(())
    }

    /// Runs something in the network of the machine where the controllers run: nothing of ours is between it and the
    /// servers, as nothing is between them and a controller.
    pub(crate) fn inside<T: Send>(&self, work: impl AsyncFnOnce(Api) -> Result<T> + Send) -> Result<T> {
        self.lab.machine("control")?.with_network(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async { work(Api::from_kubeconfig(Some(&self.kubeconfig), None).await?).await })
        })?
    }

    /// Creates the nodes and waits until a controller has allocated their subnets.
    pub(crate) fn join_nodes(&self) -> Result<()> {
        self.join_some(0..self.nodes)
    }

    /// Creates the nodes of these numbers, of which all before exist, and waits until a controller has allocated their
    /// subnets.
    pub(crate) fn join_some(&self, numbers: Range<usize>) -> Result<()> {
        self.inside(async |api| {
            let mut objects = ObjectWatch::of(&api, "nodes", "node").await?;
            let all = numbers.end;
            create_nodes(&api, numbers).await?;
            objects.annotated(all).await.map(drop)
        })
    }

    /// Creates pods and waits until a controller has annotated all.
    pub(crate) fn grow(&self, pods: &Pods) -> Result<Grown> {
        let grown = self.inside(async |api| {
            pods.prepare(&api).await?;
            let mut objects = ObjectWatch::of(&api, "pods", &pods.purpose).await?;
            let start = Instant::now();
            let (creator, call) = (pods.clone(), api.clone());
            let creating = tokio::spawn(async move { creator.create(&call).await.map(|()| start.elapsed()) });
            let end = objects.annotated(pods.count).await?;
            let creating = creating.await.context("the task that creates pods panicked")??;
            Ok(Grown { seconds: (end - start).as_secs_f64(), creating: creating.as_secs_f64() })
        })?;
        eprintln!(
            "  {} pods created in {:.2} s, annotated after {:.2} s: {:.0} pods/s",
            pods.count,
            grown.creating,
            grown.seconds,
            pods.count as f64 / grown.seconds
        );
        Ok(grown)
    }

    /// How many rows these tables of the northbound database have.
    pub(crate) fn count_rows(&self, tables: &[&str]) -> Result<usize> {
        self.inside(async |_| count(&self.northbound, NORTHBOUND, tables).await)
    }

    /// Metrics of the measured controller.
    pub(crate) fn metrics(&self) -> Result<String> {
        self.inside(async |_| {
            let mut stream = tokio::net::TcpStream::connect(METRICS)
                .await
                .context("cannot connect to the metrics of the controller")?;
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
            let mut text = String::new();
            let read = tokio::time::timeout(TIMEOUT, stream.read_to_string(&mut text));
            read.await.context("the controller did not send all of its metrics")??;
            Ok(text)
        })
    }

    /// The writer and number of the last transaction of a controller.
    pub(crate) fn sequence(&self) -> Result<(String, u64)> {
        let words = ["--if-exists", "get", "NB_Global", ".", "external_ids:k8s.ovn.org/controller-sequence"];
        let text = self.lab.nbctl(&words)?;
        let (writer, number) =
            text.trim().trim_matches('"').rsplit_once(':').context("no controller has committed yet")?;
        Ok((writer.to_owned(), number.parse()?))
    }

    /// Waits until northd has caught up, and the controllers neither commit nor compute any more.
    pub(crate) fn settle(&self, controllers: &[&Controller]) -> Result<()> {
        self.await_northd()?;
        let look = || -> Result<_> {
            let used: Vec<f64> = controllers.iter().map(|controller| controller.cpu()).collect::<Result<_>>()?;
            Ok((self.sequence().ok(), used))
        };
        let deadline = Instant::now() + TIMEOUT;
        let mut before = look()?;
        while Instant::now() < deadline {
            std::thread::sleep(QUIET);
            let after = look()?;
            // Renewing the Lease and periodic checks use a tick or two.
            let idle = before.1.iter().zip(&after.1).all(|(before, after)| after - before < 0.03);
            if idle && before.0 == after.0 {
                return Ok(());
            }
            before = after;
        }
        bail!("the controllers were not idle within {TIMEOUT:?}")
    }
}
