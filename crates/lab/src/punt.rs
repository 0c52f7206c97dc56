//! Packets of pods that the data plane hands to ovn-controller: frames that flood each path, and how long another pod's
//! first packet on it takes. For tests and benchmarks of control-plane policing.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::flood::NOW;
use crate::frames::{BROADCAST, Mac, arp, datagram, ethernet, expiring, neighbour_solicitation};
use crate::machine::Machine;
use crate::outside::WEB_PORT;
use crate::pod::Pod;

/// A first packet that takes longer is lost.
pub const LIMIT: Duration = Duration::from_secs(5);
/// Nobody listens on it.
const CLOSED: u16 = 9;

/// Sends a datagram that the first router discards, and waits for the router's error; prints the microseconds. It is sent
/// again after a second.
const EXPIRY: &str = r#"
    use strict;
    use Socket qw(:DEFAULT inet_pton pack_sockaddr_in6 AF_INET6);
    my ($address) = @ARGV;
    my $six = $address =~ /:/;
    my $port = 33000 + int(rand(1000));
    socket(my $errors, $six ? AF_INET6 : AF_INET, 3, $six ? 58 : 1) or die "socket: $!";
    socket(my $socket, $six ? AF_INET6 : AF_INET, 2, 17) or die "socket: $!";
    setsockopt($socket, $six ? 41 : 0, $six ? 16 : 2, pack("l", 1)) or die "hop limit: $!";
    my $raw = inet_pton($six ? AF_INET6 : AF_INET, $address);
    my $to = $six ? pack_sockaddr_in6($port, $raw) : pack_sockaddr_in($port, $raw);
    my ($start, $mark) = (now(), pack("n", $port));
    while (now() - $start < 5) {
        send($socket, "first", 0, $to);
        my $until = now() + 1;
        while ((my $left = $until - now()) > 0) {
            vec(my $ready = "", fileno($errors), 1) = 1;
            last unless select($ready, undef, undef, $left);
            recv($errors, my $packet, 2048, 0);
            next unless index($packet, $mark) >= 0;
            printf "%d\n", (now() - $start) * 1e6;
            exit;
        }
    }
    print "5000000\n";
"#;

/// Two pods of one node and their surroundings.
#[derive(Debug, Clone)]
pub struct Ends {
    /// Sends the floods.
    pub attacker: Pod,
    /// Source MAC of the floods: the attacker's port security admits no other.
    pub mac: Mac,
    /// Its addresses.
    pub v4: Ipv4Addr,
    /// Its addresses.
    pub v6: Ipv6Addr,
    /// The router of the pods' switch.
    pub gateway: (Mac, Ipv4Addr, Ipv6Addr),
    /// Sends first packets.
    pub other: Pod,
    /// Addresses of the Service network that no Service has.
    pub unserved: (Ipv4Addr, Ipv6Addr),
    /// A machine on the node's external network, where it gets new addresses.
    pub outside: Machine,
}

/// One path to ovn-controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// IPv6 neighbour discovery of the gateway, which ovn-controller answers.
    NeighbourDiscovery,
    /// ARP for the gateway, which flows answer.
    Arp,
    /// Connections to an address of the Service network that no Service has.
    Reject,
    /// Packets whose time to live ends at the first router.
    TimeToLive,
    /// Packets whose hop limit ends at the first router.
    HopLimit,
    /// Packets to addresses of the external network whose MAC the gateway router does not know.
    ArpResolve,
    /// The same with IPv6.
    NeighbourResolve,
    /// Memberships of multicast groups, DHCP and DNS: no flow hands them over.
    Others,
    /// Ordinary datagrams: what a flood costs without ovn-controller.
    Ordinary,
}

