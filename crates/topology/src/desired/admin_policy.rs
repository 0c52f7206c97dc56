//! AdminNetworkPolicy: ACLs before and behind those of NetworkPolicies.
//!
//! ```text
//!  tier 1  AdminNetworkPolicy           Allow, Deny: decided; Pass, or no match: on to tier 2
//!  tier 2  NetworkPolicy, the node's own traffic
//!  tier 3  BaselineAdminNetworkPolicy   only for pods and directions that no ACL of tier 2 covers
//! ```

use objects::{AdminPolicySpec, Rule};
use ovn_schema::Feature;
use ovn_schema::northbound::Acl;

use super::policy::add;
use super::{Inputs, blocked, selector};
use crate::contribution::{Contribution, Draft};
use crate::identity::Owner;
use crate::levels::{self, BASELINE};
use crate::refusal::Refusal;
use crate::rules::Direction;
use crate::selector::group_name;

const ADMIN_TIER: i64 = 1;
const BASELINE_TIER: i64 = 3;

/// Marks of a policy's rows: its position, in case that it becomes invalid and the controller restarts.
pub(crate) const UID_MARK: &str = "uid";
pub(crate) const PRIORITY_MARK: &str = "priority";
pub(crate) const LEVELS_MARK: &str = "levels";

/// Reason of a policy that is in effect, but whose order relative to one of equal priority is not defined by the API.
pub(crate) const SHARED: &str = "PriorityShared";

pub(super) fn desired(owner: &Owner, inputs: Inputs<'_>) -> Contribution {
    let Some(policy) = inputs.store.admin_policy_of(owner) else { return Contribution::default() };
    let mut draft = Draft::new(owner, &policy.uid, inputs.aliases);
    if !inputs.settings.features.has(Feature::AclTiers) {
        draft.refuse(Refusal::new(
            "TiersMissing",
            "the policy is not in effect: the northbound database has no ACL tiers; OVN 23.06 or newer is needed",
        ));
        return draft.finish();
    }
    let (Some(spec), Some(compiled)) = (&policy.spec, inputs.store.compiled(owner)) else {
        return draft.finish();
    };
    let baseline = matches!(owner, Owner::BaselinePolicy(_));
    let position = inputs.store.position(&policy.key.name).filter(|_| !baseline);
    let (tier, top) = match position {
        None => (BASELINE_TIER, BASELINE),
        Some(position) => {
            let Some(top) = position.top else {
                draft.refuse(Refusal::new("NoRoom", no_room(spec)));
                return draft.finish();
            };
            if let Some(other) = &position.behind {
                draft.refuse(Refusal::new(SHARED, shared(spec, other)));
            }
            (ADMIN_TIER, top)
        }
    };
    let group = selector::group(&compiled.target, inputs.aliases);
    let block = format!("{}-{top}", top - levels::count(spec) + 1);
    let (ingress, egress) = (levels::levels_of(&spec.ingress), levels::levels_of(&spec.egress));
    for clause in &compiled.clauses {
        let (levels, rules): (_, &[Rule]) = match clause.direction {
            Direction::Ingress => (&ingress, &spec.ingress),
            Direction::Egress => (&egress, &spec.egress),
        };
        let level = levels.get(clause.index).copied().unwrap_or_default();
        let name = rules.get(clause.index).and_then(|rule| rule.name.as_deref());
        let marks = [
            Some((UID_MARK, policy.uid.to_string())),
            (!baseline).then(|| (PRIORITY_MARK, spec.priority.to_string())),
            Some((LEVELS_MARK, block.clone())),
            name.map(|name| ("rule", name.to_owned())),
        ];
        let external_ids = marks.into_iter().flatten().map(|(key, value)| (key.to_owned(), value)).collect();
        let row = Acl { priority: i64::from(top - level), tier, external_ids, ..Default::default() };
        add(&mut draft, group, clause, &row, inputs);
    }
    let ingress = compiled.clauses.iter().any(|clause| clause.direction == Direction::Ingress);
    if tier == BASELINE_TIER && ingress {
        blocked::pass_to_baseline(&mut draft, group, &group_name(&compiled.target));
    }
    if !compiled.clauses.is_empty() {
        for words in compiled.selectors.keys() {
            draft.name(words.clone());
        }
    }
    draft.finish()
}

fn no_room(spec: &AdminPolicySpec) -> String {
    format!(
        "spec.priority: the policy is not in effect: OVN has 32768 ACL priorities for all AdminNetworkPolicies, and the \
         policies before this one of priority {} leave no room; group rules with the same \
         action, or remove policies with lower priority numbers",
        spec.priority
    )
}

fn shared(spec: &AdminPolicySpec, other: &str) -> String {
    format!(
        "spec.priority: AdminNetworkPolicy {other} also has priority {} and is older: it is evaluated first, and both \
         are in effect; the API does not define the order of equal priorities",
        spec.priority
    )
}
