//! Logical routers, their ports, routes, policies and NAT.

use std::collections::BTreeSet;

use ovsdb::uuid::Uuid;

use crate::declare::tables;
use crate::value::StringMap;

tables! {
    /// A router: that of the cluster, or a gateway router of a node.
    table LogicalRouter = "Logical_Router" {
        /// Not unique by the schema; this project keeps it unique.
        name: String;
        /// Strong references: a port without its router is deleted.
        ports: BTreeSet<Uuid>;
        /// Strong references; the longest prefix wins, and at equal length `dst-ip` before `src-ip`.
        static_routes: BTreeSet<Uuid>;
        /// Policies, evaluated before routes.
        policies: BTreeSet<Uuid>;
        /// NAT rules.
        nat: BTreeSet<Uuid>;
        /// Load balancers of this one only.
        load_balancer: BTreeSet<Uuid>;
        /// Adds all load balancers of these groups.
        load_balancer_group: BTreeSet<Uuid> where feature = LoadBalancerGroups;
        /// Control-plane policing.
        copp: Option<Uuid> where feature = ControlPlanePolicing;
        /// Whether it is enabled; none is yes.
        enabled: Option<bool>;
        /// Such as `chassis`, `lb_force_snat_ip`, `snat-ct-zone`.
        options: StringMap;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// A port of a router.
    table LogicalRouterPort = "Logical_Router_Port" {
        /// Unique name.
        name: String;
        /// MAC address.
        mac: String;
        /// Addresses with prefix length.
        networks: BTreeSet<String>;
        /// Directly connected port of another router.
        peer: Option<String>;
        /// Candidate chassis by priority; none: distributed.
        gateway_chassis: BTreeSet<Uuid>;
        /// Whether it is enabled; none is yes.
        enabled: Option<bool>;
        /// Router advertisements.
        ipv6_ra_configs: StringMap;
        /// Such as `gateway_mtu`.
        options: StringMap;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// A static route.
    table LogicalRouterStaticRoute = "Logical_Router_Static_Route" {
        /// Destination prefix, or source prefix with `src-ip`.
        ip_prefix: String;
        /// Next hop; `discard` drops.
        nexthop: String;
        /// Address that the prefix is compared with; `dst-ip` if none.
        policy: Option<String> where choices = ["src-ip", "dst-ip"];
        /// Output port, if the next hop does not determine it.
        output_port: Option<String>;
        /// BFD session that monitors the next hop.
        bfd: Option<Uuid> where feature = Bfd;
        /// Such as `ecmp_symmetric_reply`.
        options: StringMap;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// A routing policy, evaluated before routes.
    table LogicalRouterPolicy = "Logical_Router_Policy" {
        /// The highest-priority match applies.
        priority: i64;
        /// Match expression.
        matching: String as "match";
        /// Action on matching packets.
        action: String where choices = ["allow", "drop", "reroute"];
        /// Next hop of `reroute`.
        nexthop: Option<String>;
        /// Next hops of `reroute` (ECMP).
        nexthops: BTreeSet<String> where feature = EcmpReroute;
        /// Such as `pkt_mark`.
        options: StringMap;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// A NAT rule.
    table Nat = "NAT" {
        /// Type of the translation.
        kind: String as "type" where choices = ["snat", "dnat", "dnat_and_snat"];
        /// External address.
        external_ip: String;
        /// Internal address or prefix.
        logical_ip: String;
        /// External MAC, for NAT on the pod's chassis.
        external_mac: Option<String>;
        /// Internal port, for NAT on the pod's chassis.
        logical_port: Option<String>;
        /// External port range, such as `32768-60999`; empty: chosen by OVN.
        external_port_range: String where feature = NatPortRanges;
        /// Match expression; empty is all.
        matching: String as "match" where feature = ConditionalNat;
        /// The highest-priority match applies.
        priority: i64 where feature = ConditionalNat;
        /// Such as `stateless`.
        options: StringMap;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// A candidate chassis of a router port.
    table GatewayChassis = "Gateway_Chassis" {
        /// Unique name: `<port>-<chassis>`.
        name: String;
        /// `system-id` of the host.
        chassis_name: String;
        /// The live chassis with the highest priority has the port.
        priority: i64;
        /// Unused.
        options: StringMap;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// A static neighbour. Without `external_ids`: owned by port and address.
    table StaticMacBinding = "Static_MAC_Binding" where feature = StaticMacBindings {
        /// Name of the router port.
        logical_port: String;
        /// IP address of the neighbour.
        ip: String;
        /// MAC address.
        mac: String;
        /// Whether it overrides learned bindings.
        override_dynamic_mac: bool;
    }

    /// A BFD session with a next hop.
    table Bfd = "BFD" where feature = Bfd {
        /// Name of the router port.
        logical_port: String;
        /// Address of the next hop.
        dst_ip: String;
        /// Smallest transmit interval, in ms.
        min_tx: Option<i64>;
        /// Smallest receive interval, in ms.
        min_rx: Option<i64>;
        /// Lost packets until the session is down.
        detect_mult: Option<i64>;
        /// State of the session.
        status: Option<String> where observed;
        /// Unused.
        options: StringMap;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }
}
