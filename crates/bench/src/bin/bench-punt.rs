//! `bench-punt`: how long a pod's first packet takes while another pod of its node floods ovn-controller. Writes
//! `target/bench/punt.json`.
//!
//! Each path to ovn-controller is flooded with 10,000 frames per second. First packets on the same path are measured by turns:
//! without a flood, with it, and with as many ordinary datagrams, which flows forward.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench::{Contender, Figure, Goal, Sample, interleave};
use lab::punt::{Ends, Path};
use lab::{Databases, Family, Kubernetes, Lab, LabSpec, Ovn, Pod, PodInterface, Program};
use netmodel::{InterfaceAddress, Mac};
use serde_json::{Value, json};

const RATE: u32 = 10_000;
/// How long a flood lasts before a first packet is sent.
const LEAD: Duration = Duration::from_millis(300);
/// Many short runs: other work of the machine falls on a few of all.
const RUNS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(14);
const LIMIT: Duration = Duration::from_secs(120);
const NETWORKS: [&str; 4] =
    ["--cluster-subnets", "10.128.0.0/14/23,fd01::/48/64", "--k8s-service-cidrs", "10.96.0.0/16,fd96::/112"];

fn main() -> Result<()> {
    if let Some(argument) = std::env::args().nth(1) {
        bail!("unexpected argument {argument:?}: bench-punt takes no arguments");
    }
    let lab = start()?;
    let ends = ends(&lab)?;
    let numbers = u16::try_from(3 * RUNS.get())?;
    Path::prepare(&ends, numbers)?;
    let mut figures = vec![bench::calibration()?];
    for path in Path::ALL {
        let [quiet, busy, ordinary] = measure(path, &ends)?;
        let name = path.name();
        for sample in [&quiet, &busy, &ordinary] {
            println!("{sample}");
        }
        figures.push(Figure::new(format!("first packet, {name}"), quiet.median(), "ms"));
        figures.push(Figure::new(format!("first packet under a flood, {name}"), busy.median(), "ms"));
        let goal = Some(Goal::AtMost(2.0));
        figures.push(bench::ratio(&format!("first packet under a flood against none, {name}"), &busy, &quiet, goal));
        figures.push(bench::ratio(
            &format!("first packet under a flood against ordinary datagrams, {name}"),
            &busy,
            &ordinary,
            None,
        ));
    }
    let path = bench::write_figures("punt", &figures)?;
    print!("{}", bench::table(&figures));
    println!("written to {}", path.display());
    Ok(())
}

/// Milliseconds of first packets: without a flood, with one, with one of ordinary datagrams.
fn measure(path: Path, ends: &Ends) -> Result<[Sample; 3]> {
    let number = Cell::new(0);
    let first = || -> Result<f64> {
        let took = path.first_packet(ends, number.replace(number.get() + 1))?;
        Ok(took.as_secs_f64() * 1e3)
    };
    let flooded = |by: Path| -> Result<f64> {
        let flood = ends.attacker.flood(&by.frames(ends), RATE)?;
        std::thread::sleep(LEAD);
        let took = first()?;
        flood.stop()?;
        Ok(took)
    };
    let name = path.name();
    let (busy, ordinary) = (format!("{name}: flood"), format!("{name}: ordinary datagrams"));
    let mut contenders: Vec<Contender<'_, anyhow::Error>> = vec![
        (name, Box::new(first)),
        (&busy, Box::new(|| flooded(path))),
        (&ordinary, Box::new(|| flooded(Path::Ordinary))),
    ];
    let samples = interleave(RUNS, &mut contenders)?;
    samples.try_into().map_err(|_| anyhow::anyhow!("a sample is missing"))
}

