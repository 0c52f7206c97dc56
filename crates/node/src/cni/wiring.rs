//! What a pod gets, from what was written on it: the interface, the port, and the answer to the runtime.

use cni::{AddResult, Address, Attachment, Interface, Route};
use netmodel::InterfaceAddress;
use objects::PodKey;
use ovsdb::uuid::Uuid;
use sha2::{Digest as _, Sha256};

use crate::kernel::pod_link::PodLink;
use crate::pods::PodConfig;
use crate::switch::rows::PodPort;

/// What the names of our ends on the host begin with.
const PREFIX: &str = "pod";
/// What their aliases begin with.
const MARK: &str = "ovnkube ";
/// The longest alias that the kernel takes.
const LONGEST_ALIAS: usize = 255;

/// The name of an interface's end on the host: the same whenever it is asked for.
pub(super) fn host_end(attachment: &Attachment) -> String {
    let digest = Sha256::digest(format!("{} {}", attachment.container, attachment.interface).as_bytes());
    let digits: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("{PREFIX}{digits}")
}

/// Whether an interface of the host is one of our ends.
pub(super) fn is_host_end(name: &str, alias: &str) -> bool {
    let digits = name.strip_prefix(PREFIX).unwrap_or_default();
    digits.len() == 12 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) && alias.starts_with(MARK)
}

/// What people see beside the end on the host; the kernel takes 255 bytes, and names of pods may be as long.
fn alias(key: &PodKey) -> String {
    let mut alias = format!("{MARK}{key}");
    alias.truncate(LONGEST_ALIAS);
    alias
}

/// The interface.
pub(super) fn link(attachment: &Attachment, wanted: &PodConfig, mtu: u32, userspace: bool) -> PodLink {
    PodLink {
        host: host_end(attachment),
        alias: alias(&wanted.key),
        inside: attachment.interface.clone(),
        mac: wanted.network.mac,
        mtu,
        addresses: wanted.network.addresses.to_vec(),
        routes: wanted.network.all_routes().map(|route| Route { destination: route.destination, via: route.via }).collect(),
        userspace,
    }
}

/// The port.
pub(super) fn port(attachment: &Attachment, wanted: &PodConfig, namespace: &str, rows: (Uuid, Uuid)) -> PodPort {
    let addresses: Vec<String> = wanted.network.addresses.iter().map(ToString::to_string).collect();
    let (port_row, interface_row) = rows;
    PodPort {
        port_row,
        interface_row,
        name: host_end(attachment),
        logical: wanted.key.port_name(),
        uid: wanted.uid.to_string(),
        mac: wanted.network.mac.to_string(),
        addresses: addresses.join(","),
        sandbox: attachment.container.clone(),
        inside: attachment.interface.clone(),
        namespace: namespace.to_owned(),
    }
}

/// What the runtime is told.
pub(super) fn answer(link: &PodLink, wanted: &PodConfig, namespace: &str) -> AddResult {
    let end = |name: &str, mac: String, sandbox| Interface { name: name.to_owned(), mac, mtu: link.mtu, sandbox };
    let address = |address: &InterfaceAddress| Address {
        address: address.address(),
        length: address.length(),
        gateway: wanted.network.gateway_of(*address),
        interface: 1,
    };
    AddResult {
        interfaces: vec![
            end(&link.host, String::new(), None),
            end(&link.inside, link.mac.to_string(), Some(namespace.to_owned())),
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
    fn an_alias_fits_however_long_the_names_are() {
        assert_eq!(alias(&PodKey::new("ns", "p")), "ovnkube ns/p");
        assert_eq!(alias(&PodKey::new(&"n".repeat(63), &"p".repeat(253))).len(), LONGEST_ALIAS);
    }

    #[test]
    fn ends_on_the_host_have_short_names_of_their_own() {
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
