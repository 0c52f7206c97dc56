//! What ADD answers, in the shape of each version.

use std::net::IpAddr;

use netmodel::Prefix;
use serde_json::{Map, Value, json};

use crate::version::Version;

/// An interface that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its hardware address.
    pub mac: String,
    /// The largest packet that passes it.
    pub mtu: u32,
    /// The path of the network namespace that it is in; none on the host.
    pub sandbox: Option<String>,
}

/// An address that an interface has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub address: IpAddr,
    /// The length of its network.
    pub length: u8,
    /// The way out of the network, if there is one.
    pub gateway: Option<IpAddr>,
    /// The place of its interface in the answer.
    pub interface: usize,
}

/// A route in the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Where to.
    pub to: Prefix,
    /// By whom; by the interface itself if none.
    pub by: Option<IpAddr>,
}

/// Where the pod finds names, as the configuration of the network says. Kubernetes has its own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dns {
    /// Servers.
    pub nameservers: Vec<String>,
    /// Domains in which names are looked for.
    pub search: Vec<String>,
}

/// The result of ADD.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// What was made.
    pub interfaces: Vec<Interface>,
    /// Their addresses.
    pub addresses: Vec<Address>,
    /// The routes.
    pub routes: Vec<Route>,
    /// Names.
    pub dns: Dns,
}

impl Answer {
    /// As the runtime reads it.
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
        let mut object = json!({"dst": self.to.to_string()});
        if let Some(by) = self.by {
            object["gw"] = json!(by);
        }
        object
    }
}
