//! Selectors that policies use, the pods that they select, and the compiled policies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use objects::{LabelSelector, Labels, Name, PodFacts, Protocol};

use super::Store;
use crate::identity::Owner;
use crate::rules::{self, Compiled, PortNumbers};
use crate::selector::{Scope, Selector};

/// A port's name, with its protocol.
type PortName = (Name, Protocol);

/// The selectors in use, and the compiled policies.
#[derive(Debug, Clone, Default)]
pub(super) struct Selectors {
    wanted: BTreeMap<Name, Wanted>,
    by_namespace: BTreeMap<Name, BTreeSet<Name>>,
    by_labels: BTreeMap<LabelSelector, BTreeSet<Name>>,
    of_nodes: BTreeSet<Name>,
    uses: BTreeMap<Owner, Use>,
    /// The rules of each policy, from its facts and the numbers that its named ports have now. Frozen policies have none.
    compiled: BTreeMap<Owner, Arc<Compiled>>,
    /// Invalid policies whose rows stay as the database has them.
    frozen: BTreeSet<Owner>,
    /// Deleted policies whose rows stay until the ports that they select are gone.
    lingering: BTreeSet<Owner>,
    /// Number of pods by port number, for each port name.
    numbers: BTreeMap<PortName, BTreeMap<u16, u32>>,
    named: BTreeMap<PortName, BTreeSet<Owner>>,
    /// Port names whose set of numbers has changed.
    renumbered: BTreeSet<PortName>,
}

#[derive(Debug, Clone)]
struct Wanted {
    selector: Arc<Selector>,
    users: u32,
}

#[derive(Debug, Clone, Default)]
struct Use {
    selectors: Box<[Name]>,
    named: Box<[PortName]>,
}

impl PortNumbers for Store {
    fn numbers(&self, name: &Name, protocol: Protocol) -> Vec<u16> {
        let numbers = self.selectors.numbers.get(&(name.clone(), protocol));
        numbers.into_iter().flat_map(|numbers| numbers.keys().copied()).collect()
    }
}

impl Selectors {
    fn want(&mut self, words: &Name, selector: Arc<Selector>) -> bool {
        if let Some(wanted) = self.wanted.get_mut(words) {
            wanted.users += 1;
            return false;
        }
        match &selector.scope {
            Scope::Namespace(name) => self.by_namespace.entry(name.clone()).or_default().insert(words.clone()),
            Scope::Namespaces(labels) => self.by_labels.entry(labels.clone()).or_default().insert(words.clone()),
            Scope::Nodes(_) => self.of_nodes.insert(words.clone()),
        };
        self.wanted.insert(words.clone(), Wanted { selector, users: 1 });
        true
    }

    fn unwant(&mut self, words: &Name) -> bool {
        let Some(wanted) = self.wanted.get_mut(words) else { return false };
        wanted.users -= 1;
        if wanted.users > 0 {
            return false;
        }
        let Some(Wanted { selector, .. }) = self.wanted.remove(words) else { return false };
        match &selector.scope {
            Scope::Namespace(name) => remove_from(&mut self.by_namespace, name, words),
            Scope::Namespaces(labels) => remove_from(&mut self.by_labels, labels, words),
            Scope::Nodes(_) => drop(self.of_nodes.remove(words)),
        }
        true
    }

    /// Replaces what a policy uses; returns the selectors that came into use, and those that are no longer used.
    fn replace(
        &mut self,
        owner: &Owner,
        selectors: &BTreeMap<Name, Arc<Selector>>,
        named: &BTreeSet<PortName>,
    ) -> Vec<Name> {
        let mut changed = Vec::new();
        for (words, selector) in selectors {
            if self.want(words, selector.clone()) {
                changed.push(words.clone());
            }
        }
        for name in named {
            self.named.entry(name.clone()).or_default().insert(owner.clone());
        }
        let now = Use { selectors: selectors.keys().cloned().collect(), named: named.iter().cloned().collect() };
        let nothing = selectors.is_empty() && named.is_empty();
        let before = if nothing { self.uses.remove(owner) } else { self.uses.insert(owner.clone(), now) };
        let before = before.unwrap_or_default();
        for words in &before.selectors {
            if self.unwant(words) {
                changed.push(words.clone());
            }
        }
        for name in before.named.iter().filter(|name| !named.contains(name)) {
            remove_from(&mut self.named, name, owner);
        }
        changed
    }

