//! A pod without kubelet: a network namespace on a node with one interface on br-int, bound to a logical port.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use netmodel::{InterfaceAddress, Mac};

use crate::error::{Error, Result};
use crate::machine::Machine;

/// A network namespace on a node that acts as a pod.
#[derive(Debug, Clone)]
pub struct Pod {
    /// Also the name of its interface on the node.
    pub name: String,
    node: Machine,
}

/// How a pod is connected: its veth pair and its port on br-int.
#[derive(Debug, Clone)]
pub struct PodInterface<'a> {
    /// The logical switch port (`iface-id`).
    pub port: &'a str,
    /// MAC of the pod's `eth0`.
    pub mac: Mac,
    /// With prefix lengths.
    pub addresses: &'a [InterfaceAddress],
    /// Default gateways, one per address family.
    pub gateways: &'a [IpAddr],
    /// MTU of both ends of the veth pair.
    pub mtu: u16,
    /// The `iface-id-ver` that the logical port requires, if any: the pod's UID.
    pub version: Option<&'a str>,
}

impl Pod {
    /// A pod whose namespace exists and is connected by the caller.
    pub fn existing(node: Machine, name: &str) -> Self {
        Self { name: name.to_owned(), node }
    }

    /// Creates the namespace, the veth pair and the port on br-int.
    pub fn create(node: Machine, name: &str, interface: &PodInterface<'_>) -> Result<Self> {
        let pod = Self::prepare(node, name, interface)?;
        pod.plug(interface)?;
        Ok(pod)
    }

    /// Creates everything but the port on br-int: a server that starts listening now misses no packet.
    pub fn prepare(node: Machine, name: &str, interface: &PodInterface<'_>) -> Result<Self> {
        if name.len() > 15 {
            return Err(Error::Invalid(format!("{name:?} is too long for an interface; use at most 15 characters")));
        }
        let PodInterface { mac, mtu, .. } = interface;
        node.run(&["ip", "netns", "add", name])?;
        node.run_with_input(
            &["ip", "-batch", "-"],
            &format!("link add {name} mtu {mtu} type veth peer name eth0 address {mac} mtu {mtu} netns {name}\nlink set {name} up\n"),
        )?;
        let pod = Self { name: name.to_owned(), node };
        let mut batch = String::from("link set lo up\nlink set eth0 up\n");
        for address in interface.addresses {
            batch.push_str(&crate::underlay::address_line(*address, "eth0"));
        }
        for gateway in interface.gateways {
            batch.push_str(&format!("route add default via {gateway}\n"));
        }
        pod.node.run_with_input(&["ip", "-n", name, "-batch", "-"], &batch)?;
        // The userspace datapath needs complete frames: no checksum or segmentation offload.
        pod.run(&["ethtool", "-K", "eth0", "tx", "off"])?;
        Ok(pod)
    }

    /// Adds the port to br-int, bound to its logical port.
    pub fn plug(&self, interface: &PodInterface<'_>) -> Result<()> {
        let name = &self.name;
        self.node.run(&[
            "ovs-vsctl",
            "--timeout=60",
            "add-port",
            "br-int",
            name,
            "--",
            "set",
            "interface",
            name,
            &format!("external_ids:iface-id={}", interface.port),
            &format!("external_ids:iface-id-ver={}", interface.version.unwrap_or("none")),
        ])?;
        Ok(())
    }

    /// Removes the port, the veth pair and the namespace.
    pub fn remove(&self) -> Result<()> {
        self.node.run(&["ovs-vsctl", "--timeout=60", "--if-exists", "del-port", "br-int", &self.name])?;
        self.node.run(&["ip", "link", "del", &self.name])?;
        self.node.run(&["ip", "netns", "del", &self.name])?;
        Ok(())
    }

    fn netns_args<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        let mut all = vec!["ip", "netns", "exec", self.name.as_str()];
        all.extend_from_slice(args);
        all
    }

    /// Runs a command in the pod's network namespace and returns its output.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        self.node.run(&self.netns_args(args))
    }

    /// Runs a command in the pod's network namespace, whatever its exit status.
    pub fn output(&self, args: &[&str]) -> Result<std::process::Output> {
        self.node.output(&self.netns_args(args))
    }

    /// Runs a closure in the pod's network namespace: sockets that it opens belong to it.
    pub fn with_network<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        // Through the machine's first process: its `/run` is not the host's.
        let path = format!("/proc/{}/root/run/netns/{}", self.node.init().pid, self.name);
        crate::namespace::enter_network(Path::new(&path), work)
    }

    /// Opens a TCP connection from the pod's network namespace.
    pub fn connect(&self, target: SocketAddr, limit: Duration) -> Result<TcpStream> {
        self.with_network(|| TcpStream::connect_timeout(&target, limit))?
            .map_err(Error::io(format!("cannot connect from pod {} to {target}", self.name)))
    }

    /// Starts to send these raw frames in turn from `eth0`, at a rate per second.
    pub fn flood(&self, frames: &[Vec<u8>], rate: u32) -> Result<crate::Flood> {
        crate::flood::Flood::start(&self.node, &self.name, frames, rate)
    }

    /// Listens on a TCP port of all addresses of the pod.
    pub fn listen(&self, port: u16) -> Result<TcpListener> {
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        self.with_network(|| TcpListener::bind(any))?
            .map_err(Error::io(format!("cannot listen on port {port} of pod {}", self.name)))
    }
}
