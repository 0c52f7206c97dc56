//! Finds claims of logical ports that contradict the objects: `Port_Binding` rows whose chassis is not that of the port's node.
//!
//! OVN's access control (25.03) lets every chassis write the claims of every port. A chassis with other intentions could receive
//! the packets of a foreign pod. What a port's chassis must be follows from the objects alone, not from the southbound database.
//!
//! ```text
//!  claim changes from the right chassis to another ──────────────▶ conflict, at once
//!  any other contradiction, such as a pod that moved to a node ──▶ conflict, if it lasts for GRACE
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use objects::{Name, NodeFacts, ObjectKey};

use crate::engine::ObjectRef;
use crate::store::Store;

/// A chassis releases a port some time after its pod was deleted, and the next pod of that name may be on another node.
pub const GRACE: Duration = Duration::from_secs(10);

/// The chassis that claim a port, by name: `chassis` and `additional_chassis`.
pub type Claims = Vec<Box<str>>;

/// Where a port belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    /// The pod, or the node whose management port or gateway it is.
    pub object: ObjectRef,
    /// Node that may bind the port.
    pub node: Name,
    /// The node's chassis.
    pub chassis: Box<str>,
}

/// A claim of a chassis that the port does not belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict<R> {
    /// Identity of the binding, as the caller gave it.
    pub row: R,
    /// Name of the logical port.
    pub port: Box<str>,
    /// Where it belongs.
    pub home: Home,
    /// Chassis that claimed it although it is not the node's.
    pub chassis: Box<str>,
    /// Its node, if a node has this chassis.
    pub claimant: Option<ObjectRef>,
    /// Whether the claim must be undone: the right chassis has not done so.
    pub stands: bool,
}

/// Tracks contradicting claims. `R` identifies a row.
#[derive(Debug)]
pub struct PortBindings<R> {
    suspects: BTreeMap<R, Suspect>,
}

#[derive(Debug)]
struct Suspect {
    port: Box<str>,
    since: Duration,
    /// The chassis that took it from the right one and was not reported yet.
    taken_by: Option<Box<str>>,
    claims: Claims,
}

impl<R> Default for PortBindings<R> {
    fn default() -> Self {
        Self { suspects: BTreeMap::new() }
    }
}

/// Where a port of ours belongs; none if its chassis is not known, or if it belongs to no chassis.
pub fn home(port: &str, store: &Store) -> Option<Home> {
    let gateway = ["rtoj-GR_", "jtor-GR_", "rtoe-GR_", "etor-GR_"].iter().find_map(|prefix| port.strip_prefix(prefix));
    let (object, node) = match gateway.or_else(|| port.strip_prefix("k8s-")).and_then(|name| store.node(name)) {
        Some(node) => (node_ref(node), node),
        None => {
            let (namespace, name) = port.split_once('_')?;
            let pod = store.pod(&ObjectKey::new(namespace, name))?;
            let object =
                ObjectRef { kind: "Pod", namespace: Some(namespace.into()), name: name.into(), uid: pod.uid.clone() };
            (object, store.node(pod.node.as_ref()?)?)
        }
    };
    // A node that claims the chassis of another is refused, so its ports have no home.
    let chassis = node.chassis.as_deref()?;
    let holds = store.chassis_holder(chassis).is_some_and(|holder| holder.name == node.name);
    holds.then(|| Home { object, node: node.name.clone(), chassis: chassis.into() })
}

fn node_ref(node: &NodeFacts) -> ObjectRef {
    ObjectRef { kind: "Node", namespace: None, name: (&*node.name).into(), uid: node.uid.clone() }
}

impl<R: Ord + Copy> PortBindings<R> {
    /// Forgets everything: this instance does not lead.
    pub fn clear(&mut self) {
        self.suspects.clear();
    }

    /// A row was seen for the first time or changed; `after` is none if it was deleted.
    pub fn observe(
        &mut self,
        row: R,
        port: &str,
        before: &Claims,
        after: Option<Claims>,
        store: &Store,
        now: Duration,
    ) {
        let (Some(home), Some(claims)) = (home(port, store), after) else {
            self.suspects.remove(&row);
            return;
        };
        let Some(other) = claims.iter().find(|chassis| **chassis != home.chassis) else {
            // Taken and taken back: still to be reported.
            if self.suspects.get(&row).is_some_and(|suspect| suspect.taken_by.is_none()) {
                self.suspects.remove(&row);
            } else if let Some(suspect) = self.suspects.get_mut(&row) {
                suspect.claims = claims;
            }
            return;
        };
        // An additional claim beside the right one is as wrong: it copies the packets.
        let was_right = !before.is_empty() && before.iter().all(|chassis| *chassis == home.chassis);
        let taken_by = (was_right || claims.contains(&home.chassis)).then(|| other.clone());
        let suspect = self.suspects.entry(row).or_insert_with(|| Suspect {
            port: port.into(),
            since: now,
            taken_by: None,
            claims: Claims::new(),
        });
        suspect.taken_by = suspect.taken_by.take().or(taken_by);
        suspect.claims = claims;
    }

