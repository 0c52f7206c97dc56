//! `ovnkube bridge`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use netmodel::{InterfaceAddress, Mac, Prefix};

use super::Output;

pub(super) const EXAMPLES: &str = "\
Examples:
  ovnkube bridge check install-config.yaml            the configurations of all hosts
  ovnkube bridge check worker-0.yml                   an NMState file
  ovnkube bridge render --install-config install-config.yaml --format nmstate --output hosts/
  ovnkube bridge default --uplink enp2s0 --dhcp ipv4  NMState for a simple host

These commands read and write files only. They do not change the host: see docs/bridge.md.";

#[derive(Debug, Subcommand)]
pub(crate) enum BridgeVerb {
    /// Check the br-ex configurations of an install-config or of NMState files
    #[command(after_help = "\
Examples:
  ovnkube bridge check install-config.yaml
  ovnkube bridge check hosts/*.yml --machine-network 192.0.2.0/24
  ovnkube bridge check - -o json < worker-0.yml

docs/bridge.md lists the codes, with the reason and the remedy of each.

Exit status: 0 the configurations follow the rules, with or without warnings; 1 they do not, or cannot be read; 2 wrong \
usage.")]
    Check(BridgeCheck),

    /// Render the hosts of an install-config as NMState files, Ignition or MachineConfigs
    #[command(after_help = "\
Examples:
  ovnkube bridge render --install-config install-config.yaml --format nmstate --output hosts/
  ovnkube bridge render --install-config install-config.yaml --format ignition --output ign/
  ovnkube bridge render --install-config install-config.yaml --format ignition --all-hosts --output ign/
  ovnkube bridge render --install-config install-config.yaml --format machine-config --role worker --output mc/

Every host is checked first; if one does not follow the rules, nothing is written.

Exit status: 0 written; 1 a host does not follow the rules, or a file cannot be read or written; 2 wrong usage.")]
    Render(BridgeRender),

    /// Print the NMState of a simple host: br-ex over one NIC
    #[command(after_help = "\
Examples:
  ovnkube bridge default --uplink enp2s0 --dhcp ipv4
  ovnkube bridge default --uplink enp2s0 --address 192.0.2.5/24 --gateway 192.0.2.1 --dns 192.0.2.53 --link-mtu 9000

The result is for review; it follows the rules of `ovnkube bridge check`.

Exit status: 0 printed; 1 the values do not fit together; 2 wrong usage.")]
    Default(BridgeDefault),
}

/// Options of `bridge check`.
#[derive(Debug, Args)]
pub(crate) struct BridgeCheck {
    /// Install-configs or NMState files; - is stdin
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<String>,

    /// Network of the node IPs, in addition to machineNetwork of an install-config; can be repeated
    #[arg(long = "machine-network", value_name = "CIDR")]
    pub(crate) machine_networks: Vec<Prefix>,

    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Output,
}

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RenderFormat {
    /// One NMState file per host: SHORT-NAME.yml
    Nmstate,
    /// Ignition JSON per host (SHORT-NAME.ign), or for all hosts (all-hosts.ign)
    Ignition,
    /// One MachineConfig per role, with the files of all hosts: 10-br-ex-ROLE.yml
    MachineConfig,
}

/// Options of `bridge render`.
#[derive(Debug, Args)]
pub(crate) struct BridgeRender {
    /// Install-config with networking.hostConfig; - is stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) install_config: String,

    /// Directory for the files; created if it is missing. Files of the same name are replaced
    #[arg(long, value_name = "DIR")]
    pub(crate) output: PathBuf,

    /// What to write
    #[arg(long, value_enum)]
    pub(crate) format: RenderFormat,

    /// With --format ignition: one file that has the files of all hosts, from which each node takes its own
    #[arg(long)]
    pub(crate) all_hosts: bool,

    /// With --format machine-config: role of the nodes; can be repeated [default: master and worker]
    #[arg(long = "role", value_name = "ROLE", value_parser = role)]
    pub(crate) roles: Vec<String>,
}

/// Where dynamic addresses come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DhcpFamilies {
    /// DHCP
    Ipv4,
    /// Router advertisements and DHCPv6
    Ipv6,
    /// Both families
    Both,
}

/// Options of `bridge default`.
#[derive(Debug, Args)]
pub(crate) struct BridgeDefault {
    /// NIC that becomes the uplink of br-ex
    #[arg(long, value_name = "NIC", value_parser = nic)]
    pub(crate) uplink: String,

    /// Families whose addresses, default route and DNS servers come from the network
    #[arg(long, value_enum)]
    pub(crate) dhcp: Option<DhcpFamilies>,

    /// Static address of br-ex; can be repeated
    #[arg(long = "address", value_name = "ADDRESS/LENGTH")]
    pub(crate) addresses: Vec<InterfaceAddress>,

    /// Next hop of a default route; can be repeated
    #[arg(long = "gateway", value_name = "ADDRESS")]
    pub(crate) gateways: Vec<IpAddr>,

    /// DNS server; can be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) dns: Vec<IpAddr>,

    /// MTU of the NIC and of br-ex [default: as it is]
    #[arg(long, value_name = "BYTES")]
    pub(crate) link_mtu: Option<u32>,

    /// MAC of br-ex [default: that of the NIC]
    #[arg(long, value_name = "MAC")]
    pub(crate) mac: Option<Mac>,
}

/// A role is a label's value, and part of an object's name and of a file's.
fn role(text: &str) -> Result<String, String> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let valid = !text.is_empty() && text.len() <= 50 && text.bytes().all(inner);
    let valid = valid && !text.starts_with('-') && !text.ends_with('-');
    if valid { Ok(text.to_owned()) } else { Err("a role has lower-case letters, digits and hyphens".to_owned()) }
}

/// A name that the kernel accepts.
fn nic(text: &str) -> Result<String, String> {
    let odd = |c: char| c.is_whitespace() || c.is_control() || c == '/' || c == ':';
    if text.is_empty() || text.len() > 15 || text.contains(odd) || [".", ".."].contains(&text) {
        return Err("the name of an interface has 1 to 15 characters, none of them a space, / or :".to_owned());
    }
    if text == bridge::BRIDGE {
        return Err(format!("{text} is the bridge; name the NIC that becomes its uplink"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_leave_their_file_or_object_are_refused() {
        assert!(role("worker").is_ok() && role("infra-2").is_ok());
        for text in ["", "../x", "Worker", "a/b", "-a", "a-"] {
            assert!(role(text).is_err(), "{text}");
        }
        assert!(nic("enp2s0").is_ok() && nic("eth0.100").is_ok());
        for text in ["", "br-ex", "a b", "a/b", "0123456789abcdef", ".."] {
            assert!(nic(text).is_err(), "{text}");
        }
    }
}