impl Path {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::NeighbourDiscovery,
        Self::Arp,
        Self::Reject,
        Self::TimeToLive,
        Self::HopLimit,
        Self::ArpResolve,
        Self::NeighbourResolve,
        Self::Others,
        Self::Ordinary,
    ];

    /// The key of OVN's control-plane protection that limits it; none if flows serve it.
    pub fn policed_as(self) -> Option<&'static str> {
        match self {
            Self::NeighbourDiscovery => Some("nd-na"),
            Self::Reject => Some("reject"),
            Self::TimeToLive => Some("icmp4-error"),
            Self::HopLimit => Some("icmp6-error"),
            Self::ArpResolve => Some("arp-resolve"),
            Self::NeighbourResolve => Some("nd-ns-resolve"),
            Self::Arp | Self::Others | Self::Ordinary => None,
        }
    }

    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::NeighbourDiscovery => "neighbour discovery of the gateway (nd-na)",
            Self::Arp => "ARP for the gateway (flows)",
            Self::Reject => "rejected connection (reject)",
            Self::TimeToLive => "expired time to live (icmp4-error)",
            Self::HopLimit => "expired hop limit (icmp6-error)",
            Self::ArpResolve => "new neighbour of the gateway router (arp-resolve)",
            Self::NeighbourResolve => "new IPv6 neighbour of the gateway router (nd-ns-resolve)",
            Self::Others => "IGMP, MLD, DHCP, router solicitations (flows)",
            Self::Ordinary => "ordinary datagrams (flows)",
        }
    }

    /// Frames of the attacker that take the path.
    pub fn frames(self, ends: &Ends) -> Vec<Vec<u8>> {
        let (router, gateway4, gateway6) = ends.gateway;
        let mac = (router, ends.mac);
        let nobody: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(10, 99, 0, 99), outside_v6(0x999));
        let udp = |from: IpAddr, to: IpAddr| datagram(mac, from, to, (4000, CLOSED), b"flood");
        let syn = |to: Ipv4Addr, port: u16| crate::frames::syn(mac, ends.v4, to, (port, CLOSED));
        match self {
            Self::NeighbourDiscovery => {
                let [.., x, y, z] = gateway6.octets();
                let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(x), u16::from_be_bytes([y, z]));
                let to = ([0x33, 0x33, 0xff, x, y, z], ends.mac);
                vec![
                    neighbour_solicitation(to, ends.v6, group, gateway6),
                    neighbour_solicitation(mac, ends.v6, gateway6, gateway6),
                ]
            }
            Self::Arp => vec![arp((BROADCAST, ends.mac), ends.v4, gateway4)],
            Self::Reject => (0..50)
                .map(|port| syn(ends.unserved.0, 20_000 + port))
                .chain([udp(ends.v4.into(), ends.unserved.0.into()), udp(ends.v6.into(), ends.unserved.1.into())])
                .collect(),
            Self::TimeToLive => {
                vec![expiring(mac, ends.v4.into(), Ipv4Addr::new(203, 0, 113, 1).into(), (4000, CLOSED), b"flood")]
            }
            Self::HopLimit => {
                let to = Ipv6Addr::new(0x2001, 0xdb8, 0x113, 0, 0, 0, 0, 1);
                vec![expiring(mac, ends.v6.into(), to.into(), (4000, CLOSED), b"flood")]
            }
            Self::ArpResolve => vec![udp(ends.v4.into(), nobody.0.into())],
            Self::NeighbourResolve => vec![udp(ends.v6.into(), nobody.1.into())],
            Self::Others => {
                let v4 = |to: Ipv4Addr, ports, body: &[u8]| {
                    datagram((BROADCAST, ends.mac), ends.v4.into(), to.into(), ports, body)
                };
                // An IGMPv2 report for 224.1.1.1, with the option "router alert".
                let mut igmp = vec![0x46, 0xc0, 0, 32, 0, 1, 0, 0, 1, 2, 0x42, 0xfe];
                igmp.extend(ends.v4.octets());
                igmp.extend([224, 1, 1, 1, 0x94, 4, 0, 0, 0x16, 0, 0x08, 0xfd, 224, 1, 1, 1]);
                let all_routers: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
                let solicitation = vec![133, 0, 0, 0, 0, 0, 0, 0];
                let report =
                    [&[131, 0, 0, 0, 0, 0, 0, 0][..], &Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 1).octets()].concat();
                let to = ([0x33, 0x33, 0, 0, 0, 2], ends.mac);
                vec![
                    ethernet([1, 0, 0x5e, 1, 1, 1], ends.mac, 0x0800, &igmp),
                    v4(Ipv4Addr::BROADCAST, (68, 67), &[1; 240]),
                    crate::frames::icmp6(to, ends.v6, all_routers, solicitation),
                    crate::frames::icmp6(to, ends.v6, all_routers, report),
                ]
            }
            Self::Ordinary => {
                vec![datagram(mac, ends.v4.into(), Ipv4Addr::new(203, 0, 113, 1).into(), (4000, CLOSED), b"flood")]
            }
        }
    }

    /// How long the other pod's first packet on this path takes; [`LIMIT`] if it is lost. `number` must be new.
    pub fn first_packet(self, ends: &Ends, number: u16) -> Result<Duration> {
        let other = &ends.other;
        let web = |address: IpAddr| SocketAddr::new(address, WEB_PORT);
        let external: (IpAddr, IpAddr) =
            (Ipv4Addr::new(203, 0, 113, 1).into(), Ipv6Addr::new(0x2001, 0xdb8, 0x113, 0, 0, 0, 0, 1).into());
        match self {
            Self::NeighbourDiscovery => {
                forget_neighbours(other, "-6")?;
                connected(other, web(external.1))
            }
            Self::Arp | Self::Others | Self::Ordinary => {
                forget_neighbours(other, "-4")?;
                connected(other, web(external.0))
            }
            Self::Reject => refused(other, SocketAddr::new(ends.unserved.0.into(), number)),
            Self::TimeToLive => expired(other, external.0),
            Self::HopLimit => expired(other, external.1),
            Self::ArpResolve => {
                let [high, low] = number.to_be_bytes();
                let address = Ipv4Addr::new(10, 99, 0, 100 + (low % 100));
                debug_assert_eq!(high, 0, "only a hundred addresses");
                connected(other, web(address.into()))
            }
            Self::NeighbourResolve => connected(other, web(outside_v6(0x1000 + number).into())),
        }
    }

    /// Gives the outside the addresses of new neighbours, up to this number.
    pub fn prepare(ends: &Ends, numbers: u16) -> Result<()> {
        let mut batch = String::new();
        for number in 0..numbers.min(100) {
            batch.push_str(&format!("addr add 10.99.0.{}/24 dev eth0\n", 100 + number));
        }
        for number in 0..numbers {
            batch.push_str(&format!("addr add {}/64 dev eth0 nodad\n", outside_v6(0x1000 + number)));
        }
        ends.outside.run_with_input(&["ip", "-batch", "-"], &batch).map(drop)
    }
}

