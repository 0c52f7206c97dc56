//! A pod's interface: a veth pair, of which one end is a port of br-int and the other is in the pod.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cni::Route;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo,
    LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netmodel::{Family, InterfaceAddress, Mac};
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};

use super::netlink_socket::NetlinkSocket;
use super::route::address_family;
use super::{namespace, offload, pod_filter};

/// Index of the loopback device in every network namespace.
const LOOPBACK: u32 = 1;

/// Desired interface of a pod.
#[derive(Debug, Clone)]
pub struct PodLink {
    /// Name of the host end.
    pub host: String,
    /// Alias of the host end, shown by `ip link`.
    pub alias: String,
    /// Name of the pod's end.
    pub inside: String,
    /// MAC of the pod's end.
    pub mac: Mac,
    /// MTU of both ends, in bytes.
    pub mtu: u32,
    /// Addresses of the pod's end.
    pub addresses: Vec<InterfaceAddress>,
    /// In the pod's main table.
    pub routes: Vec<Route>,
    /// br-int has the userspace datapath: the pod computes all checksums itself, and its frames are dropped before the host's
    /// stack, which would receive them as well.
    pub userspace: bool,
}

/// Why the interfaces of a pod could not be configured or read.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The file is gone, or is not a network namespace.
    #[error("cannot enter the network namespace {}", path.display())]
    Namespace {
        /// As the runtime named it.
        path: PathBuf,
        /// From the system call.
        source: io::Error,
    },
    /// A netlink request, an nftables command or a sysctl failed.
    #[error("cannot configure {object}")]
    Object {
        /// An interface, address, route or setting.
        object: String,
        /// From the kernel, or from nftables.
        source: io::Error,
    },
}

/// Adds the object to an error of the system.
fn failed(object: impl Into<String>) -> impl FnOnce(io::Error) -> LinkError {
    let object = object.into();
    move |source| LinkError::Object { object, source }
}

fn namespace_error(path: &Path) -> impl Fn(io::Error) -> LinkError {
    move |source| LinkError::Namespace { path: path.to_owned(), source }
}

impl PodLink {
    /// Creates and configures both ends. If a step fails, nothing stays. Blocks.
    pub fn create(&self, namespace: &Path) -> Result<(), LinkError> {
        let file = open(namespace).map_err(namespace_error(namespace))?;
        let mut host = NetlinkSocket::route().map_err(failed("a netlink socket"))?;
        let pair = || self.pair(&file);
        match host.request(pair(), NLM_F_CREATE | NLM_F_EXCL) {
            // Left by an earlier attempt for the same sandbox: the name is unique.
            Err(error)
                if error.kind() == ErrorKind::AlreadyExists && remove(&mut host, &self.host).unwrap_or(false) =>
            {
                host.request(pair(), NLM_F_CREATE | NLM_F_EXCL)
            }
            other => other,
        }
        .map_err(failed(format!("the interface pair {} and {}", self.host, self.inside)))?;
        let made = self.configure_host_end(&mut host).and_then(|()| {
            namespace::within(namespace, || self.configure_pod_end()).map_err(namespace_error(namespace))?
        });
        if made.is_err() {
            // Removes both ends.
            let _ = remove(&mut host, &self.host);
        }
        made
    }

