//! What a lab consists of: set by a test with the builder methods, or by `lab up`'s options.

use std::path::PathBuf;

use netmodel::GatewayMode;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The Debian suite of the node image, which determines the versions of OVN and OVS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Suite {
    /// Debian 12: OVN 23.03 and OVS 3.1, without ACL tiers.
    Bookworm,
    /// Debian 13: OVN 25.03 and OVS 3.5. The reference.
    #[default]
    Trixie,
    /// Debian unstable: the newest versions.
    Sid,
}

impl Suite {
    /// The suite's name in Debian.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
            Self::Sid => "sid",
        }
    }

    /// The suite of `OVNKUBE_LAB_SUITE`; the reference if unset.
    pub fn from_environment() -> Result<Self> {
        match std::env::var(crate::directories::SUITE_VARIABLE) {
            Err(_) => Ok(Self::default()),
            Ok(name) => [Self::Bookworm, Self::Trixie, Self::Sid]
                .into_iter()
                .find(|suite| suite.as_str() == name)
                .ok_or_else(|| {
                    Error::Invalid(format!(
                        "invalid {}={name:?}: choose bookworm, trixie or sid",
                        crate::directories::SUITE_VARIABLE
                    ))
                }),
        }
    }
}

/// The address families of underlay and cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4 only.
    #[default]
    V4,
    /// IPv6 only.
    V6,
    /// Both, IPv4 first.
    Dual,
}

impl Family {
    /// Whether machines have an IPv4 address.
    pub fn has_v4(self) -> bool {
        self != Self::V6
    }

    /// Whether machines have an IPv6 address.
    pub fn has_v6(self) -> bool {
        self != Self::V4
    }

    /// The single families, IPv4 first.
    pub fn families(self) -> Vec<netmodel::Family> {
        match self {
            Self::V4 => vec![netmodel::Family::V4],
            Self::V6 => vec![netmodel::Family::V6],
            Self::Dual => netmodel::Family::BOTH.to_vec(),
        }
    }

    /// IPv4 if the cluster has it.
    pub fn primary(self) -> netmodel::Family {
        if self.has_v4() { netmodel::Family::V4 } else { netmodel::Family::V6 }
    }
}

/// How the northbound and southbound databases run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Databases {
    /// One server each, on the control machine.
    Standalone,
    /// Three raft members each, every member on a separate machine so that it can be partitioned.
    #[default]
    Raft,
    /// In pods on the control-plane nodes, deployed from `deploy/` with ovnkube.
    Pods,
    /// Likewise, as one active server and backups that replicate from it.
    ActiveBackup,
    /// Three machines for raft members, without servers: the program under test runs them.
    #[value(skip)]
    Machines,
}

impl Databases {
    /// Whether they run in pods.
    pub fn in_pods(self) -> bool {
        matches!(self, Self::Pods | Self::ActiveBackup)
    }
}

/// OVN central: databases and northd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ovn {
    /// How both databases run.
    pub databases: Databases,
    /// Mutual TLS on every database connection, also between raft members. The default: without it every pod can
    /// rewrite the databases, so only tests in which TLS is irrelevant disable it.
    pub tls: bool,
    /// Number of ovn-northd processes; one is active. With 0 nothing fills SB and `--wait` hangs until the program
    /// under test starts one.
    pub northds: u32,
    /// Raft election timer in milliseconds.
    pub election_timer: u32,
    /// Lifetimes of certificates that ovnkube's signer issues; its defaults if `None`.
    #[serde(default)]
    pub lifetimes: Option<Lifetimes>,
}

/// Lifetimes of certificates, for tests of rotations. kubelets then update mounted files within seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifetimes {
    /// How long a CA is valid, and its age when it is replaced: such as `10m`.
    pub ca: [String; 2],
    /// Likewise for the certificate.
    pub leaf: [String; 2],
    /// How long a new CA is published before it signs.
    pub distribution_delay: String,
}

