//! The result of ADD, in the form of each CNI version.

use std::net::IpAddr;

use netmodel::Prefix;
use serde_json::{Map, Value, json};

use crate::version::Version;

/// An interface that ADD created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Name in its network namespace.
    pub name: String,
    /// MAC, or empty if the runtime need not know it.
    pub mac: String,
    /// In bytes; sent from CNI 1.1.0 on.
    pub mtu: u32,
    /// Path of its network namespace; None on the host.
    pub sandbox: Option<String>,
}

/// An entry of `ips` in the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// Without the prefix length.
    pub address: IpAddr,
    /// Prefix length of its network.
    pub length: u8,
    /// Default gateway, if there is one.
    pub gateway: Option<IpAddr>,
    /// Index of its interface in [`AddResult::interfaces`].
    pub interface: usize,
}

/// An entry of `routes` in the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// `0.0.0.0/0` and `::/0` are the default routes.
    pub destination: Prefix,
    /// Next hop; None if the destination is on the link.
    pub via: Option<IpAddr>,
}

/// Name servers of the network configuration. kubelet does not use them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dns {
    /// Addresses of the servers.
    pub nameservers: Vec<String>,
    /// Domains that short names are tried in, in this order.
    pub search: Vec<String>,
}

/// What ADD returns to the runtime, which passes it on to CHECK and DEL.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddResult {
    /// The host's end and the pod's.
    pub interfaces: Vec<Interface>,
    /// One of each family at most; of the pod's end.
    pub addresses: Vec<Address>,
    /// Routes in the pod.
    pub routes: Vec<Route>,
    /// Copied from the configuration.
    pub dns: Dns,
}

impl AddResult {
    /// The JSON that the runtime reads.
    pub fn to_json(&self, version: Version) -> String {
        let interfaces: Vec<Value> = self.interfaces.iter().map(|interface| interface.to_json(version)).collect();
        let addresses: Vec<Value> = self.addresses.iter().map(|address| address.to_json(version)).collect();
        let routes: Vec<Value> = self.routes.iter().map(|route| route.to_json()).collect();
        let mut dns = Map::new();
        for (key, values) in [("nameservers", &self.dns.nameservers), ("search", &self.dns.search)] {
            if !values.is_empty() {
                dns.insert(key.to_owned(), json!(values));
            }
        }
        let (ips, version) = (addresses, version.name());
        json!({"cniVersion": version, "interfaces": interfaces, "ips": ips, "routes": routes, "dns": dns}).to_string()
    }
}

impl Interface {
    fn to_json(&self, version: Version) -> Value {
        let mut object = json!({"name": self.name, "mac": self.mac});
        if version >= Version::V1_1_0 {
            object["mtu"] = json!(self.mtu);
        }
        if let Some(sandbox) = &self.sandbox {
            object["sandbox"] = json!(sandbox);
        }
        object
    }
}

impl Address {
    fn to_json(self, version: Version) -> Value {
        let Self { address, length, gateway, interface } = self;
        let mut object = json!({"address": format!("{address}/{length}"), "interface": interface});
        if let Some(gateway) = gateway {
            object["gateway"] = json!(gateway);
        }
        if version < Version::V1_0_0 {
            object["version"] = json!(if address.is_ipv6() { "6" } else { "4" });
        }
        object
    }
}

impl Route {
    fn to_json(self) -> Value {
        let mut object = json!({"dst": self.destination.to_string()});
        if let Some(via) = self.via {
            object["gw"] = json!(via);
        }
        object
    }
}
