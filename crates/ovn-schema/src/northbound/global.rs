//! What concerns the whole network: settings and progress, connections, rate limits, values by chassis.

use std::collections::BTreeSet;

use ovsdb::uuid::Uuid;

use crate::declare::tables;
use crate::value::StringMap;

tables! {
    /// The one row of settings, and of how far a change has come.
    table NbGlobal = "NB_Global" {
        /// The name of this deployment, for interconnection.
        name: String;
        /// Raised to ask how far everybody is.
        nb_cfg: i64;
        /// When that was, in milliseconds since 1970.
        nb_cfg_timestamp: i64 where observed;
        /// The `nb_cfg` up to which northd has filled the southbound database.
        sb_cfg: i64 where observed;
        /// When that was, in milliseconds since 1970.
        sb_cfg_timestamp: i64 where observed;
        /// The `nb_cfg` that every chassis has reached.
        hv_cfg: i64 where observed;
        /// When that was, in milliseconds since 1970.
        hv_cfg_timestamp: i64 where observed;
        /// Whether tunnels are encrypted.
        ipsec: bool;
        /// Settings of northd.
        options: StringMap;
        /// Where the server listens and connects to.
        connections: BTreeSet<Uuid>;
        /// Whatever others want to remember here.
        external_ids: StringMap;
    }

    /// One way to reach the server, or to be reached by it.
    table Connection = "Connection" {
        /// Such as `pssl:9641:[::]`.
        target: String;
        /// Milliseconds of silence after which a peer is asked whether it lives; 0 is never.
        inactivity_probe: Option<i64>;
        /// Milliseconds between two attempts, at most.
        max_backoff: Option<i64>;
        /// Whether somebody is connected.
        is_connected: bool where observed;
        /// What the server says of it.
        status: StringMap where observed;
        /// Such as the DSCP of its packets.
        other_config: StringMap;
        /// Who owns it.
        external_ids: StringMap;
    }

    /// A rate limit, for control-plane policing and for the log of ACLs.
    table Meter = "Meter" {
        /// Its name; names that begin with `__` are OVN's own.
        name: String;
        /// What rates count.
        unit: String where choices = ["pktps", "kbps"];
        /// Its limits; at least one.
        bands: BTreeSet<Uuid>;
        /// Whether each that uses it has the rate for itself.
        fair: Option<bool> where feature = FairMeters;
        /// Who owns it.
        external_ids: StringMap;
    }

    /// One limit of a meter.
    table MeterBand = "Meter_Band" {
        /// What happens to packets above it.
        action: String where choices = ["drop"];
        /// The limit, in the meter's unit.
        rate: i64;
        /// How far above it a burst may go.
        burst_size: i64;
        /// Who owns it.
        external_ids: StringMap;
    }

    /// Control-plane policing: which meter limits which packets on their way to ovn-controller.
    table Copp = "Copp" where feature = ControlPlanePolicing {
        /// Its name.
        name: String;
        /// Names of meters by protocol, such as `arp` or `reject`.
        meters: StringMap;
        /// Who owns it.
        external_ids: StringMap;
    }

    /// Values for the `^variables` of load balancers, for one chassis.
    table ChassisTemplateVar = "Chassis_Template_Var" where feature = LoadBalancerTemplates {
        /// The chassis' name.
        chassis: String;
        /// Values by the variables' names.
        variables: StringMap;
        /// Who owns it.
        external_ids: StringMap;
    }
}
