//! AdminNetworkPolicies and the baseline one, and the ACL priorities of their rules.

use std::collections::BTreeMap;

use objects::{AdminPolicyFacts, Name, ObjectKey};

use super::{Kind, Store};
use crate::identity::Owner;
use crate::levels::{self, LevelCount};
use crate::rules::{self, Compiled};

/// State of the AdminNetworkPolicies beyond their facts.
#[derive(Debug, Clone, Default)]
pub(super) struct AdminPolicies {
    /// Whether the database supports them (ACL tiers).
    enforced: bool,
    positions: BTreeMap<Name, Position>,
    /// Policies that were invalid since this process began: their rows stay as they are.
    fixed: BTreeMap<Owner, Fixed>,
}

/// The position of a policy among the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    /// Its highest ACL priority; none if there is no room.
    pub(crate) top: Option<i32>,
    /// A policy of the same priority that is evaluated before it.
    pub(crate) behind: Option<Name>,
}

/// Position of an invalid policy, as read from its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fixed {
    /// The policy's UID.
    pub(crate) uid: Name,
    /// `spec.priority`.
    pub(crate) priority: u16,
    /// Its highest ACL priority.
    pub(crate) top: i32,
    /// Number of ACL priorities that it uses.
    pub(crate) levels: i32,
}

fn owner(name: &str, baseline: bool) -> Owner {
    if baseline { Owner::BaselinePolicy(name.into()) } else { Owner::AdminPolicy(name.into()) }
}

impl Store {
    /// An AdminNetworkPolicy, or the baseline one, by name.
    pub fn admin_policy(&self, name: &str, baseline: bool) -> Option<&AdminPolicyFacts> {
        let kind = if baseline { &self.baseline_policies } else { &self.admin_policies };
        kind.objects.get(&ObjectKey::new("", name))
    }

    /// All AdminNetworkPolicies, or the baseline ones.
    pub fn admin_policies(&self, baseline: bool) -> impl Iterator<Item = &AdminPolicyFacts> {
        let kind = if baseline { &self.baseline_policies } else { &self.admin_policies };
        kind.objects.values()
    }

    /// The AdminNetworkPolicy, or the baseline one, of an owner.
    pub(crate) fn admin_policy_of(&self, owner: &Owner) -> Option<&AdminPolicyFacts> {
        match owner {
            Owner::AdminPolicy(name) => self.admin_policy(name, false),
            Owner::BaselinePolicy(name) => self.admin_policy(name, true),
            _ => None,
        }
    }

    /// The owners of all AdminNetworkPolicies, the baseline one included.
    pub(crate) fn admin_owners(&self) -> impl Iterator<Item = Owner> {
        let of = |baseline| self.admin_policies(baseline).map(move |policy| owner(&policy.key.name, baseline));
        of(false).chain(of(true))
    }

    /// Stores an AdminNetworkPolicy, or the baseline one; returns the former version.
    pub fn put_admin_policy(&mut self, mut policy: AdminPolicyFacts, baseline: bool) -> Option<AdminPolicyFacts> {
        let kind = self.admin_kind(baseline);
        if let Some(before) = kind.objects.get(&policy.key) {
            policy.keep_last_valid(before);
        }
        kind.put(policy.key.clone(), policy)
    }

    /// Removes an AdminNetworkPolicy, or the baseline one, unless it has another UID.
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

    /// Sets whether the database supports these policies; forgets fixed positions.
    pub(super) fn enforce_admin_policies(&mut self, enforced: bool) {
        self.admin.enforced = enforced;
        self.admin.fixed.clear();
    }

    /// Keeps a policy's rows as the database has them, at their position.
    pub(crate) fn fix(&mut self, owner: &Owner, fixed: Fixed) {
        self.admin.fixed.insert(owner.clone(), fixed);
    }

    /// Whether a policy's rows stay as the database has them: it is invalid, and no valid version is known.
    pub fn is_fixed(&self, owner: &Owner) -> bool {
        let Some(fixed) = self.admin.fixed.get(owner) else { return false };
        self.admin_policy_of(owner).is_some_and(|policy| policy.uid == fixed.uid && !policy.is_understood())
    }

    /// Compiles a policy, if it is enforced. One without rules needs no selectors either.
    pub(super) fn compile_admin_policy(&self, owner: &Owner) -> Option<Compiled> {
        let policy = self.admin_policy_of(owner).filter(|_| self.admin.enforced)?;
        let mut compiled = rules::compile_admin_policy(policy, self)?;
        if compiled.clauses.is_empty() {
            compiled.selectors.clear();
        }
        Some(compiled)
    }

    /// The position of an AdminNetworkPolicy; none for an invalid one without rows.
    pub(crate) fn position(&self, name: &str) -> Option<&Position> {
        self.admin.positions.get(name)
    }

    /// Whether the rules of an AdminNetworkPolicy have ACL priorities; false if there are too many policies.
    pub fn has_priorities(&self, name: &str) -> bool {
        self.position(name).is_some_and(|position| position.top.is_some())
    }

    /// Assigns the positions of all AdminNetworkPolicies; returns those that moved.
    pub(crate) fn reposition(&mut self) -> Vec<Owner> {
        let mut ranked: Vec<((u16, &str, &str), LevelCount)> = Vec::new();
        for policy in self.admin_policies(false) {
            let fixed = self.admin.fixed.get(&owner(&policy.key.name, false));
            let fixed = fixed.filter(|fixed| fixed.uid == policy.uid);
            if let (Some(rank), Some(spec)) = (policy.rank(), &policy.spec) {
                ranked.push((rank, LevelCount { priority: rank.0, levels: levels::count(spec), fixed: None }));
            } else if let Some(Fixed { priority, top, levels, .. }) = fixed {
                let wanted = LevelCount { priority: *priority, levels: *levels, fixed: Some(*top) };
                ranked.push(((*priority, &policy.created, &policy.key.name), wanted));
            }
        }
        ranked.sort_unstable_by_key(|(rank, _)| *rank);
        let wanted: Vec<LevelCount> = ranked.iter().map(|(_, wanted)| *wanted).collect();
        let mut positions = BTreeMap::new();
        let mut before: Option<(u16, &str)> = None;
        for (((priority, _, name), _), top) in ranked.iter().zip(levels::assign(&wanted)) {
            let behind = before.filter(|(other, _)| other == priority).map(|(_, name)| name.into());
            positions.insert(Name::from(*name), Position { top, behind });
            before = Some((*priority, name));
        }
        let moved = |(name, position): &(&Name, &Position)| self.admin.positions.get(*name) != Some(*position);
        let moved = positions.iter().filter(moved).map(|(name, _)| Owner::AdminPolicy(name.clone())).collect();
        self.admin.positions = positions;
        moved
    }
}
