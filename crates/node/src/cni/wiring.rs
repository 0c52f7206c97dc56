//! Derives a pod's interface, port and CNI result from its recorded network.

use cni::{AddResult, Address, Attachment, Interface, Route};
use netmodel::InterfaceAddress;
use objects::PodKey;
use ovsdb::uuid::Uuid;
use sha2::{Digest as _, Sha256};

use crate::kernel::pod_link::PodLink;
use crate::pods::PodConfig;
use crate::switch::rows::PodPort;

/// Prefix of host ends' names.
const NAME_PREFIX: &str = "pod";
/// Prefix of their aliases, by which they are recognized.
const ALIAS_PREFIX: &str = "ovnkube ";
/// Limit of the kernel.
const MAX_ALIAS: usize = 255;

/// Device name of an attachment's host end: a hash, so it is the same after a restart.
pub(super) fn host_end(attachment: &Attachment) -> String {
    let digest = Sha256::digest(format!("{} {}", attachment.container, attachment.interface).as_bytes());
    let digits: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("{NAME_PREFIX}{digits}")
}

/// True if an interface of the host is a host end that ovnkube created.
pub(super) fn is_host_end(name: &str, alias: &str) -> bool {
    let digits = name.strip_prefix(NAME_PREFIX).unwrap_or_default();
    digits.len() == 12 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) && alias.starts_with(ALIAS_PREFIX)
}

/// The pod's name for `ip link`, cut at the kernel's limit.
fn alias(key: &PodKey) -> String {
    let mut alias = format!("{ALIAS_PREFIX}{key}");
    alias.truncate(MAX_ALIAS);
    alias
}

/// The desired veth pair.
pub(super) fn link(attachment: &Attachment, config: &PodConfig, mtu: u32, userspace: bool) -> PodLink {
    PodLink {
        host: host_end(attachment),
        alias: alias(&config.key),
        inside: attachment.interface.clone(),
        mac: config.network.mac,
        mtu,
        addresses: config.network.addresses.to_vec(),
        routes: config
            .network
            .all_routes()
            .map(|route| Route { destination: route.destination, via: route.via })
            .collect(),
        userspace,
    }
}

/// The desired OVS port.
pub(super) fn port(attachment: &Attachment, config: &PodConfig, netns: &str, rows: (Uuid, Uuid)) -> PodPort {
    let addresses: Vec<String> = config.network.addresses.iter().map(ToString::to_string).collect();
    let (port_row, interface_row) = rows;
    PodPort {
        port_row,
        interface_row,
        name: host_end(attachment),
        logical_port: config.key.port_name(),
        uid: config.uid.to_string(),
        mac: config.network.mac.to_string(),
        addresses: addresses.join(","),
        sandbox: attachment.container.clone(),
        pod_interface: attachment.interface.clone(),
        netns: netns.to_owned(),
    }
}

/// What the runtime gets: both ends of the pair, addresses and routes.
pub(super) fn result(link: &PodLink, config: &PodConfig, netns: &str) -> AddResult {
    let end = |name: &str, mac: String, sandbox| Interface { name: name.to_owned(), mac, mtu: link.mtu, sandbox };
    let address = |address: &InterfaceAddress| Address {
        address: address.address(),
        length: address.length(),
        gateway: config.network.gateway_of(*address),
        interface: 1,
    };
    AddResult {
        interfaces: vec![
            end(&link.host, String::new(), None),
            end(&link.inside, link.mac.to_string(), Some(netns.to_owned())),
        ],
        addresses: link.addresses.iter().map(address).collect(),
        routes: link.routes.clone(),
        ..AddResult::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_is_cut_at_the_limit() {
        assert_eq!(alias(&PodKey::new("ns", "p")), "ovnkube ns/p");
        assert_eq!(alias(&PodKey::new(&"n".repeat(63), &"p".repeat(253))).len(), MAX_ALIAS);
    }

    #[test]
    fn host_ends_have_short_distinct_names() {
        let name = |container: &str, interface: &str| host_end(&Attachment::new(container, interface).unwrap());
        let one = name(&"a".repeat(64), "eth0");
        assert_eq!(one.len(), 15);
        assert_eq!(one, name(&"a".repeat(64), "eth0"));
        assert_ne!(one, name(&"a".repeat(64), "eth1"));
        assert!(is_host_end(&one, "ovnkube ns/p"));
        for (name, alias) in [("poda", "ovnkube x"), (one.as_str(), ""), ("podzzzzzzzzzzzz", "ovnkube x"), ("eth0", "")]
        {
            assert!(!is_host_end(name, alias), "{name}");
        }
    }
}
