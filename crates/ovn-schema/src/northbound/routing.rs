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
        /// Strong references; evaluated before routes.
        policies: BTreeSet<Uuid>;
        /// Strong references; only gateway routers have any.
        nat: BTreeSet<Uuid>;
        /// Load balancers of this one only.
        load_balancer: BTreeSet<Uuid>;
        /// Adds all load balancers of these groups.
        load_balancer_group: BTreeSet<Uuid> where feature = LoadBalancerGroups;
        /// Meters for packets that the router passes to ovn-controller, such as ARP.
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
        /// Unique: `rtoj-`, `rtos-` or `rtoe-`, and the name of the router or of the node's switch.
        name: String;
        /// Derived from the addresses; on the port to the external network, the MAC of the host's bridge.
        mac: String;
        /// Own addresses with prefix length, such as `100.64.0.2/16`.
        networks: BTreeSet<String>;
        /// Directly connected port of another router. Not written here: a switch is between any two routers.
        peer: Option<String>;
        /// Candidate chassis by priority; none: distributed.
        gateway_chassis: BTreeSet<Uuid>;
        /// Whether it is enabled; none is yes.
        enabled: Option<bool>;
        /// Router advertisements to pods. Empty: the node agent configures their addresses and routes.
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
        /// OVN expression over the packet, such as `inport == "rtos-n1" && ip4.dst == 192.0.2.1`.
        matching: String as "match";
        /// `reroute` to a next hop, or `allow`, which may set a mark by `options`.
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
        /// Always `snat` here: destinations are translated by load balancers.
        kind: String as "type" where choices = ["snat", "dnat", "dnat_and_snat"];
        /// Address of the node that packets leave with.
        external_ip: String;
        /// Sources that are translated: the address of a pod, or a prefix.
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
        /// Reserved by OVN for future use.
        options: StringMap;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// A static neighbour. Without `external_ids`: owned by port and address.
    table StaticMacBinding = "Static_MAC_Binding" where feature = StaticMacBindings {
        /// Name of the router port.
        logical_port: String;
        /// Address of the neighbour, such as the next hop of the masquerade network.
        ip: String;
        /// MAC that the router sends to, without asking by ARP.
        mac: String;
        /// Whether it wins over a binding that was learned for the same address.
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
        /// State of the session: `down`, `init`, `up` or `admin_down`.
        status: Option<String> where observed;
        /// Reserved by OVN for future use.
        options: StringMap;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }
}
