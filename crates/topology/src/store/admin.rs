//! AdminNetworkPolicies and the baseline one, and where their rules stand among each other.

use std::collections::BTreeMap;

use super::{Kind, Store};
use crate::identity::{Name, ObjectKey, Owner};
use crate::levels::{self, Wanted};
use crate::objects::AdminPolicyFacts;
use crate::rules::{self, Compiled};

/// What is known of AdminNetworkPolicies beyond what each says.
#[derive(Debug, Clone, Default)]
pub(super) struct Administration {
    /// Whether the database can have them.
    enforced: bool,
    places: BTreeMap<Name, Place>,
    /// Policies that were not understood since this process began, and whose rows stay as they are.
    fixed: BTreeMap<Owner, Fixed>,
}

/// Where a policy stands among the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its highest level; none if there is no room.
    pub(crate) top: Option<i32>,
    /// One of the same priority that is asked before it.
    pub(crate) behind: Option<Name>,
}

/// What the rows of a policy say of it that cannot be understood now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fixed {
    /// The policy's identity.
    pub(crate) uid: Name,
    /// Its priority.
    pub(crate) priority: u16,
    /// Its highest level.
    pub(crate) top: i32,
    /// How many it has.
    pub(crate) levels: i32,
}

fn owner(name: &str, baseline: bool) -> Owner {
    if baseline { Owner::BaselinePolicy(name.into()) } else { Owner::AdminPolicy(name.into()) }
}

impl Store {
    /// An AdminNetworkPolicy, or the baseline one.
    pub fn admin_policy(&self, name: &str, baseline: bool) -> Option<&AdminPolicyFacts> {
        let kind = if baseline { &self.baseline_policies } else { &self.admin_policies };
        kind.objects.get(&ObjectKey::new("", name))
    }

    /// All AdminNetworkPolicies, or the baseline ones.
    pub fn admin_policies(&self, baseline: bool) -> impl Iterator<Item = &AdminPolicyFacts> {
        let kind = if baseline { &self.baseline_policies } else { &self.admin_policies };
        kind.objects.values()
    }

    /// The AdminNetworkPolicy, or the baseline one, behind an owner.
    pub(crate) fn admin_policy_of(&self, owner: &Owner) -> Option<&AdminPolicyFacts> {
        match owner {
            Owner::AdminPolicy(name) => self.admin_policy(name, false),
            Owner::BaselinePolicy(name) => self.admin_policy(name, true),
            _ => None,
        }
    }

    /// The owners of all of them.
    pub(crate) fn admin_owners(&self) -> impl Iterator<Item = Owner> {
        let of = |baseline| self.admin_policies(baseline).map(move |policy| owner(&policy.key.name, baseline));
        of(false).chain(of(true))
    }

    /// Puts an AdminNetworkPolicy, or the baseline one; returns what it was.
    pub fn put_admin_policy(&mut self, mut policy: AdminPolicyFacts, baseline: bool) -> Option<AdminPolicyFacts> {
        let kind = self.admin_kind(baseline);
        if let Some(before) = kind.objects.get(&policy.key) {
            policy.keep_good_of(before);
        }
        kind.put(policy.key.clone(), policy)
    }

    /// Removes an AdminNetworkPolicy, or the baseline one, unless it is another one of the same name.
    pub fn remove_admin_policy(
        &mut self,
        key: &ObjectKey,
        uid: Option<&str>,
        baseline: bool,
    ) -> Option<AdminPolicyFacts> {
        self.admin_kind(baseline).remove(key, uid)
    }

    fn admin_kind(&mut self, baseline: bool) -> &mut Kind<std::sync::Arc<ObjectKey>, AdminPolicyFacts> {
        if baseline { &mut self.baseline_policies } else { &mut self.admin_policies }
    }

    /// Whether the database can have such policies; what is fixed is forgotten.
    pub(super) fn enforce_admin_policies(&mut self, enforced: bool) {
        self.administration.enforced = enforced;
        self.administration.fixed.clear();
    }

    /// A policy's rows stay as the database has them, at their place.
    pub(crate) fn fix(&mut self, owner: &Owner, fixed: Fixed) {
        self.administration.fixed.insert(owner.clone(), fixed);
    }

    /// Whether a policy's rows stay as the database has them: nobody knows what else it could say.
    pub(crate) fn is_fixed(&self, owner: &Owner) -> bool {
        let Some(fixed) = self.administration.fixed.get(owner) else { return false };
        self.admin_policy_of(owner).is_some_and(|policy| policy.uid == fixed.uid && !policy.is_understood())
    }

    /// What a policy says, as far as it is enforced. One without a single rule wants no selectors either.
    pub(super) fn compile_admin_policy(&self, owner: &Owner) -> Option<Compiled> {
        let policy = self.admin_policy_of(owner).filter(|_| self.administration.enforced)?;
        let mut compiled = rules::of_admin_policy(policy, self)?;
        if compiled.clauses.is_empty() {
            compiled.selectors.clear();
        }
        Some(compiled)
    }

    /// Where an AdminNetworkPolicy stands among the others.
    pub(crate) fn place(&self, name: &str) -> Option<&Place> {
        self.administration.places.get(name)
    }

    /// Finds out anew where AdminNetworkPolicies stand; returns those who moved.
    pub(crate) fn arrange(&mut self) -> Vec<Owner> {
        let mut ranked: Vec<((u16, &str, &str), Wanted)> = Vec::new();
        for policy in self.admin_policies(false) {
            let fixed = self.administration.fixed.get(&owner(&policy.key.name, false));
            let fixed = fixed.filter(|fixed| fixed.uid == policy.uid);
            if let (Some(rank), Some(spec)) = (policy.rank(), &policy.spec) {
                ranked.push((rank, Wanted { priority: rank.0, levels: levels::count(spec), fixed: None }));
            } else if let Some(Fixed { priority, top, levels, .. }) = fixed {
                let wanted = Wanted { priority: *priority, levels: *levels, fixed: Some(*top) };
                ranked.push(((*priority, &policy.created, &policy.key.name), wanted));
            }
        }
        ranked.sort_unstable_by_key(|(rank, _)| *rank);
        let wanted: Vec<Wanted> = ranked.iter().map(|(_, wanted)| *wanted).collect();
        let mut places = BTreeMap::new();
        let mut before: Option<(u16, &str)> = None;
        for (((priority, _, name), _), top) in ranked.iter().zip(levels::places(&wanted)) {
            let behind = before.filter(|(other, _)| other == priority).map(|(_, name)| name.into());
            places.insert(Name::from(*name), Place { top, behind });
            before = Some((*priority, name));
        }
        let moved = |(name, place): &(&Name, &Place)| self.administration.places.get(*name) != Some(*place);
        let moved = places.iter().filter(moved).map(|(name, _)| Owner::AdminPolicy(name.clone())).collect();
        self.administration.places = places;
        moved
    }
}
