//! Pods on two nodes reach each other and the outside, by packets.

use lab::Family;

use crate::cluster::{Cluster, ClusterSpec, pod};

fn two_pods(cluster: &Cluster) -> (lab::Pod, lab::Pod) {
    cluster.controller("c1");
    cluster.wait_leader("c1");
    for node in 1..=2 {
        cluster.add_node(node);
        cluster.apply(&pod("default", &format!("web-{node}"), &format!("n{node}")));
    }
    (cluster.bind(1, "default", "web-1"), cluster.bind(2, "default", "web-2"))
}

/// The first packets over a userspace tunnel may be lost while the neighbour resolves.
fn ping(from: &lab::Pod, to: &str) {
    from.run(&["ping", "-c", "1", "-i", "0.2", "-w", "30", to]).unwrap();
}

fn check_reachability(family: Family) {
    let mut spec = ClusterSpec::new("packets").nodes(2);
    spec.family = family;
    let (cidrs, services) = match family {
        Family::V4 => ("10.128.0.0/14/23", "172.30.0.0/16"),
        Family::V6 => ("fd01::/48/64", "fd02::/112"),
        Family::Dual => ("10.128.0.0/14/23,fd01::/48/64", "172.30.0.0/16,fd02::/112"),
    };
    let cluster = spec.arguments(&["--cluster-subnets", cidrs, "--k8s-service-cidrs", services]).start();
    let (one, two) = two_pods(&cluster);
    cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    for (from, to) in [(&one, "web-2"), (&two, "web-1")] {
        for address in cluster.network_of("default", to).addresses {
            ping(from, &address.address().to_string());
        }
        if family.has_v4() {
            ping(from, "10.99.0.254");
        }
        if family.has_v6() {
            ping(from, "fd99::fe");
        }
    }
}

#[test]
fn pods_reach_each_other_and_the_outside() {
    check_reachability(Family::V4);
}

#[test]
fn pods_reach_each_other_and_the_outside_v6() {
    check_reachability(Family::V6);
}

#[test]
fn pods_reach_each_other_and_the_outside_dual_stack() {
    check_reachability(Family::Dual);
}