/// An address of the nodes' external network.
fn outside_v6(number: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, number)
}

fn forget_neighbours(pod: &Pod, family: &str) -> Result<()> {
    pod.run(&["ip", family, "neigh", "flush", "dev", "eth0"]).map(drop)
}

fn attempt(pod: &Pod, target: SocketAddr) -> Result<(Duration, std::io::Result<()>)> {
    pod.with_network(|| {
        let start = Instant::now();
        let outcome = std::net::TcpStream::connect_timeout(&target, LIMIT);
        (start.elapsed(), outcome.map(drop))
    })
}

fn connected(pod: &Pod, target: SocketAddr) -> Result<Duration> {
    match attempt(pod, target)? {
        (took, Ok(())) => Ok(took),
        (_, Err(error)) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::HostUnreachable) => Ok(LIMIT),
        (_, Err(error)) => Err(Error::Invalid(format!("{} cannot reach {target}: {error}", pod.name))),
    }
}

fn refused(pod: &Pod, target: SocketAddr) -> Result<Duration> {
    match attempt(pod, target)? {
        (took, Err(error)) if error.kind() == ErrorKind::ConnectionRefused => Ok(took),
        (_, Err(error)) if error.kind() == ErrorKind::TimedOut => Ok(LIMIT),
        (_, outcome) => Err(Error::Invalid(format!("{target} does not refuse {}: {outcome:?}", pod.name))),
    }
}

fn expired(pod: &Pod, to: IpAddr) -> Result<Duration> {
    let text = pod.run(&["perl", "-e", &format!("{NOW}{EXPIRY}"), &to.to_string()])?;
    let micros = text.trim().parse().map_err(|_| Error::Invalid(format!("{text:?} instead of microseconds")))?;
    Ok(Duration::from_micros(micros))
}

/// A meter of OVN's control-plane protection as a node's Open vSwitch has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeterState {
    /// Packets per second.
    pub rate: u64,
    /// Packets that it has seen since it exists, dropped ones included.
    pub packets: u64,
}

/// The meter of a kind of packets; none if no flow of the node uses it.
pub fn meter(node: &Machine, policed_as: &str) -> Result<Option<MeterState>> {
    let named = format!("{policed_as}-rate-limiter");
    let table = node.run(&["ovn-appctl", "-t", "ovn-controller", "meter-table-list"])?;
    let number = table.lines().find_map(|line| {
        let (name, number) = line.trim().rsplit_once(':')?;
        (name.trim() == named).then(|| format!("meter={}", number.trim()))
    });
    let Some(number) = number else { return Ok(None) };
    let ask = |what: &str| node.run(&["ovs-ofctl", "-O", "OpenFlow15", what, "br-int", &number]);
    let (config, state) = (ask("dump-meters")?, ask("meter-stats")?);
    let value = |text: &str, key: &str| -> Option<u64> {
        let rest = text.split_once(key)?.1;
        rest.split(|sign: char| !sign.is_ascii_digit()).next()?.parse().ok()
    };
    // A meter that is in the table and not yet in the switch.
    Ok(value(&config, "rate=")
        .zip(value(&state, "packet_in_count:"))
        .map(|(rate, packets)| MeterState { rate, packets }))
}
