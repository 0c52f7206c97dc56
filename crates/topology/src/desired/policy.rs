//! NetworkPolicy: selected pods are isolated in its directions, except for what its rules allow.
//!
//! All ACLs of a policy are its own rows and come in one transaction: a pod is never isolated without its allow rules, and
//! never open in between. Equal ACLs of other policies create no second flow.

use netmodel::Family;
use ovn_schema::northbound::{Acl, PortGroup};
use ovsdb::uuid::Uuid;

use super::cluster::{LOGGING_METER, after_load_balancing, tier};
use super::{Inputs, selector};
use crate::contribution::{Contribution, Draft};
use crate::identity::{Owner, RowId, row_uuid};
use crate::rules::{Clause, Direction, PeerMatch};
use crate::selector::group_name;
use objects::{Action, NamespaceFacts, ObjectKey, PolicyFacts};
use ovn_schema::TableRow;

/// ACL priorities: allow rules are above the drop.
const DENY: i64 = 1000;
const ALLOW: i64 = 1001;
/// The longest name of an ACL, in characters.
const LONGEST_NAME: usize = 63;

/// The key of the row that isolates in a direction.
fn deny_key(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "deny ingress",
        Direction::Egress => "deny egress",
    }
}

/// The drop rows, of which every policy has at least one: they tell its rows from those of another policy of the same name.
pub(crate) fn denials(policy: &PolicyFacts) -> [RowId; 2] {
    [Direction::Ingress, Direction::Egress].map(|direction| RowId {
        table: Acl::TABLE,
        uuid: row_uuid(Acl::TABLE, "NetworkPolicy", &policy.uid, deny_key(direction)),
    })
}

pub(super) fn desired(key: &ObjectKey, inputs: Inputs<'_>) -> Contribution {
    let Some(policy) = inputs.store.policy(key) else { return Contribution::default() };
    let owner = Owner::Policy(policy.key.clone());
    let Some(compiled) = inputs.store.compiled(&owner) else { return Contribution::default() };
    let mut draft = Draft::new(&owner, &policy.uid, inputs.aliases);
    let group = selector::group(&compiled.target, inputs.aliases);
    let name = group_name(&compiled.target);
    let spec = &policy.spec;
    let logs = inputs.store.namespace(&key.namespace).and_then(NamespaceFacts::logs).unwrap_or_default();
    for (direction, rules) in [(Direction::Ingress, &spec.ingress), (Direction::Egress, &spec.egress)] {
        if rules.is_none() {
            continue;
        }
        let port = direction.port_field();
        let closed = format!("{port} == @{name}");
        let neighbours = format!("{port} == @{name} && (arp || nd)");
        let neighbours_key = format!("neighbours {}", direction.field());
        for (key, priority, matching, action, severity) in [
            (deny_key(direction), DENY, closed, "drop", logs.deny),
            (neighbours_key.as_str(), ALLOW, neighbours, "allow", None),
        ] {
            let acl = Acl {
                direction: direction.acl_direction().into(),
                priority,
                matching,
                action: action.into(),
                tier: tier(inputs),
                options: after_load_balancing(direction.acl_direction()),
                external_ids: draft.mark(&[("direction", direction.name())]),
                ..logged(&policy.key, direction, severity)
            };
            draft.child(PortGroup::acls, group, key, &acl);
        }
    }
    for clause in &compiled.clauses {
        let row = Acl { priority: ALLOW, tier: tier(inputs), ..logged(&policy.key, clause.direction, logs.allow) };
        add(&mut draft, group, clause, &row, inputs);
    }
    for words in compiled.selectors.keys() {
        draft.name(words.clone());
    }
    draft.finish()
}

/// The logging columns of an ACL; defaults if it is not logged.
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

/// Adds the ACLs of a clause to a group, one per family that it applies to; other columns are copied from `like`.
pub(super) fn add(draft: &mut Draft<'_>, group: Uuid, clause: &Clause, like: &Acl, inputs: Inputs<'_>) {
    let families: Vec<(Family, String)> = match clause.peers {
        // Matches no address, so one row serves both families.
        PeerMatch::Any => vec![(Family::V4, String::new())],
        PeerMatch::AnyOf { .. } | PeerMatch::SetInBlocks { .. } => {
            inputs.settings.families().map(|family| (family, format!(" {}", family.short()))).collect()
        }
    };
    for (family, suffix) in families {
        let Some(matching) = clause.matching(family) else { continue };
        let direction = clause.direction.acl_direction();
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
        draft.child(PortGroup::acls, group, &format!("{}{suffix}", clause.key), &acl);
    }
}
