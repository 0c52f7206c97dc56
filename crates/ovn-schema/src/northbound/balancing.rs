//! Load balancers, which implement Services.

use std::collections::BTreeSet;

use ovsdb::uuid::Uuid;

use crate::declare::tables;
use crate::value::StringMap;

tables! {
    /// Virtual addresses and their endpoints.
    table LoadBalancer = "Load_Balancer" {
        /// Not unique by the schema; this project keeps it unique.
        name: String;
        /// `address:port` to a comma-separated list of endpoints; empty without endpoints.
        vips: StringMap;
        /// Services have a row for each protocol. Without a value OVN assumes TCP.
        protocol: Option<String> where choices = ["tcp", "udp", "sctp"];
        /// Fields that select the endpoint; empty is the five-tuple.
        selection_fields: BTreeSet<String> where feature = SessionAffinity, choices = ["ip_src", "ip_dst"];
        /// Logical port and source of health checks by endpoint address.
        ip_port_mappings: StringMap;
        /// Such as `reject`, `skip_snat`, `hairpin_snat_ip`, `ct_flush`, `template`.
        options: StringMap;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// Load balancers shared by many switches and routers. Without `external_ids`: owned by its name.
    table LoadBalancerGroup = "Load_Balancer_Group" where feature = LoadBalancerGroups {
        /// Unique: `clusterLBGroup`, `clusterSwitchLBGroup` or `clusterRouterLBGroup`.
        name: String;
        /// Weak references: every switch and router of the group gets these.
        load_balancer: BTreeSet<Uuid>;
    }
}
