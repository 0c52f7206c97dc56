//! Logical switches, their ports, and what is set on those.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::uuid::Uuid;

use crate::declare::tables;
use crate::value::StringMap;

tables! {
    /// A network of the second layer.
    table LogicalSwitch = "Logical_Switch" {
        /// Its name. Nothing but our own care makes it unique.
        name: String;
        /// Its ports.
        ports: BTreeSet<Uuid>;
        /// ACLs on all its ports.
        acls: BTreeSet<Uuid>;
        /// Rules for marks and bandwidth.
        qos_rules: BTreeSet<Uuid> where feature = QosRules;
        /// Load balancers of its own.
        load_balancer: BTreeSet<Uuid>;
        /// Groups of load balancers.
        load_balancer_group: BTreeSet<Uuid> where feature = LoadBalancerGroups;
        /// Control-plane policing.
        copp: Option<Uuid> where feature = ControlPlanePolicing;
        /// Settings, such as `subnet`, `exclude_ips` and `mcast_snoop`.
        other_config: StringMap;
        /// Who owns it.
        external_ids: StringMap;
    }

    /// A port of a switch: a pod, a router, the way out.
    table LogicalSwitchPort = "Logical_Switch_Port" {
        /// Its name, unique; the `iface-id` of the interface that becomes it.
        name: String;
        /// Empty for a pod; else `router`, `localnet`, `localport`, …
        kind: String as "type";
        /// "MAC IP …", or `router`, or `unknown`.
        addresses: BTreeSet<String>;
        /// The addresses that it may send from; empty is any.
        port_security: BTreeSet<String>;
        /// By type; such as `router-port`, `network_name`, `requested-chassis`, `iface-id-ver`.
        options: StringMap;
        /// Whether it passes packets; none is yes.
        enabled: Option<bool>;
        /// Whether its interface works on a chassis.
        up: Option<bool> where observed;
        /// The port that this one is nested in.
        parent_name: Option<String>;
        /// The VLAN within its parent, or of a localnet.
        tag: Option<i64>;
        /// The VLAN that is wanted; 0 lets OVN choose.
        tag_request: Option<i64>;
        /// The addresses that OVN gave it.
        dynamic_addresses: Option<String> where observed;
        /// Its answers to DHCP.
        dhcpv4_options: Option<Uuid> where feature = Dhcp;
        /// Its answers to DHCPv6.
        dhcpv6_options: Option<Uuid> where feature = Dhcp;
        /// Who owns it.
        external_ids: StringMap;
    }

    /// What a port is told by DHCP.
    table DhcpOptions = "DHCP_Options" where feature = Dhcp {
        /// The subnet that it is for.
        cidr: String;
        /// Such as `router`, `server_mac`, `lease_time`.
        options: StringMap;
        /// Who owns it.
        external_ids: StringMap;
    }

    /// A rule that marks packets of a switch, or limits their rate.
    table Qos = "QoS" where feature = QosRules {
        /// The highest that matches acts.
        priority: i64;
        /// Where packets come from, or go to.
        direction: String where choices = ["from-lport", "to-lport"];
        /// Which packets.
        matching: String as "match";
        /// Marks: `dscp` and `mark`.
        action: BTreeMap<String, i64> where choices = ["dscp", "mark": QosMarks];
        /// Limits: `rate` in kbps and `burst` in kb.
        bandwidth: BTreeMap<String, i64> where choices = ["rate", "burst"];
        /// Who owns it.
        external_ids: StringMap;
    }
}
