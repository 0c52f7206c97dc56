//! Events of objects: store the facts, and queue the affected owners.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use objects::{
    AdminPolicyFacts, Annotated, Name, NamespaceFacts, NodeFacts, ObjectKey, ObjectKind, PodFacts, PodKey, PolicyFacts,
    ServiceFacts, SliceFacts,
};

use super::services::{NodePorts, for_services};
use super::{Effect, Engine, Measure, ObjectRef};
use crate::desired::holder_of_chassis;
use crate::identity::Owner;
use crate::store::host_port_keys;

/// An event of a watch.
#[derive(Debug, Clone)]
pub enum Observed {
    /// A list of this kind begins.
    Relisting(ObjectKind),
    /// The list is complete: objects that were not in it are gone.
    Listed(ObjectKind),
    /// Added or changed.
    Node(NodeFacts),
    /// Added or changed.
    Namespace(NamespaceFacts),
    /// Added or changed.
    Pod(PodFacts),
    /// Added or changed.
    Service(ServiceFacts),
    /// Added or changed.
    Slice(SliceFacts),
    /// Added or changed.
    Policy(PolicyFacts),
    /// Added or changed.
    AdminPolicy(AdminPolicyFacts),
    /// Added or changed.
    BaselinePolicy(AdminPolicyFacts),
    /// Deleted; with the UID, if known.
    Gone(ObjectKind, Arc<ObjectKey>, Option<Box<str>>),
    /// Not readable, with the error: facts that are known stay.
    Malformed(ObjectKind, ObjectRef, String),
}

impl Observed {
    /// The parser of a kind, from JSON.
    pub fn reader(kind: ObjectKind) -> fn(&str) -> Result<Self, String> {
        match kind {
            ObjectKind::Node => |json| NodeFacts::parse(json).map(Self::Node),
            ObjectKind::Namespace => |json| NamespaceFacts::parse(json).map(Self::Namespace),
            ObjectKind::Pod => |json| PodFacts::parse(json).map(Self::Pod),
            ObjectKind::Service => |json| ServiceFacts::parse(json).map(Self::Service),
            ObjectKind::EndpointSlice => |json| SliceFacts::parse(json).map(Self::Slice),
            ObjectKind::Policy => |json| PolicyFacts::parse(json).map(Self::Policy),
            ObjectKind::AdminPolicy => |json| AdminPolicyFacts::parse(json).map(Self::AdminPolicy),
            ObjectKind::BaselinePolicy => |json| AdminPolicyFacts::parse_baseline(json).map(Self::BaselinePolicy),
        }
    }
}

impl Engine {
    /// Takes an event.
    pub fn observe(&mut self, observed: Observed, now: Duration) {
        match observed {
            Observed::Relisting(kind) => self.store.relisting(kind),
            Observed::Listed(kind) => self.listed(kind, now),
            Observed::Node(node) => self.node_changed(node, now),
            Observed::Namespace(namespace) => self.namespace_changed(namespace, now),
            Observed::Pod(pod) => self.pod_changed(pod, now),
            Observed::Service(service) => self.service_changed(service, now),
            Observed::Slice(slice) => self.slice_changed(slice, now),
            Observed::Policy(policy) => self.policy_changed(policy, now),
            Observed::AdminPolicy(policy) => self.admin_policy_changed(policy, false, now),
            Observed::BaselinePolicy(policy) => self.admin_policy_changed(policy, true, now),
            Observed::Gone(kind, key, uid) => self.gone(kind, &key, uid.as_deref(), now),
            Observed::Malformed(kind, object, why) => {
                let key = ObjectKey::new(object.namespace.as_deref().unwrap_or_default(), &object.name);
                self.store.seen_unreadable(kind, &Arc::new(key));
                let message = format!("cannot read the object: {why}; its last readable version stays in effect");
                self.effects.push(Effect::Warn { object, reason: "ObjectUnreadable", message, detail: None });
            }
        }
    }

    fn listed(&mut self, kind: ObjectKind, now: Duration) {
        for key in self.store.listed(kind) {
            self.gone(kind, &key, None, now);
        }
    }

