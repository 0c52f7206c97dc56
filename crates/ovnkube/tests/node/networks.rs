//! Cluster and service networks of the node tests.

use lab::Family;

/// Arguments for the controller and the agents.
pub(crate) fn networks(family: Family) -> [&'static str; 4] {
    let (pods, services) = match family {
        Family::V4 => ("10.128.0.0/14/23", "10.96.0.0/16"),
        Family::V6 => ("fd01::/48/64", "fd96::/112"),
        Family::Dual => ("10.128.0.0/14/23,fd01::/48/64", "10.96.0.0/16,fd96::/112"),
    };
    ["--cluster-subnets", pods, "--k8s-service-cidrs", services]
}
