//! Which selectors policies want, who is selected, and which policies a change concerns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Store;
use crate::identity::{Name, Owner};
use crate::objects::{LabelSelector, Labels, PodFacts, Protocol};
use crate::rules::{self, Compiled, Numbers};
use crate::selector::{Scope, Selector};

/// A port's name, with its protocol.
type PortName = (Name, Protocol);

/// The selectors that policies want.
#[derive(Debug, Clone, Default)]
pub(super) struct Selectors {
    wanted: BTreeMap<Name, Wanted>,
    by_namespace: BTreeMap<Name, BTreeSet<Name>>,
    by_labels: BTreeMap<LabelSelector, BTreeSet<Name>>,
    of_nodes: BTreeSet<Name>,
    uses: BTreeMap<Owner, Use>,
    /// Policies whose rows stay as the database has them.
    frozen: BTreeSet<Owner>,
    /// Policies that are gone, with rows that stay until the ports are gone that they are about.
    lingering: BTreeSet<Owner>,
    /// How many pods have a number for a port's name.
    numbers: BTreeMap<PortName, BTreeMap<u16, u32>>,
    named: BTreeMap<PortName, BTreeSet<Owner>>,
    /// Names of ports whose numbers have changed.
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

impl Numbers for Store {
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

    /// Replaces what a policy uses; returns the selectors that nobody wanted before, and those that nobody wants any more.
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
    /// A selector that policies want.
    pub fn selector(&self, words: &str) -> Option<&Selector> {
        self.selectors.wanted.get(words).map(|wanted| &*wanted.selector)
    }

    /// The words of all selectors that policies want.
    pub fn selectors(&self) -> impl Iterator<Item = &Name> {
        self.selectors.wanted.keys()
    }

    /// The selectors of nodes.
    pub(crate) fn selectors_of_nodes(&self) -> impl Iterator<Item = &Name> {
        self.selectors.of_nodes.iter()
    }

    /// Whether a namespace is there to stay.
    pub(crate) fn is_alive(&self, namespace: &str) -> bool {
        self.namespace(namespace).is_some_and(|namespace| !namespace.terminating)
    }

    /// The labels of a namespace; none if it is not there.
    pub(crate) fn labels_of(&self, namespace: &str) -> Labels {
        self.namespace(namespace).map(|namespace| namespace.labels.clone()).unwrap_or_default()
    }

    /// The selectors that select a pod.
    pub fn selectors_of<'a>(&'a self, pod: &'a PodFacts) -> impl Iterator<Item = (&'a Name, &'a Selector)> {
        let Selectors { by_namespace, by_labels, wanted, .. } = &self.selectors;
        let labels = (!by_labels.is_empty()).then(|| self.labels_of(&pod.key.namespace));
        let there = move |selector: &LabelSelector| labels.as_ref().is_some_and(|labels| selector.matches(labels));
        let by_labels = by_labels.iter().filter(move |(selector, _)| there(selector)).flat_map(|(_, words)| words);
        let words = by_namespace.get(&pod.key.namespace).into_iter().flatten().chain(by_labels);
        let selectors = words.filter_map(|words| Some((words, &*wanted.get(words)?.selector)));
        selectors.filter(|(_, selector)| selector.selects_there(pod))
    }

