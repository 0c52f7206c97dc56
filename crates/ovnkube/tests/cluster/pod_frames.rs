//! The frames of a compromised pod: forged ones, and unforged ones that show that the way is open.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::pod_attack::Site;
use crate::report::Scope;
use lab::frames::{BROADCAST, Mac, arp_of, datagram, fragments, icmp6, tagged};

const TUNNELS: u16 = 6081;
const BFD: u16 = 3784;
const PORT: u16 = 7777;
/// No pod has it.
const FORGED: Mac = [2, 0, 0, 0, 0xbe, 0xef];
const ALL_NODES: (Mac, Ipv6Addr) = ([0x33, 0x33, 0, 0, 0, 1], Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1));
const SECURITY: &str = "port security";
const BR_EX: &str = "flow of br-ex";

/// Frames of one kind, and how to recognize them where they arrive.
pub(crate) struct Attempt {
    /// Own: must arrive. Foreign: must not. Tenant: documented.
    pub(crate) scope: Scope,
    pub(crate) what: String,
    pub(crate) why: &'static str,
    pub(crate) frames: Vec<Vec<u8>>,
    /// Bytes that no other frame has.
    pub(crate) marks: Vec<Vec<u8>>,
    /// Places that see the frames without receiving them.
    pub(crate) passes_by: Vec<&'static str>,
}

/// Builds attempts; each datagram gets its own mark as payload.
struct Builder<'a> {
    site: &'a Site,
    attempts: Vec<Attempt>,
    marks: u32,
}

/// The link-local address that port security allows for a MAC.
fn link_local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    let two = u16::from_be_bytes;
    Ipv6Addr::new(0xfe80, 0, 0, 0, two([a ^ 2, b]), two([c, 0xff]), two([0xfe, d]), two([e, f]))
}

/// Type, code, checksum, four bytes (flags or reserved), target, options.
fn neighbour(kind: u8, flags: u8, target: Ipv6Addr, option: u8, mac: Mac) -> Vec<u8> {
    [&[kind, 0, 0, 0, flags, 0, 0, 0][..], &target.octets(), &[option, 1], &mac].concat()
}

impl Builder<'_> {
    fn add(&mut self, scope: Scope, what: &str, why: &'static str) -> &mut Attempt {
        let attempt =
            Attempt { scope, what: what.to_owned(), why, frames: Vec::new(), marks: Vec::new(), passes_by: Vec::new() };
        self.attempts.push(attempt);
        self.attempts.last_mut().unwrap()
    }

    /// A payload that is its own mark, and the last attempt's.
    fn mark(&mut self) -> Vec<u8> {
        self.marks += 1;
        let mark = format!("<<attempt {:04}>>", self.marks).into_bytes();
        self.attempts.last_mut().unwrap().marks.push(mark.clone());
        mark
    }

    fn frame(&mut self, frame: Vec<u8>) {
        self.attempts.last_mut().unwrap().frames.push(frame);
    }

    /// A frame that is recognized by these bytes of it.
    fn marked_frame(&mut self, frame: Vec<u8>, mark: Vec<u8>) {
        let attempt = self.attempts.last_mut().unwrap();
        attempt.frames.push(frame);
        attempt.marks.push(mark);
    }

    /// The MAC that frames to an address have: of the pod on the same switch, or of the gateway.
    fn next_hop(&self, to: IpAddr) -> Mac {
        let neighbour = &self.site.neighbour;
        if neighbour.addresses().contains(&to) { neighbour.mac } else { self.site.gateway.0 }
    }

    fn datagram(&mut self, mac: Mac, from: IpAddr, to: IpAddr, ports: (u16, u16)) {
        let mark = self.mark();
        let hop = self.next_hop(to);
        self.frame(datagram((hop, mac), from, to, ports, &mark));
    }

    /// From these addresses (of both families) to the same family's of everybody.
    fn send_to_everybody(&mut self, mac: Mac, from: &[IpAddr]) {
        let site = self.site;
        for station in [&site.neighbour, &site.remote, &site.own_node, &site.other_node, &site.outside] {
            for to in station.addresses() {
                for from in from.iter().filter(|from| from.is_ipv4() == to.is_ipv4()) {
                    self.datagram(mac, *from, to, (4000, PORT));
                }
            }
        }
    }
}

pub(crate) fn attempts(site: &Site) -> Vec<Attempt> {
    let mut builder = Builder { site, attempts: Vec::new(), marks: 0 };
    controls(&mut builder);
    sources(&mut builder);
    arp(&mut builder);
    neighbours(&mut builder);
    configuration(&mut builder);
    tunnels(&mut builder);
    masquerade(&mut builder);
    odd(&mut builder);
    builder.attempts
}

