//! A steady rate of 20 pods per second, interleaved with bare clients at the same rate.
//!
//! ```text
//!  every 50 ms:  +0 create a pod ───────────▶ event ─controller─▶ port row ─▶ annotation
//!               +15 bare: one port, one transaction ─────────────▶ port row
//!               +30 bare: create a pod of no node, patch it as the controller would; beside the patch one port, one transaction
//! ```
//!
//! A bare watch records events and annotations, a bare monitor port rows; both are threads of this program. "Event to commit"
//! lasts from the watch event to the monitor's notification of the row, "bare commit" from sending the transaction to the same
//! monitor's notification: the delay of the notification is in both.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bench::{Figure, Goal};
use kubernetes::{Api, Patch};
use objects::network_condition;
use serde_json::{Value, json};
use tokio::time::{sleep_until, timeout};

use crate::controller::Controller;
use crate::object_watch::{ObjectWatch, TIMEOUT, Times, within};
use crate::objects::Pods;
use crate::quantile::Quantiles;
use crate::rows::{Monitor, Writer};
use crate::world::World;

const PACE: Duration = Duration::from_millis(50);
const COUNT: usize = 500;

pub(crate) fn figures(world: &World, controller: &Controller) -> Result<Vec<Figure>> {
    eprintln!("a steady pace of 20 pods a second, {COUNT} of them");
    let pods = Pods::new("steady", COUNT, world.nodes);
    let others = Pods::new("bare-steady", COUNT, 0);
    world.inside(async |api| {
        pods.prepare(&api).await?;
        others.prepare(&api).await
    })?;
    world.settle(&[controller])?;
    let cpu = controller.cpu()?;
    let (ready, begun) = mpsc::channel();
    let ported: Vec<String> = (0..COUNT).flat_map(|number| [pods.port(number), bare_port(number)]).collect();
    let (seen, rows, sent) = std::thread::scope(|scope| -> Result<_> {
        let watching = ready.clone();
        let (watched, monitored) = (&pods, &ported);
        let watcher = scope.spawn(move || {
            world.inside(async move |api| {
                let mut objects = ObjectWatch::of(&api, "pods", &watched.purpose).await?;
                let _ = watching.send(());
                objects.annotated(COUNT).await?;
                Ok(objects.times)
            })
        });
        let monitor = scope.spawn(move || {
            world.inside(async move |_| {
                let mut monitor = Monitor::new(&world.northbound).await?;
                let _ = ready.send(());
                let mut awaited: HashSet<&String> = monitored.iter().collect();
                within("the ports of all pods", async {
                    while !awaited.is_empty() {
                        for name in monitor.step().await? {
                            awaited.remove(&name);
                        }
                    }
                    Ok(())
                })
                .await?;
                Ok(monitor.seen)
            })
        });
        for _ in 0..2 {
            begun.recv_timeout(TIMEOUT).context("the pod watch or the port monitor did not start")?;
        }
        let sent = world.inside(async |api| send(world, &api, &pods, &others).await)?;
        let joined = |_| anyhow::anyhow!("the pod watch or the port monitor panicked");
        Ok((watcher.join().map_err(joined)??, monitor.join().map_err(joined)??, sent))
    })?;
    let cpu = controller.cpu()? - cpu;
    figures_of(&pods, &seen, &rows, &sent, cpu)
}

fn bare_port(number: usize) -> String {
    format!("bare-steady-{}_port-{number}", number / 100)
}

/// Times that this side recorded, by pod number.
#[derive(Default)]
struct Sent {
    created: HashMap<usize, Instant>,
    committed: HashMap<usize, Instant>,
    /// Create call and patch call together, in milliseconds.
    bare: Vec<f64>,
}

async fn send(world: &World, api: &Api, pods: &Pods, others: &Pods) -> Result<Sent> {
    let writer = Writer::new(&world.northbound, "bench-steady").await?;
    let mut sent = Sent::default();
    // One warm connection for each of the two callers, as any client at this rate has.
    let start = tokio::time::Instant::now() + Duration::from_millis(100);
    let (pods, call) = (pods.clone(), api.clone());
    let creator = tokio::spawn(async move {
        let mut created = HashMap::new();
        for number in 0..COUNT {
            sleep_until(start + PACE * u32::try_from(number)?).await;
            created.insert(number, Instant::now());
            call.post(&pods.collection(number), pods.manifest(number).into_bytes()).await?;
        }
        anyhow::Ok(created)
    });
    let (others, call, nodes) = (others.clone(), api.clone(), world.nodes);
    // The databases and northd use CPU for each port while a pod is patched; the comparison must include that.
    let beside = Writer::new(&world.northbound, "bench-beside").await?;
    let bare = tokio::spawn(async move {
        let mut took = Vec::new();
        for number in 0..COUNT {
            sleep_until(start + PACE * u32::try_from(number)? + Duration::from_millis(30)).await;
            let begin = Instant::now();
            let answer = call.post(&others.collection(number), others.manifest(number).into_bytes()).await?;
            let pod: Value = serde_json::from_slice(&answer)?;
            let (uid, port) = (
                pod["metadata"]["uid"].as_str().context("the created pod has no UID")?,
                [format!("beside_port-{number}")],
            );
            let patched = async {
                patch(&call, &others, number, uid).await?;
                anyhow::Ok(begin.elapsed())
            };
            let (took_so_far, written) = tokio::join!(patched, beside.write(&port, COUNT + number, nodes));
            written?;
            took.push(took_so_far?.as_secs_f64() * 1e3);
        }
        beside.remove().await?;
        anyhow::Ok(took)
    });
    for number in 0..COUNT {
        sleep_until(start + PACE * u32::try_from(number)? + Duration::from_millis(15)).await;
        sent.committed.insert(number, Instant::now());
        timeout(TIMEOUT, writer.write(&[bare_port(number)], number, world.nodes)).await??;
    }
    sent.created = creator.await??;
    sent.bare = bare.await??;
    writer.remove().await?;
    Ok(sent)
}

