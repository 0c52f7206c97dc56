//! AdminNetworkPolicies: they come and go, stay as they are when they cannot be understood, and say so in their status.

use std::time::Duration;

use ovn_schema::Feature;
use ovsdb::replica::Snapshot;

use super::effect::Effect;
use super::follow_up::{PatchState, Patching, object_of};
use super::{Engine, Leading};
use crate::desired::{LEVELS_MARK, PRIORITY_MARK, SHARED, UID_MARK};
use crate::identity::{Name, ObjectKey, Owner};
use crate::ledger::{Entry, Ledger};
use crate::objects::{AdminPolicyFacts, Condition};
use crate::plan::{owner_of, row};
use crate::refusal::Refusal;
use crate::store::{Fixed, Store};

/// The words of the condition, as other controllers for these policies use them.
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
                Some(patching) if same.is_some() && patching.state == PatchState::UnderWay => {
                    let as_sent = patching.condition.as_ref().zip(policy.condition.as_ref());
                    patching.overtaken = !as_sent.is_some_and(|(sent, said)| sent.says(said));
                }
                // What the status says by now is looked at again.
                Some(_) => drop(leading.patching.remove(&owner)),
                None => {}
            }
        }
        self.reread(owner, now);
        self.arrange(now);
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
        self.arrange(now);
    }

    /// Who stands elsewhere among the others has a turn, all in one transaction.
    fn arrange(&mut self, now: Duration) {
        for owner in self.store.arrange() {
            self.queue(owner, now);
        }
    }

    /// Policies that cannot be understood, and never were since this process began, keep the rows that the database has.
    pub(super) fn keep_fixed(&mut self, ledger: &Ledger, snapshot: &Snapshot) {
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
        self.store.arrange();
    }

    /// What a policy's status owes to who reads it.
    pub(super) fn tell_condition(&mut self, owner: &Owner) {
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
            // It is under way, or done, or waits for its time.
            return;
        }
        let attempts = sent.map_or(0, |patching| patching.attempts);
        let (uid, state) = (object.uid.clone(), PatchState::UnderWay);
        let patching = Patching { uid, attempts, state, condition: Some(condition.clone()), overtaken: false };
        leading.patching.insert(owner.clone(), patching);
        self.effects.push(Effect::Condition { owner: owner.clone(), object, condition });
    }
}

impl Leading {
    fn condition(&self, owner: &Owner, policy: &AdminPolicyFacts) -> Condition {
        let parked = self.parked.get(owner);
        let ready = parked.is_none_or(|refusal| refusal.reason == SHARED);
        let message = parked.map_or("the policy is in force", |refusal| &refusal.message);
        Condition {
            ready,
            reason: if ready { SUCCEEDED } else { FAILED }.into(),
            message: message.into(),
            generation: policy.generation,
            since: Box::default(),
        }
    }
}

/// Where the rows of this very policy say that it stands.
fn fixed(policy: &AdminPolicyFacts, entry: &Entry, snapshot: &Snapshot) -> Option<Fixed> {
    entry.rows().iter().find_map(|id| {
        let marks = row(snapshot, *id)?.get("external_ids")?;
        let uid = marks.get_str(UID_MARK).filter(|uid| **uid == *policy.uid)?;
        let levels = marks.get_str(LEVELS_MARK)?;
        let (bottom, top) = levels.split_once('-')?;
        let (bottom, top): (i32, i32) = (bottom.parse().ok()?, top.parse().ok()?);
        // The baseline has none.
        let priority = marks.get_str(PRIORITY_MARK).and_then(|priority| priority.parse().ok()).unwrap_or_default();
        Some(Fixed { uid: (*uid).into(), priority, top, levels: top - bottom + 1 })
    })
}

/// Why an AdminNetworkPolicy cannot be in force as it is.
pub(super) fn trouble(policy: &AdminPolicyFacts, owner: &Owner, store: &Store) -> Result<(), Refusal> {
    let Some(why) = &policy.broken else { return Ok(()) };
    let rest = match policy.is_understood() || store.is_fixed(owner) {
        true => "what the policy said before stays in force",
        false => "nothing of the policy is in force",
    };
    Err(Refusal::new("InvalidPolicy", format!("{why}; {rest}")))
}
