//! A hand-made pod: a namespace on a node with one interface on br-int, bound to a logical port by its name.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use netmodel::{InterfaceAddress, Mac};

use crate::error::{Error, Result};
use crate::machine::Machine;

/// A pod that a test made by hand.
#[derive(Debug, Clone)]
pub struct Pod {
    /// Its name, also that of its interface on the node and of its logical port.
    pub name: String,
    node: Machine,
}

/// How a hand-made pod is connected.
#[derive(Debug, Clone)]
pub struct Wiring<'a> {
    /// The logical switch port.
    pub port: &'a str,
    /// Its MAC.
    pub mac: Mac,
    /// Its addresses.
    pub addresses: &'a [InterfaceAddress],
    /// Its default routers.
    pub gateways: &'a [IpAddr],
    /// Its MTU.
    pub mtu: u16,
    /// The `iface-id-ver` that the logical port asks for, if it does: the pod's UID.
    pub version: Option<&'a str>,
}

impl Pod {
    /// One whose namespace of this name somebody else has made, and wires.
    pub fn existing(node: Machine, name: &str) -> Self {
        Self { name: name.to_owned(), node }
    }

    /// Makes the namespace, the interface pair and the port on br-int.
    pub fn create(node: Machine, name: &str, wiring: &Wiring<'_>) -> Result<Self> {
        let pod = Self::prepare(node, name, wiring)?;
        pod.plug(wiring)?;
        Ok(pod)
    }

    /// Makes all but the port on br-int: who listens in the pod from now on misses nothing that ever reaches it.
    pub fn prepare(node: Machine, name: &str, wiring: &Wiring<'_>) -> Result<Self> {
        if name.len() > 15 {
            return Err(Error::Invalid(format!("{name:?} is too long for an interface; use at most 15 characters")));
        }
        let Wiring { mac, mtu, .. } = wiring;
        node.run(&["ip", "netns", "add", name])?;
        node.run_with_input(
            &["ip", "-batch", "-"],
            &format!("link add {name} mtu {mtu} type veth peer name eth0 address {mac} mtu {mtu} netns {name}\nlink set {name} up\n"),
        )?;
        let pod = Self { name: name.to_owned(), node };
        let mut batch = String::from("link set lo up\nlink set eth0 up\n");
        for address in wiring.addresses {
            batch.push_str(&crate::underlay::address_line(*address, "eth0"));
        }
        for gateway in wiring.gateways {
            batch.push_str(&format!("route add default via {gateway}\n"));
        }
        pod.node.run_with_input(&["ip", "-n", name, "-batch", "-"], &batch)?;
        // The userspace datapath wants whole frames from what transmits towards it.
        pod.run(&["ethtool", "-K", "eth0", "tx", "off"])?;
        Ok(pod)
    }

    /// Makes the port on br-int, which asks for its logical port.
    pub fn plug(&self, wiring: &Wiring<'_>) -> Result<()> {
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
            &format!("external_ids:iface-id={}", wiring.port),
            &format!("external_ids:iface-id-ver={}", wiring.version.unwrap_or("none")),
        ])?;
        Ok(())
    }

    /// Takes the pod away again: the port, the interface pair and the namespace.
    pub fn remove(&self) -> Result<()> {
        self.node.run(&["ovs-vsctl", "--timeout=60", "--if-exists", "del-port", "br-int", &self.name])?;
        self.node.run(&["ip", "link", "del", &self.name])?;
        self.node.run(&["ip", "netns", "del", &self.name])?;
        Ok(())
    }

    fn words<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        let mut all = vec!["ip", "netns", "exec", self.name.as_str()];
        all.extend_from_slice(words);
        all
    }

    /// Runs a command in the pod's network.
    pub fn run(&self, words: &[&str]) -> Result<String> {
        self.node.run(&self.words(words))
    }

    /// Runs a command in the pod's network, whatever its exit status.
    pub fn output(&self, words: &[&str]) -> Result<std::process::Output> {
        self.node.output(&self.words(words))
    }

    /// Runs a piece of this program with the pod's network: sockets that it opens live there.
    pub fn with_network<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        // Seen through the machine's first process, whose `/run` is not the host's.
        let path = format!("/proc/{}/root/run/netns/{}", self.node.init().pid, self.name);
        crate::namespace::enter_network(Path::new(&path), work)
    }

    /// Opens a TCP connection from the pod.
    pub fn connect(&self, target: SocketAddr, limit: Duration) -> Result<TcpStream> {
        self.with_network(|| TcpStream::connect_timeout(&target, limit))?
            .map_err(Error::io(format!("cannot connect from pod {} to {target}", self.name)))
    }

    /// Listens on a TCP port of the pod.
    pub fn listen(&self, port: u16) -> Result<TcpListener> {
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        self.with_network(|| TcpListener::bind(any))?
            .map_err(Error::io(format!("cannot listen on port {port} of pod {}", self.name)))
    }
}
