//! `lab up`: builds the artifacts, starts the keeper and shows its progress until the lab is ready.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use netmodel::GatewayMode;
use serde_json::Value;

use super::lab_options::{LabOptions, SuiteOption};
use super::{print, show};
use crate::conformance;
use crate::directories::{Directories, require_root};
use crate::error::{Error, Result};
use crate::keeper::{self, Message};
use crate::lab::Artifacts;
use crate::matrix::Matrix;
use crate::moved_clock;
use crate::ownership::owner;
use crate::progress::Progress;
use crate::record::{Phase, Record};
use crate::spec::{Cni, Databases, Family, Kubernetes, LabSpec, Ovn, Product};

const PLAINTEXT_WARNING: &str = "\
WARNING: --plaintext: the databases listen on plain TCP without authentication. Every pod of the cluster can read and
WARNING: rewrite the whole network. Use it only to look at the traffic; leave --plaintext out for mutual TLS.";

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Number of nodes
    #[arg(long, default_value_t = 2)]
    nodes: u32,
    /// Run containerd and kubelet on every node
    #[arg(long)]
    kubelets: bool,
    /// Start no Kubernetes
    #[arg(long, conflicts_with_all = ["kubelets", "cni", "api_port"])]
    no_kubernetes: bool,
    /// The initial CNI plugin
    #[arg(long, value_enum, default_value = "none", requires = "kubelets")]
    cni: Cni,
    /// The API server's port on this host's loopback [default: a free port]
    #[arg(long)]
    api_port: Option<u16>,
    /// Start no OVN
    #[arg(long, conflicts_with_all = ["databases", "tls", "plaintext", "northds"])]
    no_ovn: bool,
    /// How the northbound and southbound databases run [default: pods with --network ovnkube, otherwise raft]
    #[arg(long, value_enum)]
    databases: Option<Databases>,
    /// How many nodes are control-plane nodes, with a controller and (--databases pods) a member of each database
    #[arg(long, default_value_t = 1)]
    control_planes: u32,
    /// Number of persistent volumes in each zone, of StorageClass lab-zonal
    #[arg(long, default_value_t = 0)]
    volumes: u32,
    /// Plain TCP instead of mutual TLS for the databases: every pod can then read and rewrite them
    #[arg(long)]
    plaintext: bool,
    /// Mutual TLS on every database connection (default)
    #[arg(long, hide = true, conflicts_with = "plaintext")]
    tls: bool,
    /// Number of ovn-northd; with 0 nothing fills SB and `--wait` hangs until you start one. ovnkube runs its own
    /// northd, and the lab then starts none
    #[arg(long, default_value_t = 1)]
    northds: u32,
    /// Address families of underlay and cluster
    #[arg(long, value_enum, default_value = "v4")]
    family: Family,
    /// Same as --family v6
    #[arg(long, conflicts_with_all = ["family", "dual"])]
    ipv6: bool,
    /// Same as --family dual
    #[arg(long, conflicts_with = "family")]
    dual: bool,
    /// Pod network to deploy: ovnkube, with CoreDNS and an example application; implies --kubelets
    #[arg(long, value_enum, default_value = "none", conflicts_with_all = ["no_kubernetes", "no_ovn", "cni"])]
    network: Network,
    /// Prometheus, which scrapes ovnkube's pods and evaluates the rules of deploy/monitoring; needs --network ovnkube
    #[arg(long)]
    prometheus: bool,
    /// Divide all times of Prometheus' rules by this factor
    #[arg(long, default_value_t = 1, requires = "prometheus", value_parser = clap::value_parser!(u32).range(1..))]
    time_compression: u32,
    #[command(flatten)]
    lab: LabOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Network {
    /// None, or that of --cni
    None,
    /// ovnkube, from deploy/
    Ovnkube,
}

#[derive(Debug, Args)]
pub(super) struct PrepareOptions {
    #[command(flatten)]
    suite: SuiteOption,
}

impl Options {
    fn spec(&self, name: &str) -> Result<LabSpec> {
        let family = match (self.ipv6, self.dual) {
            (true, _) => Family::V6,
            (_, true) => Family::Dual,
            _ => self.family,
        };
        let by_network = match self.network {
            Network::Ovnkube => Databases::Pods,
            Network::None => Databases::Raft,
        };
        let mut spec = LabSpec::new(name)
            .nodes(self.nodes)
            .control_planes(self.control_planes)
            .volumes(self.volumes)
            .family(family);
        spec.suite = self.lab.suite();
        if !self.no_ovn {
            spec = spec.ovn(Ovn {
                databases: self.databases.unwrap_or(by_network),
                tls: !self.plaintext,
                northds: self.northds,
                ..Ovn::default()
            });
        }
        if !self.no_kubernetes {
            spec = spec.kubernetes(Kubernetes { kubelets: self.kubelets, cni: self.cni, api_port: self.api_port });
        }
        if self.network == Network::Ovnkube {
            spec = spec.product(self.lab.product()?);
        }
        if self.prometheus {
            spec = spec.prometheus(self.time_compression);
        }
        Ok(spec)
    }
}

pub(super) fn prepare(directories: &Directories, options: &PrepareOptions) -> Result<()> {
    require_root("lab prepare")?;
    let product = Product { binaries: PathBuf::new(), gateway: GatewayMode::Shared };
    let mut spec = LabSpec::new("prepare").product(product).prometheus(1);
    spec.suite = options.suite.suite;
    let progress = Progress::to_stderr();
    let artifacts = Artifacts::ensure(directories, &spec, &progress)?;
    conformance::Artifacts::ensure(directories, options.suite.suite, &progress)?;
    moved_clock::ensure(directories, options.suite.suite, &progress)?;
    let shown = |path: &Option<PathBuf>| path.as_deref().unwrap_or(Path::new("none")).display().to_string();
    print(&format!(
        "node image  {}\nkubernetes  {}\ncoredns     {}\n",
        artifacts.image.display(),
        shown(&artifacts.kubernetes),
        shown(&artifacts.coredns)
    ))
}

