//! Options that all load balancers share.

use std::net::IpAddr;

use netmodel::{Family, Masquerade};
use objects::Protocol;
use ovn_schema::StringMap;

use crate::settings::ClusterSettings;

/// `address:port`, with brackets around IPv6.
pub(super) fn socket(address: IpAddr, port: u16) -> String {
    std::net::SocketAddr::new(address, port).to_string()
}

/// The options of a load balancer; `keeps_source` keeps the client's address.
pub(super) fn options(settings: &ClusterSettings, protocol: Protocol, keeps_source: bool) -> StringMap {
    let hairpin =
        Family::BOTH.into_iter().filter_map(|family| settings.masquerade_address(Masquerade::Hairpin, family));
    let hairpin: Vec<String> = hairpin.map(|address| address.to_string()).collect();
    let options = [
        Some(("reject", "true".to_owned())),
        Some(("event", "false".to_owned())),
        Some(("skip_snat", keeps_source.to_string())),
        Some(("neighbor_responder", "none".to_owned())),
        Some(("hairpin_snat_ip", hairpin.join(" "))),
        // UDP has no close: a flow to a removed endpoint would go on.
        (protocol == Protocol::Udp).then(|| ("ct_flush", "true".to_owned())),
    ];
    options.into_iter().flatten().map(|(key, value)| (key.to_owned(), value)).collect()
}
