//! Restarts of the agent and of ovs-vswitchd, and restored flows and filters.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use lab::Family;
use netmodel::Family::V4;
use serde_json::json;

use crate::site::{Client, Site, TIMEOUT, agent, underlay, until};

/// A TCP echo server.
fn echo(pod: &lab::Pod, port: u16) {
    let listener = pod.listen(port).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut bytes = [0u8; 64];
                while let Ok(count @ 1..) = stream.read(&mut bytes) {
                    if stream.write_all(&bytes[..count]).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

fn check_echo(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(b"word").unwrap();
    let mut back = [0u8; 4];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"word");
}

/// The ages of the agent's flows in seconds, youngest first.
fn ages(site: &Site, node: u32) -> Vec<f64> {
    let machine = site.lab.node(node).unwrap();
    let dump =
        machine.run(&["ovs-ofctl", "dump-flows", "br-ex", "cookie=0xdeff000000000000/0xffff000000000000"]).unwrap();
    let word = |line: &str| line.split("duration=").nth(1)?.split('s').next()?.parse().ok();
    let mut ages: Vec<f64> = dump.lines().filter_map(word).collect();
    ages.sort_by(f64::total_cmp);
    ages
}

/// Log messages of changes; the test also requires them at the first start.
const CHANGES: [&str; 3] = ["updated flows", "updated the nftables table", "updated addresses and routes of the host"];

#[test]
fn an_agent_restart_changes_nothing_on_the_host() {
    let site = Site::start("gw-restart", Family::V4, "shared");
    let (n1, outside) = (site.lab.node(1).unwrap(), site.lab.machine("outside").unwrap());
    let (pod, addresses) = site.pod(1, "web-1", &json!({"ports": [{"containerPort": 8081, "hostPort": 7071}]}));
    echo(&pod, 8081);
    let cluster = site.service(
        "echo",
        json!({"type": "NodePort", "ports": [{"port": 81, "nodePort": 30090}]}),
        &[(addresses[0], 1, 8081)],
    );
    let node_port = SocketAddr::new(underlay(11, V4), 30090);
    let connect = |client: Client<'_>, target: SocketAddr| -> TcpStream {
        until(&format!("{target} answers"), || client.connect(target).ok())
    };
    let mut streams = [
        connect(Client::Machine(&outside), node_port),
        connect(Client::Machine(&n1), node_port),
        connect(Client::Machine(&n1), SocketAddr::new(cluster[0], 81)),
        connect(Client::Machine(&outside), SocketAddr::new(underlay(11, V4), 7071)),
        connect(Client::Machine(&n1), SocketAddr::new(underlay(11, V4), 7071)),
    ];
    streams.iter_mut().for_each(check_echo);
    let (flows, before) = (ages(&site, 1).len(), site.lab.log(&agent(1)).unwrap().len());
    assert!(flows > 20, "{flows} flows");

    let stopped = Instant::now();
    site.lab.terminate(&agent(1), TIMEOUT).unwrap();
    streams.iter_mut().for_each(check_echo);
    site.lab.restart(&agent(1)).unwrap();
    let ready = r#""message":"readiness check passed","part":"gateway""#;
    until("the new agent is ready", || site.lab.log(&agent(1)).unwrap()[before..].contains(ready).then_some(()));
    streams.iter_mut().for_each(check_echo);

    let log = site.lab.log(&agent(1)).unwrap();
    let (first_start, restart) = log.split_at(before);
    for change in CHANGES {
        assert!(first_start.contains(change), "{change:?} is not logged at the first start: {first_start}");
        assert!(!restart.contains(change), "{change:?} is logged at the restart: {restart}");
    }
    let since = stopped.elapsed().as_secs_f64();
    let ages = ages(&site, 1);
    assert_eq!(ages.len(), flows);
    // Every flow is older than the restart.
    assert!(ages[0] >= since - 0.1, "{ages:?} {since}");
}