pub(super) fn up(directories: &Directories, name: &str, options: &Options) -> Result<()> {
    require_root("lab up")?;
    let spec = options.spec(name)?;
    spec.check()?;
    if spec.ovn.as_ref().is_some_and(|ovn| !ovn.tls) {
        console::eprint_line(format_args!("{PLAINTEXT_WARNING}"));
    }
    if let Some(owner) = owner(directories, name) {
        let ready = || Record::load(directories, name).is_ok_and(|record| record.phase == Phase::Ready);
        // A lab that is stopping, or whose start was interrupted, is gone in a moment.
        let ended = !ready() && owner.open().is_none_or(|owner| owner.wait(Duration::from_secs(10)));
        if !ended && ready() {
            let differences = differences(&Record::load(directories, name)?.spec, &spec);
            if !differences.is_empty() {
                return Err(Error::Invalid(format!(
                    "lab {name:?} is already running, with other options: {}; `lab down --name {name}` removes it",
                    differences.join(", ")
                )));
            }
            print(&format!("lab {name} is already running; nothing was changed\n\n"))?;
            return show::summary(&Record::load(directories, name)?);
        }
        if !ended {
            return Err(Error::Invalid(format!(
                "lab {name:?} is being started by another process (pid {}); wait for it, or `lab down --name {name}`",
                owner.pid
            )));
        }
    }
    let progress = Progress::to_stderr();
    // In the foreground: this takes minutes the first time, and Ctrl-C must work.
    Artifacts::ensure(directories, &spec, &progress)?;
    follow_keeper(directories, &spec, &progress)?;
    let record = Record::load(directories, name)?;
    show::summary(&record)?;
    if spec.product.is_none() {
        return Ok(());
    }
    let matrix = progress.step("connectivity matrix", || Matrix::measure(&record))?;
    print(&format!("\n{}", matrix.table(console::table::colour())))?;
    match matrix.wrong().len() {
        0 => Ok(()),
        wrong => Err(Error::Invalid(format!(
            "{wrong} of {} connections are not as expected; see the lines above",
            matrix.checks.len()
        ))),
    }
}

/// What a running lab has other than wanted. Which binaries its image was built from does not count.
fn differences(running: &LabSpec, wanted: &LabSpec) -> Vec<String> {
    fn compare(path: &str, running: &Value, wanted: &Value, found: &mut Vec<String>) {
        if let (Value::Object(running), Value::Object(wanted)) = (running, wanted) {
            for (key, value) in wanted {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                compare(&path, running.get(key).unwrap_or(&Value::Null), value, found);
            }
            return;
        }
        let any_port = path == "kubernetes.api_port" && wanted.is_null();
        if running != wanted && path != "product.binaries" && !any_port {
            let shown = |value: &Value| match value {
                Value::Null => "absent".to_owned(),
                Value::Object(_) => "present".to_owned(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            found.push(format!("{} is {}, not {}", path.replace('_', "-"), shown(running), shown(wanted)));
        }
    }
    let value = |spec: &LabSpec| serde_json::to_value(spec).unwrap_or_default();
    let mut found = Vec::new();
    compare("", &value(running), &value(wanted), &mut found);
    found
}

/// Starts the keeper and shows its progress until the lab is ready or has failed.
fn follow_keeper(directories: &Directories, spec: &LabSpec, progress: &Progress) -> Result<()> {
    let log = keeper::log_path(directories, &spec.name);
    let mut keeper = keeper::spawn(directories, spec, &log)?;
    let stdout = keeper.stdout.take().ok_or_else(|| Error::Invalid("the keeper has no standard output".into()))?;
    for line in BufReader::new(stdout).lines().map_while(std::result::Result::ok) {
        match serde_json::from_str::<Message>(&line) {
            Ok(Message::Progress(event)) => progress.emit(event),
            Ok(Message::Ready) => return Ok(()),
            Ok(Message::Failed { error }) => {
                // The keeper removes what it created; wait until that is done.
                let _ = keeper.wait();
                return Err(Error::Invalid(error));
            }
            Err(_) => {}
        }
    }
    let status = keeper.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    Err(Error::Ended {
        component: "the lab's keeper".into(),
        status,
        tail: crate::inspect::tail(&log, 3).replace('\n', " | "),
        log,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_a_running_lab_does_not_have_are_named() {
        let product = |binaries: &str| Product { binaries: binaries.into(), gateway: GatewayMode::Shared };
        let mut running = LabSpec::new("a").nodes(2).product(product("/one"));
        let same = LabSpec::new("a").nodes(2).product(product("/other"));
        running.kubernetes.as_mut().unwrap().api_port = Some(6443);
        assert_eq!(differences(&running, &same), Vec::<String>::new());
        let other =
            LabSpec::new("a").nodes(3).family(Family::Dual).ovn(Ovn { northds: 0, tls: false, ..Ovn::default() });
        let expected = [
            "family is v4, not dual",
            "kubernetes is present, not absent",
            "nodes is 2, not 3",
            "ovn.tls is true, not false",
            "product is present, not absent",
        ];
        assert_eq!(differences(&running, &other), expected);
    }
}