impl Default for Ovn {
    fn default() -> Self {
        Self { databases: Databases::default(), tls: true, northds: 1, election_timer: 1000, lifetimes: None }
    }
}

/// The CNI plugin that kubelets find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Cni {
    /// None: nodes stay NotReady until a pod network is installed.
    #[default]
    None,
    /// The standard `bridge` plugin with a subnet for each node and routes between the nodes.
    Bridge,
}

/// The Kubernetes control plane and, optionally, kubelets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kubernetes {
    /// Run containerd and kubelet on every node.
    pub kubelets: bool,
    /// The initial pod network.
    pub cni: Cni,
    /// Port of the API server on the host's loopback; a free one if `None`.
    pub api_port: Option<u16>,
}

/// ovnkube, deployed from `deploy/` as users do: controller, node agent and ovn-controller are pods (the lab itself
/// starts no ovn-controller then).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Product {
    /// Directory of the binaries that the image is packed from; `deploy/image/build.sh` fills it.
    pub binaries: PathBuf,
    /// Path of pods' packets to the outside: through OVN, or through the host.
    pub gateway: GatewayMode,
}

impl Product {
    pub(crate) fn ovnkube(&self) -> PathBuf {
        self.binaries.join("ovnkube")
    }

    /// The CNI plugin that is installed on hosts.
    pub(crate) fn shim(&self) -> PathBuf {
        self.binaries.join("ovn-k8s-cni-overlay")
    }
}

/// Everything that a lab consists of; its record and the keeper's input.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LabSpec {
    /// Unique among the labs on this host; part of the name of everything visible.
    pub name: String,
    /// Set for labs of tests: the next lab removes what a crash left.
    pub ephemeral: bool,
    /// Suite of the node image.
    pub suite: Suite,
    /// Address family of underlay and cluster.
    pub family: Family,
    /// OVN's databases and northd; none: a lab without OVN.
    pub ovn: Option<Ovn>,
    /// API server, etcd, kubelets; none: a lab without Kubernetes.
    pub kubernetes: Option<Kubernetes>,
    /// ovnkube on that cluster, if any.
    #[serde(default)]
    pub product: Option<Product>,
    /// Machines with Open vSwitch and a kubelet: `n1`, `n2`, …
    pub nodes: u32,
    /// How many of them, from the first, are control-plane nodes.
    #[serde(default = "one")]
    pub control_planes: u32,
    /// Prometheus: by how much the times of its rules are divided (1: as shipped); none if `None`.
    #[serde(default)]
    pub prometheus: Option<u32>,
    /// What Prometheus scrapes without TLS, as `ADDRESS:PORT` on the control machine, instead of ovnkube's pods.
    #[serde(default)]
    pub scrape_targets: Vec<String>,
    /// Number of persistent volumes in each zone.
    #[serde(default)]
    pub volumes: u32,
}

fn one() -> u32 {
    1
}

/// Rejects names that are not valid. A lab's name becomes part of paths that root removes.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let short = !name.is_empty() && name.len() <= 40;
    let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if short && plain && !name.starts_with('-') {
        return Ok(());
    }
    Err(Error::Invalid(format!("invalid lab name {name:?}: use at most 40 lower-case letters, digits and '-'")))
}

/// Limited by the underlay's address plan.
pub(crate) const MAX_NODES: u32 = 200;

/// Each needs a loop device.
const MAX_VOLUMES: u32 = 10;

