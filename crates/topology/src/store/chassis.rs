//! Who holds a chassis: the node that claimed it first, for as long as it claims it. One that claims it later is refused,
//! however old its object is.

use std::collections::BTreeMap;

use super::Store;
use crate::identity::Name;
use crate::objects::NodeFacts;

/// The holder of each chassis that is claimed.
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
            // Whoever claims it alone holds it: others need not be looked for.
            self.chassis.entry(chassis.into()).or_insert_with(|| name.clone());
        }
    }

    /// Decides anew who holds a chassis that several claim: the one that `had` it in the database, else the oldest. A new
    /// leader has seen all objects at once, and not who was first.
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
