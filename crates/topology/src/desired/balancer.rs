//! balancer: what all load balancers say alike.

use std::net::IpAddr;

use ovn_schema::StringMap;

use crate::objects::Protocol;
use crate::settings::{ClusterSettings, Masquerade};

/// `address:port`, as a load balancer writes it.
pub(super) fn socket(address: IpAddr, port: u16) -> String {
    std::net::SocketAddr::new(address, port).to_string()
}

/// The options of a load balancer, with or without the client's own address.
pub(super) fn options(settings: &ClusterSettings, protocol: Protocol, keeps_source: bool) -> StringMap {
    let hairpin = [false, true].into_iter().filter_map(|v6| settings.masquerade_address(Masquerade::Hairpin, v6));
    let hairpin: Vec<String> = hairpin.map(|address| address.to_string()).collect();
    let options = [
        Some(("reject", "true".to_owned())),
        Some(("event", "false".to_owned())),
        Some(("skip_snat", keeps_source.to_string())),
        Some(("neighbor_responder", "none".to_owned())),
        Some(("hairpin_snat_ip", hairpin.join(" "))),
        // Nobody closes a UDP conversation: one with an endpoint that is gone would go on.
        (protocol == Protocol::Udp).then(|| ("ct_flush", "true".to_owned())),
    ];
    options.into_iter().flatten().map(|(key, value)| (key.to_owned(), value)).collect()
}