    fn gone(&mut self, kind: ObjectKind, key: &ObjectKey, uid: Option<&str>, now: Duration) {
        match kind {
            ObjectKind::Node => self.node_gone(&key.name, uid, now),
            ObjectKind::Namespace => self.namespace_gone(&key.name, uid, now),
            ObjectKind::Pod => self.pod_gone(key, uid, now),
            ObjectKind::Service => self.service_gone(key, uid, now),
            ObjectKind::EndpointSlice => self.remove_slice(key, uid, now),
            ObjectKind::Policy => self.policy_gone(key, uid, now),
            ObjectKind::AdminPolicy => self.admin_policy_gone(key, uid, false, now),
            ObjectKind::BaselinePolicy => self.admin_policy_gone(key, uid, true, now),
        }
    }

    pub(super) fn queue(&mut self, owner: Owner, now: Duration) {
        if let Some(leading) = &mut self.leading {
            leading.queue.push(owner, now);
        }
    }

    fn queue_pods_on(&mut self, node: &str, now: Duration) {
        if let Some(leading) = &mut self.leading {
            for key in self.store.pods_on(node) {
                leading.queue.push(Owner::Pod(key.clone()), now);
            }
        }
    }

    fn node_changed(&mut self, node: NodeFacts, now: Duration) {
        let name = node.name.clone();
        let node_ports = NodePorts::of(&self.store);
        let before = self.store.put_node(node);
        let Some(node) = self.store.node(&name) else { return };
        if before.as_ref() == Some(node) {
            return;
        }
        if let Some(leading) = &mut self.leading {
            // Our annotations were removed: they are written again.
            let annotations_removed = before.as_ref().is_some_and(|before| {
                before.uid != node.uid
                    || before.subnets != Annotated::Absent && node.subnets == Annotated::Absent
                    || before.id != Annotated::Absent && node.id == Annotated::Absent
            });
            if annotations_removed {
                leading.patching.remove(&Owner::Node(name.clone()));
            }
            // A node that claims another's chassis is refused and keeps its own.
            if holder_of_chassis(node, &self.store).is_none()
                && let Some(former) = before.as_ref().and_then(|before| former_chassis(before, node))
            {
                leading.progress.schedule_removal(former, now);
            }
        }
        let claimed = before.as_ref().and_then(|before| before.chassis.clone()).into_iter().chain(node.chassis.clone());
        let claimed: Vec<Box<str>> = claimed.collect();
        // The facts of a node that pods' rows depend on.
        let for_pods = |node: &NodeFacts| (node.uid.clone(), node.chassis.clone(), node.gateway.clone());
        let concerns_pods = before.as_ref().is_none_or(|before| for_pods(before) != for_pods(node));
        let moved = before.as_ref().is_some_and(|before| before.host_addresses != node.host_addresses);
        let for_policies = |node: &NodeFacts| (node.labels.clone(), node.host_addresses.clone());
        let selected = before.as_ref().is_none_or(|before| for_policies(before) != for_policies(node));
        let concerns_services = before.as_ref().is_none_or(|before| for_services(before) != for_services(node));
        let hosts: Vec<IpAddr> = before.iter().chain([node]).flat_map(|node| for_services(node).3).collect();
        self.queue(Owner::Node(name.clone()), now);
        if concerns_pods {
            self.queue_pods_on(&name, now);
            self.queue_chassis_claimants(&claimed, &name, now);
        } else if moved {
            self.queue_host_ports_of(&name, now);
        }
        if concerns_services {
            self.queue_node_bound(node_ports, now);
            self.queue_claimants_of(&hosts, now);
        }
        if selected {
            self.selected_nodes_changed(now);
        }
    }

    /// Requeues the other nodes that claim a chassis: they may get it.
    fn queue_chassis_claimants(&mut self, chassis: &[Box<str>], but: &str, now: Duration) {
        let claims =
            |node: &&NodeFacts| &*node.name != but && node.chassis.as_ref().is_some_and(|own| chassis.contains(own));
        let claimants: Vec<Name> = self.store.nodes().filter(claims).map(|node| node.name.clone()).collect();
        for name in claimants {
            self.queue(Owner::Node(name.clone()), now);
            self.queue_pods_on(&name, now);
        }
    }

