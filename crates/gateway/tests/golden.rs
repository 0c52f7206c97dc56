//! Flows, filters and routes of whole gateways in a golden file, for review of changes.
//! `WRITE_GOLDEN=1 cargo test -p gateway` rewrites it.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::net::IpAddr;

use gateway::{Bridge, ExposedPort, Facts, Flow, FlowChange, Installed, ListenAddress, Network, Protocol};
use netmodel::{Family, GatewayMode};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden.txt");

fn parsed<T: std::str::FromStr>(texts: &[&str]) -> Vec<T>
where
    T::Err: std::fmt::Debug,
{
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn exposed(listen: ListenAddress, port: u16, inside: &str) -> ExposedPort {
    ExposedPort {
        listen,
        protocol: Protocol::Tcp,
        port,
        host_target: Some((inside.parse().unwrap(), 80)),
        preserves_source: false,
        endpoints: Vec::new(),
        source_ranges: Vec::new(),
        affinity: false,
    }
}

fn near(listen: ListenAddress, port: u16, endpoints: &[(&str, u16)]) -> ExposedPort {
    let endpoints: Vec<(IpAddr, u16)> =
        endpoints.iter().map(|(address, port)| (address.parse().unwrap(), *port)).collect();
    ExposedPort {
        preserves_source: true,
        endpoints,
        ..exposed(listen, port, if listen.family().is_ipv6() { "fd02::8" } else { "172.30.0.8" })
    }
}

fn facts(mode: GatewayMode) -> Facts {
    let [v4, v6] = Family::BOTH.map(ListenAddress::Node);
    let address = |text: &str| ListenAddress::Address(text.parse().unwrap());
    Facts {
        mode,
        bridge: Bridge {
            name: "br-ex".into(),
            mac: "52:54:00:00:00:01".parse().unwrap(),
            uplink: 1,
            patch: 2,
            addresses: parsed(&["10.0.0.5/24", "10.0.0.6/24", "fd00::5/64"]),
            isolated_uplink: None,
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
            ExposedPort { affinity: true, ..near(v4, 30084, &[("10.128.2.3", 8080), ("10.128.2.4", 8080)]) },
            ExposedPort {
                source_ranges: parsed(&["198.51.100.0/24", "fd00:5::/64"]),
                ..near(address("192.0.2.9"), 80, &[])
            },
            near(v4, 30085, &[]),
            // An endpoint on the host itself.
            near(v4, 30082, &[("10.0.0.5", 9090)]),
            // A port of the host for a pod.
            ExposedPort {
                host_target: Some(("10.128.2.3".parse().unwrap(), 53)),
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
fn gateways_match_the_golden_file() {
    let mut v4 = facts(GatewayMode::Shared);
    v4.network.subnets.truncate(1);
    let text = [
        written("shared, dual", &facts(GatewayMode::Shared)),
        written("local, dual", &facts(GatewayMode::Local)),
        written("shared, IPv4", &v4),
    ]
    .concat();
    if std::env::var_os("WRITE_GOLDEN").is_some() {
        std::fs::write(FILE, &text).unwrap();
    }
    let known = std::fs::read_to_string(FILE).unwrap_or_default();
    for (number, (now, known)) in text.lines().zip(known.lines()).enumerate() {
        assert_eq!(now, known, "line {} of tests/golden.txt; WRITE_GOLDEN=1 rewrites it", number + 1);
    }
    assert_eq!(text.lines().count(), known.lines().count(), "tests/golden.txt has another number of lines");
}

#[test]
fn the_order_of_facts_does_not_matter() {
    for mode in [GatewayMode::Shared, GatewayMode::Local] {
        let (one, mut two) = (facts(mode), facts(mode));
        two.exposed.reverse();
        assert_eq!(gateway::flows(&one), gateway::flows(&two));
        assert_eq!(gateway::filter(&one), gateway::filter(&two));
    }
}

#[test]
fn a_service_changes_only_its_own_flows() {
    let before = facts(GatewayMode::Shared);
    let installed = FlowChange::between(&Installed::default(), &gateway::flows(&before)).installed;
    let mut after = before.clone();
    after.exposed.push(exposed(ListenAddress::Node(Family::V4), 30090, "172.30.0.9"));
    let change = FlowChange::between(&installed, &gateway::flows(&after));
    // Both directions, for both addresses of the host.
    assert_eq!(change.lines.len(), 4, "{change:?}");
    assert!(change.lines.iter().all(|line| line.starts_with("add ") && line.contains("=30090")), "{change:?}");
    assert!(FlowChange::between(&change.installed, &gateway::flows(&after)).is_empty());
}

#[test]
fn every_flow_has_a_unique_match() {
    for mode in [GatewayMode::Shared, GatewayMode::Local] {
        let mut flows = gateway::flows(&facts(mode));
        let all = flows.len();
        flows.dedup_by_key(|flow| (flow.table, flow.priority, flow.matching.clone()));
        assert_eq!(flows.len(), all);
    }
}
