//! Whole gateways, written down to be read: a change of flows, filters or routes shows here as what it is.
//! `WRITE_GOLDEN=1 cargo test -p gateway` writes them anew.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::net::IpAddr;

use gateway::{Bridge, Exposed, Facts, Flow, FlowChange, Installed, Mode, Network, Place, Protocol};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden.txt");

fn parsed<T: std::str::FromStr>(texts: &[&str]) -> Vec<T>
where
    T::Err: std::fmt::Debug,
{
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn exposed(place: Place, port: u16, inside: &str) -> Exposed {
    Exposed {
        place,
        protocol: Protocol::Tcp,
        port,
        inside: Some((inside.parse().unwrap(), 80)),
        keeps_source: false,
        endpoints: Vec::new(),
        ranges: Vec::new(),
        affinity: false,
    }
}

fn near(place: Place, port: u16, endpoints: &[(&str, u16)]) -> Exposed {
    let endpoints: Vec<(IpAddr, u16)> =
        endpoints.iter().map(|(address, port)| (address.parse().unwrap(), *port)).collect();
    Exposed {
        keeps_source: true,
        endpoints,
        ..exposed(place, port, if place.is_ipv6() { "fd02::8" } else { "172.30.0.8" })
    }
}

fn facts(mode: Mode) -> Facts {
    let (v4, v6) = (Place::Node { v6: false }, Place::Node { v6: true });
    let address = |text: &str| Place::Address(text.parse().unwrap());
    Facts {
        mode,
        bridge: Bridge {
            name: "br-ex".into(),
            mac: "52:54:00:00:00:01".parse().unwrap(),
            uplink: 1,
            patch: 2,
            addresses: parsed(&["10.0.0.5/24", "10.0.0.6/24", "fd00::5/64"]),
            shielded: None,
        },
        network: Network {
            cluster: parsed(&["10.128.0.0/14", "fd01::/48"]),
            services: parsed(&["172.30.0.0/16", "fd02::/112"]),
            masquerade: parsed(&["169.254.169.0/29", "fd69::/125"]),
            subnets: parsed(&["10.128.2.0/23", "fd01:0:0:2::/64"]),
            management: "ovn-k8s-mp0".into(),
            mtu: 1400,
            tunnel_port: 6081,
        },
        exposed: vec![
            exposed(v4, 30080, "172.30.0.7"),
            exposed(v6, 30080, "fd02::7"),
            exposed(address("192.0.2.8"), 80, "172.30.0.7"),
            near(v4, 30081, &[("10.128.2.3", 8080), ("10.128.2.4", 8080)]),
            near(v6, 30081, &[("fd01:0:0:2::3", 8080)]),
            Exposed { affinity: true, ..near(v4, 30084, &[("10.128.2.3", 8080), ("10.128.2.4", 8080)]) },
            Exposed { ranges: parsed(&["198.51.100.0/24", "fd00:5::/64"]), ..near(address("192.0.2.9"), 80, &[]) },
            near(v4, 30085, &[]),
            // An endpoint on the host itself.
            near(v4, 30082, &[("10.0.0.5", 9090)]),
            // A port of the host for a pod.
            Exposed {
                inside: Some(("10.128.2.3".parse().unwrap(), 53)),
                protocol: Protocol::Udp,
                ..near(v4, 53, &[("10.128.2.3", 53)])
            },
        ],
    }
}

fn written(title: &str, facts: &Facts) -> String {
    let mut text = format!("=== {title}: flows\n");
    for flow in gateway::flows(facts) {
        let Flow { table, priority, matching, actions } = flow;
        let _ = writeln!(text, "{table} {priority:>3} {matching} => {actions}");
    }
    let _ = writeln!(text, "=== {title}: packet filter\n{}", gateway::filter(facts));
    let _ = writeln!(text, "=== {title}: host\n{:#?}\n", gateway::host(facts));
    text
}

#[test]
fn gateways_are_as_written_down() {
    let mut v4 = facts(Mode::Shared);
    v4.network.subnets.truncate(1);
    let text = [
        written("shared, dual", &facts(Mode::Shared)),
        written("local, dual", &facts(Mode::Local)),
        written("shared, IPv4", &v4),
    ]
    .concat();
    if std::env::var_os("WRITE_GOLDEN").is_some() {
        std::fs::write(FILE, &text).unwrap();
    }
    let known = std::fs::read_to_string(FILE).unwrap_or_default();
    for (number, (now, known)) in text.lines().zip(known.lines()).enumerate() {
        assert_eq!(now, known, "line {} of tests/golden.txt; WRITE_GOLDEN=1 writes it anew", number + 1);
    }
    assert_eq!(text.lines().count(), known.lines().count(), "tests/golden.txt has another length");
}

#[test]
fn the_order_of_facts_means_nothing() {
    for mode in [Mode::Shared, Mode::Local] {
        let (one, mut two) = (facts(mode), facts(mode));
        two.exposed.reverse();
        assert_eq!(gateway::flows(&one), gateway::flows(&two));
        assert_eq!(gateway::filter(&one), gateway::filter(&two));
    }
}

#[test]
fn a_service_touches_its_own_flows_only() {
    let before = facts(Mode::Shared);
    let installed = FlowChange::between(&Installed::default(), &gateway::flows(&before)).installed;
    let mut after = before.clone();
    after.exposed.push(exposed(Place::Node { v6: false }, 30090, "172.30.0.9"));
    let change = FlowChange::between(&installed, &gateway::flows(&after));
    // In and out, for both addresses of the host.
    assert_eq!(change.lines.len(), 4, "{change:?}");
    assert!(change.lines.iter().all(|line| line.starts_with("add ") && line.contains("=30090")), "{change:?}");
    assert!(FlowChange::between(&change.installed, &gateway::flows(&after)).is_empty());
}

#[test]
fn every_flow_has_a_match_of_its_own() {
    for mode in [Mode::Shared, Mode::Local] {
        let mut flows = gateway::flows(&facts(mode));
        let all = flows.len();
        flows.dedup_by_key(|flow| (flow.table, flow.priority, flow.matching.clone()));
        assert_eq!(flows.len(), all);
    }
}
