//! Raw frames with arbitrary addresses, as an attacker in a pod would send them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) type Mac = [u8; 6];

pub(crate) const BROADCAST: Mac = [0xff; 6];

/// A Perl script that sends frames read as lines of hex, the last of them an ARP request for the gateway; prints all
/// received frames until the gateway replies. The request is repeated. Perl is in every Debian.
pub(crate) const SCRIPT: &str = r#"
    use strict;
    my ($index, $gateway) = @ARGV;
    socket(my $socket, 17, 3, 0x0300) or die "socket: $!";
    bind($socket, pack("S n l S C C a8", 17, 3, $index, 0, 0, 0, "")) or die "bind: $!";
    $| = 1;
    my $last;
    while (my $line = <STDIN>) { chomp $line; $last = pack("H*", $line); defined send($socket, $last, 0) or die "send: $!"; }
    $SIG{ALRM} = sub { die "the gateway does not answer" };
    alarm 60;
    while (1) {
        # A busy switch may lose the request.
        vec(my $ready = "", fileno($socket), 1) = 1;
        if (!select($ready, undef, undef, 2)) { send($socket, $last, 0); next; }
        recv($socket, my $frame, 2048, 0);
        print unpack("H*", $frame), "\n";
        last if unpack("H*", substr($frame, 12, 2)) eq "0806" && unpack("H*", substr($frame, 28, 4)) eq $gateway
            && unpack("n", substr($frame, 20, 2)) == 2;
    }
"#;

fn sum(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    let mut total: u32 =
        bytes.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], *two.get(1).unwrap_or(&0)]))).sum();
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !u16::try_from(total).unwrap()
}

fn ethernet(to: Mac, from: Mac, kind: u16, body: &[u8]) -> Vec<u8> {
    [&to[..], &from, &kind.to_be_bytes(), body].concat()
}

fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).unwrap().to_be_bytes()
}

/// Ethertype and IP packet; `protocol` is 17 (UDP) or 58 (ICMPv6), whose checksum offsets are known.
fn packet(from: IpAddr, to: IpAddr, protocol: u8, mut body: Vec<u8>) -> (u16, Vec<u8>) {
    let offset = if protocol == 17 { 6 } else { 2 };
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
        _ => panic!("{from} and {to} are of two families"),
    }
}

/// A UDP frame.
pub(crate) fn udp(mac: (Mac, Mac), from: IpAddr, to: IpAddr, port: u16, text: &str) -> Vec<u8> {
    let header = [&4000_u16.to_be_bytes()[..], &port.to_be_bytes(), &length(8 + text.len()), &[0, 0]].concat();
    let (kind, packet) = packet(from, to, 17, [&header, text.as_bytes()].concat());
    ethernet(mac.0, mac.1, kind, &packet)
}

/// An ARP request.
pub(crate) fn arp(mac: (Mac, Mac), from: Ipv4Addr, asked: Ipv4Addr) -> Vec<u8> {
    let body = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &mac.1, &from.octets(), &[0; 6], &asked.octets()].concat();
    ethernet(mac.0, mac.1, 0x0806, &body)
}

/// An IPv6 neighbour solicitation.
pub(crate) fn neighbour_solicitation(mac: (Mac, Mac), from: Ipv6Addr, to: Ipv6Addr, asked: Ipv6Addr) -> Vec<u8> {
    let body = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &asked.octets(), &[1, 1], &mac.1].concat();
    let (kind, packet) = packet(from.into(), to.into(), 58, body);
    ethernet(mac.0, mac.1, kind, &packet)
}

pub(crate) fn hexadecimal(frame: &[u8]) -> String {
    frame.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses `0a:58:…`.
pub(crate) fn mac(text: &str) -> Mac {
    let bytes: Vec<u8> = text.trim().split(':').map(|two| u8::from_str_radix(two, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}
