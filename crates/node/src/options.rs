//! Configuration of the node agent.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use netmodel::GatewayMode;
use ovsdb::client::Remote;
use remotes::DatabaseAccess;
use topology::ClusterSettings;

/// Configuration of the node agent.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the Node object.
    pub node: String,
    /// None: `KUBECONFIG`, or the in-cluster configuration.
    pub kubeconfig: Option<PathBuf>,
    /// Settings of the whole network. The pods' MTU is in [`LiveSettings`].
    pub cluster: ClusterSettings,
    /// Servers of the northbound database. The agent does not connect to them; no Service may have their addresses.
    pub northbound: DatabaseAccess,
    /// Servers of the southbound database, for `ovn-remote`. ovn-controller has its own arguments for the certificate files; the
    /// agent uses these to ask whether a server works.
    pub southbound: DatabaseAccess,
    /// The node's own certificate; None if the files come from elsewhere, or TLS is not used.
    pub certificate: Option<CertificateOptions>,
    /// Open vSwitch's database on this host.
    pub switch: Remote,
    /// Settings that are written for ovn-controller.
    pub ovn_controller: OvnController,
    /// External bridge and next hops.
    pub gateway: GatewayOptions,
    /// Tunnels to other nodes.
    pub encapsulation: Encapsulation,
    /// Directories and time limits of the CNI server.
    pub cni: CniOptions,
}

/// The node's own certificate, which the agent requests from the cluster's signer.
#[derive(Debug, Clone)]
pub struct CertificateOptions {
    /// Where the certificate and its key are stored.
    pub directory: PathBuf,
    /// The CAs of nodes, the one that signs first; next to it the file `revoked`. None: a certificate is renewed by time only.
    pub authorities: Option<PathBuf>,
}

impl CertificateOptions {
    /// The certificate (PEM) of a certificate directory. It is replaced together with the key.
    pub fn certificate(directory: &Path) -> PathBuf {
        directory.join(CURRENT).join(CERTIFICATE)
    }

    /// The private key (PEM) of a certificate directory.
    pub fn private_key(directory: &Path) -> PathBuf {
        directory.join(CURRENT).join(PRIVATE_KEY)
    }
}

/// Link to the directory of the certificate in effect, in a certificate directory.
pub(crate) const CURRENT: &str = "current";
pub(crate) const CERTIFICATE: &str = "tls.crt";
pub(crate) const PRIVATE_KEY: &str = "tls.key";

/// Settings that may change while the agent runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveSettings {
    /// MTU of new pods, in bytes.
    pub mtu: u32,
    /// Why the current configuration file was refused, if it was.
    pub error: Option<String>,
}

/// Settings that are written for ovn-controller.
#[derive(Debug, Clone)]
pub struct OvnController {
    /// Inactivity probe in milliseconds; 0 disables it, None derives it from the number of nodes.
    pub inactivity_probe: Option<u32>,
    /// How long a new ovn-controller keeps the old flows, in milliseconds.
    pub wait_before_clear: u32,
    /// Monitor the whole southbound database.
    pub monitor_all: bool,
}

/// External bridge and next hops.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// Path of pods' egress.
    pub mode: GatewayMode,
    /// A bridge to adopt (`br-ex`), or a device from which one is created (`eth0` becomes a port of `breth0`). None: br-ex if it
    /// exists, else the device of the default route.
    pub interface: Option<String>,
    /// At most one of each family; a missing one is taken from the default route.
    pub next_hops: Vec<IpAddr>,
}

/// Tunnels to other nodes.
#[derive(Debug, Clone)]
pub struct Encapsulation {
    /// Tunnel address of this node. None: its first address on the external bridge.
    pub address: Option<IpAddr>,
    /// UDP port of Geneve.
    pub port: u16,
}

/// Directories and time limits of the CNI server.
#[derive(Debug, Clone)]
pub struct CniOptions {
    /// Directory of the socket and of the attachment records.
    pub socket_dir: PathBuf,
    /// The runtime's plugin directory.
    pub binaries: PathBuf,
    /// The runtime's configuration directory; it has our file while the node is ready.
    pub configurations: PathBuf,
    /// Plugin to install; None installs nothing.
    pub shim: Option<PathBuf>,
    /// CNI version in our configuration file.
    pub version: cni::Version,
    /// How long an ADD waits for the addresses and flows of a pod.
    pub add_timeout: Duration,
}

/// Device through which the host reaches the pods of its node.
pub const MANAGEMENT_PORT: &str = "ovn-k8s-mp0";
/// ovn-controller's bridge.
pub const INTEGRATION_BRIDGE: &str = "br-int";
/// Default name of the external bridge.
pub const EXTERNAL_BRIDGE: &str = "br-ex";
