//! What a lab shall be: said by a test with the builder methods, or by a person with `lab up`'s options.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The Debian suite that the node image is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Suite {
    /// Debian 12: OVN 23.03 and OVS 3.1, without ACL tiers.
    Bookworm,
    /// Debian 13: OVN 25.03 and OVS 3.5. The reference.
    #[default]
    Trixie,
    /// Debian unstable: whatever is newest.
    Sid,
}

impl Suite {
    /// The suite's name, as Debian says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
            Self::Sid => "sid",
        }
    }

    /// The suite that `OVNKUBE_LAB_SUITE` names, or the reference.
    pub fn from_environment() -> Result<Self> {
        match std::env::var(crate::place::SUITE_VARIABLE) {
            Err(_) => Ok(Self::default()),
            Ok(name) => [Self::Bookworm, Self::Trixie, Self::Sid]
                .into_iter()
                .find(|suite| suite.as_str() == name)
                .ok_or_else(|| {
                    Error::Invalid(format!(
                        "{}={name:?} is no suite of the node image; choose bookworm, trixie or sid",
                        crate::place::SUITE_VARIABLE
                    ))
                }),
        }
    }
}

/// The address families of the underlay.
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
}

/// How the two databases run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Databases {
    /// One server each, on the control machine.
    Standalone,
    /// Three raft members each, every member on a machine of its own so that it can be cut off.
    #[default]
    Raft,
}

/// OVN's central part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ovn {
    /// How NB and SB run.
    pub databases: Databases,
    /// Mutual TLS on every database connection, raft's included. The default: without it every pod can rewrite the
    /// databases, so only tests in which TLS is irrelevant turn it off.
    pub tls: bool,
    /// How many ovn-northd run; one is active. With none nobody fills SB and answers `--wait`, until the one who asked
    /// for it starts a northd of its own.
    pub northds: u32,
    /// Raft's election timer in milliseconds.
    pub election_timer: u32,
}

impl Default for Ovn {
    fn default() -> Self {
        Self { databases: Databases::default(), tls: true, northds: 1, election_timer: 1000 }
    }
}

/// The pod network that kubelets find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Cni {
    /// None: nodes stay NotReady until something installs a network.
    #[default]
    None,
    /// The stock `bridge` plugin with a subnet for each node and routes between them.
    Bridge,
}

/// Kubernetes' control plane and, if wanted, kubelets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kubernetes {
    /// containerd and kubelet on every node.
    pub kubelets: bool,
    /// The pod network to begin with.
    pub cni: Cni,
    /// The port of the API server on the host's loopback; a free one if not given.
    pub api_port: Option<u16>,
}

/// How pods of our network reach the outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Gateway {
    /// By the node's gateway router, which shares the host's address.
    #[default]
    Shared,
    /// By the host's own routes.
    Local,
}

impl Gateway {
    /// As settings say it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Local => "local",
        }
    }
}

/// Our own network, put on the cluster from `deploy/` as people do: controller and node agent are pods, and so is
/// ovn-controller, which the lab then does not start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Product {
    /// The folder of the binaries that the image is packed from; `deploy/image/build.sh` fills it.
    pub binaries: PathBuf,
    /// The way to the outside.
    pub gateway: Gateway,
}

impl Product {
    /// The one binary.
    pub(crate) fn ovnkube(&self) -> PathBuf {
        self.binaries.join("ovnkube")
    }

    /// The CNI plugin that hosts get.
    pub(crate) fn shim(&self) -> PathBuf {
        self.binaries.join("ovn-k8s-cni-overlay")
    }
}

/// A whole lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LabSpec {
    /// Unique among the labs on this machine; part of the name of everything visible.
    pub name: String,
    /// A lab of a test: what a crash left of it is swept away by the next one.
    pub ephemeral: bool,
    /// The node image's suite.
    pub suite: Suite,
    /// The underlay's address families.
    pub family: Family,
    /// OVN's central part, if wanted.
    pub ovn: Option<Ovn>,
    /// Kubernetes, if wanted.
    pub kubernetes: Option<Kubernetes>,
    /// Our network on that cluster, if wanted.
    #[serde(default)]
    pub product: Option<Product>,
    /// How many nodes.
    pub nodes: u32,
}

