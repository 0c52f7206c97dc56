//! The holder of a chassis: the node that claimed it first, as long as it claims it. Later claims are refused, regardless
//! of the age of the object.

use std::collections::BTreeMap;

use objects::{Name, NodeFacts};

use super::Store;

/// The holder of each claimed chassis.
pub(super) type Holders = BTreeMap<Box<str>, Name>;

impl Store {
    /// The node that holds a chassis.
    pub(crate) fn chassis_holder(&self, chassis: &str) -> Option<&NodeFacts> {
        self.node(self.chassis.get(chassis)?)
    }

    /// A node claims another chassis than before, or none.
    pub(super) fn claim_chassis(&mut self, name: &Name, before: Option<&str>, after: Option<&str>) {
        if let Some(former) = before.filter(|former| after != Some(*former) && self.chassis.get(*former) == Some(name))
        {
            self.chassis.remove(former);
            if let Some(next) = self.oldest_claimant(former) {
                self.chassis.insert(former.into(), next);
            }
        }
        if let Some(chassis) = after {
            // An only claimant holds it: no search for others.
            self.chassis.entry(chassis.into()).or_insert_with(|| name.clone());
        }
    }

    /// Decides again who holds a chassis with several claims: the node that `had` it in the database, else the oldest. A new
    /// leader saw all objects at once, not the order of the claims.
    pub(crate) fn decide_chassis(&mut self, had: impl Fn(&str, &str) -> bool) {
        let mut claimants: BTreeMap<&str, Vec<&NodeFacts>> = BTreeMap::new();
        for node in self.nodes() {
            if let Some(chassis) = &node.chassis {
                claimants.entry(chassis).or_default().push(node);
            }
        }
        let shared = claimants.into_iter().filter(|(_, nodes)| nodes.len() > 1);
        let decided: Vec<(Box<str>, Name)> = shared
            .filter_map(|(chassis, nodes)| {
                let first = nodes.iter().min_by_key(|node| (!had(&node.name, chassis), &node.created, &node.name))?;
                Some((chassis.into(), first.name.clone()))
            })
            .collect();
        self.chassis.extend(decided);
    }

    fn oldest_claimant(&self, chassis: &str) -> Option<Name> {
        let claimants = self.nodes().filter(|node| node.chassis.as_deref() == Some(chassis));
        claimants.min_by_key(|node| (&node.created, &node.name)).map(|node| node.name.clone())
    }
}