    fn pair(&self, namespace: &File) -> RouteNetlinkMessage {
        let mut peer = link_named(&self.inside);
        peer.attributes.extend([
            LinkAttribute::Address(self.mac.bytes().to_vec()),
            LinkAttribute::Mtu(self.mtu),
            LinkAttribute::NetNsFd(namespace.as_raw_fd()),
        ]);
        let mut pair = without_arp(&self.host);
        pair.attributes.extend([
            LinkAttribute::Mtu(self.mtu),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
            ]),
        ]);
        RouteNetlinkMessage::NewLink(pair)
    }

    /// The host end is set up last, when the pod's frames can no longer reach the host's stack.
    fn configure_host_end(&self, host: &mut NetlinkSocket) -> Result<(), LinkError> {
        limit_host_stack(host, &self.host);
        if self.userspace {
            pod_filter::protect(&self.host)
                .map_err(failed(format!("an nftables chain (family netdev) that drops what {} receives", self.host)))?;
        }
        let mut link = link_named(&self.host);
        link.attributes.push(LinkAttribute::IfAlias(self.alias.clone()));
        host.request(RouteNetlinkMessage::SetLink(up(link)), 0).map_err(failed(format!("interface {}", self.host)))
    }

    /// Runs in the pod's network namespace.
    fn configure_pod_end(&self) -> Result<(), LinkError> {
        let mut inside = NetlinkSocket::route().map_err(failed("a netlink socket"))?;
        let mut loopback = LinkMessage::default();
        loopback.header.index = LOOPBACK;
        inside.request(RouteNetlinkMessage::SetLink(up(loopback)), 0).map_err(failed("interface lo"))?;
        let name = &self.inside;
        if self.userspace {
            offload::disable_transmit_offload(name).map_err(failed(format!("transmit offload of {name}")))?;
        }
        if self.addresses.iter().any(|address| address.address().is_ipv6()) {
            enable_ipv6(name).map_err(failed(format!("IPv6 on {name}")))?;
        }
        ignore_router_advertisements(name).map_err(failed(format!("router advertisements of {name}")))?;
        let index = index_of(&mut inside, name).map_err(failed(format!("interface {name}")))?;
        for address in &self.addresses {
            let message = RouteNetlinkMessage::NewAddress(address_message(*address, index));
            inside
                .request(message, NLM_F_CREATE | NLM_F_REPLACE)
                .map_err(failed(format!("address {address} on {name}")))?;
        }
        let mut link = LinkMessage::default();
        link.header.index = index;
        inside.request(RouteNetlinkMessage::SetLink(up(link)), 0).map_err(failed(format!("interface {name}")))?;
        for route in &self.routes {
            let Route { destination, via } = route;
            let hop = via.map(|via| format!(" via {via}")).unwrap_or_default();
            inside
                .request(RouteNetlinkMessage::NewRoute(route_message(*route, index)), NLM_F_CREATE | NLM_F_REPLACE)
                .map_err(failed(format!("route to {destination}{hop}")))?;
        }
        Ok(())
    }

    /// Returns the differences from the desired state. Blocks.
    pub fn check(&self, namespace: &Path) -> Result<Vec<String>, LinkError> {
        let mut damage = Vec::new();
        let mut host = NetlinkSocket::route().map_err(failed("a netlink socket"))?;
        match find_link(&mut host, &self.host).map_err(failed(format!("interface {}", self.host)))? {
            None => damage.push(format!("interface {} of the host is gone", self.host)),
            Some(link) if !is_up(&link) => damage.push(format!("interface {} of the host is down", self.host)),
            Some(_) => {}
        }
        if self.userspace {
            let chains = pod_filter::chains().map_err(failed("the nftables chains of pods"))?;
            if !chains.iter().any(|chain| chain.name == self.host && chain.intact) {
                let table = pod_filter::TABLE;
                damage.push(format!(
                    "no chain of nftables table netdev {table} keeps frames of {} from the host",
                    self.host
                ));
            }
        }
        let found = namespace::within(namespace, || self.check_inside()).map_err(namespace_error(namespace))?;
        damage.extend(found?);
        Ok(damage)
    }

    fn check_inside(&self) -> Result<Vec<String>, LinkError> {
        let mut inside = NetlinkSocket::route().map_err(failed("a netlink socket"))?;
        let name = &self.inside;
        let Some(link) = find_link(&mut inside, name).map_err(failed(format!("interface {name}")))? else {
            return Ok(vec![format!("interface {name} of the pod is gone")]);
        };
        let mut damage = Vec::new();
        if !is_up(&link) {
            damage.push(format!("interface {name} of the pod is down"));
        }
        if !link.attributes.contains(&LinkAttribute::Address(self.mac.bytes().to_vec())) {
            damage.push(format!("interface {name} of the pod does not have the MAC {}", self.mac));
        }
        let addresses = inside
            .query(RouteNetlinkMessage::GetAddress(AddressMessage::default()), NLM_F_DUMP)
            .map_err(failed("the pod's addresses"))?;
        for address in &self.addresses {
            let has = |message: &RouteNetlinkMessage| match message {
                RouteNetlinkMessage::NewAddress(message) => {
                    message.header.index == link.header.index
                        && message.header.prefix_len == address.length()
                        && message.attributes.contains(&AddressAttribute::Address(address.address()))
                }
                _ => false,
            };
            if !addresses.iter().any(has) {
                damage.push(format!("interface {name} of the pod does not have the address {address}"));
            }
        }
        let routes = inside
            .query(RouteNetlinkMessage::GetRoute(RouteMessage::default()), NLM_F_DUMP)
            .map_err(failed("the pod's routes"))?;
        for Route { destination, via } in &self.routes {
            let has = |message: &RouteNetlinkMessage| match message {
                RouteNetlinkMessage::NewRoute(message) => {
                    let network = RouteAttribute::Destination(RouteAddress::from(destination.network()));
                    let same_network = destination.length() == 0 || message.attributes.contains(&network);
                    let same_hop =
                        via.is_none_or(|via| message.attributes.contains(&RouteAttribute::Gateway(via.into())));
                    let same_length = message.header.destination_prefix_length == destination.length();
                    let same_family = message.header.address_family == address_family(destination.family());
                    same_network && same_hop && same_length && same_family
                }
                _ => false,
            };
            if !routes.iter().any(has) {
                damage.push(format!("the pod's route to {destination} is gone"));
            }
        }
        Ok(damage)
    }
}

