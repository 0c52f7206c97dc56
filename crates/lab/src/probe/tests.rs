//! The prober finds what it is for: loss, resets, duplicates and wrong sources, each made by a server of the test.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use super::packet::{REQUEST, Reply, Request};
use super::*;
use crate::progress::Progress;

fn here() -> Network {
    Network { name: "here".into(), file: "/proc/self/ns/net".into(), own: false }
}

fn path(protocol: Protocol, to: SocketAddr, source: &str) -> PathSpec {
    PathSpec {
        route: "loopback".into(),
        protocol,
        from: here(),
        to,
        server: Server::Echo,
        sources: vec![source.parse().unwrap()],
        reference: false,
    }
}

/// A free port of loopback for TCP and UDP; another program may take it in between, but none here does.
fn free() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn measure(prober: &Prober, milliseconds: u64, fault: impl FnMut(&Marks<'_>) -> Result<()>) -> Report {
    let rounds = Rounds { title: "test".into(), rounds: 1, window: Duration::from_millis(milliseconds) };
    run(prober, &rounds, &Progress::silent(), fault).unwrap()
}

#[test]
fn a_healthy_path_loses_nothing_and_is_marked_and_drawn() {
    let server = free();
    let paths = [Protocol::TcpEstablished, Protocol::TcpNew, Protocol::Udp, Protocol::Icmp]
        .map(|protocol| path(protocol, server, "127.0.0.1/32"))
        .to_vec();
    let prober = Prober::start(&Plan { paths, servers: vec![(here(), server)], rate: 400 }).unwrap();
    let report = measure(&prober, 300, |marks| {
        marks.mark("nothing <is> done");
        Ok(())
    });
    let [control, fault] = report.total();
    assert!(control.sent > 50 && fault.sent > 50, "{}", report.table(false));
    for path in &report.paths {
        let wrong = path.fault.lost + path.fault.reset + path.fault.duplicated + path.fault.wrong_source;
        assert_eq!((wrong, path.control.wrong_source), (0, 0), "{}", report.table(false));
    }
    let lengths = |kind: Kind| -> Duration {
        report.windows.iter().filter(|window| window.kind == kind).map(Window::length).sum()
    };
    let difference = lengths(Kind::Control).abs_diff(lengths(Kind::Fault));
    assert!(difference < Duration::from_secs(1), "control and fault last equally long: {:?}", report.windows);
    let svg = report.svg();
    assert!(svg.contains("nothing &lt;is&gt; done") && svg.contains("loopback, ICMP"), "{svg}");
    assert!(serde_json::to_string(&report).unwrap().contains("\"protocol\":\"tcp-established\""));
}

#[test]
fn a_wrong_source_and_a_duplicate_are_found() {
    // It answers twice, and the path promises that it sees another client than it does.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let server = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; REQUEST];
        while let Ok((_, client)) = socket.recv_from(&mut bytes) {
            let Some(request) = Request::decode(&bytes) else { continue };
            for _ in 0..2 {
                let _ = socket.send_to(&Reply { request, client }.encode(), client);
            }
        }
    });
    let paths = vec![path(Protocol::Udp, server, "127.0.0.2/32")];
    let prober = Prober::start(&Plan { paths, servers: Vec::new(), rate: 100 }).unwrap();
    prober.await_ready(Duration::from_secs(10)).unwrap();
    let entries = prober.entries().remove(0);
    let answered: Vec<&Entry> = entries.iter().filter(|entry| entry.answers > 1).collect();
    assert!(answered.len() >= 5, "{entries:?}");
    let loopback = Some(std::net::IpAddr::from([127, 0, 0, 1]));
    assert!(answered.iter().all(|entry| entry.wrong_source == loopback), "{answered:?}");
}

#[test]
fn a_reply_from_another_address_is_a_wrong_source() {
    let asked = UdpSocket::bind("127.0.0.1:0").unwrap();
    let server = asked.local_addr().unwrap();
    let other = UdpSocket::bind("127.0.0.3:0").unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; REQUEST];
        while let Ok((_, client)) = asked.recv_from(&mut bytes) {
            if let Some(request) = Request::decode(&bytes) {
                let _ = other.send_to(&Reply { request, client }.encode(), client);
            }
        }
    });
    let paths = vec![path(Protocol::Udp, server, "127.0.0.1/32")];
    let prober = Prober::start(&Plan { paths, servers: Vec::new(), rate: 100 }).unwrap();
    prober.await_ready(Duration::from_secs(10)).unwrap();
    let other = Some(std::net::IpAddr::from([127, 0, 0, 3]));
    let entries = prober.entries().remove(0);
    assert!(entries.iter().filter(|entry| entry.answers > 0).all(|entry| entry.wrong_source == other), "{entries:?}");
}

#[test]
fn a_refused_connection_and_one_that_ends_are_resets() {
    let refused = free();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ends = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; REQUEST]);
        }
    });
    let paths = vec![
        path(Protocol::TcpNew, refused, "127.0.0.1/32"),
        path(Protocol::TcpNew, ends, "127.0.0.1/32"),
        path(Protocol::TcpEstablished, ends, "127.0.0.1/32"),
    ];
    let prober = Prober::start(&Plan { paths, servers: Vec::new(), rate: 200 }).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let resets = || prober.entries().iter().map(|path| path.iter().filter(|entry| entry.reset).count()).min();
    while resets() < Some(3) {
        assert!(Instant::now() < deadline, "{:?}", prober.entries());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(prober.entries().iter().flatten().all(|entry| entry.answered.is_none()));
}

/// A server that stops answering under the fault is lost traffic, and answers that come slowly are late.
#[test]
fn silence_under_the_fault_is_more_than_the_control() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let server = socket.local_addr().unwrap();
    let silent = Arc::new(AtomicBool::new(false));
    let quiet = silent.clone();
    std::thread::spawn(move || {
        let mut bytes = [0; REQUEST];
        while let Ok((_, client)) = socket.recv_from(&mut bytes) {
            let Some(request) = Request::decode(&bytes) else { continue };
            if !quiet.load(Ordering::Acquire) {
                let _ = socket.send_to(&Reply { request, client }.encode(), client);
            }
        }
    });
    let paths = vec![path(Protocol::Udp, server, "127.0.0.1/32")];
    let prober = Prober::start(&Plan { paths, servers: Vec::new(), rate: 100 }).unwrap();
    let report = measure(&prober, 200, |_| {
        silent.store(true, Ordering::Release);
        std::thread::sleep(Duration::from_millis(300));
        silent.store(false, Ordering::Release);
        Ok(())
    });
    assert!(!report.ok && report.excess(Incident::Lost) > 5, "{}", report.table(false));
    assert!(report.summary().contains("more than the control: loopback, UDP"), "{}", report.summary());
    assert!(report.paths[0].happenings.iter().any(|one| one.window == Kind::Fault && one.what == Incident::Lost));
}
