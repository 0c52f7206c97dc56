//! AdminNetworkPolicies: changes, invalid ones whose rows stay as they are, and the condition in their status.

use std::time::Duration;

use objects::{AdminPolicyFacts, Condition, Name, ObjectKey};
use ovn_schema::Feature;
use ovsdb::replica::Snapshot;

use super::effect::Effect;
use super::follow_up::{PatchState, PendingPatch, object_of};
use super::{Engine, Leading};
use crate::desired::{LEVELS_MARK, PRIORITY_MARK, SHARED, UID_MARK};
use crate::identity::Owner;
use crate::ledger::{Entry, Ledger};
use crate::plan::{owner_of, row};
use crate::refusal::Refusal;
use crate::store::{Fixed, Store};

/// Reasons of the condition, as other controllers for these policies use them.
const SUCCEEDED: &str = "SetupSucceeded";
const FAILED: &str = "SetupFailed";

impl Engine {
    pub(super) fn admin_policy_changed(&mut self, policy: AdminPolicyFacts, baseline: bool, now: Duration) {
        let name: Name = (*policy.key.name).into();
        let owner = if baseline { Owner::BaselinePolicy(name) } else { Owner::AdminPolicy(name) };
        let before = self.store.put_admin_policy(policy, baseline);
        let Some(policy) = self.store.admin_policy_of(&owner) else { return };
        if before.as_ref() == Some(policy) {
            return;
        }
        if let Some(leading) = &mut self.leading {
            let same = before.as_ref().filter(|before| before.uid == policy.uid);
            let spoke = same.is_none_or(|before| before.condition != policy.condition);
            match leading.patching.get_mut(&owner).filter(|_| spoke) {
                Some(patching) if same.is_some() && patching.state == PatchState::InFlight => {
                    let as_sent = patching.condition.as_ref().zip(policy.condition.as_ref());
                    patching.superseded = !as_sent.is_some_and(|(sent, said)| sent.has_content_of(said));
                }
                // The condition is compared again.
                Some(_) => drop(leading.patching.remove(&owner)),
                None => {}
            }
        }
        self.recompile(owner, now);
        self.reposition(now);
    }

    pub(super) fn admin_policy_gone(&mut self, key: &ObjectKey, uid: Option<&str>, baseline: bool, now: Duration) {
        let Some(policy) = self.store.remove_admin_policy(key, uid, baseline) else { return };
        let name: Name = (*policy.key.name).into();
        let owner = if baseline { Owner::BaselinePolicy(name) } else { Owner::AdminPolicy(name) };
        if let Some(leading) = &mut self.leading {
            leading.patching.remove(&owner);
        }
        let changed = self.store.release(&owner);
        self.selectors_changed(changed, now);
        self.queue(owner, now);
        self.reposition(now);
    }

    /// Requeues the policies whose ACL priorities moved; they are written in one transaction.
    fn reposition(&mut self, now: Duration) {
        for owner in self.store.reposition() {
            self.queue(owner, now);
        }
    }

    /// Policies that are invalid, and were so since this process began, keep the rows that the database has.
    pub(super) fn fix_unreadable(&mut self, ledger: &Ledger, snapshot: &Snapshot) {
        if self.settings.features.has(Feature::AclTiers) {
            for owner in ledger.owners() {
                let never = self.store.admin_policy_of(owner).filter(|policy| !policy.is_understood());
                let (Some(policy), Some(entry)) = (never, ledger.entry(owner)) else { continue };
                let Some(fixed) = fixed(policy, entry, snapshot) else { continue };
                self.store.fix(owner, fixed);
                let groups = entry.members().iter().filter_map(|member| row(snapshot, member.column.row));
                let groups = groups.filter_map(|group| match owner_of(group) {
                    Some(Owner::Selector(words)) => Some(words),
                    _ => None,
                });
                let words: Vec<Name> = entry.names().iter().cloned().chain(groups).collect();
                self.store.freeze(owner, words.into_iter());
            }
        }
        self.store.reposition();
    }

    /// Writes a policy's condition if it differs from its status.
    pub(super) fn write_condition(&mut self, owner: &Owner) {
        let Some(leading) = &mut self.leading else { return };
        let (Some(policy), Some(object)) = (self.store.admin_policy_of(owner), object_of(owner, &self.store)) else {
            return;
        };
        let mut condition = leading.condition(owner, policy);
        if let Some(said) = policy.condition.as_ref().filter(|said| said.ready == condition.ready) {
            condition.since = said.since.clone();
        }
        if policy.condition.as_ref() == Some(&condition) {
            return;
        }
        let sent = leading.patching.get(owner).filter(|patching| patching.uid == object.uid);
        if sent.is_some_and(|patching| patching.condition.as_ref() == Some(&condition)) {
            // In flight, written, or waiting for its retry.
            return;
        }
        let attempts = sent.map_or(0, |patching| patching.attempts);
        let (uid, state) = (object.uid.clone(), PatchState::InFlight);
        let patching = PendingPatch { uid, attempts, state, condition: Some(condition.clone()), superseded: false };
        leading.patching.insert(owner.clone(), patching);
        self.effects.push(Effect::Condition { owner: owner.clone(), object, condition });
    }
}

impl Leading {
    fn condition(&self, owner: &Owner, policy: &AdminPolicyFacts) -> Condition {
        let parked = self.parked.get(owner);
        let ready = parked.is_none_or(|refusal| refusal.reason == SHARED);
        let message = parked.map_or("the policy is in effect", |refusal| &refusal.message);
        Condition {
            ready,
            reason: if ready { SUCCEEDED } else { FAILED }.into(),
            message: message.into(),
            generation: policy.generation,
            since: Box::default(),
        }
    }
}

/// The position of a policy, from the marks of its rows.
fn fixed(policy: &AdminPolicyFacts, entry: &Entry, snapshot: &Snapshot) -> Option<Fixed> {
    entry.rows().iter().find_map(|id| {
        let marks = row(snapshot, *id)?.get("external_ids")?;
        let uid = marks.get_str(UID_MARK).filter(|uid| **uid == *policy.uid)?;
        let levels = marks.get_str(LEVELS_MARK)?;
        let (bottom, top) = levels.split_once('-')?;
        let (bottom, top): (i32, i32) = (bottom.parse().ok()?, top.parse().ok()?);
        // The baseline policy has none.
        let priority = marks.get_str(PRIORITY_MARK).and_then(|priority| priority.parse().ok()).unwrap_or_default();
        Some(Fixed { uid: (*uid).into(), priority, top, levels: top - bottom + 1 })
    })
}

/// An error if an AdminNetworkPolicy is invalid.
pub(super) fn check_policy(policy: &AdminPolicyFacts, owner: &Owner, store: &Store) -> Result<(), Refusal> {
    let Some(why) = &policy.broken else { return Ok(()) };
    let effect = match policy.is_understood() || store.is_fixed(owner) {
        true => "the last valid version stays in effect",
        false => "the policy is not in effect",
    };
    Err(Refusal::new("InvalidPolicy", format!("invalid policy: {why}; {effect}")))
}