/// One node with the controller and its agent as release builds.
fn start() -> Result<Lab> {
    let ovnkube: PathBuf = std::env::current_exe()?.with_file_name("ovnkube");
    if !ovnkube.exists() {
        bail!("{} not found: run `make bench-punt`, which builds it", ovnkube.display());
    }
    let ovn = Ovn { databases: Databases::Standalone, ..Ovn::default() };
    let spec = LabSpec::for_test("bench-punt")?.nodes(1).family(Family::Dual).ovn(ovn);
    let lab = Lab::start(spec.kubernetes(Kubernetes::default()))?;
    // A node without a kubelet would be marked unreachable, and its pods evicted.
    for component in ["kube-controller-manager", "kube-scheduler"] {
        lab.kill(component)?;
    }
    let endpoints = lab.record().endpoints;
    let controller = Program::new("controller", &ovnkube)
        .arguments(["controller", "--identity", "bench", "--metrics-bind-address", "off"])
        .arguments(["--nb-address", &endpoints.northbound.context("the lab has no northbound database")?])
        .arguments(["--sb-address", &endpoints.southbound.context("the lab has no southbound database")?])
        .arguments(NETWORKS)
        .ready_when_logged("leading");
    lab.run(&controller)?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    for object in [account, node] {
        lab.apply(&object.to_string())?;
    }
    let southbound = endpoints.southbound_remote.context("nodes reach no southbound database")?;
    let agent = Program::new("agent", &ovnkube)
        .on("n1")
        .arguments(["node", "--node", "n1", "--metrics-bind-address", "off", "--sb-address", &southbound])
        .arguments(NETWORKS);
    lab.run(&agent)?;
    await_some("n1 is not ready", || {
        let node = get(&lab, &["node", "n1"])?;
        let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        let ready =
            conditions.clone().any(|one| one["type"] == "k8s.ovn.org/NodeNetworkReady" && one["status"] == "True");
        Ok(ready.then_some(()))
    })?;
    lab.nbctl(&["--wait=hv", "--timeout=60", "sync"])?;
    Ok(lab)
}

fn get(lab: &Lab, what: &[&str]) -> Result<Value> {
    let words = [&["get", "-o", "json"], what].concat();
    Ok(serde_json::from_str(&lab.kubectl(&words)?)?)
}

fn await_some<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    lab::poll(LIMIT, || match look() {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(format!("{what} after {LIMIT:?}")),
        Err(error) => Err(error.to_string()),
    })
    .map_err(anyhow::Error::msg)
}

/// Creates a pod and connects it; returns its addresses and its gateways, IPv4 first.
fn pod(lab: &Lab, name: &str) -> Result<(Pod, Mac, Vec<IpAddr>, Vec<IpAddr>)> {
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": "n1", "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "none"}]}});
    await_some("the pod is not created", || Ok(Some(lab.apply(&object.to_string())?)))?;
    let (uid, network) = await_some("the pod has no annotation", || {
        let pod = get(lab, &["pod", name])?;
        let Some(text) = pod["metadata"]["annotations"]["k8s.ovn.org/pod-networks"].as_str() else { return Ok(None) };
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        Ok(Some((uid, serde_json::from_str::<Value>(text)?["default"].clone())))
    })?;
    let texts = |key: &str| network[key].as_array().into_iter().flatten().filter_map(Value::as_str);
    let addresses: Vec<InterfaceAddress> = texts("ip_addresses").map(str::parse).collect::<Result<_, _>>()?;
    let gateways: Vec<IpAddr> = texts("gateway_ips").map(str::parse).collect::<Result<_, _>>()?;
    let mac: Mac = network["mac_address"].as_str().unwrap_or_default().parse()?;
    let port = format!("default_{name}");
    let wiring =
        PodInterface { port: &port, mac, addresses: &addresses, gateways: &gateways, mtu: 1400, version: Some(&uid) };
    let pod = Pod::create(lab.node(1)?, name, &wiring)?;
    lab.nbctl(&["wait-until", "Logical_Switch_Port", &port, "up=true"])?;
    Ok((pod, mac, addresses.iter().map(|address| address.address()).collect(), gateways))
}

fn of_both(addresses: &[IpAddr]) -> Result<(Ipv4Addr, Ipv6Addr)> {
    match addresses {
        [IpAddr::V4(v4), IpAddr::V6(v6)] => Ok((*v4, *v6)),
        _ => bail!("{addresses:?} are not one address of each family"),
    }
}

fn ends(lab: &Lab) -> Result<Ends> {
    let (attacker, mac, addresses, gateways) = pod(lab, "attacker")?;
    let (other, ..) = pod(lab, "other")?;
    let ((v4, v6), gateway) = (of_both(&addresses)?, of_both(&gateways)?);
    let bytes = |mac: Mac| lab::frames::mac(&mac.to_string()).context("a MAC");
    Ok(Ends {
        attacker,
        mac: bytes(mac)?,
        v4,
        v6,
        gateway: (bytes(Mac::for_address(gateway.0.into()))?, gateway.0, gateway.1),
        other,
        unserved: (Ipv4Addr::new(10, 96, 255, 240), "fd96::fff0".parse()?),
        outside: lab.machine("outside")?,
    })
}
