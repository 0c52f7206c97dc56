//! The network's own pods are replaced, one node after the other, while applications go on (002.11, 003.10, 003.16).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lab::{Family, Gateway, Lab, Machine, Over};

use crate::common::cluster;

/// How long a packet may take; a lost one is sent again after a second, and counts as late.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection that stays.
struct Talk(BufReader<TcpStream>);

impl Talk {
    fn open(from: &Machine, to: SocketAddr) -> std::io::Result<Self> {
        let stream = connect(from, to)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Asks something, and reads the whole answer.
    fn ask(&mut self) -> std::io::Result<String> {
        self.0.get_mut().write_all(b"GET /hostname HTTP/1.1\r\nHost: web\r\n\r\n")?;
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            if self.0.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().map_err(std::io::Error::other)?;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}

/// Asks again and again until it is over: how often, and what went wrong.
fn insist(over: &AtomicBool, mut ask: impl FnMut() -> std::io::Result<String>) -> (usize, Vec<String>) {
    let (mut count, mut wrong) = (0, Vec::new());
    while !over.load(Ordering::Acquire) {
        count += 1;
        wrong.extend(ask().err().map(|error| format!("{count}: {error}")));
        std::thread::sleep(Duration::from_millis(5));
    }
    (count, wrong)
}

/// A new connection. One whose first packet is lost inside the gateway router, between two looks at connection tracking, never
/// comes about (OVN), so silence is tried again with another, for as long as any packet may take; a refusal counts at once.
fn connect(from: &Machine, to: SocketAddr) -> std::io::Result<TcpStream> {
    let begin = Instant::now();
    loop {
        let tried = Instant::now();
        match from.connect(to, PATIENCE / 4) {
            Ok(stream) => return Ok(stream),
            Err(_) if tried.elapsed() >= PATIENCE / 4 && begin.elapsed() < PATIENCE => {}
            Err(error) => return Err(std::io::Error::other(error)),
        }
    }
}

fn replace(lab: &Lab) {
    for set in ["ovnkube", "ovnkube-master"] {
        let set = format!("daemonset/{set}");
        let before = pods(lab);
        lab.kubectl(&["-n", "ovn-kubernetes", "rollout", "restart", &set]).unwrap();
        let status = ["kubectl", "-n", "ovn-kubernetes", "rollout", "status", &set, "--timeout=180s"];
        lab.machine("control").unwrap().run_within(Duration::from_secs(200), &status).unwrap();
        assert_ne!(pods(lab), before, "{set} was replaced");
    }
}

fn pods(lab: &Lab) -> String {
    lab.kubectl(&["-n", "ovn-kubernetes", "get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"]).unwrap()
}

fn nothing_is_lost(gateway: Gateway) {
    let lab = cluster("upgrade", Family::V4, gateway);
    let service = lab.kubectl(&["-n", "shop", "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"]).unwrap();
    let service: SocketAddr = format!("{}:80", service.trim()).parse().unwrap();
    let (outside, host) = (lab.machine("outside").unwrap(), lab.node(1).unwrap());
    let ports: [SocketAddr; 2] = ["10.99.0.11:30080".parse().unwrap(), "10.99.0.12:30080".parse().unwrap()];
    let ways: Vec<(&str, &Machine, SocketAddr)> = vec![
        ("outside to n1", &outside, ports[0]),
        ("outside to n2", &outside, ports[1]),
        ("host to the service", &host, service),
    ];
    // Neighbours are known before it counts.
    for (_, from, to) in &ways {
        connect(from, *to).unwrap();
    }
    let over = AtomicBool::new(false);
    let over = &over;
    std::thread::scope(|scope| {
        let end = Over(over);
        let mut asking = Vec::new();
        for (name, from, to) in ways {
            let mut talk = Talk::open(from, to).unwrap();
            asking.push((format!("{name}, one connection"), scope.spawn(move || insist(over, || talk.ask()))));
            let anew = move || Talk::open(from, to)?.ask();
            asking.push((format!("{name}, new connections"), scope.spawn(move || insist(over, anew))));
        }
        replace(&lab);
        drop(end);
        for (name, asked) in asking {
            let (count, wrong) = asked.join().unwrap();
            assert!(count > 50, "{name}: {count}");
            assert_eq!(wrong, Vec::<String>::new(), "{name}: of {count}");
        }
    });
    lab.kubectl(&["wait", "--for=condition=Ready", "node", "--all", "--timeout=60s"]).unwrap();
}

#[test]
fn connections_go_on_and_new_ones_come_about_while_the_network_is_replaced() {
    nothing_is_lost(Gateway::Shared);
}

#[test]
fn connections_go_on_and_new_ones_come_about_while_a_local_gateway_is_replaced() {
    nothing_is_lost(Gateway::Local);
}
