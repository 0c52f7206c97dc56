//! Packets between pods, interleaved with the same switches without OVN: two ports of a plain bridge on one node, a
//! bare tunnel between two.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bench::{Contender, Figure, Goal, Sample, interleave};
use lab::{Machine, Pod, PodInterface};

use crate::world::{Sandbox, TIMEOUT, World, until};

const MTU: u16 = 1400;
const SPAN: Duration = Duration::from_secs(1);
/// Many short runs: other work of the machine falls on a few of both.
const RUNS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(14);
const ROUNDS: usize = 1000;
const PORT: u16 = 7100;

/// Two ends, and the address of the second.
struct Pair {
    name: &'static str,
    one: Pod,
    two: Pod,
    to: IpAddr,
}

pub(crate) fn measure(world: &World) -> Result<Vec<Figure>> {
    let (first, second) = (world.node(1)?, world.node(2)?);
    let near = world.sandboxes(1, 2)?;
    let far = world.sandboxes(2, 1)?;
    for sandbox in near.iter().chain(&far) {
        world.agent(sandbox.node)?.add(sandbox)?;
    }
    let pod = |machine: &Machine, sandbox: &Sandbox| Pod::existing(machine.clone(), &sandbox.pod);
    let address = |sandbox: &Sandbox| -> Result<IpAddr> {
        let text = sandbox.network["ip_address"].as_str().context("no address in the annotation")?;
        Ok(text.split('/').next().unwrap_or_default().parse()?)
    };
    let (one, two, other) = (pod(&first, &near[0]), pod(&first, &near[1]), pod(&second, &far[0]));
    let same = Pair { name: "pods of one node", one: one.clone(), two, to: address(&near[1])? };
    let across = Pair { name: "pods of two nodes", one, two: other, to: address(&far[0])? };
    let plain = plain_bridge(&first)?;
    let tunnel = bare_tunnel(&first, &second)?;

    let mut figures = Vec::new();
    for (ours, floor, place) in [(&same, &plain, "one node"), (&across, &tunnel, "two nodes")] {
        let samples = by_turns([ours, floor], throughput)?;
        let ratio =
            |name: String, samples: &[Sample; 2], goal| bench::ratio(&name, &samples[0], &samples[1], Some(goal));
        figures.push(Figure::new(format!("throughput: {}", ours.name), samples[0].median(), "Mbit/s"));
        figures.push(Figure::new(format!("throughput: {}", floor.name), samples[1].median(), "Mbit/s"));
        figures.push(ratio(format!("throughput: against bare, {place}"), &samples, Goal::AtLeast(0.9)));
        let samples = by_turns([ours, floor], latency)?;
        figures.push(Figure::new(format!("round trip: {}", ours.name), samples[0].median(), "µs"));
        figures.push(Figure::new(format!("round trip: {}", floor.name), samples[1].median(), "µs"));
        figures.push(ratio(format!("round trip: against bare, {place}"), &samples, Goal::AtMost(1.1)));
    }
    for sandbox in near.iter().chain(&far) {
        world.agent(sandbox.node)?.remove(sandbox)?;
    }
    Ok(figures)
}

fn by_turns(pairs: [&Pair; 2], measure: fn(&Pair) -> Result<f64>) -> Result<[Sample; 2]> {
    // One run as warm-up, for neighbours and flows.
    for pair in pairs {
        measure(pair)?;
    }
    let mut contenders: Vec<Contender<'_, anyhow::Error>> = Vec::new();
    for pair in pairs {
        contenders.push((pair.name, Box::new(move || measure(pair))));
    }
    let samples = interleave(RUNS, &mut contenders)?;
    for sample in &samples {
        println!("{sample}");
    }
    samples.try_into().map_err(|_| anyhow::anyhow!("a sample is missing"))
}

/// A pod by hand, with its port on a bridge of its own.
fn by_hand(machine: &Machine, name: &str, bridge: &str, address: &str, mac: &str) -> Result<Pod> {
    let addresses = [address.parse()?];
    let wiring =
        PodInterface { port: name, mac: mac.parse()?, addresses: &addresses, gateways: &[], mtu: MTU, version: None };
    let pod = Pod::prepare(machine.clone(), name, &wiring)?;
    machine.run(&["ovs-vsctl", "--timeout=60", "add-port", bridge, name])?;
    Ok(pod)
}

/// A bridge that switches as bridges do, of the same kind as the one of the pods.
fn bridge(machine: &Machine, name: &str) -> Result<()> {
    let kind = machine.run(&["ovs-vsctl", "get", "Bridge", "br-int", "datapath_type"])?;
    let kind = format!("datapath_type={}", kind.trim().trim_matches('"'));
    machine.run(&["ovs-vsctl", "--timeout=60", "add-br", name, "--", "set", "Bridge", name, &kind])?;
    machine.run(&["ovs-ofctl", "add-flow", name, "actions=NORMAL"])?;
    Ok(())
}

