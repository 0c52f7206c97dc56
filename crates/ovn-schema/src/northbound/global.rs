//! Global tables: settings and progress, connections, meters, template variables.

use std::collections::BTreeSet;

use ovsdb::uuid::Uuid;

use crate::declare::tables;
use crate::value::StringMap;

tables! {
    /// Settings, and acknowledgement of changes; one row.
    table NbGlobal = "NB_Global" {
        /// Name of this deployment, for interconnection.
        name: String;
        /// Increased by the leader with a change whose effect on the nodes it wants acknowledged.
        nb_cfg: i64;
        /// When northd saw this `nb_cfg`, in ms since 1970.
        nb_cfg_timestamp: i64 where observed;
        /// `nb_cfg` that northd has written to the southbound database.
        sb_cfg: i64 where observed;
        /// When northd had written that to the southbound database, in ms since 1970.
        sb_cfg_timestamp: i64 where observed;
        /// `nb_cfg` that every chassis has acknowledged.
        hv_cfg: i64 where observed;
        /// When the last chassis had done that, in ms since 1970.
        hv_cfg_timestamp: i64 where observed;
        /// Whether chassis encrypt their tunnels with IPsec. Not written here.
        ipsec: bool;
        /// Settings of northd, such as `northd_probe_interval`.
        options: StringMap;
        /// Listeners and outgoing connections of the server.
        connections: BTreeSet<Uuid>;
        /// Keys of clients; one is the sequence cell of this project's transactions.
        external_ids: StringMap;
    }

    /// A listener or an outgoing connection of the server.
    table Connection = "Connection" {
        /// Such as `pssl:9641:[::]`.
        target: String;
        /// Inactivity probe in ms; 0 disables it.
        inactivity_probe: Option<i64>;
        /// Largest backoff between attempts, in ms.
        max_backoff: Option<i64>;
        /// Whether a client is connected.
        is_connected: bool where observed;
        /// Status reported by the server.
        status: StringMap where observed;
        /// Such as the DSCP of its packets.
        other_config: StringMap;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// A rate limit, for control-plane policing and ACL logging.
    table Meter = "Meter" {
        /// Name; OVN reserves those that start with `__`.
        name: String;
        /// `pktps`, packets per second, in all rows of this project.
        unit: String where choices = ["pktps", "kbps"];
        /// Strong references; at least one.
        bands: BTreeSet<Uuid>;
        /// Whether each user has the full rate.
        fair: Option<bool> where feature = FairMeters;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// A limit of a meter.
    table MeterBand = "Meter_Band" {
        /// Action on packets above the rate.
        action: String where choices = ["drop"];
        /// Rate, in the meter's unit.
        rate: i64;
        /// Burst size above the rate.
        burst_size: i64;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// Control-plane policing: meters for packets to ovn-controller.
    table Copp = "Copp" where feature = ControlPlanePolicing {
        /// Unique; the cluster router and the gateway routers share one row.
        name: String;
        /// Meter names by protocol, such as `arp` or `reject`.
        meters: StringMap;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// Template variables (`^name`) of load balancers, for one chassis.
    table ChassisTemplateVar = "Chassis_Template_Var" where feature = LoadBalancerTemplates {
        /// The chassis' name (`system-id`), unique: only this chassis uses the values.
        chassis: String;
        /// Values by variable name.
        variables: StringMap;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }
}
