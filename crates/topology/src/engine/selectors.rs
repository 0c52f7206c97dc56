//! The turns of selectors and policies: members of thousands of pods at once, rows that stay because ACLs name them, and
//! policies whose rows stay as they are.

use std::time::Duration;

use objects::Name;

use super::Leading;
use super::queue::Turn;
use crate::contribution::{Contribution, Draft, Member};
use crate::desired::{denials, join, selector_rows};
use crate::identity::{Owner, RowId};
use crate::ledger::{Entry, Touched};
use crate::refusal::Refusal;
use crate::selector::Selector;
use crate::store::Store;

/// Reason of an owner that needs rows of a parked one.
const WAITING: &str = "WaitingForParked";

impl Leading {
    /// Adds the members of a new selector, or removes those of a removed one, in the transaction that writes its row.
    pub(super) fn sync_members(
        &mut self,
        words: &Name,
        came: bool,
        store: &Store,
        touched: &mut Touched,
        before: &mut Vec<(Owner, Entry)>,
    ) {
        let Some(selector) = store.selector(words).cloned().or_else(|| Selector::parse(words)) else { return };
        let in_use = store.selector(words).is_some();
        if in_use && !came && !self.stale_members.contains(words) {
            // Pods whose selection changed have their own turns.
            return;
        }
        let rows = selector_rows(words, &self.aliases);
        for pod in store.candidates(&selector) {
            let owner = Owner::Pod(pod.key.clone());
            let was = if !in_use {
                self.ledger.remove_members_of(&owner, &rows, touched)
            } else if selector.selects_in_scope(pod) {
                let members = self.members(&owner, words, &selector);
                self.ledger.add_members(&owner, members, touched)
            } else {
                None
            };
            before.extend(was.map(|was| (owner, was)));
        }
    }

    /// The batch is sent: the members of its selectors are complete.
    pub(super) fn members_synced(&mut self, turns: &[Turn]) {
        for Turn { owner, .. } in turns {
            if let Owner::Selector(words) = owner {
                self.stale_members.remove(words);
            }
        }
    }

    /// The batch was not committed.
    pub(super) fn members_not_synced(&mut self, turns: &[Turn]) {
        for Turn { owner, .. } in turns {
            if let Owner::Selector(words) = owner {
                self.stale_members.insert(words.clone());
            }
        }
    }

    /// A pod's members of a selector's rows, if it has a port already.
    fn members(&self, owner: &Owner, words: &Name, selector: &Selector) -> Vec<Member> {
        let Owner::Pod(key) = owner else { return Vec::new() };
        let Some(own) = self.allocator.pod(key) else { return Vec::new() };
        let port = super::seed::port_row(&own.uid, &self.aliases);
        if !self.ledger.entry(owner).is_some_and(|entry| entry.rows().contains(&port)) {
            return Vec::new();
        }
        let mut draft = Draft::new(owner, &own.uid, &self.aliases);
        join(&mut draft, words, selector, own, port.uuid, &self.aliases);
        draft.finish().members
    }

    /// Whether an owner's rows stay as they are, regardless of its object.
    pub(super) fn keeps_rows(&self, owner: &Owner, store: &Store) -> bool {
        match owner {
            // Unused, but ACLs that name it still exist.
            Owner::Selector(words) => store.selector(words).is_none() && self.ledger.is_named(words),
            Owner::Policy(key) => match store.policy(key) {
                Some(policy) => {
                    let good = policy.broken.is_none() || policy.last_valid;
                    let rows = self.ledger.entry(owner).map(Entry::rows).unwrap_or_default();
                    !good && denials(policy).iter().any(|row| rows.contains(row))
                }
                None if self.awaits_namespace_check(owner, &key.namespace) => true,
                // A namespace of this name that is active again is another one: nothing of the former is left.
                None => {
                    store.is_lingering(owner) && !store.is_active(&key.namespace) && self.has_ports(store.uses(owner))
                }
            },
            Owner::AdminPolicy(_) | Owner::BaselinePolicy(_) => store.is_fixed(owner),
            _ => false,
        }
    }

    /// Whether one of the groups has a port.
    fn has_ports(&self, words: &[Name]) -> bool {
        let groups = words.iter().map(|words| selector_rows(words, &self.aliases)[0]);
        groups.into_iter().any(|group: RowId| {
            self.ledger.sets_of(group).any(|(column, mut members)| column == "ports" && members.next().is_some())
        })
    }

    /// A refusal if a policy names selectors that do not exist yet; they are queued, and the policy is retried after them.
    pub(super) fn missing_selectors(&mut self, contribution: &Contribution, now: Duration) -> Option<Refusal> {
        let is_missing = |words: &&Name| self.ledger.entry(&Owner::Selector((*words).clone())).is_none();
        let missing: Vec<Name> = contribution.names.iter().filter(is_missing).cloned().collect();
        let first = missing.first()?.clone();
        for words in missing {
            self.queue.push(Owner::Selector(words), now);
        }
        let message =
            format!("{} has no rows yet: the previous version of the policy stays in effect", Owner::Selector(first));
        Some(Refusal::new(WAITING, message))
    }

    /// Requeues the policies that waited for a selector.
    pub(super) fn requeue_waiting(&mut self, words: &Name, store: &Store, now: Duration) {
        let waits =
            |owner: &&Owner| matches!(owner, Owner::Policy(_) | Owner::AdminPolicy(_) | Owner::BaselinePolicy(_));
        let waiting = self.parked.iter().filter(|(_, refusal)| refusal.reason == WAITING).map(|(owner, _)| owner);
        for owner in waiting.filter(waits).filter(|owner| store.uses(owner).contains(words)) {
            self.queue.push(owner.clone(), now);
        }
    }

    /// Requeues the selectors that a policy's rows named before and no longer do: they may be unused.
    pub(super) fn requeue_unused(&mut self, before: &Entry, store: &Store, now: Duration) {
        for words in before.names() {
            if store.selector(words).is_none() && !self.ledger.is_named(words) {
                self.queue.push(Owner::Selector(words.clone()), now);
            }
        }
    }
}

/// An error if a policy is invalid, or the logging annotation of a namespace.
pub(super) fn check_policy(owner: &Owner, store: &Store) -> Result<(), Refusal> {
    if let Owner::Namespace(name) = owner
        && let Some(why) = store.namespace(name).and_then(|namespace| namespace.logging.broken())
    {
        return Err(Refusal::new("InvalidAnnotation", format!("{why}; the policies of the namespace are not logged")));
    }
    if let Some(policy) = store.admin_policy_of(owner) {
        return super::admin::check_policy(policy, owner, store);
    }
    let Owner::Policy(key) = owner else { return Ok(()) };
    let Some(policy) = store.policy(key) else { return Ok(()) };
    let Some(why) = &policy.broken else { return Ok(()) };
    let message = format!(
        "invalid policy: {why}; the last valid version stays in effect; without one, selected pods are isolated"
    );
    Err(Refusal::new("InvalidPolicy", message))
}