/// The same patch as the controller sends.
pub(crate) async fn patch(api: &Api, pods: &Pods, number: usize, uid: &str) -> Result<()> {
    let [.., c, d] = number.to_be_bytes();
    let network = json!({"default": {"ip_addresses": [format!("10.128.{c}.{d}/23")],
        "mac_address": format!("0a:58:0a:80:{c:02x}:{d:02x}"), "gateway_ips": ["10.128.0.1"],
        "routes": [{"dest": "10.128.0.0/14", "nextHop": "10.128.0.1"}, {"dest": "172.30.0.0/16", "nextHop": "10.128.0.1"},
            {"dest": "100.64.0.0/16", "nextHop": "10.128.0.1"}],
        "ip_address": format!("10.128.{c}.{d}/23"), "gateway_ip": "10.128.0.1", "role": "primary"}});
    let annotations = json!({"k8s.ovn.org/pod-networks": network.to_string()});
    let conditions = json!([network_condition(&network.to_string())]);
    let body =
        json!({"metadata": {"uid": uid, "annotations": annotations}, "status": {"conditions": conditions}}).to_string();
    let path = format!("{}/{}/status", pods.collection(number), pods.name(number));
    api.patch(&path, Patch::Strategic, body.into_bytes()).await?;
    Ok(())
}

fn figures_of(
    pods: &Pods,
    seen: &HashMap<String, Times>,
    rows: &HashMap<String, Instant>,
    sent: &Sent,
    cpu: f64,
) -> Result<Vec<Figure>> {
    // Skip the first second: caches are cold on both sides.
    let warm = 20..COUNT;
    let between = |from: Option<Instant>, to: Option<Instant>| -> Result<f64> {
        let (from, to) = (from.context("no start time of a pod")?, to.context("no end time of a pod")?);
        let late = to.saturating_duration_since(from).as_secs_f64() - from.saturating_duration_since(to).as_secs_f64();
        Ok(late * 1e3)
    };
    let times = |number: usize| {
        let key = format!("{}/{}", pods.namespace(number), pods.name(number));
        seen.get(&key).copied().unwrap_or_default()
    };
    let collect = |of: &dyn Fn(usize) -> Result<f64>| -> Result<Quantiles> {
        Ok(Quantiles::of(warm.clone().map(of).collect::<Result<_>>()?))
    };
    let row = |name: &str| rows.get(name).copied();
    let ours = collect(&|number| between(times(number).came, row(&pods.port(number))))?;
    let bare = collect(&|number| between(sent.committed.get(&number).copied(), row(&bare_port(number))))?;
    let whole = collect(&|number| between(sent.created.get(&number).copied(), times(number).annotated))?;
    let calls = Quantiles::of(sent.bare.iter().skip(20).copied().collect());
    ours.print("event to commit", "ms");
    bare.print("bare commit", "ms");
    whole.print("create to annotation", "ms");
    calls.print("bare create and patch", "ms");
    let pace = "at 20 pods/s";
    Ok(vec![
        Figure::new(
            format!("event to northbound commit {pace}, p99 beyond a bare commit's p99"),
            ours.at(0.99) - bare.at(0.99),
            "ms",
        )
        .with_goal(Goal::AtMost(2.0)),
        Figure::new(format!("event to northbound commit {pace}, p50"), ours.median(), "ms"),
        Figure::new(format!("event to northbound commit {pace}, p99"), ours.at(0.99), "ms"),
        Figure::new(format!("bare commit of one port {pace}, p50"), bare.median(), "ms"),
        Figure::new(format!("bare commit of one port {pace}, p99"), bare.at(0.99), "ms"),
        Figure::new(
            format!("create to annotation {pace}, p50 against a bare create and patch"),
            whole.median() / calls.median(),
            "×",
        )
        .with_goal(Goal::AtMost(1.2)),
        Figure::new(format!("create to annotation {pace}, p50"), whole.median(), "ms"),
        Figure::new(format!("create to annotation {pace}, p99"), whole.at(0.99), "ms"),
        Figure::new(format!("bare create and patch {pace}, p50"), calls.median(), "ms"),
        Figure::new(format!("CPU for each pod {pace}"), cpu / COUNT as f64 * 1e3, "ms"),
    ])
}
