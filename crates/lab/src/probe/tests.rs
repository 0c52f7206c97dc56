//! The prober detects loss, resets, duplicates and wrong sources, each produced by a server of the test.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use super::packet::{REQUEST, Reply, Request};
use super::rounds::Window;
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

/// A free port of loopback for TCP and UDP; no other test uses it in between.
fn free() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn measure(prober: &Prober, milliseconds: u64, fault: impl FnMut(&Marks<'_>) -> Result<()>) -> Report {
    let rounds = Rounds { title: "test".into(), rounds: 1, window: Duration::from_millis(milliseconds) };
    run(prober, &rounds, &Progress::silent(), fault).unwrap()
}

#[test]
fn a_healthy_path_loses_nothing() {
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
    let lengths = |kind: WindowKind| -> Duration {
        report.windows.iter().filter(|window| window.kind == kind).map(Window::length).sum()
    };
    let difference = lengths(WindowKind::Control).abs_diff(lengths(WindowKind::Fault));
    assert!(difference < Duration::from_secs(1), "control and fault last equally long: {:?}", report.windows);
    let svg = report.svg();
    assert!(svg.contains("nothing &lt;is&gt; done") && svg.contains("loopback, ICMP"), "{svg}");
    assert!(serde_json::to_string(&report).unwrap().contains("\"protocol\":\"tcp-established\""));
}

#[test]
fn wrong_sources_and_duplicates_are_detected() {
    // It answers twice, and the path does not allow the client address that it reports.
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
    let packets = prober.packets().remove(0);
    let answered: Vec<&PacketRecord> = packets.iter().filter(|packet| packet.answers > 1).collect();
    assert!(answered.len() >= 5, "{packets:?}");
    let loopback = Some(std::net::IpAddr::from([127, 0, 0, 1]));
    assert!(answered.iter().all(|packet| packet.wrong_source == loopback), "{answered:?}");
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
    let packets = prober.packets().remove(0);
    assert!(
        packets.iter().filter(|packet| packet.answers > 0).all(|packet| packet.wrong_source == other),
        "{packets:?}"
    );
}

#[test]
fn refused_and_closed_connections_are_resets() {
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
    let resets = || prober.packets().iter().map(|path| path.iter().filter(|packet| packet.reset).count()).min();
    while resets() < Some(3) {
        assert!(Instant::now() < deadline, "{:?}", prober.packets());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(prober.packets().iter().flatten().all(|packet| packet.answered.is_none()));
}

/// A server that stops answering under the fault loses packets.
#[test]
fn packets_lost_under_the_fault_exceed_the_control() {
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
    assert!(report.paths[0].incidents.iter().any(|one| one.window == WindowKind::Fault && one.what == Incident::Lost));
}
