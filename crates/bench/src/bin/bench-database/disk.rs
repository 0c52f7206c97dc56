//! Bytes on disk of each kind of object, as a formula, and its check against a cluster of another size.

use anyhow::{Context, Result};
use bench::{Figure, Goal};
use database::Kind;

use crate::managed::Managed;

/// How many objects a cluster has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    pub(crate) services: usize,
    pub(crate) policies: usize,
}

impl Census {
    /// A smaller cluster of the same shape.
    pub(crate) fn divided(self, by: usize) -> Self {
        let part = |count: usize| (count / by).max(2);
        Self {
            nodes: part(self.nodes),
            pods: part(self.pods),
            services: part(self.services),
            policies: part(self.policies).next_multiple_of(10),
        }
    }
}

/// One database at one stage.
#[derive(Debug, Clone, Copy)]
struct Measured {
    /// Bytes of the file before it was compacted, with every change since the last stage.
    grown: u64,
    /// Bytes of the file right after it.
    compacted: u64,
    /// Raft entries so far.
    entries: u64,
}

/// Both databases when the cluster had these objects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stage {
    census: Census,
    northbound: Measured,
    southbound: Measured,
}

impl Stage {
    /// Reads sizes and raft entries, then compacts both databases.
    pub(crate) fn measure(managed: &Managed, census: Census) -> Result<Self> {
        let one = |kind: Kind| -> Result<Measured> {
            let (grown, entries) = (managed.size(kind)?, managed.entries(kind)?);
            managed.compact(kind)?;
            Ok(Measured { grown, compacted: managed.size(kind)?, entries })
        };
        let stage = Self { census, northbound: one(Kind::Northbound)?, southbound: one(Kind::Southbound)? };
        eprintln!("  {stage:?}");
        Ok(stage)
    }

    fn of(&self, kind: Kind) -> Measured {
        match kind {
            Kind::Northbound => self.northbound,
            Kind::Southbound => self.southbound,
        }
    }
}

/// Bytes of one database: a base, and a number for each object. Each gateway router has flows for every other one, so nodes
/// also count by the square.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Weights {
    base: f64,
    node: f64,
    node_pair: f64,
    pod: f64,
    service: f64,
    policy: f64,
}

impl Weights {
    fn predict(&self, census: Census) -> f64 {
        let of = |count: usize, weight: f64| count as f64 * weight;
        self.base
            + of(census.nodes, self.node)
            + of(census.nodes * census.nodes, self.node_pair)
            + of(census.pods, self.pod)
            + of(census.services, self.service)
            + of(census.policies, self.policy)
    }
}

/// The weights of both databases.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Formula {
    northbound: Weights,
    southbound: Weights,
}

/// The formula of stages that add nodes (twice), pods, Services and policies, in this order.
pub(crate) fn formula(stages: &[Stage]) -> Result<Formula> {
    let weights = |kind: Kind| -> Result<Weights> {
        let [empty, some, nodes, pods, services, policies] = stages else {
            anyhow::bail!("{} stages instead of six", stages.len());
        };
        let each = |before: &Stage, after: &Stage, count: usize| {
            let more = after.of(kind).compacted as f64 - before.of(kind).compacted as f64;
            more / count.max(1) as f64
        };
        // Bytes of each node at two sizes: node + count × node_pair.
        let (few, many) = (some.census.nodes as f64, nodes.census.nodes as f64);
        let (at_few, at_many) = (each(empty, some, some.census.nodes), each(empty, nodes, nodes.census.nodes));
        let node_pair = (at_many - at_few) / (many - few).max(1.0);
        Ok(Weights {
            base: empty.of(kind).compacted as f64,
            node: at_few - few * node_pair,
            node_pair,
            pod: each(nodes, pods, pods.census.pods),
            service: each(pods, services, services.census.services),
            policy: each(services, policies, policies.census.policies),
        })
    };
    Ok(Formula { northbound: weights(Kind::Northbound)?, southbound: weights(Kind::Southbound)? })
}

impl Formula {
    fn of(&self, kind: Kind) -> Weights {
        match kind {
            Kind::Northbound => self.northbound,
            Kind::Southbound => self.southbound,
        }
    }

    pub(crate) fn figures(&self, figures: &mut Vec<Figure>) {
        for kind in Kind::BOTH {
            let Weights { base, node, node_pair, pod, service, policy } = self.of(kind);
            for (what, bytes) in [
                ("empty", base),
                ("each node", node),
                ("each node, for each node", node_pair),
                ("each pod", pod),
                ("each Service with 10 endpoints", service),
                ("each NetworkPolicy", policy),
            ] {
                figures.push(Figure::new(format!("disk: {kind} snapshot, {what}"), bytes, "bytes"));
            }
        }
    }
}

/// How much one more pod writes: bytes of the log, and entries.
pub(crate) fn growth(stages: &[Stage], figures: &mut Vec<Figure>) {
    for pair in stages.windows(2) {
        let [before, after] = pair else { continue };
        let pods = after.census.pods - before.census.pods;
        if pods == 0 {
            continue;
        }
        for kind in Kind::BOTH {
            let (before, after) = (before.of(kind), after.of(kind));
            let each = |count: u64| count as f64 / pods as f64;
            let bytes = each(after.grown.saturating_sub(before.compacted));
            figures.push(Figure::new(format!("disk: {kind} log, each pod of a burst"), bytes, "bytes"));
            let entries = each(after.entries.saturating_sub(before.entries));
            figures.push(Figure::new(format!("disk: {kind} raft entries, each pod of a burst"), entries, ""));
        }
    }
}

/// The formula against the last stage of another lab.
pub(crate) fn check(formula: &Formula, stages: &[Stage], figures: &mut Vec<Figure>) -> Result<()> {
    let last = stages.last().context("no stage was measured")?;
    let Census { nodes, pods, services, policies } = last.census;
    let size = format!("{pods} pods, {services} Services, {policies} policies on {nodes} nodes");
    for kind in Kind::BOTH {
        let measured = last.of(kind).compacted as f64;
        let ratio = formula.of(kind).predict(last.census) / measured;
        figures.push(Figure::new(format!("disk: {kind} snapshot, {size}"), measured, "bytes"));
        let name = format!("disk: {kind} snapshot, predicted against measured, {size}");
        figures.push(Figure::new(format!("{name}, lower bound"), ratio, "×").with_goal(Goal::AtLeast(0.8)));
        figures.push(Figure::new(format!("{name}, upper bound"), ratio, "×").with_goal(Goal::AtMost(1.25)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(census: Census, bytes: u64) -> Stage {
        let measured = Measured { grown: bytes * 2, compacted: bytes, entries: bytes };
        Stage { census, northbound: measured, southbound: measured }
    }

    #[test]
    fn weights_are_the_differences_of_the_stages() {
        let mut here = Census::default();
        let mut stages = vec![stage(here, 1000)];
        here.nodes = 1;
        stages.push(stage(here, 1105));
        here.nodes = 2;
        stages.push(stage(here, 1220));
        here.pods = 10;
        stages.push(stage(here, 2220));
        here.services = 5;
        stages.push(stage(here, 2270));
        here.policies = 1;
        stages.push(stage(here, 2277));
        let weights = formula(&stages).unwrap().northbound;
        assert_eq!(
            weights,
            Weights { base: 1000.0, node: 100.0, node_pair: 5.0, pod: 100.0, service: 10.0, policy: 7.0 }
        );
        assert_eq!(weights.predict(here).round() as u64, 2277);
        assert!(formula(&stages[1..]).is_err());
    }
}
