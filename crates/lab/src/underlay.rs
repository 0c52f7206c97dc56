//! The underlay: which machine has which address, and the switch that joins them.
//!
//! Every lab has a switch of its own in a namespace of its own, so labs side by side may use the same addresses.

use std::fs::File;
use std::net::IpAddr;

use netmodel::{InterfaceAddress, Prefix};

use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::spec::Family;

/// The switch's machine.
pub const FABRIC: &str = "fabric";
/// The control plane's machine.
pub const CONTROL: &str = "control";
/// The machine beyond the nodes' uplinks: default router and web server.
pub const OUTSIDE: &str = "outside";
/// Addresses that live beyond the router, for traffic that leaves the underlay.
pub const BEYOND: [&str; 2] = ["203.0.113.1", "2001:db8:113::1"];

/// The name of node `index`, from 1.
pub fn node_name(index: u32) -> String {
    format!("n{index}")
}

/// The name of the machine of raft member `index`, from 1.
pub fn database_name(index: u32) -> String {
    format!("db-{index}")
}

/// Who has which address.
#[derive(Debug, Clone, Copy)]
pub struct AddressPlan {
    v4: Option<Prefix>,
    v6: Option<Prefix>,
}

impl AddressPlan {
    /// The plan of a lab with these address families.
    pub fn new(family: Family) -> Result<Self> {
        let prefix = |wanted: bool, text: &str| -> Result<Option<Prefix>> {
            wanted
                .then(|| {
                    text.parse().map_err(|error| Error::Invalid(format!("the underlay's own plan is wrong: {error}")))
                })
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

    /// The addresses of a machine, IPv4 first; none for one without a place in the plan (the switch).
    pub fn addresses(&self, machine: &str) -> Vec<InterfaceAddress> {
        let Some(position) = Self::position(machine) else {
            return Vec::new();
        };
        [self.v4, self.v6].into_iter().flatten().filter_map(|prefix| prefix.nth_interface(position)).collect()
    }

    /// The address by which others call a machine.
    pub fn primary(&self, machine: &str) -> Result<IpAddr> {
        self.addresses(machine)
            .first()
            .map(|address| address.address())
            .ok_or_else(|| Error::Invalid(format!("machine {machine:?} has no address on the underlay")))
    }

    /// `/etc/hosts` with every machine named.
    pub fn hosts(&self, machines: &[String]) -> String {
        let mut text = String::from("127.0.0.1 localhost\n::1 localhost ip6-localhost\n");
        for machine in machines {
            for address in self.addresses(machine) {
                text.push_str(&format!("{} {machine}\n", address.address()));
            }
        }
        text
    }
}

/// An address as it stands in a URL or an OVS remote: IPv6 in brackets.
pub fn bracketed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    }
}

/// Makes the switch.
pub(crate) fn build_switch(fabric: &Machine) -> Result<()> {
    fabric.run_with_input(
        &["ip", "-batch", "-"],
        "link set lo up\nlink add br0 type bridge forward_delay 0 mcast_snooping 0\nlink set br0 up\n",
    )?;
    Ok(())
}

/// Plugs a machine into the switch by its `eth0`, which has no address yet.
pub(crate) fn plug(fabric: &Machine, machine: &Machine) -> Result<()> {
    let name = &machine.name;
    let network = machine.network();
    let file = File::open(&network).map_err(Error::io(format!("cannot open {}", network.display())))?;
    // The switch's machine does not see the other's processes; it gets the other's network as a file.
    let words = ["ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", "/proc/self/fd/0"];
    fabric.run_with_file(&words, file)?;
    let batch = format!("link set {name} master br0\nlink set {name} up\n");
    fabric.run_with_input(&["ip", "-batch", "-"], &batch)?;
    // Frames that go towards a userspace datapath must leave here whole: checksums and segments done.
    fabric.run(&["ethtool", "-K", name, "tx", "off"])?;
    machine.run_with_input(&["ip", "-batch", "-"], "link set lo up\nlink set eth0 up\n")?;
    Ok(())
}

/// Gives an interface of a machine its addresses, with the outside as default router.
pub(crate) fn address(machine: &Machine, plan: &AddressPlan, interface: &str) -> Result<()> {
    let mut batch: String =
        plan.addresses(&machine.name).into_iter().map(|address| address_line(address, interface)).collect();
    if machine.name != OUTSIDE {
        for router in plan.addresses(OUTSIDE) {
            batch.push_str(&format!("route add default via {}\n", router.address()));
        }
    }
    machine.run_with_input(&["ip", "-batch", "-"], &batch).map(|_| ())
}

/// The `ip -batch` line that puts an address on an interface, usable at once.
pub(crate) fn address_line(address: InterfaceAddress, interface: &str) -> String {
    let nodad = if address.address().is_ipv6() { " nodad" } else { "" };
    format!("addr add {address} dev {interface}{nodad}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_its_own_address() {
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
    fn families_are_as_asked() {
        let v6 = AddressPlan::new(Family::V6).unwrap();
        assert_eq!(v6.primary("n1").unwrap().to_string(), "fd99::b");
        assert_eq!(bracketed(v6.primary("n1").unwrap()), "[fd99::b]");
        assert_eq!(AddressPlan::new(Family::Dual).unwrap().primary("n1").unwrap().to_string(), "10.99.0.11");
    }
}
