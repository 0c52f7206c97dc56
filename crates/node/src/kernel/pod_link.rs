//! A pod's interface: a pair of which one end is a port of the switch and the other is the pod's own.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use cni::Route;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo,
    LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netmodel::{InterfaceAddress, Mac};
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};

use super::conversation::Conversation;
use super::{namespace, offload, pod_filter};

/// The loopback device is the first of every network.
const LOOPBACK: u32 = 1;

/// A pod's interface, as it shall be.
#[derive(Debug, Clone)]
pub struct PodLink {
    /// The end on the host.
    pub host: String,
    /// What people read beside it (`ip link`).
    pub alias: String,
    /// The pod's own end.
    pub inside: String,
    /// Its hardware address.
    pub mac: Mac,
    /// The largest packet that passes.
    pub mtu: u32,
    /// Its addresses.
    pub addresses: Vec<InterfaceAddress>,
    /// The pod's routes.
    pub routes: Vec<Route>,
    /// Whether the switch forwards in userspace: then the pod computes all checksums itself, and its frames are kept from the
    /// host's stack, which would receive them as well.
    pub userspace: bool,
}

/// What did not work.
#[derive(Debug)]
pub struct LinkError {
    /// What was tried.
    pub what: String,
    /// What the kernel said.
    pub error: io::Error,
    /// Whether the namespace itself is the problem: it is gone, or is none.
    pub namespace: bool,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.error)
    }
}

impl std::error::Error for LinkError {}

/// Adds to an error of the system what was tried.
fn trying(what: impl Into<String>) -> impl FnOnce(io::Error) -> LinkError {
    let what = what.into();
    move |error| LinkError { what, error, namespace: false }
}

fn of_namespace(path: &Path) -> impl Fn(io::Error) -> LinkError {
    let what = format!("the network namespace {}", path.display());
    move |error| LinkError { what: what.clone(), error, namespace: true }
}

impl PodLink {
    /// Makes it. If it cannot be made whole, nothing stays.
    pub fn make(&self, namespace: &Path) -> Result<(), LinkError> {
        let file = open(namespace).map_err(of_namespace(namespace))?;
        let mut host = Conversation::route().map_err(trying("a netlink socket"))?;
        let pair = || self.pair(&file);
        match host.tell(pair(), NLM_F_CREATE | NLM_F_EXCL) {
            // What an earlier try of the same sandbox left: the name is of nobody else.
            Err(error)
                if error.kind() == ErrorKind::AlreadyExists && remove(&mut host, &self.host).unwrap_or(false) =>
            {
                host.tell(pair(), NLM_F_CREATE | NLM_F_EXCL)
            }
            other => other,
        }
        .map_err(trying(format!("a pair of interfaces {} and {}", self.host, self.inside)))?;
        let made = self
            .finish(&mut host)
            .and_then(|()| namespace::within(namespace, || self.furnish()).map_err(of_namespace(namespace))?);
        if made.is_err() {
            // With one end the other goes.
            let _ = remove(&mut host, &self.host);
        }
        made
    }