    fn node_gone(&mut self, name: &str, uid: Option<&str>, now: Duration) {
        let node_ports = NodePorts::of(&self.store);
        let Some(node) = self.store.remove_node(name, uid) else { return };
        if let Some(leading) = &mut self.leading {
            leading.patching.remove(&Owner::Node(node.name.clone()));
            if let Some(name) = &node.chassis {
                leading.progress.schedule_removal(name.clone(), now);
            }
        }
        self.queue(Owner::Node(node.name.clone()), now);
        self.queue_pods_on(name, now);
        self.selected_nodes_changed(now);
        self.queue_chassis_claimants(node.chassis.as_slice(), name, now);
        self.queue_node_bound(node_ports, now);
        self.queue_claimants_of(&for_services(&node).3, now);
    }

    fn namespace_changed(&mut self, namespace: NamespaceFacts, now: Duration) {
        let name = namespace.name.clone();
        let (multicast, labels, logging) = (namespace.multicast, namespace.labels.clone(), namespace.logging.clone());
        let known = self.store.labels_of(&name);
        let before = self.store.put_namespace(namespace);
        if before.as_ref().map_or(&Annotated::Absent, |before| &before.logging) != &logging {
            self.logging_changed(&name, now);
        }
        let selected = self.store.labels_change_selection(&known, &labels);
        self.requeue_lingering(now);
        if before.as_ref().is_some_and(|before| before.multicast == multicast) && !selected {
            return;
        }
        self.namespace_concerns(&name, before.is_some_and(|before| before.multicast) || multicast || selected, now);
    }

    fn namespace_gone(&mut self, name: &str, uid: Option<&str>, now: Duration) {
        let Some(before) = self.store.remove_namespace(name, uid) else { return };
        if before.logging != Annotated::Absent {
            self.logging_changed(&before.name, now);
        }
        // Its remaining pods keep its labels.
        self.namespace_concerns(&before.name, before.multicast, now);
    }

    fn namespace_concerns(&mut self, name: &Name, pods: bool, now: Duration) {
        self.queue(Owner::Namespace(name.clone()), now);
        if pods && let Some(leading) = &mut self.leading {
            for pod in self.store.pods_in(name) {
                leading.queue.push(Owner::Pod(pod.key.clone()), now);
            }
        }
    }

    fn policy_changed(&mut self, policy: PolicyFacts, now: Duration) {
        let key = policy.key.clone();
        let before = self.store.put_policy(policy);
        if before.as_ref() == self.store.policy(&key) {
            return;
        }
        let owner = Owner::Policy(key);
        if self.store.is_lingering(&owner) {
            // Another policy of the same name: the rows of the former are not a valid state of this one.
            let changed = self.store.release(&owner);
            self.selectors_changed(changed, now);
        }
        self.recompile(owner, now);
    }

    fn policy_gone(&mut self, key: &ObjectKey, uid: Option<&str>, now: Duration) {
        let Some(policy) = self.store.remove_policy(key, uid) else { return };
        let owner = Owner::Policy(policy.key);
        let has_rows = self.leading.as_ref().is_some_and(|leading| leading.ledger.entry(&owner).is_some());
        if has_rows {
            self.store.linger(&owner);
            if self.store.is_active(&key.namespace) {
                self.check_namespace(owner.clone(), &key.namespace);
            }
        } else {
            let changed = self.store.release(&owner);
            self.selectors_changed(changed, now);
        }
        self.queue(owner, now);
    }

    /// The logging of a namespace's policies changed; the first logged one needs the cluster's meter.
    fn logging_changed(&mut self, name: &Name, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        leading.queue.push(Owner::Cluster, now);
        leading.queue.push(Owner::Namespace(name.clone()), now);
        for policy in self.store.policies_in(name) {
            leading.queue.push(Owner::Policy(policy.key.clone()), now);
        }
    }

