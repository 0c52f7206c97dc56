//! What the node agent is told.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ovsdb::client::Remote;
use topology::ClusterSettings;

/// What the node agent is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of the Node object.
    pub node: String,
    /// How to reach the API; none is the environment's, or the cluster's that we run in.
    pub kubeconfig: Option<PathBuf>,
    /// What the administrator says about the whole network. The pods' MTU is told apart: it may change.
    pub cluster: ClusterSettings,
    /// The host's own Open vSwitch database.
    pub switch: Remote,
    /// What ovn-controller is told.
    pub ovn_controller: OvnController,
    /// The way to the outside.
    pub gateway: GatewayOptions,
    /// The way to other nodes.
    pub encapsulation: Encapsulation,
    /// Where container runtimes look.
    pub cni: CniOptions,
}

/// What may change while the agent runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveSettings {
    /// The pods' MTU.
    pub mtu: u32,
    /// Why what is written now cannot be used, if so.
    pub problem: Option<String>,
}

/// What ovn-controller is told.
#[derive(Debug, Clone)]
pub struct OvnController {
    /// Where it finds the southbound database, as it reads it.
    pub southbound: String,
    /// After how many milliseconds it probes a silent database, and gives it up after as many again; 0 is never, none
    /// follows from the number of nodes.
    pub inactivity_probe: Option<u32>,
    /// For how many milliseconds a new one keeps the flows of the one before it.
    pub wait_before_clear: u32,
    /// Whether it follows the whole database.
    pub monitor_all: bool,
}

/// How pods reach the outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayMode {
    /// By the node's gateway router, which shares the host's address on the external bridge.
    Shared,
    /// By the host's own routes, through the management port.
    Local,
}

impl GatewayMode {
    /// As annotations and settings say it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Local => "local",
        }
    }
}

/// The way to the outside.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// How.
    pub mode: GatewayMode,
    /// A bridge to adopt (`br-ex`), or a device from which one is made (`eth0` becomes a port of `breth0`); none is br-ex
    /// if there is one, else the device of the default route.
    pub interface: Option<String>,
    /// The next hops, one of each family at most; those of the default routes if none are given.
    pub next_hops: Vec<IpAddr>,
}

/// The way to other nodes.
#[derive(Debug, Clone)]
pub struct Encapsulation {
    /// Our end of tunnels; the node's address if none is given.
    pub address: Option<IpAddr>,
    /// The UDP port of Geneve.
    pub port: u16,
}

/// Where container runtimes look.
#[derive(Debug, Clone)]
pub struct CniOptions {
    /// The folder of the server's socket.
    pub socket_folder: PathBuf,
    /// Where plugins are; the shim is put there.
    pub binaries: PathBuf,
    /// Where networks are declared; our file appears there when the node is ready.
    pub configurations: PathBuf,
    /// The shim to install; none leaves that to others.
    pub shim: Option<PathBuf>,
    /// The version that the runtime is told.
    pub version: cni::Version,
    /// How long a pod waits for its annotation and its flows.
    pub patience: Duration,
}

/// The name of the management port on the host.
pub const MANAGEMENT_PORT: &str = "ovn-k8s-mp0";
/// The bridge that ovn-controller fills.
pub const INTEGRATION_BRIDGE: &str = "br-int";
/// The external bridge where none is named.
pub const EXTERNAL_BRIDGE: &str = "br-ex";