    fn pair(&self, namespace: &File) -> RouteNetlinkMessage {
        let mut peer = named(&self.inside);
        peer.attributes.extend([
            LinkAttribute::Address(self.mac.bytes().to_vec()),
            LinkAttribute::Mtu(self.mtu),
            LinkAttribute::NetNsFd(namespace.as_raw_fd()),
        ]);
        let mut pair = quiet(&self.host);
        pair.attributes.extend([
            LinkAttribute::Mtu(self.mtu),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
            ]),
        ]);
        RouteNetlinkMessage::NewLink(pair)
    }

    /// The end on the host. It is down until nothing that the pod sends can reach the host's own stack.
    fn finish(&self, host: &mut Conversation) -> Result<(), LinkError> {
        seclude(host, &self.host);
        if self.userspace {
            pod_filter::protect(&self.host)
                .map_err(trying(format!("an nftables chain (family netdev) that drops what {} receives", self.host)))?;
        }
        let mut link = named(&self.host);
        link.attributes.push(LinkAttribute::IfAlias(self.alias.clone()));
        host.tell(RouteNetlinkMessage::SetLink(up(link)), 0).map_err(trying(format!("interface {} up", self.host)))
    }

    /// The pod's own end, in the pod's network.
    fn furnish(&self) -> Result<(), LinkError> {
        let mut inside = Conversation::route().map_err(trying("a netlink socket"))?;
        let mut loopback = LinkMessage::default();
        loopback.header.index = LOOPBACK;
        inside.tell(RouteNetlinkMessage::SetLink(up(loopback)), 0).map_err(trying("interface lo up"))?;
        let name = &self.inside;
        if self.userspace {
            offload::no_transmit_offload(name).map_err(trying(format!("no transmit offload on {name}")))?;
        }
        if self.addresses.iter().any(|address| address.address().is_ipv6()) {
            allow_ipv6(name).map_err(trying(format!("IPv6 on {name}")))?;
        }
        ignore_advertisements(name).map_err(trying(format!("no router advertisements on {name}")))?;
        let index = index_of(&mut inside, name).map_err(trying(format!("interface {name}")))?;
        for address in &self.addresses {
            let message = RouteNetlinkMessage::NewAddress(address_message(*address, index));
            inside
                .tell(message, NLM_F_CREATE | NLM_F_REPLACE)
                .map_err(trying(format!("address {address} on {name}")))?;
        }
        let mut link = LinkMessage::default();
        link.header.index = index;
        inside.tell(RouteNetlinkMessage::SetLink(up(link)), 0).map_err(trying(format!("interface {name} up")))?;
        for route in &self.routes {
            let Route { to, by } = route;
            let way = by.map(|by| format!(" by {by}")).unwrap_or_default();
            inside
                .tell(RouteNetlinkMessage::NewRoute(route_message(*route, index)), NLM_F_CREATE | NLM_F_REPLACE)
                .map_err(trying(format!("route to {to}{way}")))?;
        }
        Ok(())
    }

    /// Says what is not as it shall be.
    pub fn check(&self, namespace: &Path) -> Result<Vec<String>, LinkError> {
        let mut wrong = Vec::new();
        let mut host = Conversation::route().map_err(trying("a netlink socket"))?;
        match look(&mut host, &self.host).map_err(trying(format!("interface {}", self.host)))? {
            None => wrong.push(format!("interface {} of the host is gone", self.host)),
            Some(link) if !is_up(&link) => wrong.push(format!("interface {} of the host is down", self.host)),
            Some(_) => {}
        }
        if self.userspace {
            let chains = pod_filter::chains().map_err(trying("the chains of nftables"))?;
            if !chains.iter().any(|chain| chain.name == self.host && chain.intact) {
                let table = pod_filter::TABLE;
                wrong.push(format!(
                    "no chain of nftables table netdev {table} keeps frames of {} from the host",
                    self.host
                ));
            }
        }
        let found = namespace::within(namespace, || self.check_inside()).map_err(of_namespace(namespace))?;
        wrong.extend(found?);
        Ok(wrong)
    }

    fn check_inside(&self) -> Result<Vec<String>, LinkError> {
        let mut inside = Conversation::route().map_err(trying("a netlink socket"))?;
        let name = &self.inside;
        let Some(link) = look(&mut inside, name).map_err(trying(format!("interface {name}")))? else {
            return Ok(vec![format!("interface {name} of the pod is gone")]);
        };
        let mut wrong = Vec::new();
        if !is_up(&link) {
            wrong.push(format!("interface {name} of the pod is down"));
        }
        if !link.attributes.contains(&LinkAttribute::Address(self.mac.bytes().to_vec())) {
            wrong.push(format!("interface {name} of the pod does not have the MAC {}", self.mac));
        }
        let addresses = inside
            .ask(RouteNetlinkMessage::GetAddress(AddressMessage::default()), NLM_F_DUMP)
            .map_err(trying("the pod's addresses"))?;
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
                wrong.push(format!("interface {name} of the pod does not have the address {address}"));
            }
        }
        let routes = inside
            .ask(RouteNetlinkMessage::GetRoute(RouteMessage::default()), NLM_F_DUMP)
            .map_err(trying("the pod's routes"))?;
        for Route { to, by } in &self.routes {
            let has = |message: &RouteNetlinkMessage| match message {
                RouteNetlinkMessage::NewRoute(message) => {
                    let whole = to.length() == 0
                        || message.attributes.contains(&RouteAttribute::Destination(RouteAddress::from(to.network())));
                    let by = by.is_none_or(|by| message.attributes.contains(&RouteAttribute::Gateway(by.into())));
                    let same = message.header.destination_prefix_length == to.length();
                    whole && by && same && message.header.address_family == family(to.network())
                }
                _ => false,
            };
            if !routes.iter().any(has) {
                wrong.push(format!("the pod's route to {to} is gone"));
            }
        }
        Ok(wrong)
    }
}

/// Opens a namespace; a file that is none is refused.
fn open(namespace: &Path) -> io::Result<File> {
    let file = File::open(namespace)?;
    if fstatfs(&file)?.filesystem_type() != NSFS_MAGIC {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is no namespace"));
    }
    Ok(file)
}

/// Whether a path is a network namespace that exists.
pub fn is_namespace(path: &Path) -> bool {
    open(path).is_ok()
}

/// Removes a pair by its end on the host; false if there is none.
pub fn remove_pair(host: &str) -> io::Result<bool> {
    remove(&mut Conversation::route()?, host)
}

/// Whether the host has an interface of this name.
pub fn exists(host: &str) -> io::Result<bool> {
    Ok(look(&mut Conversation::route()?, host)?.is_some())
}

/// Keeps what a pod sends from the host's stack, for a pair that is there already: the end on the host of a pod that another
/// version or another implementation wired. False if the pair is gone.
pub fn isolate(host: &str) -> io::Result<bool> {
    let mut conversation = Conversation::route()?;
    if look(&mut conversation, host)?.is_none() {
        return Ok(false);
    }
    pod_filter::protect(host)?;
    if let Err(error) = conversation.tell(RouteNetlinkMessage::SetLink(quiet(host)), 0) {
        tracing::debug!(interface = host, %error, "cannot switch off ARP; the nftables chain drops it anyway");
    }
    seclude(&mut conversation, host);
    Ok(true)
}