/// Refuses what cannot be the name of a lab. It becomes part of paths that are removed as root.
pub fn check_name(name: &str) -> Result<()> {
    let short = !name.is_empty() && name.len() <= 40;
    let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if short && plain && !name.starts_with('-') {
        return Ok(());
    }
    Err(Error::Invalid(format!("{name:?} is no name for a lab; use at most 40 lower-case letters, digits and '-'")))
}

/// More nodes than this do not fit the underlay's address plan.
pub const MAX_NODES: u32 = 200;

impl LabSpec {
    /// A lab with an outside and nothing else yet, on the reference suite.
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
        }
    }

    /// A lab for a test: a name that no other has, and the suite that the environment chose.
    pub fn for_test(purpose: &str) -> Result<Self> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut spec = Self::new(format!("t{}-{count}-{purpose}", std::process::id()));
        spec.ephemeral = true;
        spec.suite = Suite::from_environment()?;
        Ok(spec)
    }

    /// With so many nodes.
    #[must_use]
    pub fn nodes(mut self, nodes: u32) -> Self {
        self.nodes = nodes;
        self
    }

    /// With these address families on the underlay.
    #[must_use]
    pub fn family(mut self, family: Family) -> Self {
        self.family = family;
        self
    }

    /// With OVN's central part.
    #[must_use]
    pub fn ovn(mut self, ovn: Ovn) -> Self {
        self.ovn = Some(ovn);
        self
    }

    /// With Kubernetes.
    #[must_use]
    pub fn kubernetes(mut self, kubernetes: Kubernetes) -> Self {
        self.kubernetes = Some(kubernetes);
        self
    }

    /// With our network from `deploy/`: Kubernetes with kubelets, and OVN as it was asked for or as it usually is.
    #[must_use]
    pub fn product(mut self, product: Product) -> Self {
        // The controller that leads runs ovn-northd.
        self.ovn.get_or_insert_default().northds = 0;
        self.kubernetes.get_or_insert_default().kubelets = true;
        self.product = Some(product);
        self
    }

    /// Refuses what cannot work before anything is made.
    pub fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        if self.nodes > MAX_NODES {
            return Err(Error::Invalid(format!(
                "{} nodes do not fit the lab's underlay; use at most {MAX_NODES}",
                self.nodes
            )));
        }
        self.product.as_ref().map_or(Ok(()), |product| self.check_product(product))
    }

    fn check_product(&self, product: &Product) -> Result<()> {
        let kubelets = self.kubernetes.as_ref().is_some_and(|it| it.kubelets && it.cni == Cni::None);
        if self.nodes == 0 || !kubelets || self.ovn.as_ref().is_none_or(|ovn| ovn.northds > 0) {
            return Err(Error::Invalid(
                "our network needs a cluster without one: at least one node with a kubelet, --cni none, OVN's databases, and no \
                 northd of the lab's, because its controller runs one"
                    .into(),
            ));
        }
        for file in [product.ovnkube(), product.shim()] {
            if !file.is_file() {
                return Err(Error::MissingTool {
                    program: file.display().to_string(),
                    purpose: "the image of our network is packed from it".into(),
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
    fn odd_specs_are_refused_by_name() {
        for name in ["", "UPPER", "a b", "../x", "-a", &"x".repeat(41)] {
            assert!(LabSpec::new(name).check().is_err(), "{name:?}");
        }
        assert!(LabSpec::new("ok-1").check().is_ok());
        assert!(LabSpec::new("ok").nodes(MAX_NODES + 1).check().unwrap_err().to_string().contains("201 nodes"));
        let product = Product { binaries: "/nowhere".into(), gateway: Gateway::Shared };
        let message = LabSpec::new("ok").nodes(1).product(product.clone()).check().unwrap_err().to_string();
        assert!(message.contains("/nowhere/ovnkube") && message.contains("deploy/image/build.sh"), "{message}");
        assert!(LabSpec::new("ok").product(product).check().unwrap_err().to_string().contains("at least one node"));
        assert!(Ovn::default().tls, "plain TCP is never the default");
        // A controller may start northd itself.
        assert!(LabSpec::new("ok").ovn(Ovn { northds: 0, ..Ovn::default() }).check().is_ok());
    }
}
