//! Addresses that no Service may take over, and packets to service ranges that no Service serves: they are rejected on
//! their node.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use lab::Machine;
use serde_json::{Value, json};

use crate::site::{Client, Site, TIMEOUT};

/// Limit of a rejection, which takes milliseconds.
const REFUSAL: Duration = Duration::from_secs(5);

pub(crate) const KUBELET: u16 = 10_250;

/// Creates Services without endpoints that claim addresses of another Service, of hosts and of the API server. Redirecting
/// one of them would cut it off.
pub(crate) fn create_conflicting_services(site: &Site, web: &[IpAddr], hosts: &[IpAddr]) -> Vec<IpAddr> {
    let external = |addresses: &[IpAddr]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
    let api = api_server(site);
    for (name, addresses, ports) in [
        ("conflict-web", web, json!([{"port": 80}])),
        ("conflict-host", hosts, json!([{"port": KUBELET}])),
        ("conflict-api", &api[..], json!([{"name": "a", "port": 443}, {"name": "b", "port": 6443}])),
    ] {
        site.service(name, json!({"externalIPs": external(addresses), "ports": ports}), &[]);
    }
    api
}

/// The API server's Service and endpoint addresses.
fn api_server(site: &Site) -> Vec<IpAddr> {
    let addresses = |list: &Value| -> Vec<IpAddr> {
        let list = list.as_array().into_iter().flatten();
        list.filter_map(|address| address.as_str()?.parse().ok()).collect()
    };
    let mut found = addresses(&site.get(&["service", "kubernetes"])["spec"]["clusterIPs"]);
    for endpoint in site.get(&["endpointslice", "kubernetes"])["endpoints"].as_array().unwrap() {
        found.extend(addresses(&endpoint["addresses"]));
    }
    assert!(found.len() > 1, "{found:?}");
    found
}

/// The node's packet filter does not redirect these addresses.
pub(crate) fn assert_not_redirected(node: &Machine, addresses: &[IpAddr]) {
    let filter = node.run(&["nft", "list", "table", "inet", "ovnkube"]).unwrap();
    for address in addresses {
        assert!(!filter.contains(&format!("{address} . tcp . ")), "{address} is redirected:\n{filter}");
    }
}

/// Counts packets to service ranges on the outside machine.
pub(crate) fn watch_leaks(outside: &Machine) {
    let table = "table inet leaks {\n\tchain seen {\n\t\ttype filter hook prerouting priority -400;\n\
                 \t\tip daddr 10.96.0.0/16 counter\n\t\tip6 daddr fd96::/112 counter\n\t}\n}\n";
    outside.run_with_input(&["nft", "-f", "-"], table).unwrap();
}

pub(crate) fn assert_no_leaks(outside: &Machine) {
    let table = outside.run(&["nft", "list", "table", "inet", "leaks"]).unwrap();
    let counts: Vec<&str> = table.lines().filter(|line| line.contains("counter packets")).collect();
    assert!(
        counts.len() == 2 && counts.iter().all(|line| line.contains("packets 0 ")),
        "packets to service ranges left the cluster:\n{table}"
    );
}

/// An address in a service range that no Service has.
pub(crate) fn unallocated(family: netmodel::Family) -> IpAddr {
    match family {
        netmodel::Family::V4 => IpAddr::from([10, 96, 255, 240]),
        netmodel::Family::V6 => "fd96::fff0".parse().unwrap(),
    }
}

/// TCP and UDP to an unserved address and port are rejected at once. An attempt without an answer is repeated: a busy switch
/// may lose a packet.
pub(crate) fn assert_refused(who: &str, client: Client<'_>, target: SocketAddr) {
    let refused = lab::poll(TIMEOUT, || match client.connect(target) {
        Ok(_) => panic!("TCP from {who} to {target} is connected"),
        Err(error) if error.contains("refused") => Ok(()),
        Err(error) => Err(error),
    });
    refused.unwrap_or_else(|error| panic!("TCP from {who} to {target}: {error}"));
    let ask = || -> std::io::Result<usize> {
        let socket = UdpSocket::bind(if target.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" })?;
        socket.connect(target)?;
        socket.set_read_timeout(Some(REFUSAL))?;
        socket.send(b"?")?;
        socket.recv(&mut [0; 16])
    };
    let refused = lab::poll(TIMEOUT, || {
        let answer = match client {
            Client::Machine(machine) => machine.with_network(ask).unwrap(),
            Client::Pod(pod) => pod.with_network(ask).unwrap(),
        };
        match answer {
            Ok(_) => panic!("UDP from {who} to {target} is answered"),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
            Err(error) => Err(error),
        }
    });
    refused.unwrap_or_else(|error| panic!("UDP from {who} to {target}: {error}"));
}

/// A host's connection is rejected even if the next hop does not answer ARP. Breaks the network: call it last.
pub(crate) fn assert_refused_without_router(site: &Site, node: &Machine, outside: &Machine) {
    outside.run(&["ip", "link", "set", "dev", "eth0", "down"]).unwrap();
    site.lab.sbctl(&["--all", "destroy", "MAC_Binding"]).unwrap();
    site.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    for family in site.families() {
        assert_refused("a host without a router", Client::Machine(node), SocketAddr::new(unallocated(family), 80));
    }
}

/// ovn-controller logs this for template variables without a value on its chassis.
pub(crate) fn assert_no_template_warnings(site: &Site) {
    for node in 1..=2 {
        let log = site.lab.log(&format!("n{node}-ovn-controller")).unwrap();
        let warnings: Vec<&str> = log.lines().filter(|line| line.contains("error parsing")).collect();
        assert!(warnings.is_empty(), "ovn-controller of n{node}: {warnings:#?}");
    }
}