    fn renumber(&mut self, pod: &PodFacts, comes: bool) {
        if pod.wants_port().is_none() {
            return;
        }
        for port in &pod.ports {
            let name = (port.name.clone(), port.protocol);
            let numbers = self.numbers.entry(name.clone()).or_default();
            let count = numbers.entry(port.number).or_default();
            let before = *count;
            *count = if comes { before + 1 } else { before.saturating_sub(1) };
            if before == 0 || *count == 0 {
                self.renumbered.insert(name.clone());
            }
            if *count == 0 {
                numbers.remove(&port.number);
                if numbers.is_empty() {
                    self.numbers.remove(&name);
                }
            }
        }
    }
}

fn remove_from<K: Ord, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(values) = map.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            map.remove(key);
        }
    }
}

impl Store {
    /// A selector that a policy refers to, by its canonical text.
    pub fn selector(&self, words: &str) -> Option<&Selector> {
        self.selectors.wanted.get(words).map(|wanted| &*wanted.selector)
    }

    /// The words of all selectors in use.
    pub fn selectors(&self) -> impl Iterator<Item = &Name> {
        self.selectors.wanted.keys()
    }

    /// Canonical texts of the selectors that select nodes, not pods.
    pub(crate) fn selectors_of_nodes(&self) -> impl Iterator<Item = &Name> {
        self.selectors.of_nodes.iter()
    }

