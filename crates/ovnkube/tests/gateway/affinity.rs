//! Session affinity: a client keeps its endpoint when others are removed.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use lab::{Family, Machine};
use netmodel::Family::V4;
use serde_json::json;

use crate::site::{Client, Site, underlay, until};

const NODE_PORT: u16 = 30085;
/// Enough that each endpoint has some clients.
const CLIENTS: u8 = 24;

/// The endpoint of each client, by the last octet of its address.
fn endpoints_of_clients(outside: &Machine, device: &str) -> BTreeMap<u8, String> {
    let node = underlay(11, V4);
    let ask = |client: u8| {
        let source = underlay(client, V4).to_string();
        outside.run(&["ip", "route", "replace", &node.to_string(), "dev", device, "src", &source]).unwrap();
        let answer = Client::Machine(outside).reaches(SocketAddr::new(node, NODE_PORT));
        assert_eq!(answer.client.to_string(), source);
        (client, answer.name)
    };
    (100..100 + CLIENTS).map(ask).collect()
}

fn check_affinity(purpose: &str, mode: &'static str) {
    let site = Site::start(purpose, Family::V4, mode);
    let pods: Vec<_> = (1..=4).map(|number| site.pod(1, &format!("web-{number}"), &json!({}))).collect();
    let outside = site.lab.machine("outside").unwrap();
    let route = outside.run(&["ip", "route", "get", &underlay(11, V4).to_string()]).unwrap();
    let device = route.split_whitespace().skip_while(|word| *word != "dev").nth(1).unwrap().to_owned();
    for client in 100..100 + CLIENTS {
        let address = format!("{}/24", underlay(client, V4));
        outside.run(&["ip", "address", "add", &address, "dev", &device]).unwrap();
    }
    let serve = |which: &[usize]| {
        let endpoints: Vec<(IpAddr, u32, u16)> = which.iter().map(|pod| (pods[*pod].1[0], 1, 8080)).collect();
        let spec = json!({"type": "NodePort", "externalTrafficPolicy": "Local", "sessionAffinity": "ClientIP",
            "ports": [{"port": 80, "nodePort": NODE_PORT}]});
        site.service("sticky", spec, &endpoints);
        site.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    };
    serve(&[0, 1, 2, 3]);
    until("the node port is open", || Client::Machine(&outside).ask(SocketAddr::new(underlay(11, V4), NODE_PORT)).ok());
    let all = endpoints_of_clients(&outside, &device);
    assert_eq!(endpoints_of_clients(&outside, &device), all, "a client moved for no reason");
    for number in 1..=4 {
        let name = format!("web-{number}");
        assert!(all.values().any(|endpoint| *endpoint == name), "{name} has no client: {all:?}");
    }
    // Removing the first endpoint changes the index of all others.
    serve(&[1, 2, 3]);
    let rest = until("no client has the removed endpoint", || {
        let rest = endpoints_of_clients(&outside, &device);
        (!rest.values().any(|endpoint| endpoint == "web-1")).then_some(rest)
    });
    for (client, endpoint) in all.iter().filter(|(_, endpoint)| *endpoint != "web-1") {
        assert_eq!(rest[client], *endpoint, "client {client} moved");
    }
    serve(&[0, 1, 2, 3]);
    until("clients return to the restored endpoint", || (endpoints_of_clients(&outside, &device) == all).then_some(()));
}

#[test]
fn affinity_survives_removal_of_another_endpoint() {
    check_affinity("affinity", "shared");
}

#[test]
fn affinity_survives_removal_of_another_endpoint_local() {
    check_affinity("affinity-local", "local");
}
