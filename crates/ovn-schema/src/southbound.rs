//! OVN_Southbound: what northd made of the logical network, and what the chassis tell.
//!
//! Of all this we write the connections, and remove a chassis that is gone for good; the rest is northd's and the
//! chassis' own.

use std::collections::BTreeSet;

use ovsdb::uuid::Uuid;

use crate::database::Database;
use crate::declare::tables;
use crate::value::StringMap;

/// The database.
pub const DATABASE: Database = Database { name: "OVN_Southbound", modules: &[TABLES] };

tables! {
    /// The one row of settings, and of how far northd is.
    table SbGlobal = "SB_Global" {
        /// The northbound `nb_cfg` that this database has been filled for.
        nb_cfg: i64 where observed;
        /// Whether tunnels are encrypted.
        ipsec: bool where observed;
        /// Settings for the chassis, copied by northd.
        options: StringMap where observed;
        /// Where the server listens and connects to.
        connections: BTreeSet<Uuid>;
        /// Whatever others want to remember here.
        external_ids: StringMap;
    }

    /// One way to reach the server, or to be reached by it.
    table Connection = "Connection" {
        /// Such as `pssl:9642:[::]`.
        target: String;
        /// Milliseconds of silence after which a peer is asked whether it lives; 0 is never.
        inactivity_probe: Option<i64>;
        /// Milliseconds between two attempts, at most.
        max_backoff: Option<i64>;
        /// Whether peers may only read.
        read_only: bool;
        /// What peers may write, such as `ovn-controller`; empty is everything.
        role: String;
        /// Whether somebody is connected.
        is_connected: bool where observed;
        /// What the server says of it.
        status: StringMap where observed;
        /// Such as the DSCP of its packets.
        other_config: StringMap;
        /// Who owns it.
        external_ids: StringMap;
    }

    /// A machine that takes part, as its ovn-controller tells. Only one that is gone for good is deleted by us.
    table Chassis = "Chassis" {
        /// Its `system-id`, unique.
        name: String;
        /// Its host name.
        hostname: String;
        /// How others reach it by tunnel.
        encaps: BTreeSet<Uuid>;
        /// What it says of itself, such as `ovn-bridge-mappings` and `datapath-type`.
        other_config: StringMap;
        /// Whatever others want to remember here.
        external_ids: StringMap;
    }

    /// What a chassis changes often, apart from what all others watch.
    table ChassisPrivate = "Chassis_Private" {
        /// The chassis' name, unique.
        name: String;
        /// The chassis; none if it is gone.
        chassis: Option<Uuid>;
        /// The northbound `nb_cfg` that its flows have reached.
        nb_cfg: i64 where observed;
        /// When that was, in milliseconds since 1970.
        nb_cfg_timestamp: i64 where observed;
        /// Whatever others want to remember here.
        external_ids: StringMap;
    }

    /// One end of tunnels.
    table Encap = "Encap" {
        /// The tunnel's kind.
        kind: String as "type" where choices = ["geneve"];
        /// Its address.
        ip: String;
        /// Such as `csum`.
        options: StringMap;
        /// The chassis' name.
        chassis_name: String;
    }

    /// A logical port, and the chassis that has it.
    table PortBinding = "Port_Binding" {
        /// The logical port's name, unique.
        logical_port: String;
        /// Empty for a pod; else `patch`, `l3gateway`, `chassisredirect`, …
        kind: String as "type";
        /// The switch or router that it belongs to.
        datapath: Uuid;
        /// Its number within that.
        tunnel_key: i64;
        /// The chassis that has it.
        chassis: Option<Uuid>;
        /// The end of tunnels that it is reached by, where the chassis has several.
        encap: Option<Uuid>;
        /// Whether its flows are there.
        up: Option<bool>;
        /// Its addresses.
        mac: BTreeSet<String>;
        /// The addresses that the chassis announces for it.
        nat_addresses: BTreeSet<String>;
        /// By type.
        options: StringMap;
        /// Copied from the northbound port.
        external_ids: StringMap;
    }

    /// A logical switch or router.
    table DatapathBinding = "Datapath_Binding" {
        /// Its number in tunnels, unique.
        tunnel_key: i64;
        /// Names it: `name`, and `logical-switch` or `logical-router` with the northbound identity.
        external_ids: StringMap;
    }

    /// A neighbour that was learned.
    table MacBinding = "MAC_Binding" {
        /// The router port.
        logical_port: String;
        /// The neighbour's address.
        ip: String;
        /// Its MAC.
        mac: String;
        /// When it was learned or used last, in milliseconds since 1970.
        timestamp: i64 where feature = MacBindingAging;
        /// The router.
        datapath: Uuid;
    }

    /// A step of a packet's way through a switch or router: to trace and to count, never to write.
    table LogicalFlow = "Logical_Flow" {
        /// The switch or router, if only one has it.
        logical_datapath: Option<Uuid>;
        /// Those that share it.
        logical_dp_group: Option<Uuid>;
        /// Before or after the choice of the way out.
        pipeline: String where choices = ["ingress", "egress"];
        /// Its place in the pipeline.
        table_id: i64;
        /// The highest that matches acts.
        priority: i64;
        /// Which packets.
        matching: String as "match";
        /// What happens to them.
        actions: String;
        /// What made it, such as `stage-name` and `stage-hint`.
        external_ids: StringMap;
    }
}
