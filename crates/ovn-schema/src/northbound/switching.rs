//! Logical switches, their ports, DHCP options and QoS rules.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::uuid::Uuid;

use crate::declare::tables;
use crate::value::StringMap;

tables! {
    /// A logical L2 network.
    table LogicalSwitch = "Logical_Switch" {
        /// Not unique by the schema; this project keeps it unique.
        name: String;
        /// Strong references: a port without its switch is deleted.
        ports: BTreeSet<Uuid>;
        /// Strong references: these apply to every port. Policies are not here but in port groups.
        acls: BTreeSet<Uuid>;
        /// Rate limits, DSCP and packet marks.
        qos_rules: BTreeSet<Uuid> where feature = QosRules;
        /// Load balancers of this one only.
        load_balancer: BTreeSet<Uuid>;
        /// Adds all load balancers of these groups.
        load_balancer_group: BTreeSet<Uuid> where feature = LoadBalancerGroups;
        /// Meters for packets that the switch passes to ovn-controller. Not written here: routers have them.
        copp: Option<Uuid> where feature = ControlPlanePolicing;
        /// Settings, such as `subnet`, `exclude_ips` and `mcast_snoop`.
        other_config: StringMap;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// A port of a switch: a pod, a router, or the external network.
    table LogicalSwitchPort = "Logical_Switch_Port" {
        /// Unique name; equals the `iface-id` of its interface.
        name: String;
        /// Empty for a pod; else `router`, `localnet`, `localport`, …
        kind: String as "type";
        /// "MAC IP …", or `router`, or `unknown`.
        addresses: BTreeSet<String>;
        /// Allowed source addresses; empty is any.
        port_security: BTreeSet<String>;
        /// By type; such as `router-port`, `network_name`, `requested-chassis`, `iface-id-ver`.
        options: StringMap;
        /// Whether it is enabled; none is yes.
        enabled: Option<bool>;
        /// Whether a chassis has installed its flows.
        up: Option<bool> where observed;
        /// Parent port of a nested one.
        parent_name: Option<String>;
        /// VLAN within its parent, or of a localnet.
        tag: Option<i64>;
        /// Requested VLAN; 0: chosen by OVN.
        tag_request: Option<i64>;
        /// Addresses assigned by OVN.
        dynamic_addresses: Option<String> where observed;
        /// Response to DHCPv4 requests of the port; none: requests are forwarded.
        dhcpv4_options: Option<Uuid> where feature = Dhcp;
        /// Response to DHCPv6 requests of the port; none: requests are forwarded.
        dhcpv6_options: Option<Uuid> where feature = Dhcp;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// Options of OVN's DHCP server.
    table DhcpOptions = "DHCP_Options" where feature = Dhcp {
        /// Subnet of the options.
        cidr: String;
        /// Such as `router`, `server_mac`, `lease_time`.
        options: StringMap;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// A rule that marks packets of a switch or limits their rate.
    table Qos = "QoS" where feature = QosRules {
        /// The highest-priority match applies.
        priority: i64;
        /// `from-lport` is what a port sends, `to-lport` what it receives.
        direction: String where choices = ["from-lport", "to-lport"];
        /// OVN expression over the packet, such as `inport == "shop_web-1"`.
        matching: String as "match";
        /// Values that a matching packet gets: its `dscp`, and `mark`, which routing policies and NAT match.
        action: BTreeMap<String, i64> where choices = ["dscp", "mark": QosMarks];
        /// Limits: `rate` in kbps and `burst` in kb.
        bandwidth: BTreeMap<String, i64> where choices = ["rate", "burst"];
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }
}
