//! Selectors and policies on their turn: members of thousands of pods at once, rows that stay because others name them,
//! and policies whose rows stay as they are.

use std::time::Duration;

use super::Leading;
use super::queue::Turn;
use crate::contribution::{Contribution, Draft, Member};
use crate::desired::{denials, join, selector_rows};
use crate::identity::{Name, Owner, RowId};
use crate::ledger::{Entry, Touched};
use crate::refusal::Refusal;
use crate::selector::Selector;
use crate::store::Store;

/// Something that it needs cannot be made.
const WAITING: &str = "WaitingForParked";

impl Leading {
    /// A selector that came, or went, has its members among the pods that have ports, in the same transaction.
    pub(super) fn gather(
        &mut self,
        words: &Name,
        came: bool,
        store: &Store,
        touched: &mut Touched,
        before: &mut Vec<(Owner, Entry)>,
    ) {
        let Some(selector) = store.selector(words).cloned().or_else(|| Selector::parse(words)) else { return };
        let stands = store.selector(words).is_some();
        if stands && !came && !self.gathering.contains(words) {
            // Whoever is selected otherwise has a turn of its own.
            return;
        }
        let rows = selector_rows(words, &self.aliases);
        for pod in store.pods_where(&selector) {
            let owner = Owner::Pod(pod.key.clone());
            let was = if !stands {
                self.ledger.remove_members_of(&owner, &rows, touched)
            } else if selector.selects_there(pod) {
                let members = self.members(&owner, words, &selector);
                self.ledger.add_members(&owner, members, touched)
            } else {
                None
            };
            before.extend(was.map(|was| (owner, was)));
        }
    }

    /// The batch goes out: its selectors have all their members.
    pub(super) fn gathered(&mut self, turns: &[Turn]) {
        for Turn { owner, .. } in turns {
            if let Owner::Selector(words) = owner {
                self.gathering.remove(words);
            }
        }
    }

    /// The batch did not happen.
    pub(super) fn not_gathered(&mut self, turns: &[Turn]) {
        for Turn { owner, .. } in turns {
            if let Owner::Selector(words) = owner {
                self.gathering.insert(words.clone());
            }
        }
    }

    /// What a pod adds to a selector, if it has a port already.
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

    /// Whether what an owner has stays as it is, whatever the objects say.
    pub(super) fn stays(&self, owner: &Owner, store: &Store) -> bool {
        match owner {
            // Nobody wants it, but rules that name it are still there.
            Owner::Selector(words) => store.selector(words).is_none() && self.ledger.is_named(words),
            Owner::Policy(key) => match store.policy(key) {
                Some(policy) => {
                    let good = policy.broken.is_none() || policy.last_good;
                    let rows = self.ledger.entry(owner).map(Entry::rows).unwrap_or_default();
                    !good && denials(policy).iter().any(|row| rows.contains(row))
                }
                // A namespace that is there again is another one: nothing of the former is left.
                None => {
                    store.is_lingering(owner) && !store.is_alive(&key.namespace) && self.has_ports(store.uses(owner))
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

    /// A policy names selectors that are not there yet: it has to come again behind them.
    pub(super) fn unmet(&mut self, contribution: &Contribution, now: Duration) -> Option<Refusal> {
        let there = |words: &&Name| self.ledger.entry(&Owner::Selector((*words).clone())).is_none();
        let missing: Vec<Name> = contribution.names.iter().filter(there).cloned().collect();
        let first = missing.first()?.clone();
        for words in missing {
            self.queue.push(Owner::Selector(words), now);
        }
        let message = format!("{} cannot be made: what the policy said before stays", Owner::Selector(first));
        Some(Refusal::new(WAITING, message))
    }

    /// A selector is there: policies that had to wait for it come again.
    pub(super) fn call_waiting(&mut self, words: &Name, store: &Store, now: Duration) {
        let waits =
            |owner: &&Owner| matches!(owner, Owner::Policy(_) | Owner::AdminPolicy(_) | Owner::BaselinePolicy(_));
        let waiting = self.parked.iter().filter(|(_, refusal)| refusal.reason == WAITING).map(|(owner, _)| owner);
        for owner in waiting.filter(waits).filter(|owner| store.uses(owner).contains(words)) {
            self.queue.push(owner.clone(), now);
        }
    }

    /// Selectors that a policy's rows named before: nobody may want them any more.
    pub(super) fn let_go(&mut self, before: &Entry, store: &Store, now: Duration) {
        for words in before.names() {
            if store.selector(words).is_none() && !self.ledger.is_named(words) {
                self.queue.push(Owner::Selector(words.clone()), now);
            }
        }
    }
}

/// Why a policy cannot be in force as it is, or a namespace's policies not be logged as it says.
pub(super) fn trouble(owner: &Owner, store: &Store) -> Result<(), Refusal> {
    if let Owner::Namespace(name) = owner
        && let Some(why) = store.namespace(name).and_then(|namespace| namespace.logging.broken())
    {
        return Err(Refusal::new("InvalidAnnotation", format!("{why}; nothing of its policies is logged")));
    }
    if let Some(policy) = store.admin_policy_of(owner) {
        return super::admin::trouble(policy, owner, store);
    }
    let Owner::Policy(key) = owner else { return Ok(()) };
    let Some(policy) = store.policy(key) else { return Ok(()) };
    let Some(why) = &policy.broken else { return Ok(()) };
    let message = format!(
        "{why}; what the policy said before stays in force, and if there is nothing, the pods that it selects are closed"
    );
    Err(Refusal::new("InvalidPolicy", message))
}
