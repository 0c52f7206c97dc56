//! policy: the pods that a NetworkPolicy is about are closed in its directions, but for what its rules allow.
//!
//! All rules of a policy are its own rows and come in one transaction: a pod is never closed before what is allowed is,
//! and never open in between. Equal rules of other policies make no second flow.

use ovn_schema::northbound::{Acl, PortGroup};
use ovsdb::uuid::Uuid;

use super::cluster::{LOGGING_METER, after_load_balancing, tier};
use super::{Given, selector};
use crate::contribution::{Contribution, Draft};
use crate::identity::{ObjectKey, Owner, RowId, row_uuid};
use crate::objects::{Action, NamespaceFacts, PolicyFacts};
use crate::rules::{Clause, Direction, Others, of_policy};
use crate::selector::group_name;
use ovn_schema::TableRow;

/// What no rule allows is dropped; what one does is above that.
const DENY: i64 = 1000;
const ALLOW: i64 = 1001;
/// The database has no longer names of rules.
const LONGEST_NAME: usize = 63;

/// The row of a policy that closes a direction.
fn deny_key(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "deny ingress",
        Direction::Egress => "deny egress",
    }
}

/// The rows of which every policy has one: by them this very policy's rows are told from those of another of its name.
pub(crate) fn denials(policy: &PolicyFacts) -> [RowId; 2] {
    [Direction::Ingress, Direction::Egress].map(|direction| RowId {
        table: Acl::TABLE,
        uuid: row_uuid(Acl::TABLE, "NetworkPolicy", &policy.uid, deny_key(direction)),
    })
}

pub(super) fn desired(key: &ObjectKey, given: Given<'_>) -> Contribution {
    let Some(policy) = given.store.policy(key) else { return Contribution::default() };
    let compiled = of_policy(policy, given.store);
    let owner = Owner::Policy(policy.key.clone());
    let mut draft = Draft::new(&owner, &policy.uid, given.aliases);
    let group = selector::group(&compiled.target, given.aliases);
    let name = group_name(&compiled.target);
    let spec = &policy.spec;
    let logs = given.store.namespace(&key.namespace).and_then(NamespaceFacts::logs).unwrap_or_default();
    for (direction, rules) in [(Direction::Ingress, &spec.ingress), (Direction::Egress, &spec.egress)] {
        if rules.is_none() {
            continue;
        }
        let port = direction.port();
        let closed = format!("{port} == @{name}");
        let neighbours = format!("{port} == @{name} && (arp || nd)");
        let neighbours_key = format!("neighbours {}", direction.field());
        for (key, priority, matching, action, severity) in [
            (deny_key(direction), DENY, closed, "drop", logs.deny),
            (neighbours_key.as_str(), ALLOW, neighbours, "allow", None),
        ] {
            let acl = Acl {
                direction: direction.of_acl().into(),
                priority,
                matching,
                action: action.into(),
                tier: tier(given),
                options: after_load_balancing(direction.of_acl()),
                external_ids: draft.mark(&[("direction", direction.name())]),
                ..logged(&policy.key, direction, severity)
            };
            draft.child(PortGroup::acls, group, key, &acl);
        }
    }
    for clause in &compiled.clauses {
        let row = Acl { priority: ALLOW, tier: tier(given), ..logged(&policy.key, clause.direction, logs.allow) };
        add(&mut draft, group, clause, &row, given);
    }
    for words in compiled.selectors.into_keys() {
        draft.name(words);
    }
    draft.finish()
}

/// The columns that say how a rule is logged; nothing where it is not.
fn logged(key: &ObjectKey, direction: Direction, severity: Option<&'static str>) -> Acl {
    let Some(severity) = severity else { return Acl::default() };
    let name = format!("NP:{}:{}:{}", key.namespace, key.name, direction.name());
    Acl {
        name: Some(name.chars().take(LONGEST_NAME).collect()),
        log: true,
        severity: Some(severity.to_owned()),
        meter: Some(LOGGING_METER.to_owned()),
        ..Default::default()
    }
}

/// Adds a clause to a group, for each family that it is about; what else its row says is given.
pub(super) fn add(draft: &mut Draft<'_>, group: Uuid, clause: &Clause, like: &Acl, given: Given<'_>) {
    let families: &[(bool, &str)] = match clause.others {
        Others::Anyone => &[(false, "")],
        Others::Those { .. } | Others::Within { .. } => &[(false, " v4"), (true, " v6")],
    };
    for (v6, family) in families {
        if !family.is_empty() && !given.settings.has_family(*v6) {
            continue;
        }
        let Some(matching) = clause.matching(*v6) else { continue };
        let direction = clause.direction.of_acl();
        let action = match clause.action {
            Action::Allow => "allow-related",
            Action::Deny => "drop",
            Action::Pass => "pass",
        };
        let mut external_ids = draft.mark(&[("direction", clause.direction.name()), ("field", &clause.field)]);
        external_ids.extend(like.external_ids.clone());
        let acl = Acl {
            direction: direction.into(),
            matching,
            action: action.into(),
            options: after_load_balancing(direction),
            external_ids,
            ..like.clone()
        };
        draft.child(PortGroup::acls, group, &format!("{}{family}", clause.key), &acl);
    }
}
