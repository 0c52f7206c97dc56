//! Open_vSwitch: the switch of one host. Several programs share it, so this project writes only its own keys and rows.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::uuid::Uuid;

use crate::database::Database;
use crate::declare::tables;
use crate::value::StringMap;

/// The tables and columns that this project uses; a server may have more.
pub const DATABASE: Database = Database { name: "Open_vSwitch", modules: &[TABLES] };

tables! {
    /// Settings; one row.
    table OpenVSwitch = "Open_vSwitch" {
        /// Strong references: a bridge that is not listed is deleted.
        bridges: BTreeSet<Uuid>;
        /// Increased to request an acknowledgement of ovs-vswitchd.
        next_cfg: i64;
        /// `next_cfg` that ovs-vswitchd has applied.
        cur_cfg: i64 where observed;
        /// Version of Open vSwitch.
        ovs_version: Option<String> where observed;
        /// Version of the server's schema, such as `8.5.0`.
        db_version: Option<String> where observed;
        /// Name of the operating system, such as `debian`; only for display.
        system_type: Option<String> where observed;
        /// Its release, such as `13`; only for display.
        system_version: Option<String> where observed;
        /// Supported datapaths: `system`, `netdev`.
        datapath_types: BTreeSet<String> where observed;
        /// Supported interface types.
        iface_types: BTreeSet<String> where observed;
        /// Listeners and outgoing connections of ovsdb-server.
        manager_options: BTreeSet<Uuid>;
        /// Key and certificates of `ssl:` connections; none: Open vSwitch has no such connections.
        ssl: Option<Uuid>;
        /// Such as `hw-offload` and `pmd-cpu-mask`.
        other_config: StringMap;
        /// Settings of ovn-controller: `system-id`, `ovn-remote`, `ovn-encap-ip`, …
        external_ids: StringMap;
    }

    /// An OVS bridge.
    table Bridge = "Bridge" {
        /// Unique name; immutable.
        name: String;
        /// Empty or `system` for the kernel's datapath, `netdev` for the one in ovs-vswitchd.
        datapath_type: String;
        /// OpenFlow datapath ID, in hex.
        datapath_id: Option<String> where observed;
        /// `standalone` or `secure`: behaviour without a controller.
        fail_mode: Option<String> where choices = ["standalone", "secure"];
        /// Enabled OpenFlow versions; empty: the default ones.
        protocols: BTreeSet<String> where choices = ["OpenFlow13", "OpenFlow15"];
        /// Strong references: a port that is not listed is deleted.
        ports: BTreeSet<Uuid>;
        /// OpenFlow controllers.
        controller: BTreeSet<Uuid>;
        /// Status reported by ovs-vswitchd.
        status: StringMap where observed;
        /// Such as `hwaddr` and `forward-bpdu`.
        other_config: StringMap;
        /// Keys of clients, such as the row's owner and `bridge-uplink`.
        external_ids: StringMap;
    }

    /// A port of a bridge: one interface, or a bond of several.
    table Port = "Port" {
        /// Unique name; immutable.
        name: String;
        /// Strong references: one, or several for a bond.
        interfaces: BTreeSet<Uuid>;
        /// Access or native VLAN.
        tag: Option<i64>;
        /// Trunked VLANs; empty is all.
        trunks: BTreeSet<i64>;
        /// None: `access` with a tag, otherwise `trunk`.
        vlan_mode: Option<String> where choices = ["trunk", "access"];
        /// Such as `active-backup`; none for a single interface.
        bond_mode: Option<String>;
        /// Such as `transient`.
        other_config: StringMap;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// An interface of a port.
    table Interface = "Interface" {
        /// Unique name; immutable.
        name: String;
        /// Empty for a network device; else `internal`, `patch`, `geneve`, …
        kind: String as "type";
        /// By type, such as `peer`.
        options: StringMap;
        /// MAC that an `internal` interface gets, such as that of the management port; none: chosen by Open vSwitch.
        mac: Option<String>;
        /// MAC of the device; none until ovs-vswitchd has opened it.
        mac_in_use: Option<String> where observed;
        /// In bytes; none leaves the MTU of the device alone.
        mtu_request: Option<i64>;
        /// MTU of the device, in bytes; none until ovs-vswitchd has opened it.
        mtu: Option<i64> where observed;
        /// OpenFlow port; -1 if it could not be added.
        ofport: Option<i64> where observed;
        /// OpenFlow port that it should get; none: chosen by ovs-vswitchd.
        ofport_request: Option<i64>;
        /// Interface index of the kernel.
        ifindex: Option<i64> where observed;
        /// `up` or `down`, as configured on the device.
        admin_state: Option<String> where observed;
        /// `up` or `down`: whether the device has a carrier.
        link_state: Option<String> where observed;
        /// Why it could not be configured.
        error: Option<String> where observed;
        /// Status reported by ovs-vswitchd.
        status: StringMap where observed;
        /// Packet and byte counters.
        statistics: BTreeMap<String, i64> where observed;
        /// Such as `n_rxq`.
        other_config: StringMap;
        /// Its logical port: `iface-id`, `iface-id-ver`, `attached_mac`; and OVN's `ovn-installed`.
        external_ids: StringMap;
    }

    /// OpenFlow controller of a bridge.
    table Controller = "Controller" {
        /// Such as `unix:/var/run/openvswitch/br-int.mgmt`.
        target: String;
        /// Whether traffic to the controller may use the bridge itself.
        connection_mode: Option<String> where choices = ["in-band", "out-of-band"];
        /// Inactivity probe in ms; 0 disables it.
        inactivity_probe: Option<i64>;
        /// Largest backoff between attempts, in ms.
        max_backoff: Option<i64>;
        /// Whether ovs-vswitchd has a session with it.
        is_connected: bool where observed;
        /// `master`, `slave` or `other`, as the controller asked.
        role: Option<String> where observed;
        /// Status reported by ovs-vswitchd.
        status: StringMap where observed;
        /// Such as the DSCP of its packets.
        other_config: StringMap;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// A listener or an outgoing connection of ovsdb-server.
    table Manager = "Manager" {
        /// Such as `ptcp:6640`.
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

    /// Key and certificates for `ssl:` connections of ovsdb-server and ovs-vswitchd.
    table Ssl = "SSL" {
        /// Path of the key on the host, PEM.
        private_key: String;
        /// Path of the own certificate on the host, PEM.
        certificate: String;
        /// Path of the trusted certificate authorities.
        ca_cert: String;
        /// Whether the first CA certificate seen is trusted and stored; insecure.
        bootstrap_ca_cert: bool;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }
}
