//! Load balancers: what Services become.

use std::collections::BTreeSet;

use ovsdb::uuid::Uuid;

use crate::declare::tables;
use crate::value::StringMap;

tables! {
    /// Virtual addresses, and what stands behind each.
    table LoadBalancer = "Load_Balancer" {
        /// Its name. Nothing but our own care makes it unique.
        name: String;
        /// `address:port` to a list of them with commas; to nothing where there is no endpoint.
        vips: StringMap;
        /// The protocol; none is TCP.
        protocol: Option<String> where choices = ["tcp", "udp", "sctp"];
        /// What the choice of an endpoint depends on; empty is the five-tuple.
        selection_fields: BTreeSet<String> where feature = SessionAffinity, choices = ["ip_src", "ip_dst"];
        /// Logical port and source of health checks by endpoint address.
        ip_port_mappings: StringMap;
        /// Such as `reject`, `skip_snat`, `hairpin_snat_ip`, `ct_flush`, `template`.
        options: StringMap;
        /// Who owns it.
        external_ids: StringMap;
    }

    /// Load balancers that many switches and routers have. It has no column for its owner: it is known by its name.
    table LoadBalancerGroup = "Load_Balancer_Group" where feature = LoadBalancerGroups {
        /// Its name, unique.
        name: String;
        /// Its load balancers.
        load_balancer: BTreeSet<Uuid>;
    }
}