/// What must arrive. Each receiver gets its own frames.
fn controls(b: &mut Builder<'_>) {
    let own = b.site.attacker.clone();
    let why = "unforged";
    b.add(Scope::Own, "control: datagrams with its own addresses to pods, nodes and outside", why);
    b.send_to_everybody(own.mac, &own.addresses());
    b.add(Scope::Own, "control: ARP request for an unused address", why);
    let unused = Ipv4Addr::from(u32::from(b.site.gateway.1) + 0xf0);
    let body = ((own.mac, own.v4), ([0; 6], unused));
    let mark = [&own.mac[..], &own.v4.octets(), &[0; 6], &unused.octets()].concat();
    b.marked_frame(arp_of((BROADCAST, own.mac), 1, body.0, body.1), mark);
    b.add(Scope::Own, "control: neighbour solicitation for an unused address", why);
    let unused = Ipv6Addr::from(u128::from(b.site.gateway.2) + 0xf0f0);
    let body = neighbour(135, 0, unused, 1, own.mac);
    let mark = body[8..].to_vec();
    let [.., x, y, z] = unused.octets();
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(x), u16::from_be_bytes([y, z]));
    b.marked_frame(icmp6(([0x33, 0x33, 0xff, x, y, z], own.mac), own.v6, group, body), mark);
    b.add(Scope::Own, "control: a datagram in two fragments", why);
    fragmented(b, own.mac, own.v4);
    b.add(Scope::Own, "control: a datagram to the port beside that of tunnels, on the other node and outside", why);
    for station in [b.site.other_node.clone(), b.site.outside.clone()] {
        for to in station.addresses() {
            let from = if to.is_ipv4() { own.v4.into() } else { IpAddr::from(own.v6) };
            b.datagram(own.mac, from, to, (4000, TUNNELS + 1));
        }
    }
}

/// To the neighbour, each fragment with a mark.
fn fragmented(b: &mut Builder<'_>, mac: Mac, from: Ipv4Addr) {
    /// Open vSwitch drops smaller ones, except the last.
    const FIRST: usize = 1208;
    let to = b.site.neighbour.clone();
    let (one, two) = (b.mark(), b.mark());
    let mut body = one;
    body.resize(1300, b'.');
    body.extend(two);
    let whole = datagram((to.mac, mac), from.into(), to.v4.into(), (4000, PORT), &body);
    for fragment in fragments(&whole, FIRST) {
        b.frame(fragment);
    }
}

/// Forged source MACs and addresses.
fn sources(b: &mut Builder<'_>) {
    let site = b.site;
    let own = &site.attacker;
    let f = Scope::Foreign;
    for (what, mac) in [
        ("source MAC that no pod has", FORGED),
        ("source MAC of another pod", site.neighbour.mac),
        ("source MAC of the gateway", site.gateway.0),
    ] {
        b.add(f, what, SECURITY);
        b.send_to_everybody(mac, &own.addresses());
    }
    let outside: [IpAddr; 2] = ["203.0.113.9".parse().unwrap(), "2001:db8::9".parse().unwrap()];
    for (what, from) in [
        ("source address of another pod on its node", site.neighbour.addresses()),
        ("source address of a pod on another node", site.remote.addresses()),
        ("source address of the gateway", [site.gateway.1.into(), site.gateway.2.into()]),
        ("source address of its node", site.own_node.addresses()),
        ("source address of another node", site.other_node.addresses()),
        ("source address outside the cluster", outside),
        ("source address of loopback", [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]),
        ("link-local source address of another MAC", ["169.254.7.7".parse().unwrap(), link_local(FORGED).into()]),
    ] {
        b.add(f, what, SECURITY);
        b.send_to_everybody(own.mac, &from);
    }
}

fn arp(b: &mut Builder<'_>) {
    let site = b.site;
    let (own, victim, gateway) = (&site.attacker, &site.neighbour, &site.gateway);
    let f = Scope::Foreign;
    for (what, hardware, claimed) in [
        ("ARP that claims another pod's address", own.mac, victim.v4),
        ("ARP that claims the gateway's address", own.mac, gateway.1),
        ("ARP that claims a node's address", own.mac, site.own_node.v4),
        ("ARP with its own address and another sender MAC", FORGED, own.v4),
    ] {
        b.add(f, what, SECURITY);
        let mark = [&hardware[..], &claimed.octets()].concat();
        b.attempts.last_mut().unwrap().marks.push(mark);
        for (to, operation, target) in [
            (BROADCAST, 1, ([0; 6], claimed)),
            (BROADCAST, 2, (BROADCAST, claimed)),
            (BROADCAST, 1, ([0; 6], gateway.1)),
            (victim.mac, 2, (victim.mac, victim.v4)),
            (gateway.0, 2, (gateway.0, gateway.1)),
        ] {
            for source in [own.mac, hardware] {
                b.frame(arp_of((to, source), operation, (hardware, claimed), target));
            }
        }
    }
}

