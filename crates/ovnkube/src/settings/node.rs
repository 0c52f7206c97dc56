//! Settings of the node agent.

use std::net::IpAddr;

use ovsdb::client::Remote;

use super::{Setting, list, parse_seconds, truth};

pub(crate) const ENCAP_IP: Setting = Setting {
    section: "default",
    key: "encap-ip",
    flag: "encap-ip",
    default: "",
    placeholder: "ADDRESS",
    allowed: "an IP address of the host; empty is the address that the node has on its external bridge",
    help: "Our end of the tunnels to other nodes",
    check: |value| match value {
        "" => Ok(()),
        _ => value.parse::<IpAddr>().map(drop).map_err(|_| "not an IP address".to_owned()),
    },
};

pub(crate) const ENCAP_PORT: Setting = Setting {
    section: "default",
    key: "encap-port",
    flag: "encap-port",
    default: "6081",
    placeholder: "PORT",
    allowed: "a UDP port, 1 to 65535",
    help: "The port of the tunnels to other nodes",
    check: |value| match value.parse::<u16>() {
        Ok(1..) => Ok(()),
        _ => Err("not a port".to_owned()),
    },
};

pub(crate) const INACTIVITY_PROBE: Setting = Setting {
    section: "default",
    key: "inactivity-probe",
    flag: "inactivity-probe",
    default: "",
    placeholder: "MILLISECONDS",
    allowed: "a number of milliseconds; 0 is never, empty follows from the number of nodes (2 s up to 10 s)",
    help: "ovn-controller's southbound inactivity probe: a silent server is given up after two of these",
    check: |value| if value.is_empty() { Ok(()) } else { milliseconds(value) },
};

pub(crate) const WAIT_BEFORE_CLEAR: Setting = Setting {
    section: "default",
    key: "ofctrl-wait-before-clear",
    flag: "ofctrl-wait-before-clear",
    default: "8000",
    placeholder: "MILLISECONDS",
    allowed: "a number of milliseconds",
    help: "How long ovn-controller, when it starts, keeps the flows of the one before it",
    check: milliseconds,
};

pub(crate) const MONITOR_ALL: Setting = Setting {
    section: "default",
    key: "monitor-all",
    flag: "monitor-all",
    default: "true",
    placeholder: "BOOL",
    allowed: "true, false",
    help: "Whether ovn-controller follows the whole southbound database, which spares the database",
    check: truth,
};

pub(crate) const SWITCH_ADDRESS: Setting = Setting {
    section: "openvswitch",
    key: "address",
    flag: "ovs-address",
    default: "unix:/var/run/openvswitch/db.sock",
    placeholder: "REMOTE",
    allowed: "unix:PATH or tcp:HOST:PORT",
    help: "Where the host's own Open vSwitch database is",
    check: |value| value.parse::<Remote>().map(drop).map_err(|error| error.to_string()),
};

pub(crate) const GATEWAY_MODE: Setting = Setting {
    section: "gateway",
    key: "mode",
    flag: "gateway-mode",
    default: "shared",
    placeholder: "MODE",
    allowed: "shared (by OVN's gateway router, which shares the host's address), local (by the host's own routes)",
    help: "How pods reach the outside",
    check: |value| match value {
        "shared" | "local" => Ok(()),
        _ => Err("neither shared nor local".to_owned()),
    },
};

pub(crate) const GATEWAY_INTERFACE: Setting = Setting {
    section: "gateway",
    key: "interface",
    flag: "gateway-interface",
    default: "",
    placeholder: "NAME",
    allowed: "a bridge of Open vSwitch to use, or a device to make one of; empty is br-ex if there is one, else the device of the default route",
    help: "The bridge or device that leads to the outside",
    check: |value| match value.len() {
        0..=15 => Ok(()),
        _ => Err("longer than any name of a device".to_owned()),
    },
};

pub(crate) const GATEWAY_NEXT_HOP: Setting = Setting {
    section: "gateway",
    key: "next-hop",
    flag: "gateway-nexthop",
    default: "",
    placeholder: "ADDRESSES",
    allowed: "addresses separated by commas, at most one of each family; empty is what the default routes say",
    help: "The next hops to the outside",
    check: |value| match value {
        "" => Ok(()),
        _ => list::<IpAddr>(value).map(drop),
    },
};

pub(crate) const CNI_CONF_DIR: Setting =
    folder("conf-dir", "cni-conf-dir", "/etc/cni/net.d", "Where the container runtime looks for networks");
pub(crate) const CNI_BIN_DIR: Setting =
    folder("bin-dir", "cni-bin-dir", "/opt/cni/bin", "Where the container runtime looks for plugins");
pub(crate) const CNI_SERVER_DIR: Setting =
    folder("server-dir", "cni-server-dir", "/var/run/ovn-kubernetes/cni", "The folder of the CNI server's socket");
pub(crate) const CNI_SHIM: Setting = Setting {
    section: "cni",
    key: "shim",
    flag: "cni-shim",
    default: "",
    placeholder: "FILE",
    allowed: "a path; empty leaves it to others to install it",
    help: "The plugin to install onto the host",
    check: |_| Ok(()),
};
pub(crate) const CNI_VERSION: Setting = Setting {
    section: "cni",
    key: "version",
    flag: "cni-version",
    default: "1.0.0",
    placeholder: "VERSION",
    allowed: "0.3.1, 0.4.0, 1.0.0, 1.1.0",
    help: "The version of CNI that the runtime is told; one that knows 1.1.0 (containerd 2, CRI-O 1.31) then asks for STATUS and GC",
    check: |value| cni::Version::parse(value).map(drop).ok_or_else(|| "not a version that is spoken".to_owned()),
};
pub(crate) const CNI_PATIENCE: Setting = Setting {
    section: "cni",
    key: "patience",
    flag: "cni-patience",
    default: "60",
    placeholder: "SECONDS",
    allowed: "a number of seconds from 0.01 to 3600, such as 60",
    help: "How long a pod waits for its annotation and its flows before the runtime is told to try again",
    check: |value| parse_seconds(value).map(drop),
};

const fn folder(key: &'static str, flag: &'static str, default: &'static str, help: &'static str) -> Setting {
    let check = |value: &str| match value.starts_with('/') {
        true => Ok(()),
        false => Err("not an absolute path".to_owned()),
    };
    Setting { section: "cni", key, flag, default, placeholder: "FOLDER", allowed: "an absolute path", help, check }
}

fn milliseconds(value: &str) -> Result<(), String> {
    value.parse::<u32>().map(drop).map_err(|_| "not a number of milliseconds".to_owned())
}