/// Opens a network namespace; fails if the file is not one, or is the host's.
fn open(namespace: &Path) -> io::Result<File> {
    let file = File::open(namespace)?;
    if fstatfs(&file)?.filesystem_type() != NSFS_MAGIC {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a network namespace"));
    }
    // A pod's addresses and default route would replace the host's.
    let (found, own) = (file.metadata()?, std::fs::metadata("/proc/thread-self/ns/net")?);
    if (found.dev(), found.ino()) == (own.dev(), own.ino()) {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is the host's network namespace"));
    }
    Ok(file)
}

/// True if a path is an existing network namespace.
pub fn is_namespace(path: &Path) -> bool {
    open(path).is_ok()
}

/// Removes a veth pair by its host end; false if there is none.
pub fn remove_pair(host: &str) -> io::Result<bool> {
    remove(&mut NetlinkSocket::route()?, host)
}

/// True if the host has an interface of this name.
pub fn exists(host: &str) -> io::Result<bool> {
    Ok(find_link(&mut NetlinkSocket::route()?, host)?.is_some())
}

/// Isolates an existing host end, of a pod that another version or OVN-Kubernetes (Go) connected; false if it is gone.
pub fn isolate(host: &str) -> io::Result<bool> {
    let mut socket = NetlinkSocket::route()?;
    if find_link(&mut socket, host)?.is_none() {
        return Ok(false);
    }
    pod_filter::protect(host)?;
    if let Err(error) = socket.request(RouteNetlinkMessage::SetLink(without_arp(host)), 0) {
        tracing::debug!(interface = host, %error, "cannot disable ARP; the nftables chain drops it anyway");
    }
    limit_host_stack(&mut socket, host);
    Ok(true)
}

/// Names and aliases of all veth interfaces of the host.
pub fn pairs() -> io::Result<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    let all = RouteNetlinkMessage::GetLink(LinkMessage::default());
    NetlinkSocket::route()?.query_each(all, NLM_F_DUMP, |link| pairs.extend(pair_of(&link)))?;
    Ok(pairs)
}

fn pair_of(message: &RouteNetlinkMessage) -> Option<(String, String)> {
    let RouteNetlinkMessage::NewLink(link) = message else { return None };
    let (mut name, mut alias, mut veth) = (None, String::new(), false);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(found) => name = Some(found.clone()),
            LinkAttribute::IfAlias(found) => alias.clone_from(found),
            LinkAttribute::LinkInfo(infos) => veth |= infos.contains(&LinkInfo::Kind(InfoKind::Veth)),
            _ => {}
        }
    }
    name.filter(|_| veth).map(|name| (name, alias))
}

fn remove(host: &mut NetlinkSocket, name: &str) -> io::Result<bool> {
    let removed = match host.request(RouteNetlinkMessage::DelLink(link_named(name)), 0) {
        Ok(()) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(error),
    };
    // Last, so that the pod's frames never reach the host. Before Linux 6.16 the kernel removes it with the device.
    if removed.is_ok()
        && let Err(error) = pod_filter::unprotect(name)
    {
        tracing::debug!(interface = name, %error, "cannot remove the nftables chain; the next resync removes it");
    }
    removed
}

