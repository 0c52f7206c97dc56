//! `bench-plan`: CPU time of reachability questions by the number of policy blocks. Writes
//! `target/bench/plan.json`.
//!
//! The CPU time of one answer of `ovnkube plan --can from=POD to=198.0.0.0/8:443`, and of the controller's core taking
//! the objects in, for policies of 250 to 2,000 blocks in four shapes. Sizes are interleaved; the fastest run of each
//! counts.

use anyhow::{Context as _, Result, anyhow};
use bench::{Figure, Goal};
use objects::ObjectKind;
use reachability::evaluator::{Evaluator, Verdict, parse_destination, parse_party};
use reachability::preview::Preview;
use serde_json::{Value, json};
use topology::ClusterSettings;

const SIZES: [u32; 4] = [250, 500, 1000, 2000];
const ROUNDS: usize = 5;
/// Four times as many blocks: 4 would be linear, 16 quadratic.
const GROWTH: f64 = 6.0;

/// How blocks are spread over rules and policies.
#[derive(Clone, Copy)]
enum Shape {
    OneRule,
    OneRuleEach,
    OnePolicyEach,
    Excepts,
}

impl Shape {
    const ALL: [Self; 4] = [Self::OneRule, Self::OneRuleEach, Self::OnePolicyEach, Self::Excepts];

    fn name(self) -> &'static str {
        match self {
            Self::OneRule => "one rule",
            Self::OneRuleEach => "a rule each",
            Self::OnePolicyEach => "a policy each",
            Self::Excepts => "excepts of one block",
        }
    }

    /// The specs of the policies' egress.
    fn policies(self, count: u32) -> Vec<Value> {
        let cidr = |n: u32| format!("198.{}.{}.0/25", n >> 8, n & 0xff);
        let peer = |n: u32| json!({"ipBlock": {"cidr": cidr(n)}});
        let all = 0..count;
        match self {
            Self::OneRule => vec![json!([{"to": all.map(peer).collect::<Vec<_>>()}])],
            Self::OneRuleEach => vec![all.map(|n| json!({"to": [peer(n)]})).collect()],
            Self::OnePolicyEach => all.map(|n| json!([{"to": [peer(n)]}])).collect(),
            Self::Excepts => {
                let except: Vec<String> = all.map(cidr).collect();
                vec![json!([{"to": [{"ipBlock": {"cidr": "198.0.0.0/8", "except": except}}]}])]
            }
        }
    }
}

fn world(shape: Shape, count: u32) -> Result<Preview> {
    let settings = ClusterSettings::new(vec!["10.128.0.0/14/23".parse()?], vec!["172.30.0.0/16".parse()?]);
    let mut preview = Preview::new(settings)?;
    let gateway = json!({"default": {"mode": "shared", "interface-id": "br-ex", "mac-address": "52:54:00:00:00:01",
        "ip-addresses": ["192.0.2.1/24"], "next-hops": ["192.0.2.254"]}});
    let annotations = json!({"k8s.ovn.org/node-chassis-id": "n1", "k8s.ovn.org/host-cidrs": "[\"192.0.2.1/24\"]",
        "k8s.ovn.org/l3-gateway-config": gateway.to_string()});
    let mut objects = vec![
        (ObjectKind::Node, json!({"metadata": {"name": "n1", "uid": "n1", "annotations": annotations}})),
        (ObjectKind::Namespace, json!({"metadata": {"name": "ns", "uid": "ns"}})),
        (
            ObjectKind::Pod,
            json!({"metadata": {"name": "a", "namespace": "ns", "uid": "a"}, "spec": {"nodeName": "n1"}}),
        ),
    ];
    for (number, egress) in shape.policies(count).into_iter().enumerate() {
        let name = format!("p{number}");
        let spec = json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": egress});
        let metadata = json!({"name": name, "namespace": "ns", "uid": name});
        objects.push((ObjectKind::Policy, json!({"metadata": metadata, "spec": spec})));
    }
    for (kind, object) in objects {
        preview.put(kind, object).map_err(|why| anyhow!(why))?;
    }
    preview.settle()?;
    Ok(preview)
}

/// CPU seconds of taking the objects in, and of one answer.
fn run(shape: Shape, count: u32) -> Result<[f64; 2]> {
    let start = bench::thread_cpu_seconds()?;
    let preview = world(shape, count)?;
    let settled = bench::thread_cpu_seconds()?;
    let inputs = preview.engine().inputs().context("the core has not started")?;
    let wrong = |why: String| anyhow!(why);
    let (from, to) =
        (parse_party(inputs.store, "ns/a").map_err(wrong)?, parse_destination(inputs.store, "198.0.0.0/8:443"));
    let answer = Evaluator::new(inputs).evaluate(&from, &to.map_err(wrong)?)?;
    anyhow::ensure!(answer.verdict == Verdict::Partial, "{} blocks: {:?}", count, answer.verdict);
    Ok([settled - start, bench::thread_cpu_seconds()? - settled])
}

fn main() -> Result<()> {
    if let Some(argument) = std::env::args().nth(1) {
        anyhow::bail!("unexpected argument {argument:?}: bench-plan takes no arguments");
    }
    let mut figures = Vec::new();
    for shape in Shape::ALL {
        let mut best = [[f64::INFINITY; 2]; SIZES.len()];
        for _ in 0..ROUNDS {
            for (best, size) in best.iter_mut().zip(SIZES) {
                let taken = run(shape, size)?;
                best.iter_mut().zip(taken).for_each(|(best, taken)| *best = best.min(taken));
            }
        }
        for (what, place) in [("objects", 0), ("answer", 1)] {
            let name = |of: &str| format!("plan {what}, {}: {of}", shape.name());
            for (best, size) in best.iter().zip(SIZES) {
                figures.push(Figure::new(name(&format!("{size} blocks")), best[place] * 1e3, "ms CPU"));
            }
            let growth = Figure::new(name("2000 to 500 blocks"), best[3][place] / best[1][place], "x");
            figures.push(if place == 1 { growth.with_goal(Goal::AtMost(GROWTH)) } else { growth });
        }
    }
    let path = bench::write_figures("plan", &figures)?;
    print!("{}", bench::table(&figures));
    println!("written to {}", path.display());
    Ok(())
}