    /// The pods where a selector looks for them.
    pub(crate) fn pods_where<'a>(&'a self, selector: &'a Selector) -> Box<dyn Iterator<Item = &'a PodFacts> + 'a> {
        match &selector.scope {
            Scope::Namespace(name) => Box::new(self.pods_in(name)),
            Scope::Namespaces(labels) => {
                let namespaces = self.namespaces().filter(move |namespace| labels.matches(&namespace.labels));
                let bare = labels.matches(&Labels::default());
                let unknown = move |pod: &&PodFacts| bare && self.namespace(&pod.key.namespace).is_none();
                let of_unknown = self.pods().filter(unknown);
                Box::new(namespaces.flat_map(|namespace| self.pods_in(&namespace.name)).chain(of_unknown))
            }
            Scope::Nodes(_) => Box::new(std::iter::empty()),
        }
    }

    /// Whether pods of a namespace are selected otherwise when its labels change.
    pub(crate) fn labels_matter(&self, before: &Labels, after: &Labels) -> bool {
        before != after && self.selectors.by_labels.keys().any(|labels| labels.matches(before) != labels.matches(after))
    }

    /// Looks again at what a policy says; returns selectors that came and went with that.
    pub(crate) fn reread(&mut self, owner: &Owner) -> Vec<Name> {
        let compiled = match owner {
            Owner::Policy(key) => {
                let Some(policy) = self.policy(key) else { return Vec::new() };
                let good = policy.broken.is_none() || policy.last_good;
                if !good && self.selectors.frozen.contains(owner) {
                    return Vec::new();
                }
                rules::of_policy(policy, self)
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
        let Compiled { selectors, named, .. } = compiled;
        self.selectors.replace(owner, &selectors, &named)
    }

    /// A policy wants nothing any more; returns selectors that went with it.
    pub(crate) fn release(&mut self, owner: &Owner) -> Vec<Name> {
        self.selectors.frozen.remove(owner);
        self.selectors.lingering.remove(owner);
        self.selectors.replace(owner, &BTreeMap::new(), &BTreeSet::new())
    }

    /// A policy's rows stay as the database has them: it wants the selectors that they name.
    pub(crate) fn freeze(&mut self, owner: &Owner, words: impl Iterator<Item = Name>) {
        let selectors = words.filter_map(|words| Some((words.clone(), Arc::new(Selector::parse(&words)?)))).collect();
        self.selectors.replace(owner, &selectors, &BTreeSet::new());
        self.selectors.frozen.insert(owner.clone());
    }

    /// A policy is gone, and what it wants stays until the ports are gone that it is about.
    pub(crate) fn linger(&mut self, owner: &Owner) {
        self.selectors.lingering.insert(owner.clone());
    }

    /// Whether a policy's rows stay as the database has them.
    pub(crate) fn is_frozen(&self, owner: &Owner) -> bool {
        self.selectors.frozen.contains(owner)
    }

    /// Whether a policy is gone and its rows stay.
    pub(crate) fn is_lingering(&self, owner: &Owner) -> bool {
        self.selectors.lingering.contains(owner)
    }

    /// Policies that are gone and whose rows stay.
    pub(crate) fn lingering(&self) -> impl Iterator<Item = &Owner> {
        self.selectors.lingering.iter()
    }

    /// The words of the selectors that a policy uses.
    pub(crate) fn uses(&self, owner: &Owner) -> &[Name] {
        self.selectors.uses.get(owner).map(|uses| &*uses.selectors).unwrap_or_default()
    }

    /// What was frozen by somebody who led before is forgotten: what the objects say counts. AdminNetworkPolicies count if
    /// the database can have them.
    pub(crate) fn reread_all(&mut self, admin_policies: bool) {
        self.enforce_admin_policies(admin_policies);
        let lingering: Vec<Owner> = self.selectors.lingering.iter().cloned().collect();
        for owner in lingering {
            self.release(&owner);
        }
        self.selectors.frozen.clear();
        let policies = self.policies().map(|policy| Owner::Policy(policy.key.clone()));
        let policies: Vec<Owner> = policies.chain(self.admin_owners()).collect();
        for owner in policies {
            self.reread(&owner);
        }
    }

    /// A pod came, or went, with its ports.
    pub(super) fn renumber(&mut self, pod: &PodFacts, comes: bool) {
        self.selectors.renumber(pod, comes);
    }

    /// Policies that speak of ports whose numbers have changed since this was asked last.
    pub(crate) fn take_renumbered(&mut self) -> BTreeSet<Owner> {
        let renumbered = std::mem::take(&mut self.selectors.renumbered);
        renumbered.iter().filter_map(|name| self.selectors.named.get(name)).flatten().cloned().collect()
    }
}
