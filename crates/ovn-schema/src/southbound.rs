//! OVN_Southbound: northd's output, and the state reported by chassis.
//!
//! This project only writes connections and deletes orphaned chassis; the rest belongs to northd and the
//! chassis.

use std::collections::BTreeSet;

use ovsdb::uuid::Uuid;

use crate::database::Database;
use crate::declare::tables;
use crate::value::StringMap;

/// The tables and columns that this project uses; a server may have more.
pub const DATABASE: Database = Database { name: "OVN_Southbound", modules: &[TABLES] };

tables! {
    /// Settings, and northd's progress; one row.
    table SbGlobal = "SB_Global" {
        /// Northbound `nb_cfg` that this database includes.
        nb_cfg: i64 where observed;
        /// Copied by northd from the northbound `ipsec`.
        ipsec: bool where observed;
        /// Settings for the chassis, copied by northd.
        options: StringMap where observed;
        /// Listeners and outgoing connections of the server.
        connections: BTreeSet<Uuid>;
        /// Keys of clients.
        external_ids: StringMap;
    }

    /// A listener or an outgoing connection of the server.
    table Connection = "Connection" {
        /// Such as `pssl:9642:[::]`.
        target: String;
        /// Inactivity probe in ms; 0 disables it.
        inactivity_probe: Option<i64>;
        /// Largest backoff between attempts, in ms.
        max_backoff: Option<i64>;
        /// Whether clients are read-only.
        read_only: bool;
        /// RBAC role of clients, such as `ovn-controller`; empty: everything.
        role: String;
        /// Whether a client is connected.
        is_connected: bool where observed;
        /// Status reported by the server.
        status: StringMap where observed;
        /// Such as the DSCP of its packets.
        other_config: StringMap;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// A host with ovn-controller, which writes this row.
    table Chassis = "Chassis" {
        /// `system-id` of the host, unique; the node agent reports it on its Node.
        name: String;
        /// As ovn-controller reports it. Not the key to a Node: that is `name`.
        hostname: String;
        /// Strong references: where other chassis send their tunnelled packets.
        encaps: BTreeSet<Uuid>;
        /// Reported settings, such as `ovn-bridge-mappings` and `datapath-type`.
        other_config: StringMap;
        /// Keys of clients.
        external_ids: StringMap;
    }

    /// Frequently changing columns of a chassis, separate from those that all chassis monitor.
    table ChassisPrivate = "Chassis_Private" {
        /// Name of the chassis, unique.
        name: String;
        /// The chassis; none if it was deleted.
        chassis: Option<Uuid>;
        /// Northbound `nb_cfg` that its flows include.
        nb_cfg: i64 where observed;
        /// Time of that, in ms since 1970.
        nb_cfg_timestamp: i64 where observed;
        /// Keys of clients.
        external_ids: StringMap;
    }

    /// A tunnel endpoint.
    table Encap = "Encap" {
        /// `geneve`, the only type that the node agent configures.
        kind: String as "type" where choices = ["geneve"];
        /// Address of the host that other chassis send to.
        ip: String;
        /// Such as `csum`.
        options: StringMap;
        /// `Chassis.name` of its owner; access control compares it.
        chassis_name: String;
    }

    /// A logical port and its chassis.
    table PortBinding = "Port_Binding" {
        /// Name of the logical port, unique.
        logical_port: String;
        /// Empty for a pod; else `patch`, `l3gateway`, `chassisredirect`, …
        kind: String as "type";
        /// Switch or router that the port is on.
        datapath: Uuid;
        /// Tunnel key within the datapath.
        tunnel_key: i64;
        /// The chassis that claimed it; none while no host has the interface.
        chassis: Option<Uuid>;
        /// Tunnel endpoint, if the chassis has several.
        encap: Option<Uuid>;
        /// Whether its flows are installed.
        up: Option<bool>;
        /// `MAC IP …`, as in the northbound port's `addresses`.
        mac: BTreeSet<String>;
        /// NAT addresses that the chassis announces.
        nat_addresses: BTreeSet<String>;
        /// By type; copied from the northbound port, such as `requested-chassis`.
        options: StringMap;
        /// Copied from the northbound port.
        external_ids: StringMap;
    }

    /// A logical switch or router.
    table DatapathBinding = "Datapath_Binding" {
        /// Unique; tells chassis to which switch or router a tunnelled packet belongs.
        tunnel_key: i64;
        /// `name`, and `logical-switch` or `logical-router` with the northbound uuid.
        external_ids: StringMap;
    }

    /// A learned neighbour.
    table MacBinding = "MAC_Binding" {
        /// Name of the router port.
        logical_port: String;
        /// IP address of the neighbour.
        ip: String;
        /// MAC that the neighbour answered with.
        mac: String;
        /// Time of learning or last use, in ms since 1970.
        timestamp: i64 where feature = MacBindingAging;
        /// Router that the port is on.
        datapath: Uuid;
    }

    /// A logical flow; read only for tracing and counting.
    table LogicalFlow = "Logical_Flow" {
        /// Its switch or router; none if several share the flow.
        logical_datapath: Option<Uuid>;
        /// Those that share the flow; none if it belongs to one.
        logical_dp_group: Option<Uuid>;
        /// `ingress` decides where a packet goes, `egress` whether it may leave there.
        pipeline: String where choices = ["ingress", "egress"];
        /// Stage within the pipeline, from 0.
        table_id: i64;
        /// The highest-priority match applies.
        priority: i64;
        /// OVN expression over the packet, as in an ACL.
        matching: String as "match";
        /// Action on matching packets.
        actions: String;
        /// Origin, such as `stage-name` and `stage-hint`.
        external_ids: StringMap;
    }
}