impl LabSpec {
    /// A lab with only the machine `outside`, on the reference suite.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ephemeral: false,
            suite: Suite::default(),
            family: Family::default(),
            ovn: None,
            kubernetes: None,
            product: None,
            nodes: 0,
            control_planes: 1,
            prometheus: None,
            scrape_targets: Vec::new(),
            volumes: 0,
        }
    }

    /// A lab for a test: with a unique name, and the suite of the environment.
    pub fn for_test(purpose: &str) -> Result<Self> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut spec = Self::new(format!("t{}-{count}-{purpose}", std::process::id()));
        spec.ephemeral = true;
        spec.suite = Suite::from_environment()?;
        Ok(spec)
    }

    /// Sets the number of nodes.
    #[must_use]
    pub fn nodes(mut self, nodes: u32) -> Self {
        self.nodes = nodes;
        self
    }

    /// Sets the number of control-plane nodes.
    #[must_use]
    pub fn control_planes(mut self, control_planes: u32) -> Self {
        self.control_planes = control_planes;
        self
    }

    /// Sets the number of persistent volumes in each zone.
    #[must_use]
    pub fn volumes(mut self, volumes: u32) -> Self {
        self.volumes = volumes;
        self
    }

    /// Sets the address families.
    #[must_use]
    pub fn family(mut self, family: Family) -> Self {
        self.family = family;
        self
    }

    /// Adds OVN central.
    #[must_use]
    pub fn ovn(mut self, ovn: Ovn) -> Self {
        self.ovn = Some(ovn);
        self
    }

    /// Adds the control plane and a kubelet on each node.
    #[must_use]
    pub fn kubernetes(mut self, kubernetes: Kubernetes) -> Self {
        self.kubernetes = Some(kubernetes);
        self
    }

    /// Adds ovnkube, and what it needs: kubelets, and OVN without northd.
    #[must_use]
    pub fn product(mut self, product: Product) -> Self {
        // The leading controller runs ovn-northd.
        self.ovn.get_or_insert_default().northds = 0;
        self.kubernetes.get_or_insert_default().kubelets = true;
        self.product = Some(product);
        self
    }

    /// Adds Prometheus, which scrapes ovnkube's pods and evaluates the rules of `deploy/monitoring` with all their times
    /// divided by `compression`: with 60, an alert that waits for 15 minutes fires after 15 seconds.
    #[must_use]
    pub fn prometheus(mut self, compression: u32) -> Self {
        self.prometheus = Some(compression);
        self
    }

    /// Adds Prometheus for programs that the test itself starts on the control machine; they need not run yet.
    #[must_use]
    pub fn scraping<S: Into<String>>(mut self, compression: u32, targets: impl IntoIterator<Item = S>) -> Self {
        self.scrape_targets = targets.into_iter().map(Into::into).collect();
        self.prometheus(compression)
    }

    /// Whether ovnkube's signer creates the databases' certificates. Databases that the lab runs start before it, with
    /// certificates of the lab.
    pub(crate) fn has_signer(&self) -> bool {
        self.product.is_some() && self.ovn.as_ref().is_some_and(|ovn| ovn.tls && ovn.databases.in_pods())
    }

    /// Rejects what cannot work before anything is created.
    pub fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        if self.nodes > MAX_NODES {
            return Err(Error::Invalid(format!(
                "{} nodes do not fit the lab's underlay; use at most {MAX_NODES}",
                self.nodes
            )));
        }
        if self.volumes > MAX_VOLUMES {
            return Err(Error::Invalid(format!(
                "{} volumes in each zone are too many; use at most {MAX_VOLUMES}",
                self.volumes
            )));
        }
        if self.volumes > 0 && !self.kubernetes.as_ref().is_some_and(|kubernetes| kubernetes.kubelets) {
            return Err(Error::Invalid("volumes are for pods: --volumes needs --kubelets or --network ovnkube".into()));
        }
        let in_pods = self.ovn.as_ref().is_some_and(|ovn| ovn.databases.in_pods());
        if in_pods && self.product.is_none() {
            return Err(Error::Invalid(
                "databases in pods are part of ovnkube: --databases pods needs --network ovnkube".into(),
            ));
        }
        let with_tls = self.ovn.as_ref().is_some_and(|ovn| ovn.tls);
        let scrapes_pods = self.prometheus.is_some() && self.scrape_targets.is_empty();
        if scrapes_pods && !(self.product.is_some() && with_tls) {
            return Err(Error::Invalid(
                "Prometheus scrapes ovnkube's pods over TLS: --prometheus needs --network ovnkube, without --plaintext"
                    .into(),
            ));
        }
        if self.ovn.as_ref().is_some_and(|ovn| ovn.databases == Databases::Machines && ovn.northds > 0) {
            return Err(Error::Invalid(
                "the test runs the databases of this lab itself: set northds to 0, because one would wait for them"
                    .into(),
            ));
        }
        self.product.as_ref().map_or(Ok(()), |product| self.check_product(product))
    }

    fn check_product(&self, product: &Product) -> Result<()> {
        let kubelets = self.kubernetes.as_ref().is_some_and(|it| it.kubelets && it.cni == Cni::None);
        if self.nodes == 0 || !kubelets || self.ovn.as_ref().is_none_or(|ovn| ovn.northds > 0) {
            return Err(Error::Invalid(
                "ovnkube needs a cluster without a pod network: at least one node with a kubelet, --cni none, OVN's databases, and no \
                 northd of the lab's, because its controller runs one"
                    .into(),
            ));
        }
        if self.control_planes == 0 {
            return Err(Error::Invalid(
                "--control-planes 0: ovnkube needs a node for its controller; use at least 1".into(),
            ));
        }
        if self.control_planes > self.nodes {
            let (wanted, nodes) = (self.control_planes, self.nodes);
            let has = if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") };
            return Err(Error::Invalid(format!("--control-planes {wanted}: the lab has {has}; use at most {nodes}")));
        }
        for file in [product.ovnkube(), product.shim()] {
            if !file.is_file() {
                return Err(Error::MissingTool {
                    program: file.display().to_string(),
                    purpose: "the ovnkube image contains it".into(),
                    remedy: "run deploy/image/build.sh (`make up` does)".into(),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_specs_are_rejected() {
        for name in ["", "UPPER", "a b", "../x", "-a", &"x".repeat(41)] {
            assert!(LabSpec::new(name).check().is_err(), "{name:?}");
        }
        assert!(LabSpec::new("ok-1").check().is_ok());
        assert!(LabSpec::new("ok").nodes(MAX_NODES + 1).check().unwrap_err().to_string().contains("201 nodes"));
        let product = Product { binaries: "/nowhere".into(), gateway: GatewayMode::Shared };
        let message = LabSpec::new("ok").nodes(1).product(product.clone()).check().unwrap_err().to_string();
        assert!(message.contains("/nowhere/ovnkube") && message.contains("deploy/image/build.sh"), "{message}");
        let too_many = LabSpec::new("ok").nodes(2).control_planes(5).product(product.clone()).check().unwrap_err();
        assert_eq!(too_many.to_string(), "--control-planes 5: the lab has 2 nodes; use at most 2");
        assert!(LabSpec::new("ok").product(product).check().unwrap_err().to_string().contains("at least one node"));
        let alone = LabSpec::new("ok").prometheus(1).check().unwrap_err().to_string();
        assert!(alone.contains("--prometheus needs --network ovnkube"), "{alone}");
        assert!(LabSpec::new("ok").scraping(60, ["127.0.0.1:9108"]).check().is_ok());
        let message = LabSpec::new("ok").nodes(1).volumes(1).check().unwrap_err().to_string();
        assert!(message.contains("--volumes needs --kubelets"), "{message}");
        assert!(Ovn::default().tls, "plain TCP is never the default");
        // The program under test may start northd itself.
        assert!(LabSpec::new("ok").ovn(Ovn { northds: 0, ..Ovn::default() }).check().is_ok());
        let machines = |northds| Ovn { databases: Databases::Machines, northds, ..Ovn::default() };
        assert!(LabSpec::new("ok").ovn(machines(0)).check().is_ok());
        assert!(LabSpec::new("ok").ovn(machines(1)).check().unwrap_err().to_string().contains("set northds to 0"));
    }
}
