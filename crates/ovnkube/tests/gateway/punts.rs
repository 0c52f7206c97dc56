//! Floods of packets that flows hand to ovn-controller: they pass the limits' meters, and other pods' packets get through.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lab::Family;
use lab::frames::Mac;
use lab::punt::{self, Ends, LIMIT, Path};
use serde_json::json;

use crate::site::{Site, TIMEOUT};
use crate::unserved::unallocated;

/// Frames per second.
const RATE: u32 = 10_000;
/// The limit of each kind that pods wait for, in packets per second.
const LIMITED: u64 = 12_000;
/// First packets for each path, at most.
const ATTEMPTS: u16 = 30;

fn v4(address: IpAddr) -> Ipv4Addr {
    let IpAddr::V4(address) = address else { panic!("{address}") };
    address
}

fn v6(address: IpAddr) -> Ipv6Addr {
    let IpAddr::V6(address) = address else { panic!("{address}") };
    address
}

/// As OVN-Kubernetes computes it.
fn mac_of(address: Ipv4Addr) -> Mac {
    let [a, b, c, d] = address.octets();
    [0x0a, 0x58, a, b, c, d]
}

#[test]
fn other_pods_get_through_a_flood_of_packets_to_ovn_controller() {
    let site = Site::start("gw-punts", Family::Dual, "shared");
    let node = site.lab.node(1).unwrap();
    let (attacker, own) = site.pod(1, "attacker", &json!({}));
    let (other, _) = site.pod(1, "other", &json!({}));
    let (own4, own6) = (v4(own[0]), v6(own[1]));
    let [a, b, c, _] = own4.octets();
    let gateway4 = Ipv4Addr::new(a, b, c & 0xfe, 1);
    let gateway6 = Ipv6Addr::from(u128::from(own6) >> 64 << 64 | 1);
    let ends = Ends {
        attacker,
        mac: mac_of(own4),
        v4: own4,
        v6: own6,
        gateway: (mac_of(gateway4), gateway4, gateway6),
        other,
        unserved: (v4(unallocated(netmodel::Family::V4)), v6(unallocated(netmodel::Family::V6))),
        outside: site.lab.machine("outside").unwrap(),
    };
    Path::prepare(&ends, ATTEMPTS).unwrap();
    for path in Path::ALL {
        let mut numbers = 0..ATTEMPTS;
        let mut gets_through = |what: &str| {
            let took = lab::poll(TIMEOUT, || {
                let number =
                    numbers.next().unwrap_or_else(|| panic!("{what}, {}: no first packet gets through", path.name()));
                let took = path.first_packet(&ends, number).unwrap();
                if took < LIMIT { Ok(took) } else { Err(()) }
            });
            took.unwrap_or_else(|()| panic!("{what}, {}: no first packet gets through", path.name()))
        };
        let quiet = gets_through("without a flood");
        let meter = |key: &str| punt::meter(&node, key).unwrap();
        let before = path.policed_as().map(|key| meter(key).unwrap_or_else(|| panic!("{key} is not limited")));
        let arrived = |count: u64| {
            let text = node.run(&["ip", "-j", "-s", "link", "show", "dev", &ends.attacker.name]).unwrap();
            let links: serde_json::Value = serde_json::from_str(&text).unwrap();
            let now = links[0]["stats64"]["rx"]["packets"].as_u64().unwrap();
            if now >= count { Ok(now) } else { Err(now) }
        };
        let start = arrived(0).unwrap();
        let flood = ends.attacker.flood(&path.frames(&ends), RATE).unwrap();
        lab::poll(TIMEOUT, || arrived(start + u64::from(RATE))).unwrap();
        let busy = [(); 3].map(|()| gets_through("with a flood"));
        // The flood takes this path, and its meter.
        if let (Some(key), Some(before)) = (path.policed_as(), before) {
            assert_eq!(before.rate, LIMITED, "{key}");
            lab::poll(TIMEOUT, || {
                let seen = meter(key).map_or(0, |now| now.packets - before.packets);
                if seen > 1000 { Ok(()) } else { Err(seen) }
            })
            .unwrap_or_else(|seen| panic!("{}: the meter has seen {seen} packets", path.name()));
        }
        let sent = flood.stop().unwrap();
        eprintln!("{}: {quiet:?} without a flood, {busy:?} with {sent} frames", path.name());
        assert!(sent > 0);
    }
}