    /// The selectors that select a pod.
    pub fn selectors_of<'a>(&'a self, pod: &'a PodFacts) -> impl Iterator<Item = (&'a Name, &'a Selector)> {
        let Selectors { by_namespace, by_labels, wanted, .. } = &self.selectors;
        let labels = (!by_labels.is_empty()).then(|| self.labels_of(&pod.key.namespace));
        let there = move |selector: &LabelSelector| labels.as_ref().is_some_and(|labels| selector.matches(labels));
        let by_labels = by_labels.iter().filter(move |(selector, _)| there(selector)).flat_map(|(_, words)| words);
        let words = by_namespace.get(&pod.key.namespace).into_iter().flatten().chain(by_labels);
        let selectors = words.filter_map(|words| Some((words, &*wanted.get(words)?.selector)));
        selectors.filter(|(_, selector)| selector.selects_in_scope(pod))
    }

    /// The pods in the scope of a selector, before its pod labels are compared.
    pub(crate) fn candidates<'a>(&'a self, selector: &'a Selector) -> Box<dyn Iterator<Item = &'a PodFacts> + 'a> {
        match &selector.scope {
            Scope::Namespace(name) => Box::new(self.pods_in(name)),
            Scope::Namespaces(labels) => {
                let there = self.namespaces().map(|namespace| (&namespace.name, &namespace.labels));
                let known = there.chain(self.terminating.with_labels()).filter(move |(_, own)| labels.matches(own));
                let bare = labels.matches(&Labels::default());
                let unknown = move |pod: &&PodFacts| bare && !self.knows_labels_of(&pod.key.namespace);
                let of_unknown = self.pods().filter(unknown);
                Box::new(known.flat_map(|(name, _)| self.pods_in(name)).chain(of_unknown))
            }
            Scope::Nodes(_) => Box::new(std::iter::empty()),
        }
    }

    /// Whether a change of a namespace's labels changes which selectors select its pods.
    pub(crate) fn labels_change_selection(&self, before: &Labels, after: &Labels) -> bool {
        before != after && self.selectors.by_labels.keys().any(|labels| labels.matches(before) != labels.matches(after))
    }

    /// Compiles a policy; returns the selectors that came into use or are no longer used.
    pub(crate) fn recompile(&mut self, owner: &Owner) -> Vec<Name> {
        let compiled = match owner {
            Owner::Policy(key) => {
                let Some(policy) = self.policy(key) else { return Vec::new() };
                let good = policy.broken.is_none() || policy.last_valid;
                if !good && self.selectors.frozen.contains(owner) {
                    return Vec::new();
                }
                rules::compile_policy(policy, self)
            }
            Owner::AdminPolicy(_) | Owner::BaselinePolicy(_) => {
                if self.is_fixed(owner) {
                    return Vec::new();
                }
                let Some(compiled) = self.compile_admin_policy(owner) else { return self.release(owner) };
                compiled
            }
            _ => return Vec::new(),
        };
        self.selectors.frozen.remove(owner);
        self.selectors.lingering.remove(owner);
        let changed = self.selectors.replace(owner, &compiled.selectors, &compiled.named);
        self.selectors.compiled.insert(owner.clone(), Arc::new(compiled));
        changed
    }

    /// Forgets what a policy uses; returns the selectors that are no longer used.
    pub(crate) fn release(&mut self, owner: &Owner) -> Vec<Name> {
        self.selectors.frozen.remove(owner);
        self.selectors.lingering.remove(owner);
        self.selectors.compiled.remove(owner);
        self.selectors.replace(owner, &BTreeMap::new(), &BTreeSet::new())
    }

    /// Keeps a policy's rows as the database has them: it uses the selectors that they name.
    pub(crate) fn freeze(&mut self, owner: &Owner, words: impl Iterator<Item = Name>) {
        let selectors = words.filter_map(|words| Some((words.clone(), Arc::new(Selector::parse(&words)?)))).collect();
        self.selectors.replace(owner, &selectors, &BTreeSet::new());
        self.selectors.compiled.remove(owner);
        self.selectors.frozen.insert(owner.clone());
    }

    /// Keeps the selectors of a deleted policy until the ports that it selects are gone.
    pub(crate) fn linger(&mut self, owner: &Owner) {
        self.selectors.lingering.insert(owner.clone());
    }

    /// Whether a policy's rows stay as the database has them.
    pub fn is_frozen(&self, owner: &Owner) -> bool {
        self.selectors.frozen.contains(owner)
    }

    /// Whether a policy is deleted and its rows are kept.
    pub(crate) fn is_lingering(&self, owner: &Owner) -> bool {
        self.selectors.lingering.contains(owner)
    }

    /// Deleted policies whose rows are kept.
    pub fn lingering(&self) -> impl Iterator<Item = &Owner> {
        self.selectors.lingering.iter()
    }

    /// The rules of a policy, as they were compiled when its facts or the numbers of its named ports last changed. One
    /// that was never compiled (frozen, and then replaced by another object of its name) is compiled on the spot.
    pub(crate) fn compiled(&self, owner: &Owner) -> Option<Arc<Compiled>> {
        if let Some(compiled) = self.selectors.compiled.get(owner) {
            return Some(compiled.clone());
        }
        let compiled = match owner {
            Owner::Policy(key) => rules::compile_policy(self.policy(key)?, self),
            _ => rules::compile_admin_policy(self.admin_policy_of(owner)?, self)?,
        };
        Some(Arc::new(compiled))
    }

    /// The words of the selectors that a policy uses.
    pub(crate) fn uses(&self, owner: &Owner) -> &[Name] {
        self.selectors.uses.get(owner).map(|uses| &*uses.selectors).unwrap_or_default()
    }

    /// Compiles all policies at promotion, and forgets what an earlier term froze or kept. `admin_policies` says whether the
    /// database supports AdminNetworkPolicies.
    pub(crate) fn recompile_all(&mut self, admin_policies: bool) {
        self.enforce_admin_policies(admin_policies);
        let lingering: Vec<Owner> = self.selectors.lingering.iter().cloned().collect();
        for owner in lingering {
            self.release(&owner);
        }
        self.selectors.frozen.clear();
        let policies = self.policies().map(|policy| Owner::Policy(policy.key.clone()));
        let policies: Vec<Owner> = policies.chain(self.admin_owners()).collect();
        for owner in policies {
            self.recompile(&owner);
        }
    }

    /// Counts the named ports of a pod that is added or removed.
    pub(super) fn renumber(&mut self, pod: &PodFacts, comes: bool) {
        self.selectors.renumber(pod, comes);
    }

    /// Policies with named ports whose numbers have changed since the last call.
    pub(crate) fn take_renumbered(&mut self) -> BTreeSet<Owner> {
        let renumbered = std::mem::take(&mut self.selectors.renumbered);
        renumbered.iter().filter_map(|name| self.selectors.named.get(name)).flatten().cloned().collect()
    }
}
