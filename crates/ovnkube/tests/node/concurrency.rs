//! Three hundred concurrent ADDs and DELs on one node.

use std::sync::RwLock;

use lab::Family;
use serde_json::Value;

use crate::cluster::pod;
use crate::sandbox::Sandbox;
use crate::site::Site;

const PODS: usize = 300;

#[test]
fn three_hundred_concurrent_adds_and_dels_succeed() {
    let site = Site::start("cni-many", 1, Family::V4);
    site.agents(&[]);
    let names: Vec<String> = (0..PODS).map(|number| format!("p{number}")).collect();
    let objects: Vec<Value> = names.iter().map(|name| pod("default", name, "n1")).collect();
    site.cluster.apply_all(&objects);
    let networks = site.cluster.networks_of("default", &names);
    let batch: String = names.iter().map(|name| format!("netns add {name}\n")).collect();
    site.machine(1).run_with_input(&["ip", "-batch", "-"], &batch).unwrap();
    let sandboxes = names.iter().zip(&networks);
    let sandboxes: Vec<Sandbox> =
        sandboxes.map(|(name, network)| Sandbox::without_namespace(&site, 1, name, name, &network.uid)).collect();

    // Warm-up: one-time allocations do not count.
    for _ in 0..3 {
        sandboxes[0].add();
        sandboxes[0].delete();
    }
    let transactions = || site.metric(1, "ovnkube_node_port_transactions_total");
    let memory = site.memory(1);
    let at_once = |command: &str| {
        let start = RwLock::new(());
        std::thread::scope(|scope| {
            // No barrier: if not all threads can start, the others would wait for ever.
            let held = start.write().unwrap();
            let asking = |sandbox: &Sandbox| {
                drop(start.read());
                sandbox.ask(command)
            };
            let asking: Vec<_> = sandboxes.iter().map(|sandbox| scope.spawn(move || asking(sandbox))).collect();
            drop(held);
            for (thread, name) in asking.into_iter().zip(&names) {
                thread.join().unwrap().unwrap_or_else(|error| panic!("{command} of {name}: {error}"));
            }
        });
    };
    let (mut sizes, mut fewest) = (vec![memory], f64::MAX);
    for round in 1..=5 {
        let before = transactions();
        at_once("ADD");
        let added = transactions();
        assert_eq!(site.ports(1).len(), PODS);
        at_once("DEL");
        let removed = transactions();
        site.assert_empty(1);
        sizes.push(site.memory(1));
        println!("round {round}: {} + {} transactions, memory in KiB: {sizes:?}", added - before, removed - added);
        fewest = fewest.min((added - before).max(removed - added));
    }
    // Queued ports are written in batches. On a slow machine fewer are queued at a time: the best round counts.
    assert!(fewest < 150.0, "{fewest} transactions for {PODS} pods");
    // Resident size varies by 1 to 2 MiB per round; a leak grows in every round.
    assert!(sizes[1..].windows(2).any(|pair| pair[1] < pair[0] + 1024), "memory grows with each round: {sizes:?}");
    assert!(sizes[5] < sizes[0] + 16 * 1024, "{sizes:?}");
}
