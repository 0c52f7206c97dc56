//! `lab up`: makes sure of the supplies, starts the keeper and shows its progress until the lab answers.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::{say, show};
use crate::conformance;
use crate::error::{Error, Result};
use crate::keeper::{self, Message};
use crate::lab::Supplies;
use crate::matrix::Matrix;
use crate::ownership::owner;
use crate::place::{Place, require_root};
use crate::progress::Progress;
use crate::record::{Phase, Record};
use crate::spec::{Cni, Databases, Family, Gateway, Kubernetes, LabSpec, Ovn, Product, Suite};

const PLAINTEXT_WARNING: &str = "\
WARNING: --plaintext: the databases listen on plain TCP without authentication. Every pod of the cluster can read and
WARNING: rewrite the whole network. Use it only to look at the traffic; leave --plaintext out for mutual TLS.";

#[derive(Debug, Args)]
pub(super) struct Options {
    /// How many nodes
    #[arg(long, default_value_t = 2)]
    nodes: u32,
    /// Run containerd and kubelet on every node
    #[arg(long)]
    kubelets: bool,
    /// Leave Kubernetes out
    #[arg(long, conflicts_with_all = ["kubelets", "cni", "api_port"])]
    no_kubernetes: bool,
    /// The pod network that kubelets find at first
    #[arg(long, value_enum, default_value = "none", requires = "kubelets")]
    cni: Cni,
    /// The API server's port on this host's loopback; a free one if not given
    #[arg(long)]
    api_port: Option<u16>,
    /// Leave OVN out
    #[arg(long, conflicts_with_all = ["databases", "tls", "plaintext", "northds"])]
    no_ovn: bool,
    /// How the northbound and southbound databases run
    #[arg(long, value_enum, default_value = "raft")]
    databases: Databases,
    /// Plain TCP instead of mutual TLS to the databases: every pod can then read and rewrite them
    #[arg(long)]
    plaintext: bool,
    /// Mutual TLS on every database connection: the default
    #[arg(long, hide = true, conflicts_with = "plaintext")]
    tls: bool,
    /// How many ovn-northd; with 0 nothing fills SB and `--wait` hangs, until you start one of your own. Our network brings
    /// its own, and the lab then starts none
    #[arg(long, default_value_t = 1)]
    northds: u32,
    /// The address families of underlay and cluster
    #[arg(long, value_enum, default_value = "v4")]
    family: Family,
    /// Short for --family v6
    #[arg(long, conflicts_with_all = ["family", "dual"])]
    ipv6: bool,
    /// Short for --family dual
    #[arg(long, conflicts_with = "family")]
    dual: bool,
    /// The network to put on the cluster: ours, with CoreDNS and an example application; implies --kubelets
    #[arg(long, value_enum, default_value = "none", conflicts_with_all = ["no_kubernetes", "no_ovn", "cni"])]
    network: Network,
    /// How pods of our network reach the outside
    #[arg(long, value_enum, default_value = "shared")]
    gateway: Gateway,
    /// The folder of our binaries (deploy/image/build.sh fills it); target/image beside this program's if not given
    #[arg(long)]
    binaries: Option<PathBuf>,
    /// The Debian suite of the node image
    #[arg(long, value_enum, env = crate::place::SUITE_VARIABLE, default_value = "trixie")]
    suite: Suite,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Network {
    /// None, or what --cni says.
    None,
    /// Ours.
    Ovnkube,
}

#[derive(Debug, Args)]
pub(super) struct PrepareOptions {
    /// The Debian suite of the node image
    #[arg(long, value_enum, env = crate::place::SUITE_VARIABLE, default_value = "trixie")]
    suite: Suite,
}

impl Options {
    fn spec(&self, name: &str) -> Result<LabSpec> {
        let family = match (self.ipv6, self.dual) {
            (true, _) => Family::V6,
            (_, true) => Family::Dual,
            _ => self.family,
        };
        let mut spec = LabSpec::new(name).nodes(self.nodes).family(family);
        spec.suite = self.suite;
        if !self.no_ovn {
            spec = spec.ovn(Ovn {
                databases: self.databases,
                tls: !self.plaintext,
                northds: self.northds,
                ..Ovn::default()
            });
        }
        if !self.no_kubernetes {
            spec = spec.kubernetes(Kubernetes { kubelets: self.kubelets, cni: self.cni, api_port: self.api_port });
        }
        if self.network == Network::Ovnkube {
            let binaries = binaries(self.binaries.as_deref())?;
            spec = spec.product(Product { binaries, gateway: self.gateway });
        }
        Ok(spec)
    }
}

/// The folder of our binaries: the given one, absolute because the keeper works in another folder; else `target/image`
/// when this program is `target/debug/lab`.
pub(super) fn binaries(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(folder) = given {
        return std::path::absolute(folder).map_err(Error::io(format!("cannot find {}", folder.display())));
    }
    let program = std::env::current_exe().map_err(Error::io("cannot find this program"))?;
    Ok(program.ancestors().nth(2).unwrap_or(Path::new("/")).join("image"))
}

pub(super) fn prepare(place: &Place, options: &PrepareOptions) -> Result<()> {
    require_root("lab prepare")?;
    let product = Product { binaries: PathBuf::new(), gateway: Gateway::default() };
    let mut spec = LabSpec::new("prepare").product(product);
    spec.suite = options.suite;
    let progress = Progress::for_people();
    let supplies = Supplies::ensure(place, &spec, &progress)?;
    conformance::Supplies::ensure(place, options.suite, &progress)?;
    let shown = |path: &Option<PathBuf>| path.as_deref().unwrap_or(Path::new("none")).display().to_string();
    say(&format!(
        "node image  {}\nkubernetes  {}\ncoredns     {}\n",
        supplies.image.display(),
        shown(&supplies.kubernetes),
        shown(&supplies.coredns)
    ))
}

pub(super) fn up(place: &Place, name: &str, options: &Options) -> Result<()> {
    require_root("lab up")?;
    let spec = options.spec(name)?;
    spec.check()?;
    if spec.ovn.as_ref().is_some_and(|ovn| !ovn.tls) {
        eprintln!("{PLAINTEXT_WARNING}");
    }
    if let Some(owner) = owner(place, name) {
        let ready = || Record::load(place, name).is_ok_and(|record| record.phase == Phase::Ready);
        // One that is just ending, or whose start was just interrupted, makes way in a moment.
        let ended = !ready() && owner.open().is_none_or(|owner| owner.wait(Duration::from_secs(10)));
        if !ended && ready() {
            say(&format!("lab {name} runs already; nothing was changed\n\n"))?;
            return show::summary(&Record::load(place, name)?);
        }
        if !ended {
            return Err(Error::Invalid(format!(
                "lab {name:?} is being started by another process (pid {}); wait for it, or `lab down --name {name}`",
                owner.pid
            )));
        }
    }
    let progress = Progress::for_people();
    // The long part happens here, in the foreground, where Ctrl-C and its progress belong.
    Supplies::ensure(place, &spec, &progress)?;
    follow(place, &spec, &progress)?;
    let record = Record::load(place, name)?;
    show::summary(&record)?;
    if spec.product.is_none() {
        return Ok(());
    }
    let matrix = progress.step("connectivity, by packets", || Matrix::measure(&record))?;
    say(&format!("\n{}", matrix.table(console::table::colour())))?;
    match matrix.wrong().len() {
        0 => Ok(()),
        wrong => Err(Error::Invalid(format!(
            "{wrong} ways of {} are not as the API says; the lines above name them",
            matrix.ways.len()
        ))),
    }
}

/// Starts the keeper and passes its progress on until it says that the lab is ready or why it is not.
fn follow(place: &Place, spec: &LabSpec, progress: &Progress) -> Result<()> {
    let log = keeper::log_path(place, &spec.name);
    let mut keeper = keeper::spawn(place, spec, &log)?;
    let stdout = keeper.stdout.take().ok_or_else(|| Error::Invalid("the keeper has no voice".into()))?;
    for line in BufReader::new(stdout).lines().map_while(std::result::Result::ok) {
        match serde_json::from_str::<Message>(&line) {
            Ok(Message::Progress(event)) => progress.emit(event),
            Ok(Message::Ready) => return Ok(()),
            Ok(Message::Failed { why }) => {
                // It is removing what it had made; wait, so that nothing is left when this returns.
                let _ = keeper.wait();
                return Err(Error::Invalid(why));
            }
            Err(_) => {}
        }
    }
    let status = keeper.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    Err(Error::Ended {
        component: "the lab's keeper".into(),
        status,
        tail: crate::view::tail(&log, 3).replace('\n', " | "),
        log,
    })
}
