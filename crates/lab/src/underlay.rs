//! The underlay: the addresses of the machines, and the switch that connects them.
//!
//! Every lab has a separate switch in a separate namespace, so parallel labs use the same addresses.

use std::fs::File;
use std::net::IpAddr;

use netmodel::{InterfaceAddress, Prefix};

use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::spec::Family;

/// The machine of the switch.
pub(crate) const FABRIC: &str = "fabric";
/// The machine of the control plane.
pub(crate) const CONTROL: &str = "control";
/// The machine on the external side of the nodes: default router and web server.
pub(crate) const OUTSIDE: &str = "outside";
/// Addresses behind the machine `outside`, for traffic that leaves the underlay: IPv4, IPv6.
pub const EXTERNAL_ADDRESSES: [&str; 2] = ["203.0.113.1", "2001:db8:113::1"];

/// The name of node `index`, counted from 1.
pub(crate) fn node_name(index: u32) -> String {
    format!("n{index}")
}

/// The machine of raft member `index`, counted from 1.
pub(crate) fn database_name(index: u32) -> String {
    format!("db-{index}")
}

/// Which machine has which addresses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AddressPlan {
    v4: Option<Prefix>,
    v6: Option<Prefix>,
}

impl AddressPlan {
    pub(crate) fn new(family: Family) -> Result<Self> {
        let prefix = |wanted: bool, text: &str| -> Result<Option<Prefix>> {
            wanted
                .then(|| text.parse().map_err(|error| Error::Invalid(format!("invalid underlay prefix: {error}"))))
                .transpose()
        };
        Ok(Self { v4: prefix(family.has_v4(), "10.99.0.0/24")?, v6: prefix(family.has_v6(), "fd99::/64")? })
    }

    fn position(machine: &str) -> Option<u128> {
        let number = |prefix: &str| machine.strip_prefix(prefix)?.parse::<u128>().ok();
        match machine {
            CONTROL => Some(1),
            OUTSIDE => Some(254),
            _ => number("db-").map(|index| 1 + index).or_else(|| number("n").map(|index| 10 + index)),
        }
    }

    /// The addresses of a machine, IPv4 first; none for the switch.
    pub(crate) fn addresses(&self, machine: &str) -> Vec<InterfaceAddress> {
        let Some(position) = Self::position(machine) else {
            return Vec::new();
        };
        [self.v4, self.v6].into_iter().flatten().filter_map(|prefix| prefix.nth_interface(position)).collect()
    }

    /// The first address of a machine, by which others reach it.
    pub(crate) fn primary(&self, machine: &str) -> Result<IpAddr> {
        self.addresses(machine)
            .first()
            .map(|address| address.address())
            .ok_or_else(|| Error::Invalid(format!("machine {machine:?} has no address on the underlay")))
    }

    /// `/etc/hosts` with every machine.
    pub(crate) fn hosts(&self, machines: &[String]) -> String {
        let mut text = String::from("127.0.0.1 localhost\n::1 localhost ip6-localhost\n");
        for machine in machines {
            for address in self.addresses(machine) {
                text.push_str(&format!("{} {machine}\n", address.address()));
            }
        }
        text
    }
}

/// An address as in a URL or an OVS remote: IPv6 in brackets.
pub(crate) fn bracketed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    }
}

pub(crate) fn build_switch(fabric: &Machine) -> Result<()> {
    fabric.run_with_input(
        &["ip", "-batch", "-"],
        "link set lo up\nlink add br0 type bridge forward_delay 0 mcast_snooping 0\nlink set br0 up\n",
    )?;
    Ok(())
}

/// Connects a machine to the switch by its `eth0`, which has no address yet.
pub(crate) fn plug(fabric: &Machine, machine: &Machine) -> Result<()> {
    let name = &machine.name;
    let network = machine.network();
    let file = File::open(&network).map_err(Error::io(format!("cannot open {}", network.display())))?;
    // The switch's machine does not see the other machine's processes; it gets its network namespace as a file
    // descriptor.
    let args = ["ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", "/proc/self/fd/0"];
    fabric.run_with_file(&args, file)?;
    let batch = format!("link set {name} master br0\nlink set {name} up\n");
    fabric.run_with_input(&["ip", "-batch", "-"], &batch)?;
    // A userspace datapath needs complete frames: no checksum or segmentation offload.
    fabric.run(&["ethtool", "-K", name, "tx", "off"])?;
    machine.run_with_input(&["ip", "-batch", "-"], "link set lo up\nlink set eth0 up\n")?;
    Ok(())
}

/// Sets the addresses of a machine's interface, and machine `outside` as its default router.
pub(crate) fn configure_addresses(machine: &Machine, plan: &AddressPlan, interface: &str) -> Result<()> {
    let mut batch: String =
        plan.addresses(&machine.name).into_iter().map(|address| address_line(address, interface)).collect();
    if machine.name != OUTSIDE {
        for router in plan.addresses(OUTSIDE) {
            batch.push_str(&format!("route add default via {}\n", router.address()));
        }
    }
    machine.run_with_input(&["ip", "-batch", "-"], &batch).map(|_| ())
}

/// An `ip -batch` line that adds an address, without duplicate address detection.
pub(crate) fn address_line(address: InterfaceAddress, interface: &str) -> String {
    let nodad = if address.address().is_ipv6() { " nodad" } else { "" };
    format!("addr add {address} dev {interface}{nodad}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_a_unique_address() {
        let plan = AddressPlan::new(Family::Dual).unwrap();
        let mut machines: Vec<String> = (1..=crate::spec::MAX_NODES).map(node_name).collect();
        machines.extend((1..=3).map(database_name));
        machines.extend([CONTROL, OUTSIDE].map(String::from));
        let mut all: Vec<_> = machines.iter().flat_map(|machine| plan.addresses(machine)).collect();
        assert_eq!(all.len(), machines.len() * 2);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), machines.len() * 2);
        assert!(plan.addresses(FABRIC).is_empty());
    }

    #[test]
    fn the_primary_address_is_of_the_first_family() {
        let v6 = AddressPlan::new(Family::V6).unwrap();
        assert_eq!(v6.primary("n1").unwrap().to_string(), "fd99::b");
        assert_eq!(bracketed(v6.primary("n1").unwrap()), "[fd99::b]");
        assert_eq!(AddressPlan::new(Family::Dual).unwrap().primary("n1").unwrap().to_string(), "10.99.0.11");
    }
}
