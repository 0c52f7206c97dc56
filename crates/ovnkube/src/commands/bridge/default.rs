//! `ovnkube bridge default`.

use std::process::ExitCode;

use bridge::{DefaultBridge, Dhcp};

use crate::cli::{BridgeDefault, DhcpFamilies};
use crate::commands::FAILED;
use crate::config::Problems;

pub(super) fn run(default: &BridgeDefault) -> anyhow::Result<ExitCode> {
    if default.dhcp.is_none() && default.addresses.is_empty() {
        let problem = "br-ex would have no address; hint: give --dhcp ipv4, ipv6 or both, or --address ADDRESS/LENGTH";
        return Err(Problems(vec![problem.to_owned()]).into());
    }
    let dhcp = Dhcp {
        v4: matches!(default.dhcp, Some(DhcpFamilies::Ipv4 | DhcpFamilies::Both)),
        v6: matches!(default.dhcp, Some(DhcpFamilies::Ipv6 | DhcpFamilies::Both)),
    };
    let text = DefaultBridge {
        uplink: default.uplink.clone(),
        dhcp,
        addresses: default.addresses.clone(),
        gateways: default.gateways.clone(),
        dns: default.dns.clone(),
        mtu: default.link_mtu,
        mac: default.mac,
    }
    .to_string();
    let checked = bridge::check(&text, &[]);
    super::print_violations(None, &checked.violations);
    if !checked.is_valid() {
        return Ok(ExitCode::from(FAILED));
    }
    console::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