    /// Requeues deleted policies whose rows are kept.
    fn requeue_lingering(&mut self, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        for owner in self.store.lingering() {
            leading.queue.push(owner.clone(), now);
        }
    }

    /// Compiles a policy whose facts or named ports changed, and queues it behind the selectors that it needs.
    pub(super) fn recompile(&mut self, owner: Owner, now: Duration) {
        let changed = self.store.recompile(&owner);
        self.selectors_changed(changed, now);
        self.queue(owner, now);
    }

    pub(super) fn selectors_changed(&mut self, changed: Vec<Name>, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        for words in changed {
            leading.stale_members.insert(words.clone());
            leading.queue.push(Owner::Selector(words), now);
        }
    }

    /// Requeues the selectors of nodes.
    fn selected_nodes_changed(&mut self, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        for words in self.store.selectors_of_nodes() {
            leading.queue.push(Owner::Selector(words.clone()), now);
        }
    }

    /// Compiles the policies whose named ports have other numbers now.
    fn ports_renumbered(&mut self, now: Duration) {
        for owner in self.store.take_renumbered() {
            self.recompile(owner, now);
        }
    }

    fn pod_changed(&mut self, pod: PodFacts, now: Duration) {
        let key = pod.key.clone();
        let waits = pod.wants_port().is_some() && pod.network.is_none();
        if waits {
            self.pending_pods.entry(key.clone()).or_insert(now);
        } else if let Some(since) = self.pending_pods.remove(&key)
            && self.leading.is_some()
            && pod.network.is_some()
        {
            // The watch is often quicker than the reply to the patch.
            self.effects.push(Effect::Measured(Measure::PodCreation(now.saturating_sub(since))));
        }
        let before = self.store.put_pod(pod);
        self.ports_renumbered(now);
        self.host_ports_changed(before.as_ref(), &key, now);
        let Some(pod) = self.store.pod(&key) else { return };
        if before.as_ref() == Some(pod) {
            return;
        }
        let Some(leading) = &mut self.leading else { return };
        let owner = Owner::Pod(key.clone());
        let same = before.as_ref().filter(|before| before.uid == pod.uid);
        if same.is_none() {
            leading.warned.remove(&owner);
        }
        // While it is not recorded, a patch in flight is still to come; unless another client has just undone it.
        if same.is_none_or(PodFacts::is_recorded) || pod.is_recorded() {
            leading.patching.remove(&owner);
        }
        // Only the echo of our own record: nothing to do.
        if let (Some(before), Some(own), Some(network)) = (same, leading.allocator.pod(&key), &pod.network)
            && own.is(network)
            && pod.is_recorded()
            && !before.is_recorded()
            && before.differs_in_network_only(pod)
            && !leading.parked.contains_key(&owner)
        {
            return;
        }
        let first_in_namespace = self.store.namespace(&key.namespace).is_none();
        leading.queue.push(owner, now);
        if first_in_namespace {
            leading.queue.push(Owner::Namespace(key.namespace.clone()), now);
        }
    }

    fn pod_gone(&mut self, key: &PodKey, uid: Option<&str>, now: Duration) {
        let Some(pod) = self.store.remove_pod(key, uid) else { return };
        self.pending_pods.remove(key);
        self.ports_renumbered(now);
        self.queue_other_claimants(key, &host_port_keys(&pod).collect(), now);
        let Some(leading) = &mut self.leading else { return };
        let owner = Owner::Pod(pod.key.clone());
        leading.patching.remove(&owner);
        leading.queue.push(owner, now);
        if self.store.namespace(&key.namespace).is_none() {
            leading.queue.push(Owner::Namespace(key.namespace.clone()), now);
        }
    }
}

/// The chassis that a node no longer has. A node that merely lacks its annotation may still be on it; another machine of
/// the same name is not.
fn former_chassis(before: &NodeFacts, node: &NodeFacts) -> Option<Box<str>> {
    let replaced = before.uid != node.uid || node.chassis.is_some();
    before.chassis.clone().filter(|former| replaced && node.chassis.as_ref() != Some(former))
}
