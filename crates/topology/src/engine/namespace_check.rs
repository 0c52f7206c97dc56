//! NetworkPolicy deletion: check the namespace before removing rows.
//!
//! Watches are unordered: the policy's DELETE may precede its namespace's, and removing rows then would expose terminating
//! pods. Rows stay until a GET sent after the DELETE shows the namespace active, or its last port is gone.

use std::collections::BTreeSet;
use std::time::Duration;

use objects::{Name, NamespaceFacts};

use super::{Effect, Engine, Leading};
use crate::identity::Owner;

/// A GET of a namespace that is in flight.
#[derive(Debug, Clone)]
pub(super) struct NamespaceCheck {
    number: u64,
    /// Policies that were deleted before it was sent.
    covered: BTreeSet<Owner>,
    /// Policies that were deleted since: the reply may be older than that, so they need another check.
    later: BTreeSet<Owner>,
}

impl Engine {
    /// A policy was deleted, its rows exist, and its namespace seems active.
    pub(super) fn check_namespace(&mut self, owner: Owner, namespace: &Name) {
        let Some(leading) = &mut self.leading else { return };
        if let Some(check) = leading.namespace_checks.get_mut(namespace) {
            check.later.insert(owner);
        } else {
            self.start_check(namespace, [owner].into());
        }
    }

    fn start_check(&mut self, namespace: &Name, covered: BTreeSet<Owner>) {
        let Some(leading) = &mut self.leading else { return };
        self.checks_sent += 1;
        let check = NamespaceCheck { number: self.checks_sent, covered, later: BTreeSet::new() };
        leading.namespace_checks.insert(namespace.clone(), check);
        self.effects.push(Effect::CheckNamespace { name: namespace.clone(), check: self.checks_sent });
    }

    /// Takes the reply to [`Effect::CheckNamespace`]; `found` is none if the namespace does not exist.
    pub fn namespace_checked(&mut self, name: &Name, check: u64, found: Option<&NamespaceFacts>, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        if leading.namespace_checks.get(name).is_none_or(|open| open.number != check) {
            return;
        }
        let Some(NamespaceCheck { covered, later, .. }) = leading.namespace_checks.remove(name) else { return };
        let known = self.store.namespace(name).map(|known| known.uid.clone());
        let active = found.filter(|found| !found.terminating).map(|found| &found.uid);
        if let Some(known) = known
            && active != Some(&known)
        {
            // The watch will show it later.
            self.store.mark_terminating(name, &known);
        }
        for owner in &covered {
            leading.queue.push(owner.clone(), now);
        }
        if !later.is_empty() {
            self.start_check(name, later);
        }
    }
}

impl Leading {
    /// Whether the rows of a deleted policy wait for a namespace check.
    pub(super) fn awaits_namespace_check(&self, owner: &Owner, namespace: &Name) -> bool {
        let check = self.namespace_checks.get(namespace);
        check.is_some_and(|check| check.covered.contains(owner) || check.later.contains(owner))
    }
}