fn plain_bridge(machine: &Machine) -> Result<Pair> {
    bridge(machine, "br-plain")?;
    let one = by_hand(machine, "plain1", "br-plain", "192.168.77.1/24", "02:00:00:00:77:01")?;
    let two = by_hand(machine, "plain2", "br-plain", "192.168.77.2/24", "02:00:00:00:77:02")?;
    Ok(Pair { name: "two ports of a plain bridge", one, two, to: "192.168.77.2".parse()? })
}

fn bare_tunnel(first: &Machine, second: &Machine) -> Result<Pair> {
    let end = |machine: &Machine| -> Result<String> {
        let text = machine.run(&["ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids:ovn-encap-ip"])?;
        Ok(text.trim().trim_matches('"').to_owned())
    };
    let ends = [end(first)?, end(second)?];
    for (machine, other) in [(first, &ends[1]), (second, &ends[0])] {
        bridge(machine, "br-bare")?;
        let remote = format!("options:remote_ip={other}");
        let words = ["add-port", "br-bare", "bare0", "--", "set", "Interface", "bare0", "type=geneve"];
        let options = [remote.as_str(), "options:key=7777", "options:csum=true"];
        machine.run(&[&["ovs-vsctl", "--timeout=60"], words.as_slice(), options.as_slice()].concat())?;
    }
    let one = by_hand(first, "tunnel1", "br-bare", "192.168.78.1/24", "02:00:00:00:78:01")?;
    let two = by_hand(second, "tunnel2", "br-bare", "192.168.78.2/24", "02:00:00:00:78:02")?;
    Ok(Pair { name: "a bare tunnel", one, two, to: "192.168.78.2".parse()? })
}

/// Megabits per second of one TCP stream.
fn throughput(pair: &Pair) -> Result<f64> {
    let listener = pair.two.listen(PORT)?;
    listener.set_nonblocking(true)?;
    let mut stream = pair.one.connect(SocketAddr::new(pair.to, PORT), Duration::from_secs(10))?;
    let (mut other, _) = until("the stream has its other end", || match listener.accept() {
        Ok(end) => Ok(Some(end)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error.into()),
    })?;
    // A way that breaks under the stream ends both.
    stream.set_write_timeout(Some(TIMEOUT))?;
    other.set_read_timeout(Some(TIMEOUT))?;
    let reader = std::thread::spawn(move || -> Result<(u64, f64)> {
        let (start, mut bytes, mut part) = (Instant::now(), 0, vec![0; 1 << 16]);
        loop {
            match other.read(&mut part).context("the receiver got no data in time")? {
                0 => return Ok((bytes, start.elapsed().as_secs_f64())),
                more => bytes += more as u64,
            }
        }
    });
    let (start, part) = (Instant::now(), vec![7; 1 << 16]);
    while start.elapsed() < SPAN {
        stream.write_all(&part)?;
    }
    drop(stream);
    let Ok(read) = reader.join() else { bail!("the reader panicked") };
    let (bytes, seconds) = read?;
    Ok(bytes as f64 * 8.0 / 1e6 / seconds)
}

/// The median of many round trips of a small datagram, in microseconds.
fn latency(pair: &Pair) -> Result<f64> {
    let any = |port| SocketAddr::from(([0, 0, 0, 0], port));
    let echo = pair.two.with_network(|| UdpSocket::bind(any(PORT)))??;
    echo.set_read_timeout(Some(Duration::from_secs(2)))?;
    let answering = std::thread::spawn(move || {
        let mut word = [0; 64];
        while let Ok((size, from)) = echo.recv_from(&mut word) {
            // An empty one is the end.
            if size == 0 || echo.send_to(&word[..size], from).is_err() {
                return;
            }
        }
    });
    let socket = pair.one.with_network(|| UdpSocket::bind(any(0)))??;
    socket.connect(SocketAddr::new(pair.to, PORT))?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    let (mut trips, mut word) = (Vec::with_capacity(ROUNDS), [7; 64]);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        socket.send(&[7; 64])?;
        // Lost datagrams are not counted.
        if socket.recv(&mut word).is_ok() {
            trips.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    socket.send(&[])?;
    let _ = answering.join();
    if trips.len() < ROUNDS / 2 {
        bail!("{} of {ROUNDS} datagrams came back between {}", trips.len(), pair.name);
    }
    trips.sort_by(f64::total_cmp);
    Ok(trips[trips.len() / 2])
}
