//! Raw frames with arbitrary addresses, as an attacker in a pod would send them. Checksums and lengths are computed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The bytes of a MAC.
pub type Mac = [u8; 6];

/// The MAC of everybody.
pub const BROADCAST: Mac = [0xff; 6];

fn sum(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    let mut total: u32 =
        bytes.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], *two.get(1).unwrap_or(&0)]))).sum();
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

/// A frame of any type.
pub fn ethernet(to: Mac, from: Mac, kind: u16, body: &[u8]) -> Vec<u8> {
    [&to[..], &from, &kind.to_be_bytes(), body].concat()
}

fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes()
}

/// Ethertype and IP packet; `protocol` is 6 (TCP), 17 (UDP) or 58 (ICMPv6), whose checksum offsets are known.
fn packet(from: IpAddr, to: IpAddr, protocol: u8, mut body: Vec<u8>) -> (u16, Vec<u8>) {
    let offset = match protocol {
        6 => 16,
        17 => 6,
        _ => 2,
    };
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let pseudo = [&from.octets()[..], &to.octets(), &[0, protocol], &length(body.len())].concat();
            let checksum = sum(&[&pseudo, &body]);
            body[offset..offset + 2].copy_from_slice(&checksum.to_be_bytes());
            let mut header = [&[0x45, 0][..], &length(20 + body.len()), &[0, 1, 0, 0, 64, protocol, 0, 0]].concat();
            header.extend([from.octets(), to.octets()].concat());
            let checksum = sum(&[&header]);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            (0x0800, [header, body].concat())
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let addresses = [from.octets(), to.octets()].concat();
            let pseudo = [&addresses[..], &[0, 0], &length(body.len()), &[0, 0, 0, protocol]].concat();
            let checksum = sum(&[&pseudo, &body]);
            body[offset..offset + 2].copy_from_slice(&checksum.to_be_bytes());
            let header = [&[0x60, 0, 0, 0][..], &length(body.len()), &[protocol, 255], &addresses].concat();
            (0x86dd, [header, body].concat())
        }
        // Nobody accepts it.
        _ => (0, body),
    }
}

/// A UDP frame.
pub fn udp(mac: (Mac, Mac), from: IpAddr, to: IpAddr, port: u16, text: &str) -> Vec<u8> {
    datagram(mac, from, to, (4000, port), text.as_bytes())
}

/// An ARP request.
pub fn arp(mac: (Mac, Mac), from: Ipv4Addr, asked: Ipv4Addr) -> Vec<u8> {
    arp_of(mac, 1, (mac.1, from), ([0; 6], asked))
}

/// An ARP packet with this operation (1 request, 2 reply), sender and target.
pub fn arp_of(mac: (Mac, Mac), operation: u8, sender: (Mac, Ipv4Addr), target: (Mac, Ipv4Addr)) -> Vec<u8> {
    let mut body = vec![0, 1, 8, 0, 6, 4, 0, operation];
    for (hardware, address) in [sender, target] {
        body.extend(hardware);
        body.extend(address.octets());
    }
    ethernet(mac.0, mac.1, 0x0806, &body)
}

/// An ICMPv6 message; the checksum is computed.
pub fn icmp6(mac: (Mac, Mac), from: Ipv6Addr, to: Ipv6Addr, message: Vec<u8>) -> Vec<u8> {
    let (kind, packet) = packet(from.into(), to.into(), 58, message);
    ethernet(mac.0, mac.1, kind, &packet)
}

/// A UDP frame with these ports: source, destination.
pub fn datagram(mac: (Mac, Mac), from: IpAddr, to: IpAddr, ports: (u16, u16), body: &[u8]) -> Vec<u8> {
    let header = [&ports.0.to_be_bytes()[..], &ports.1.to_be_bytes(), &length(8 + body.len()), &[0, 0]].concat();
    let (kind, packet) = packet(from, to, 17, [&header, body].concat());
    ethernet(mac.0, mac.1, kind, &packet)
}

/// The first segment of a TCP connection.
pub fn syn(mac: (Mac, Mac), from: Ipv4Addr, to: Ipv4Addr, ports: (u16, u16)) -> Vec<u8> {
    let body = [
        &ports.0.to_be_bytes()[..],
        &ports.1.to_be_bytes(),
        &[0, 0, 0, 1, 0, 0, 0, 0],
        // 20 bytes of header, SYN, a window, checksum, no urgent data.
        &[0x50, 2, 0xff, 0xff, 0, 0, 0, 0],
    ]
    .concat();
    let (kind, packet) = packet(from.into(), to.into(), 6, body);
    ethernet(mac.0, mac.1, kind, &packet)
}

/// A UDP frame that the next router discards: its time to live, or hop limit, is 1.
pub fn expiring(mac: (Mac, Mac), from: IpAddr, to: IpAddr, ports: (u16, u16), body: &[u8]) -> Vec<u8> {
    const ETHERNET: usize = 14;
    let mut frame = datagram(mac, from, to, ports, body);
    if to.is_ipv6() {
        frame[ETHERNET + 7] = 1;
    } else {
        frame[ETHERNET + 8] = 1;
        frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&[0, 0]);
        let checksum = sum(&[&frame[ETHERNET..ETHERNET + 20]]);
        frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&checksum.to_be_bytes());
    }
    frame
}

/// The two fragments of an IPv4 frame: the transport header and `first` bytes (a multiple of 8), and the rest.
pub fn fragments(frame: &[u8], first: usize) -> [Vec<u8>; 2] {
    const ETHERNET: usize = 14;
    const HEADER: usize = ETHERNET + 20;
    let (header, body) = frame.split_at(HEADER);
    let (one, two) = body.split_at(first);
    let fragment = |flags: u16, body: &[u8]| {
        let mut whole = [header, body].concat();
        whole[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&length(20 + body.len()));
        whole[ETHERNET + 6..ETHERNET + 8].copy_from_slice(&flags.to_be_bytes());
        whole[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&[0, 0]);
        let checksum = sum(&[&whole[ETHERNET..HEADER]]);
        whole[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&checksum.to_be_bytes());
        whole
    };
    let more_follow = 0x2000;
    [fragment(more_follow, one), fragment(u16::try_from(first / 8).unwrap_or(u16::MAX), two)]
}

/// The frame with an 802.1Q tag.
pub fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0][..], &vlan.to_be_bytes(), &frame[12..]].concat()
}

/// An IPv6 neighbour solicitation.
pub fn neighbour_solicitation(mac: (Mac, Mac), from: Ipv6Addr, to: Ipv6Addr, asked: Ipv6Addr) -> Vec<u8> {
    icmp6(mac, from, to, [&[135, 0, 0, 0, 0, 0, 0, 0][..], &asked.octets(), &[1, 1], &mac.1].concat())
}

/// As text of hexadecimal digits.
pub fn hexadecimal(frame: &[u8]) -> String {
    frame.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses `0a:58:…`.
pub fn mac(text: &str) -> Option<Mac> {
    let bytes: Option<Vec<u8>> = text.trim().split(':').map(|two| u8::from_str_radix(two, 16).ok()).collect();
    bytes?.try_into().ok()
}

/// The other way round: `0a:58:…`.
pub fn written(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