/// The pairs of the host, by the names and aliases of their ends here.
pub fn pairs() -> io::Result<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    let all = RouteNetlinkMessage::GetLink(LinkMessage::default());
    Conversation::route()?.ask_each(all, NLM_F_DUMP, |link| pairs.extend(pair_of(&link)))?;
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

fn remove(host: &mut Conversation, name: &str) -> io::Result<bool> {
    let removed = match host.tell(RouteNetlinkMessage::DelLink(named(name)), 0) {
        Ok(()) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(error),
    };
    // Last, so that the pod never speaks to the host. Linux removes it with the device before 6.16.
    if removed.is_ok()
        && let Err(error) = pod_filter::unprotect(name)
    {
        tracing::debug!(interface = name, %error, "nftables chain not removed; the agent's next resync removes it");
    }
    removed
}

/// Leaves the kernel as little as possible to do on the end on the host. The switch takes the frames, so this matters only
/// where the kernel gets to see them: while the switch does not have the port, or somebody deletes the nftables chain.
fn seclude(host: &mut Conversation, name: &str) {
    let mut link = named(name);
    let mode = vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)];
    link.attributes.push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(mode)]));
    if let Err(error) = host.tell(RouteNetlinkMessage::SetLink(link), 0) {
        // A host without IPv6 has nothing to be quiet about.
        tracing::debug!(interface = name, %error, "IPv6 of the end on the host is left as it is");
    }
    // Without IPv6 at all; and as no route leads there, no IPv4 source is believed.
    for (file, value) in [("ipv6", "disable_ipv6"), ("ipv4", "rp_filter")]
        .map(|(family, setting)| (format!("/proc/sys/net/{family}/conf/{name}/{setting}"), "1"))
    {
        match std::fs::write(&file, value) {
            Err(error) if error.kind() != ErrorKind::NotFound => tracing::debug!(file, %error, "cannot be set"),
            _ => {}
        }
    }
}

/// The end on the host, which neither asks nor answers ARP.
fn quiet(name: &str) -> LinkMessage {
    let mut message = named(name);
    message.header.flags |= LinkFlags::Noarp;
    message.header.change_mask |= LinkFlags::Noarp;
    message
}

/// `ENODEV` has no kind of its own.
fn is_absent(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::errno::Errno::ENODEV as i32)
}

fn look(conversation: &mut Conversation, name: &str) -> io::Result<Option<LinkMessage>> {
    let answers = match conversation.ask(RouteNetlinkMessage::GetLink(named(name)), 0) {
        Ok(answers) => answers,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(answers.into_iter().find_map(|answer| match answer {
        RouteNetlinkMessage::NewLink(link) => Some(link),
        _ => None,
    }))
}

fn index_of(conversation: &mut Conversation, name: &str) -> io::Result<u32> {
    let link = look(conversation, name)?.ok_or_else(|| io::Error::from(ErrorKind::NotFound))?;
    Ok(link.header.index)
}

fn named(name: &str) -> LinkMessage {
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

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet }
}

fn address_message(address: InterfaceAddress, index: u32) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address.address());
    message.header.prefix_len = address.length();
    message.header.index = index;
    message.attributes.push(AddressAttribute::Local(address.address()));
    message.attributes.push(AddressAttribute::Address(address.address()));
    match (address.address(), address.network().last()) {
        (IpAddr::V4(_), IpAddr::V4(last)) if address.length() < 31 => {
            message.attributes.push(AddressAttribute::Broadcast(last));
        }
        // Nobody else has it: OVN gave it to this pod alone, and the pod is not to wait for what nobody answers.
        (IpAddr::V6(_), _) => message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad)),
        _ => {}
    }
    message
}

fn route_message(Route { to, by }: Route, index: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(to.network());
    message.header.destination_prefix_length = to.length();
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.kind = RouteType::Unicast;
    message.header.scope = if by.is_some() || to.is_ipv6() { RouteScope::Universe } else { RouteScope::Link };
    if to.length() > 0 {
        message.attributes.push(RouteAttribute::Destination(to.network().into()));
    }
    if let Some(by) = by {
        message.attributes.push(RouteAttribute::Gateway(by.into()));
    }
    message.attributes.push(RouteAttribute::Oif(index));
    message
}

/// All routes are ours to give: an advertisement comes from another pod of the node, and OVN lets those pass.
fn ignore_advertisements(interface: &str) -> io::Result<()> {
    match std::fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/accept_ra"), "0") {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A runtime may make namespaces in which IPv6 is off until somebody needs it.
fn allow_ipv6(interface: &str) -> io::Result<()> {
    let file = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    match std::fs::read_to_string(&file) {
        Ok(text) if text.trim() == "0" => Ok(()),
        Ok(_) => std::fs::write(&file, "0"),
        Err(error) => Err(error),
    }
}
