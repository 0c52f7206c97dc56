//! The host's own Open vSwitch, by its database. Others use it too: only rows and keys of ours are written.

pub mod ports;
pub mod rows;

use ovsdb::client::{Client, Config, Remote, TableMonitor};

/// The host's Open vSwitch.
#[derive(Debug)]
pub struct Switch {
    client: Client,
}

impl Switch {
    /// Begins to follow it; it may come later.
    pub fn start(remote: Remote) -> Self {
        let config = Config::new(vec![remote], "Open_vSwitch")
            .monitor(TableMonitor::new("Open_vSwitch").columns(&["bridges", "external_ids", "cur_cfg", "ovs_version"]))
            .monitor(
                TableMonitor::new("Bridge")
                    .columns(&["name", "datapath_type", "ports", "external_ids"])
                    .index(&["name"]),
            )
            .monitor(TableMonitor::new("Port").columns(&["name", "interfaces", "tag", "external_ids"]).index(&["name"]))
            .monitor(
                TableMonitor::new("Interface")
                    .columns(&["name", "type", "ofport", "error", "mac_in_use", "mtu", "options", "external_ids"])
                    .index(&["name"])
                    .index_map_key("external_ids", "iface-id")
                    .index_map_key("external_ids", rows::SANDBOX),
            );
        Self { client: Client::start(config) }
    }

    /// The client: snapshots, subscriptions, transactions.
    pub fn client(&self) -> &Client {
        &self.client
    }
}