fn neighbours(b: &mut Builder<'_>) {
    let site = b.site;
    let (own, victim, gateway) = (&site.attacker, &site.neighbour, &site.gateway);
    let (f, mine) = (Scope::Foreign, link_local(own.mac));
    // Claims of the attacker's MAC: target, and source of the packet.
    for (what, claimed) in [
        ("neighbour advertisement for another pod's address", victim.v6),
        ("neighbour advertisement for the gateway's address", gateway.2),
        ("neighbour advertisement for the gateway's link-local address", link_local(gateway.0)),
    ] {
        b.add(f, what, SECURITY);
        for from in [own.v6, mine, claimed] {
            for (to, address) in [ALL_NODES, (victim.mac, victim.v6), (gateway.0, gateway.2)] {
                let body = neighbour(136, 0x20, claimed, 2, own.mac);
                let mark = body[8..].to_vec();
                b.marked_frame(icmp6((to, own.mac), from, address, body), mark);
            }
        }
    }
    b.add(f, "neighbour advertisement for its own address with another MAC", SECURITY);
    for (to, address) in [ALL_NODES, (victim.mac, victim.v6)] {
        let body = neighbour(136, 0x20, own.v6, 2, FORGED);
        let mark = body[8..].to_vec();
        b.marked_frame(icmp6((to, own.mac), own.v6, address, body), mark);
    }
    for (what, from, mac) in [
        ("neighbour solicitation from another pod's address", victim.v6, own.mac),
        ("neighbour solicitation from the gateway's address", gateway.2, own.mac),
        ("neighbour solicitation with another MAC in its option", own.v6, FORGED),
    ] {
        if mac == FORGED {
            b.add(
                Scope::Tenant,
                what,
                "OVN does not compare it; it names the pod's own address, whose packets it misdirects",
            );
        } else {
            b.add(f, what, SECURITY);
        }
        // Not of the control.
        let asked = Ipv6Addr::from(u128::from(gateway.2) + 0xf0f1 + u128::from(mac[5]) + (u128::from(from) & 0xffff));
        let body = neighbour(135, 0, asked, 1, mac);
        let mark = body[8..].to_vec();
        b.marked_frame(icmp6((ALL_NODES.0, own.mac), from, ALL_NODES.1, body), mark);
    }
}

/// Router advertisements, redirects and DHCP: what would configure others.
fn configuration(b: &mut Builder<'_>) {
    let site = b.site;
    let (own, victim, gateway) = (&site.attacker, &site.neighbour, &site.gateway);
    let mine = link_local(own.mac);
    let advertisement = |prefix: u16| {
        let prefix = Ipv6Addr::new(0x2001, 0xdb8, prefix, 0, 0, 0, 0, 0);
        let head = [134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
        [&head[..], &[3, 4, 64, 0xc0, 0, 0, 14, 16, 0, 0, 14, 16, 0, 0, 0, 0], &prefix.octets()].concat()
    };
    for (scope, what, why, from, number) in [
        (Scope::Foreign, "router advertisement in the gateway's name", SECURITY, link_local(gateway.0), 1),
        (
            Scope::Tenant,
            "router advertisement from its own link-local address",
            "OVN cannot block them; pods and management ports ignore router advertisements (`accept_ra` is 0)",
            mine,
            2,
        ),
    ] {
        b.add(scope, what, why);
        let body = advertisement(number);
        let mark = body[32..].to_vec();
        b.marked_frame(icmp6((ALL_NODES.0, own.mac), from, ALL_NODES.1, body), mark);
    }
    let redirect = |number: u16| {
        let destination = Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, 9);
        [&[137, 0, 0, 0, 0, 0, 0, 0][..], &mine.octets(), &destination.octets(), &[2, 1], &own.mac].concat()
    };
    b.add(Scope::Foreign, "ICMPv6 redirect in the gateway's name", SECURITY);
    let body = redirect(3);
    b.marked_frame(icmp6((victim.mac, own.mac), link_local(gateway.0), victim.v6, body.clone()), body[24..].to_vec());
    b.add(Scope::Foreign, "DHCP and DHCPv6 replies in the gateway's name", SECURITY);
    b.datagram(own.mac, gateway.1.into(), victim.v4.into(), (67, 68));
    let mark = b.mark();
    let everybody = Ipv4Addr::BROADCAST.into();
    b.frame(datagram((BROADCAST, own.mac), gateway.1.into(), everybody, (67, 68), &mark));
    b.datagram(own.mac, link_local(gateway.0).into(), victim.v6.into(), (547, 546));
    b.add(
        Scope::Tenant,
        "DHCP and DHCPv6 replies from its own addresses",
        "as any datagram, where policies allow it; no pod asks by DHCP",
    );
    b.datagram(own.mac, own.v4.into(), victim.v4.into(), (67, 68));
    b.datagram(own.mac, own.v6.into(), victim.v6.into(), (547, 546));
}

