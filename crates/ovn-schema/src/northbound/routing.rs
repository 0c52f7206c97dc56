//! Logical routers, their ports, routes, policies and address translation.

use std::collections::BTreeSet;

use ovsdb::uuid::Uuid;

use crate::declare::tables;
use crate::value::StringMap;

tables! {
    /// A router: of the cluster, or of one node's gateway.
    table LogicalRouter = "Logical_Router" {
        /// Its name. Nothing but our own care makes it unique.
        name: String;
        /// Its ports.
        ports: BTreeSet<Uuid>;
        /// Its routes.
        static_routes: BTreeSet<Uuid>;
        /// Policies, which come before routes.
        policies: BTreeSet<Uuid>;
        /// Address translation.
        nat: BTreeSet<Uuid>;
        /// Load balancers of its own.
        load_balancer: BTreeSet<Uuid>;
        /// Groups of load balancers.
        load_balancer_group: BTreeSet<Uuid> where feature = LoadBalancerGroups;
        /// Control-plane policing.
        copp: Option<Uuid> where feature = ControlPlanePolicing;
        /// Whether it works; none is yes.
        enabled: Option<bool>;
        /// Such as `chassis`, `lb_force_snat_ip`, `snat-ct-zone`.
        options: StringMap;
        /// Who owns it.
        external_ids: StringMap;
    }

    /// A port of a router.
    table LogicalRouterPort = "Logical_Router_Port" {
        /// Its name, unique.
        name: String;
        /// Its MAC.
        mac: String;
        /// Its addresses with their prefixes.
        networks: BTreeSet<String>;
        /// The port of another router that it is connected to directly.
        peer: Option<String>;
        /// The chassis that it can be on, by priority; none is on all of them.
        gateway_chassis: BTreeSet<Uuid>;
        /// Whether it works; none is yes.
        enabled: Option<bool>;
        /// Router advertisements.
        ipv6_ra_configs: StringMap;
        /// Such as `gateway_mtu`.
        options: StringMap;
        /// Who owns it.
        external_ids: StringMap;
    }

    /// A route.
    table LogicalRouterStaticRoute = "Logical_Router_Static_Route" {
        /// Where to, or with `src-ip` where from.
        ip_prefix: String;
        /// The next hop; `discard` drops.
        nexthop: String;
        /// What the prefix is compared with: `dst-ip` if none.
        policy: Option<String> where choices = ["src-ip", "dst-ip"];
        /// The port to leave by, where the next hop does not say it.
        output_port: Option<String>;
        /// The session that tells whether the next hop lives.
        bfd: Option<Uuid> where feature = Bfd;
        /// Such as `ecmp_symmetric_reply`.
        options: StringMap;
        /// Who owns it.
        external_ids: StringMap;
    }

    /// A rule that comes before routes.
    table LogicalRouterPolicy = "Logical_Router_Policy" {
        /// The highest that matches acts.
        priority: i64;
        /// Which packets.
        matching: String as "match";
        /// What happens to them.
        action: String where choices = ["allow", "drop", "reroute"];
        /// Where `reroute` sends them: one next hop.
        nexthop: Option<String>;
        /// Where `reroute` sends them: one of these.
        nexthops: BTreeSet<String> where feature = EcmpReroute;
        /// Such as `pkt_mark`.
        options: StringMap;
        /// Who owns it.
        external_ids: StringMap;
    }

    /// A translation of addresses.
    table Nat = "NAT" {
        /// Which addresses change.
        kind: String as "type" where choices = ["snat", "dnat", "dnat_and_snat"];
        /// The address outside.
        external_ip: String;
        /// The address or prefix inside.
        logical_ip: String;
        /// The MAC outside, for a translation on the pod's own chassis.
        external_mac: Option<String>;
        /// The port inside, for the same.
        logical_port: Option<String>;
        /// The ports outside, such as `32768-60999`; empty is OVN's choice.
        external_port_range: String where feature = NatPortRanges;
        /// Which packets; empty is all.
        matching: String as "match" where feature = ConditionalNat;
        /// The highest that matches acts.
        priority: i64 where feature = ConditionalNat;
        /// Such as `stateless`.
        options: StringMap;
        /// Who owns it.
        external_ids: StringMap;
    }

    /// A chassis that a router port can be on.
    table GatewayChassis = "Gateway_Chassis" {
        /// Its name, unique: `<port>-<chassis>`.
        name: String;
        /// The chassis.
        chassis_name: String;
        /// The highest that lives has the port.
        priority: i64;
        /// Nothing so far.
        options: StringMap;
        /// Who owns it.
        external_ids: StringMap;
    }

    /// A neighbour that is known without asking. It has no column for its owner: it is known by port and address.
    table StaticMacBinding = "Static_MAC_Binding" where feature = StaticMacBindings {
        /// The router port.
        logical_port: String;
        /// The neighbour's address.
        ip: String;
        /// Its MAC.
        mac: String;
        /// Whether it is stronger than what was learned.
        override_dynamic_mac: bool;
    }

    /// A session that tells whether a next hop lives.
    table Bfd = "BFD" where feature = Bfd {
        /// The router port.
        logical_port: String;
        /// The next hop.
        dst_ip: String;
        /// Milliseconds between our packets, at least.
        min_tx: Option<i64>;
        /// Milliseconds between its packets, at least.
        min_rx: Option<i64>;
        /// How many may be lost.
        detect_mult: Option<i64>;
        /// What OVN sees.
        status: Option<String> where observed;
        /// Nothing so far.
        options: StringMap;
        /// Who owns it.
        external_ids: StringMap;
    }
}
