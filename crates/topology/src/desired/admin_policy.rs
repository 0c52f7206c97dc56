//! admin policy: what the administrator decides before NetworkPolicies are asked, and what where none of them is.
//!
//! ```text
//!  tier 1  AdminNetworkPolicy           Allow, Deny: decided; Pass: on to tier 2; nothing matches: on to tier 2
//!  tier 2  NetworkPolicy, the node's own traffic
//!  tier 3  BaselineAdminNetworkPolicy   only for what nothing in tier 2 is about
//! ```

use ovn_schema::Feature;
use ovn_schema::northbound::Acl;

use super::policy::add;
use super::{Given, blocked, selector};
use crate::contribution::{Contribution, Draft};
use crate::identity::Owner;
use crate::levels::{self, BASELINE};
use crate::objects::{AdminPolicySpec, Rule};
use crate::refusal::Refusal;
use crate::rules::{Direction, of_admin_policy};
use crate::selector::group_name;

const ADMIN_TIER: i64 = 1;
const BASELINE_TIER: i64 = 3;

/// Marks of a policy's rows: by them it is known where it stands also when it cannot be understood any more.
pub(crate) const UID_MARK: &str = "uid";
pub(crate) const PRIORITY_MARK: &str = "priority";
pub(crate) const LEVELS_MARK: &str = "levels";

/// The policy is in force, but which of two is asked first is nothing that the API promises.
pub(crate) const SHARED: &str = "PriorityShared";

pub(super) fn desired(owner: &Owner, given: Given<'_>) -> Contribution {
    let Some(policy) = given.store.admin_policy_of(owner) else { return Contribution::default() };
    let mut draft = Draft::new(owner, &policy.uid, given.aliases);
    if !given.settings.features.has(Feature::AclTiers) {
        draft.refuse(Refusal::new(
            "TiersMissing",
            "nothing of the policy is in force: the northbound database has no tiers of ACLs; OVN 23.06 or newer is needed",
        ));
        return draft.finish();
    }
    let (Some(spec), Some(compiled)) = (&policy.spec, of_admin_policy(policy, given.store)) else {
        return draft.finish();
    };
    let baseline = matches!(owner, Owner::BaselinePolicy(_));
    let place = given.store.place(&policy.key.name).filter(|_| !baseline);
    let (tier, top) = match place {
        None => (BASELINE_TIER, BASELINE),
        Some(place) => {
            let Some(top) = place.top else {
                draft.refuse(Refusal::new("NoRoom", no_room(spec)));
                return draft.finish();
            };
            if let Some(other) = &place.behind {
                draft.refuse(Refusal::new(SHARED, shared(spec, other)));
            }
            (ADMIN_TIER, top)
        }
    };
    let group = selector::group(&compiled.target, given.aliases);
    let block = format!("{}-{top}", top - levels::count(spec) + 1);
    let (ingress, egress) = (levels::levels_of(&spec.ingress), levels::levels_of(&spec.egress));
    for clause in &compiled.clauses {
        let (levels, rules): (_, &[Rule]) = match clause.direction {
            Direction::Ingress => (&ingress, &spec.ingress),
            Direction::Egress => (&egress, &spec.egress),
        };
        let level = levels.get(clause.place).copied().unwrap_or_default();
        let name = rules.get(clause.place).and_then(|rule| rule.name.as_deref());
        let marks = [
            Some((UID_MARK, policy.uid.to_string())),
            (!baseline).then(|| (PRIORITY_MARK, spec.priority.to_string())),
            Some((LEVELS_MARK, block.clone())),
            name.map(|name| ("rule", name.to_owned())),
        ];
        let external_ids = marks.into_iter().flatten().map(|(key, value)| (key.to_owned(), value)).collect();
        let row = Acl { priority: i64::from(top - level), tier, external_ids, ..Default::default() };
        add(&mut draft, group, clause, &row, given);
    }
    let ingress = compiled.clauses.iter().any(|clause| clause.direction == Direction::Ingress);
    if tier == BASELINE_TIER && ingress {
        blocked::pass_to_baseline(&mut draft, group, &group_name(&compiled.target));
    }
    if !compiled.clauses.is_empty() {
        for words in compiled.selectors.into_keys() {
            draft.name(words);
        }
    }
    draft.finish()
}

fn no_room(spec: &AdminPolicySpec) -> String {
    format!(
        "spec.priority: nothing of the policy is in force: the database has 32768 priorities for all \
         AdminNetworkPolicies, and those that are asked before this one of priority {} leave no room; fewer changes \
         between Allow, Deny and Pass from rule to rule need fewer",
        spec.priority
    )
}

fn shared(spec: &AdminPolicySpec, other: &str) -> String {
    format!(
        "spec.priority: AdminNetworkPolicy {other} has the priority {} as well and is older: it is asked first, and both \
         are in force; the API does not promise an order of equal priorities",
        spec.priority
    )
}