/// Geneve and BFD. A datagram's payload marks the outer packet, and an inner frame's the inner one.
fn tunnels(b: &mut Builder<'_>) {
    let site = b.site;
    let (own, victim) = (&site.attacker, &site.neighbour);
    let inner = |b: &mut Builder<'_>, ports: (u16, u16)| {
        let mark = b.mark();
        let frame = datagram((victim.mac, site.gateway.0), site.remote.v4.into(), victim.v4.into(), ports, &mark);
        // Version 0, no options, Ethernet, and network identifiers of the first switches.
        [&[0, 0, 0x65, 0x58, 0, 0, 2, 0][..], &frame].concat()
    };
    for (what, ports) in [
        ("Geneve to another node's tunnel port", (4000, PORT)),
        ("BFD in Geneve to another node's tunnel port", (49152, BFD)),
    ] {
        b.add(Scope::Foreign, what, BR_EX);
        for station in [&site.other_node, &site.outside] {
            for to in station.addresses() {
                let from = if to.is_ipv4() { own.v4.into() } else { IpAddr::from(own.v6) };
                let body = inner(b, ports);
                b.frame(datagram((site.gateway.0, own.mac), from, to, (4000, TUNNELS), &body));
            }
        }
    }
    b.add(
        Scope::Foreign,
        "Geneve to its own node's tunnel port: the frame inside",
        "no tunnel ends at a pod's address",
    );
    b.attempts.last_mut().unwrap().passes_by.push("n1");
    for to in site.own_node.addresses() {
        let from = if to.is_ipv4() { own.v4.into() } else { IpAddr::from(own.v6) };
        let body = inner(b, (4000, PORT));
        b.frame(datagram((site.gateway.0, own.mac), from, to, (4000, TUNNELS), &body));
    }
    b.add(
        Scope::Tenant,
        "BFD to a pod on another node",
        "as any datagram: tunnels of pods' switches have no BFD that could take it",
    );
    b.attempts.last_mut().unwrap().passes_by.extend(["n1", "n2"]);
    b.datagram(own.mac, own.v4.into(), site.remote.v4.into(), (49152, BFD));
    b.datagram(own.mac, own.v6.into(), site.remote.v6.into(), (49152, BFD));
}

fn masquerade(b: &mut Builder<'_>) {
    let own = &b.site.attacker;
    let of = |number: u8| -> [IpAddr; 2] {
        [Ipv4Addr::new(169, 254, 169, number).into(), format!("fd69::{number}").parse().unwrap()]
    };
    b.add(Scope::Foreign, "datagrams to addresses of the masquerade network", "ACL of its switch");
    for to in (1..=5).flat_map(of) {
        let from = if to.is_ipv4() { own.v4.into() } else { IpAddr::from(own.v6) };
        b.datagram(own.mac, from, to, (4000, PORT));
    }
    b.add(Scope::Foreign, "source address of the masquerade network", SECURITY);
    for number in 1..=5 {
        b.send_to_everybody(own.mac, &of(number));
    }
}

/// Fragments and tags.
fn odd(b: &mut Builder<'_>) {
    let site = b.site;
    let own = &site.attacker;
    b.add(Scope::Foreign, "fragments with another pod's source address", SECURITY);
    fragmented(b, own.mac, site.remote.v4);
    b.add(Scope::Foreign, "fragments with another source MAC", SECURITY);
    fragmented(b, FORGED, own.v4);
    b.add(Scope::Foreign, "another source address in a frame with a VLAN tag", SECURITY);
    for vlan in [0, 1, 100] {
        let mark = b.mark();
        let to = site.neighbour.clone();
        let frame = datagram((to.mac, own.mac), site.remote.v4.into(), to.v4.into(), (4000, PORT), &mark);
        b.frame(tagged(&frame, vlan));
    }
}
