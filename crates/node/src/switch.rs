//! The host's Open vSwitch database. Other clients use it too: the agent writes only its own rows and keys.

pub(crate) mod ports;
pub(crate) mod rows;

use ovsdb::client::{Client, Config, Remote, TableMonitor};

/// Client of the host's Open vSwitch database.
#[derive(Debug)]
pub(crate) struct Switch {
    client: Client,
}

impl Switch {
    /// Connects in the background, and keeps trying.
    pub(crate) fn start(remote: Remote) -> Self {
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

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
}