#[test]
fn flows_are_restored_after_a_vswitchd_restart() {
    let site = Site::start("gw-switch", Family::V4, "shared");
    let (n1, outside) = (site.lab.node(1).unwrap(), site.lab.machine("outside").unwrap());
    let (_, addresses) = site.web_behind_a_node_port();
    let node_port = SocketAddr::new(underlay(11, V4), 30080);
    assert_eq!(Client::Machine(&outside).reaches(node_port).name, "web-2");
    let flows = ages(&site, 1).len();

    site.lab.kill("n1-ovs-vswitchd").unwrap();
    site.lab.restart("n1-ovs-vswitchd").unwrap();
    // Devices of the userspace datapath are recreated; the test restores the host's own addresses.
    until("br-ex exists", || n1.run(&["ip", "link", "set", "br-ex", "up"]).ok());
    n1.run(&["ip", "addr", "replace", "10.99.0.11/24", "dev", "br-ex"]).unwrap();
    n1.run(&["ip", "route", "replace", "default", "via", "10.99.0.254"]).unwrap();
    until("the bridge answers OpenFlow", || n1.run(&["ovs-ofctl", "show", "br-ex"]).ok());
    until("the flows are restored", || (ages(&site, 1).len() == flows).then_some(()));
    assert_eq!(Client::Machine(&outside).reaches(node_port).name, "web-2");
    assert_eq!(Client::Machine(&n1).reaches(SocketAddr::new(addresses[0], 8080)).name, "web-2");
}

/// A firewall reload deletes all tables, and `ovs-ofctl del-flows` all flows.
#[test]
fn deleted_filter_tables_and_flows_are_restored() {
    let site = Site::start("gw-taken", Family::V4, "local");
    let (n1, outside) = (site.lab.node(1).unwrap(), site.lab.machine("outside").unwrap());
    site.web_behind_a_node_port();
    let node_port = SocketAddr::new(underlay(11, V4), 30080);
    assert_eq!(Client::Machine(&outside).reaches(node_port).name, "web-2");
    let table = || n1.run(&["nft", "--stateless", "list", "table", "inet", "ovnkube"]).ok();
    let (whole, flows) = (until("the table exists", table), ages(&site, 1).len());
    // On the userspace datapath the kernel must not receive the uplink's frames.
    assert!(n1.run(&["nft", "list", "table", "netdev", "ovnkube"]).unwrap().contains("eth0"));
    // Not `flush ruleset`: the lab's own table must stay.
    for command in ["flush", "delete"] {
        n1.run(&["nft", command, "table", "inet", "ovnkube"]).unwrap();
        until(&format!("the table is restored after {command}"), || (table()? == whole).then_some(()));
    }
    for which in ["cookie=0xdeff000000000000/0xffff000000000000", "ip"] {
        n1.run(&["ovs-ofctl", "del-flows", "br-ex", which]).unwrap();
        until(&format!("the flows are restored after del-flows {which:?}"), || {
            (ages(&site, 1).len() == flows).then_some(())
        });
    }
    assert_eq!(Client::Machine(&outside).reaches(node_port).name, "web-2");
    let log = site.lab.log(&agent(1)).unwrap();
    for drift in ["another client changed or deleted the nftables table", "another client changed or deleted flows"] {
        assert!(log.contains(drift), "{drift:?} is not in {log}");
    }
}

#[test]
fn health_check_node_ports_report_local_endpoints() {
    let site = Site::start("gw-health", Family::V4, "shared");
    let outside = site.lab.machine("outside").unwrap();
    let (_, addresses) = site.pod(1, "web-1", &json!({}));
    site.service(
        "near",
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000,
            "ports": [{"port": 80, "nodePort": 30081}]}),
        &[(addresses[0], 1, 8080)],
    );
    let ask = |node: u8| -> Option<String> {
        let target = SocketAddr::new(underlay(10 + node, V4), 32000);
        let mut stream = Client::Machine(&outside).connect(target).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    };
    let wait_health = |node: u8, words: &[&str]| {
        until(&format!("n{node} reports {words:?}"), || {
            ask(node).filter(|text| words.iter().all(|word| text.contains(word)))
        });
    };
    wait_health(1, &["200 OK", r#""localEndpoints":1"#, r#""name":"near""#, r#""namespace":"default""#]);
    wait_health(2, &["503", r#""localEndpoints":0"#]);
    site.lab.kubectl(&["delete", "service", "near"]).unwrap();
    until("the port is closed", || ask(1).is_none().then_some(()));
}
