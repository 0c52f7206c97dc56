//! Whether a policy went alone, or with its whole namespace: the API is asked before its rows go.
//!
//! Watches are not in step with each other. When a namespace is deleted, the end of its policies may be seen before the
//! namespace's own, and pods that were closed would be open until they are gone. So the rows stay until the API, asked
//! after the policy's end, has said that the namespace lives.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Effect, Engine, Leading};
use crate::identity::{Name, Owner};
use crate::objects::NamespaceFacts;

/// What the API was asked about a namespace.
#[derive(Debug, Clone)]
pub(super) struct Question {
    number: u64,
    /// Policies that were gone when it was asked.
    asked: BTreeSet<Owner>,
    /// Policies that went since: the answer is older than their end and says nothing of them.
    later: BTreeSet<Owner>,
}

impl Engine {
    /// A policy is gone whose rows stand, and its namespace seems to live.
    pub(super) fn ask_about_namespace(&mut self, owner: Owner, namespace: &Name) {
        let Some(leading) = &mut self.leading else { return };
        if let Some(question) = leading.questions.get_mut(namespace) {
            question.later.insert(owner);
        } else {
            self.ask(namespace, [owner].into());
        }
    }

    fn ask(&mut self, namespace: &Name, asked: BTreeSet<Owner>) {
        let Some(leading) = &mut self.leading else { return };
        self.asked += 1;
        let question = Question { number: self.asked, asked, later: BTreeSet::new() };
        leading.questions.insert(namespace.clone(), question);
        self.effects.push(Effect::LookAtNamespace { name: namespace.clone(), question: self.asked });
    }

    /// What the API said of a namespace that it was asked about; nothing if there is none of that name.
    pub fn namespace_looked_at(&mut self, name: &Name, question: u64, found: Option<&NamespaceFacts>, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        if leading.questions.get(name).is_none_or(|open| open.number != question) {
            return;
        }
        let Some(Question { asked, later, .. }) = leading.questions.remove(name) else { return };
        let known = self.store.namespace(name).map(|known| known.uid.clone());
        let lives = found.filter(|found| !found.terminating).map(|found| &found.uid);
        if let Some(known) = known
            && lives != Some(&known)
        {
            // The watch will say so in its time.
            self.store.doom(name, &known);
        }
        for owner in &asked {
            leading.queue.push(owner.clone(), now);
        }
        if !later.is_empty() {
            self.ask(name, later);
        }
    }
}

impl Leading {
    /// Whether it is still open how a policy went.
    pub(super) fn is_asked_about(&self, owner: &Owner, namespace: &Name) -> bool {
        let question = self.questions.get(namespace);
        question.is_some_and(|question| question.asked.contains(owner) || question.later.contains(owner))
    }
}