    /// The conflicts to report and undo now; to be called about once a second. One that stands is returned again after
    /// [`GRACE`].
    pub fn conflicts(&mut self, store: &Store, now: Duration) -> Vec<Conflict<R>> {
        let mut found = Vec::new();
        self.suspects.retain(|row, suspect| {
            let Some(home) = home(&suspect.port, store) else { return false };
            let standing = suspect.claims.iter().find(|chassis| **chassis != home.chassis);
            let lasts = standing.is_some() && now.saturating_sub(suspect.since) >= GRACE;
            let taken = suspect.taken_by.take();
            if taken.is_some() || lasts {
                let stands = standing.is_some();
                let Some(chassis) = standing.cloned().or(taken) else { return false };
                let claimant = store.chassis_holder(&chassis).map(node_ref);
                found.push(Conflict { row: *row, port: suspect.port.clone(), home, chassis, claimant, stands });
                suspect.since = now;
                return stands;
            }
            standing.is_some()
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use objects::{NodeFacts, PodFacts};

    use super::*;

    fn store() -> Store {
        let mut store = Store::default();
        for name in ["n1", "n2"] {
            let annotations = serde_json::json!({"k8s.ovn.org/node-chassis-id": format!("chassis-{name}")});
            let node = serde_json::json!({"metadata": {"name": name, "uid": name, "annotations": annotations}});
            store.put_node(NodeFacts::parse(&node.to_string()).unwrap());
        }
        move_pod(&mut store, "n1");
        store
    }

    fn move_pod(store: &mut Store, node: &str) {
        let pod = serde_json::json!({"metadata": {"name": "web", "namespace": "shop", "uid": node},
            "spec": {"nodeName": node, "containers": []}});
        store.put_pod(PodFacts::parse(&pod.to_string()).unwrap());
    }

    fn claims(chassis: &[&str]) -> Claims {
        chassis.iter().map(|name| format!("chassis-{name}").into()).collect()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_claim_taken_from_the_right_chassis_is_a_conflict_at_once() {
        let (store, mut bindings) = (store(), PortBindings::<u32>::default());
        bindings.observe(1, "shop_web", &claims(&[]), Some(claims(&["n1"])), &store, at(0));
        assert_eq!(bindings.conflicts(&store, at(100)), []);
        bindings.observe(1, "shop_web", &claims(&["n1"]), Some(claims(&["n2"])), &store, at(101));
        let found = bindings.conflicts(&store, at(101));
        assert_eq!(found.len(), 1);
        assert_eq!((&*found[0].chassis, &*found[0].home.chassis, found[0].stands), ("chassis-n2", "chassis-n1", true));
        assert_eq!(&*found[0].claimant.as_ref().unwrap().name, "n2");
        // It stands until it is undone.
        assert_eq!(bindings.conflicts(&store, at(102)), []);
        assert_eq!(bindings.conflicts(&store, at(111)).len(), 1);
        bindings.observe(1, "shop_web", &claims(&["n2"]), Some(claims(&[])), &store, at(112));
        assert_eq!(bindings.conflicts(&store, at(200)), []);
    }

    #[test]
    fn a_claim_that_was_taken_back_is_reported_and_not_undone() {
        let (store, mut bindings) = (store(), PortBindings::<u32>::default());
        bindings.observe(1, "shop_web", &claims(&["n1"]), Some(claims(&["n2"])), &store, at(0));
        bindings.observe(1, "shop_web", &claims(&["n2"]), Some(claims(&["n1"])), &store, at(0));
        let found = bindings.conflicts(&store, at(1));
        assert!(found.len() == 1 && !found[0].stands && &*found[0].chassis == "chassis-n2", "{found:?}");
        assert_eq!(bindings.conflicts(&store, at(100)), []);
    }

    #[test]
    fn an_additional_claim_is_a_conflict() {
        let (store, mut bindings) = (store(), PortBindings::<u32>::default());
        bindings.observe(1, "shop_web", &claims(&["n1"]), Some(claims(&["n1", "n2"])), &store, at(0));
        assert!(bindings.conflicts(&store, at(0))[0].stands);
    }

    #[test]
    fn a_pod_that_moves_is_no_conflict_unless_it_lasts() {
        let (mut store, mut bindings) = (store(), PortBindings::<u32>::default());
        bindings.observe(1, "shop_web", &claims(&[]), Some(claims(&["n1"])), &store, at(0));
        move_pod(&mut store, "n2");
        // northd repeats the row for its new node, and the old chassis has not released it.
        bindings.observe(1, "shop_web", &claims(&["n1"]), Some(claims(&["n1"])), &store, at(1));
        assert_eq!(bindings.conflicts(&store, at(5)), []);
        assert_eq!(bindings.conflicts(&store, at(11)).len(), 1);
        bindings.observe(1, "shop_web", &claims(&["n1"]), Some(claims(&["n2"])), &store, at(12));
        assert_eq!(bindings.conflicts(&store, at(100)), []);
    }

    #[test]
    fn ports_of_nodes_belong_to_their_chassis_and_others_to_none() {
        let store = store();
        for port in ["k8s-n1", "rtoj-GR_n1", "jtor-GR_n1", "rtoe-GR_n1", "etor-GR_n1", "shop_web"] {
            assert_eq!(&*home(port, &store).unwrap().chassis, "chassis-n1", "{port}");
        }
        for port in ["br-ex_n1", "stor-n1", "shop_other", "k8s-n9", "x"] {
            assert_eq!(home(port, &store), None, "{port}");
        }
    }
}
