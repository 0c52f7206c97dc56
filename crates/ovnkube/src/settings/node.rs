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
    allowed: "an IP address of the host; empty: the node's address on its external bridge",
    help: "Local address of the tunnels to other nodes",
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
    help: "UDP port of the tunnels to other nodes",
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
    allowed: "a number of milliseconds; 0 disables it; empty: by the number of nodes (2 s to 10 s)",
    help: "ovn-controller's southbound inactivity probe: it leaves a server that does not reply to two probes in a row",
    check: |value| if value.is_empty() { Ok(()) } else { milliseconds(value) },
};

pub(crate) const RELAY_ADDRESS: Setting = Setting {
    section: "ovnsouth",
    key: "relay-address",
    flag: "sb-relay-address",
    default: "",
    placeholder: "REMOTES",
    allowed: "tcp:HOST:PORT, ssl:HOST:PORT, or several separated by commas; empty: [ovnsouth] address",
    help: "Relays of the southbound database that ovn-controller uses instead of its members",
    check: |value| match value {
        "" => Ok(()),
        _ => Remote::parse_list(value).map(drop).map_err(|error| error.to_string()),
    },
};

pub(crate) const CERTIFICATE_DIR: Setting = Setting {
    section: "ovnsouth",
    key: "certificate-dir",
    flag: "sb-certificate-dir",
    default: "",
    placeholder: "DIRECTORY",
    allowed: "an absolute path; empty: client-privkey and client-cert are used as they are",
    help: "Directory of the node's own certificate, which its agent requests and renews",
    check: empty_or_absolute,
};

pub(crate) const NODE_AUTHORITIES: Setting = Setting {
    section: "ovnsouth",
    key: "node-authorities",
    flag: "sb-node-authorities",
    default: "",
    placeholder: "FILE",
    allowed: "an absolute path, in whose directory the file `revoked` lists revoked certificates; empty: renewed by time only",
    help: "CAs of nodes, the one that signs first: the agent renews its certificate when that changes",
    check: empty_or_absolute,
};

pub(crate) const WAIT_BEFORE_CLEAR: Setting = Setting {
    section: "default",
    key: "ofctrl-wait-before-clear",
    flag: "ofctrl-wait-before-clear",
    default: "8000",
    placeholder: "MILLISECONDS",
    allowed: "a number of milliseconds",
    help: "How long ovn-controller keeps the flows of its predecessor after a start",
    check: milliseconds,
};

pub(crate) const MONITOR_ALL: Setting = Setting {
    section: "default",
    key: "monitor-all",
    flag: "monitor-all",
    default: "true",
    placeholder: "BOOL",
    allowed: "true, false",
    help: "Whether ovn-controller monitors the whole southbound database, which reduces the load of the database",
    check: truth,
};

pub(crate) const SWITCH_ADDRESS: Setting = Setting {
    section: "openvswitch",
    key: "address",
    flag: "ovs-address",
    default: "unix:/var/run/openvswitch/db.sock",
    placeholder: "REMOTE",
    allowed: "unix:PATH or tcp:HOST:PORT",
    help: "Address of the host's Open vSwitch database",
    check: |value| value.parse::<Remote>().map(drop).map_err(|error| error.to_string()),
};

pub(crate) const GATEWAY_MODE: Setting = Setting {
    section: "gateway",
    key: "mode",
    flag: "gateway-mode",
    default: "shared",
    placeholder: "MODE",
    allowed: "shared (through OVN's gateway router, which shares the host's address), local (through the host's routes)",
    help: "How pods reach external networks",
    check: |value| match value.parse::<netmodel::GatewayMode>() {
        Ok(_) => Ok(()),
        Err(_) => Err("neither shared nor local".to_owned()),
    },
};

pub(crate) const GATEWAY_INTERFACE: Setting = Setting {
    section: "gateway",
    key: "interface",
    flag: "gateway-interface",
    default: "",
    placeholder: "NAME",
    allowed: "an OVS bridge, or a device from which a bridge is created; empty: br-ex if it exists, else the device of the default route",
    help: "Bridge or device of the external network",
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
    allowed: "addresses separated by commas, at most one per family; empty: those of the default routes",
    help: "Next hops of the external network",
    check: |value| match value {
        "" => Ok(()),
        _ => list::<IpAddr>(value).map(drop),
    },
};

pub(crate) const CNI_CONF_DIR: Setting = directory(
    "conf-dir",
    "cni-conf-dir",
    "/etc/cni/net.d",
    "Directory of the container runtime's network configurations",
);
pub(crate) const CNI_BIN_DIR: Setting =
    directory("bin-dir", "cni-bin-dir", "/opt/cni/bin", "Directory of the container runtime's plugins");
pub(crate) const CNI_SERVER_DIR: Setting =
    directory("server-dir", "cni-server-dir", "/var/run/ovn-kubernetes/cni", "Directory of the CNI server's socket");
pub(crate) const CNI_SHIM: Setting = Setting {
    section: "cni",
    key: "shim",
    flag: "cni-shim",
    default: "",
    placeholder: "FILE",
    allowed: "a path; empty: not installed by the agent",
    help: "CNI plugin to install on the host",
    check: |_| Ok(()),
};
pub(crate) const CNI_VERSION: Setting = Setting {
    section: "cni",
    key: "version",
    flag: "cni-version",
    default: "1.0.0",
    placeholder: "VERSION",
    allowed: "0.3.1, 0.4.0, 1.0.0, 1.1.0",
    help: "CNI version in the installed configuration; with 1.1.0 (containerd 2, CRI-O 1.31) the runtime uses STATUS and GC",
    check: |value| cni::Version::parse(value).map(drop).ok_or_else(|| "not a supported CNI version".to_owned()),
};
pub(crate) const CNI_ADD_TIMEOUT: Setting = Setting {
    section: "cni",
    key: "add-timeout",
    flag: "cni-add-timeout",
    default: "60",
    placeholder: "SECONDS",
    allowed: "a number of seconds from 0.01 to 3600, such as 60",
    help: "Seconds that an ADD waits for the addresses and flows of a pod; then it fails, and the runtime retries",
    check: |value| parse_seconds(value).map(drop),
};

const fn directory(key: &'static str, flag: &'static str, default: &'static str, help: &'static str) -> Setting {
    let check = |value: &str| match value.starts_with('/') {
        true => Ok(()),
        false => Err("not an absolute path".to_owned()),
    };
    Setting { section: "cni", key, flag, default, placeholder: "DIRECTORY", allowed: "an absolute path", help, check }
}

fn empty_or_absolute(value: &str) -> Result<(), String> {
    match value.is_empty() || value.starts_with('/') {
        true => Ok(()),
        false => Err("not an absolute path".to_owned()),
    }
}

fn milliseconds(value: &str) -> Result<(), String> {
    value.parse::<u32>().map(drop).map_err(|_| "not a number of milliseconds".to_owned())
}