/// Disables IPv6 and enables reverse-path filtering on the host end. This matters only while the kernel sees the frames: before the
/// switch has the port, or after another client deleted the nftables chain.
fn limit_host_stack(host: &mut NetlinkSocket, name: &str) {
    let mut link = link_named(name);
    let mode = vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)];
    link.attributes.push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(mode)]));
    if let Err(error) = host.request(RouteNetlinkMessage::SetLink(link), 0) {
        // Fails on a host without IPv6, where it is not needed.
        tracing::debug!(interface = name, %error, "cannot disable IPv6 address generation of the host end");
    }
    // No route leads to the host end, so rp_filter drops all IPv4 packets.
    for (file, value) in [("ipv6", "disable_ipv6"), ("ipv4", "rp_filter")]
        .map(|(family, setting)| (format!("/proc/sys/net/{family}/conf/{name}/{setting}"), "1"))
    {
        match std::fs::write(&file, value) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::debug!(file, %error, "cannot write a sysctl of the host end");
            }
            _ => {}
        }
    }
}

/// A host end that neither sends nor answers ARP.
fn without_arp(name: &str) -> LinkMessage {
    let mut message = link_named(name);
    message.header.flags |= LinkFlags::Noarp;
    message.header.change_mask |= LinkFlags::Noarp;
    message
}

/// `ENODEV` has no `ErrorKind`.
fn is_absent(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::errno::Errno::ENODEV as i32)
}

fn find_link(socket: &mut NetlinkSocket, name: &str) -> io::Result<Option<LinkMessage>> {
    let responses = match socket.query(RouteNetlinkMessage::GetLink(link_named(name)), 0) {
        Ok(responses) => responses,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(responses.into_iter().find_map(|response| match response {
        RouteNetlinkMessage::NewLink(link) => Some(link),
        _ => None,
    }))
}

fn index_of(socket: &mut NetlinkSocket, name: &str) -> io::Result<u32> {
    let link = find_link(socket, name)?.ok_or_else(|| io::Error::from(ErrorKind::NotFound))?;
    Ok(link.header.index)
}

fn link_named(name: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    message
}

fn up(mut message: LinkMessage) -> LinkMessage {
    message.header.flags |= LinkFlags::Up;
    message.header.change_mask |= LinkFlags::Up;
    message
}

fn is_up(link: &LinkMessage) -> bool {
    link.header.flags.contains(LinkFlags::Up)
}

fn address_message(address: InterfaceAddress, index: u32) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = address_family(Family::of(address.address()));
    message.header.prefix_len = address.length();
    message.header.index = index;
    message.attributes.push(AddressAttribute::Local(address.address()));
    message.attributes.push(AddressAttribute::Address(address.address()));
    match (address.address(), address.network().last()) {
        (IpAddr::V4(_), IpAddr::V4(last)) if address.length() < 31 => {
            message.attributes.push(AddressAttribute::Broadcast(last));
        }
        // OVN allocated it to this pod only: no duplicate address detection, which would delay the pod.
        (IpAddr::V6(_), _) => message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad)),
        _ => {}
    }
    message
}

fn route_message(Route { destination, via }: Route, index: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = address_family(destination.family());
    message.header.destination_prefix_length = destination.length();
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.kind = RouteType::Unicast;
    message.header.scope = if via.is_some() || destination.is_ipv6() { RouteScope::Universe } else { RouteScope::Link };
    if destination.length() > 0 {
        message.attributes.push(RouteAttribute::Destination(destination.network().into()));
    }
    if let Some(via) = via {
        message.attributes.push(RouteAttribute::Gateway(via.into()));
    }
    message.attributes.push(RouteAttribute::Oif(index));
    message
}

/// Router advertisements could come from another pod of the node, and OVN does not block them.
fn ignore_router_advertisements(interface: &str) -> io::Result<()> {
    match std::fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/accept_ra"), "0") {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Some runtimes create namespaces with IPv6 disabled.
fn enable_ipv6(interface: &str) -> io::Result<()> {
    let file = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    match std::fs::read_to_string(&file) {
        Ok(text) if text.trim() == "0" => Ok(()),
        Ok(_) => std::fs::write(&file, "0"),
        Err(error) => Err(error),
    }
}
