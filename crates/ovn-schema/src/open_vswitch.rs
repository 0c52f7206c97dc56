//! Open_vSwitch: the switch of one host. Several programs share it, so only keys and rows of our own are written.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::uuid::Uuid;

use crate::database::Database;
use crate::declare::tables;
use crate::value::StringMap;

/// The database.
pub const DATABASE: Database = Database { name: "Open_vSwitch", modules: &[TABLES] };

tables! {
    /// The one row of settings.
    table OpenVSwitch = "Open_vSwitch" {
        /// Its bridges.
        bridges: BTreeSet<Uuid>;
        /// Raised to ask how far ovs-vswitchd is.
        next_cfg: i64;
        /// The `next_cfg` that ovs-vswitchd has reached.
        cur_cfg: i64 where observed;
        /// Its version.
        ovs_version: Option<String> where observed;
        /// The schema's version.
        db_version: Option<String> where observed;
        /// The system below it.
        system_type: Option<String> where observed;
        /// That system's version.
        system_version: Option<String> where observed;
        /// The datapaths that it knows: `system`, `netdev`.
        datapath_types: BTreeSet<String> where observed;
        /// The interfaces that it knows.
        iface_types: BTreeSet<String> where observed;
        /// Where its server listens and connects to.
        manager_options: BTreeSet<Uuid>;
        /// Its certificates.
        ssl: Option<Uuid>;
        /// Such as `hw-offload` and `pmd-cpu-mask`.
        other_config: StringMap;
        /// What ovn-controller is told: `system-id`, `ovn-remote`, `ovn-encap-ip`, …
        external_ids: StringMap;
    }

    /// A bridge.
    table Bridge = "Bridge" {
        /// Its name, unique; it cannot change.
        name: String;
        /// Empty or `system` for the kernel's datapath, `netdev` for the one in ovs-vswitchd.
        datapath_type: String;
        /// Its number in OpenFlow, in hex.
        datapath_id: Option<String> where observed;
        /// What it does without a controller.
        fail_mode: Option<String> where choices = ["standalone", "secure"];
        /// The versions of OpenFlow that it speaks; empty is the usual ones.
        protocols: BTreeSet<String> where choices = ["OpenFlow13", "OpenFlow15"];
        /// Its ports.
        ports: BTreeSet<Uuid>;
        /// Its controllers.
        controller: BTreeSet<Uuid>;
        /// What ovs-vswitchd says of it.
        status: StringMap where observed;
        /// Such as `hwaddr` and `forward-bpdu`.
        other_config: StringMap;
        /// Who owns it, and `bridge-uplink`.
        external_ids: StringMap;
    }

    /// A port of a bridge: one interface, or a bond of several.
    table Port = "Port" {
        /// Its name, unique; it cannot change.
        name: String;
        /// Its interfaces; at least one.
        interfaces: BTreeSet<Uuid>;
        /// Its VLAN.
        tag: Option<i64>;
        /// The VLANs that it carries; empty is all.
        trunks: BTreeSet<i64>;
        /// How VLANs are treated.
        vlan_mode: Option<String> where choices = ["trunk", "access"];
        /// How a bond chooses among its interfaces.
        bond_mode: Option<String>;
        /// Such as `transient`.
        other_config: StringMap;
        /// Who owns it.
        external_ids: StringMap;
    }

    /// An interface of a port.
    table Interface = "Interface" {
        /// Its name, unique; it cannot change.
        name: String;
        /// Empty for a device of the system; else `internal`, `patch`, `geneve`, …
        kind: String as "type";
        /// By type, such as `peer`.
        options: StringMap;
        /// The MAC that it shall have.
        mac: Option<String>;
        /// The MAC that it has.
        mac_in_use: Option<String> where observed;
        /// The MTU that it shall have.
        mtu_request: Option<i64>;
        /// The MTU that it has.
        mtu: Option<i64> where observed;
        /// Its OpenFlow port; -1 if it could not be added.
        ofport: Option<i64> where observed;
        /// The OpenFlow port that it shall have.
        ofport_request: Option<i64>;
        /// The system's number of it.
        ifindex: Option<i64> where observed;
        /// Whether it is switched on.
        admin_state: Option<String> where observed;
        /// Whether it has a carrier.
        link_state: Option<String> where observed;
        /// Why it does not work.
        error: Option<String> where observed;
        /// What ovs-vswitchd says of it.
        status: StringMap where observed;
        /// Counters.
        statistics: BTreeMap<String, i64> where observed;
        /// Such as `n_rxq`.
        other_config: StringMap;
        /// The logical port that it is: `iface-id`, `iface-id-ver`, `attached_mac`; and OVN's `ovn-installed`.
        external_ids: StringMap;
    }

    /// Who tells a bridge its flows.
    table Controller = "Controller" {
        /// Such as `unix:/var/run/openvswitch/br-int.mgmt`.
        target: String;
        /// How it is reached.
        connection_mode: Option<String> where choices = ["in-band", "out-of-band"];
        /// Milliseconds of silence after which it is asked whether it lives; 0 is never.
        inactivity_probe: Option<i64>;
        /// Milliseconds between two attempts, at most.
        max_backoff: Option<i64>;
        /// Whether it is connected.
        is_connected: bool where observed;
        /// Its role among several.
        role: Option<String> where observed;
        /// What ovs-vswitchd says of it.
        status: StringMap where observed;
        /// Such as the DSCP of its packets.
        other_config: StringMap;
        /// Who owns it.
        external_ids: StringMap;
    }

    /// One way to reach the server of this database, or to be reached by it.
    table Manager = "Manager" {
        /// Such as `ptcp:6640`.
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

    /// The files of certificates.
    table Ssl = "SSL" {
        /// The private key.
        private_key: String;
        /// The certificate.
        certificate: String;
        /// The authorities that are trusted.
        ca_cert: String;
        /// Whether the first authority that is seen is trusted and kept. It should not be.
        bootstrap_ca_cert: bool;
        /// Who owns it.
        external_ids: StringMap;
    }
}
