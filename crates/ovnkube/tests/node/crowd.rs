//! Three hundred pods at once on one node.

use std::sync::Barrier;

use lab::Family;
use serde_json::Value;

use crate::cluster::pod;
use crate::sandbox::Sandbox;
use crate::site::Site;

const PODS: usize = 300;

#[test]
fn three_hundred_at_once() {
    let site = Site::start("cni-crowd", 1, Family::V4);
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

    // Once before: what is only needed once is not counted.
    for _ in 0..3 {
        sandboxes[0].add();
        sandboxes[0].delete();
    }
    let transactions = || site.metric(1, "ovnkube_node_port_transactions_total");
    let (memory, before) = (site.memory(1), transactions());
    let at_once = |command: &str| {
        let start = Barrier::new(PODS);
        std::thread::scope(|scope| {
            let asking = |sandbox: &Sandbox| {
                start.wait();
                sandbox.ask(command)
            };
            let asking: Vec<_> = sandboxes.iter().map(|sandbox| scope.spawn(move || asking(sandbox))).collect();
            for (thread, name) in asking.into_iter().zip(&names) {
                thread.join().unwrap().unwrap_or_else(|error| panic!("{command} of {name}: {error}"));
            }
        });
    };
    at_once("ADD");
    let added = transactions();
    assert_eq!(site.ports(1).len(), PODS);
    at_once("DEL");
    let removed = transactions();
    site.assert_empty(1);
    let after = site.memory(1);
    println!("{} + {} transactions, {memory} KiB before and {after} KiB after", added - before, removed - added);
    assert!(added - before < 100.0 && removed - added < 100.0, "{before} {added} {removed}");
    assert!(after < memory + 12 * 1024, "{memory} KiB before and {after} KiB after");
}
