//! The vocabulary of random objects.

use serde_json::{Value, json};

use super::rng::Rng;

/// Label keys with their values.
pub(super) type Words = [(&'static str, &'static [&'static str])];

pub(super) const POD_LABELS: &Words = &[("app", &["web", "db", "cache"]), ("tier", &["front", "back"])];
pub(super) const NAMESPACE_LABELS: &Words = &[("team", &["red", "blue"]), ("env", &["test", "live"])];
pub(super) const NODE_LABELS: &Words = &[("zone", &["east", "west"]), ("disk", &["fast"])];

pub(super) const PORT_NAMES: &[&str] = &["http", "dns", "sync"];
pub(super) const PORTS: &[u16] = &[80, 81, 443, 8080, 8081];
pub(super) const PROTOCOLS: &[&str] = &["TCP", "TCP", "UDP", "SCTP"];

/// Addresses outside the cluster, some of them in the same CIDRs.
pub(super) const STRANGERS: &[&str] = &[
    "198.51.100.7",
    "198.51.100.8",
    "198.51.100.200",
    "203.0.113.7",
    "2001:db8:1::7",
    "2001:db8:1::8",
    "2001:db8:1:1::8",
    "2001:db8:2::7",
];

/// Addresses of service ranges that no Service has.
pub(super) const UNSERVED: &[&str] = &["10.96.200.99", "fd96::c899"];

/// Random labels; each key may be missing.
pub(super) fn labels(rng: &mut Rng, words: &Words) -> Value {
    let mut labels = json!({});
    for (key, values) in words {
        if rng.percent(75) {
            labels[*key] = json!(rng.pick(values));
        }
    }
    labels
}

/// A random selector: empty, by labels, by expressions of any operator, or by both.
pub(super) fn selector(rng: &mut Rng, words: &Words) -> Value {
    let mut selector = json!({});
    if rng.percent(20) {
        return selector;
    }
    let by_labels = rng.percent(55);
    if by_labels {
        let (key, values) = rng.pick(words);
        selector["matchLabels"] = json!({ *key: rng.pick(values) });
    }
    if !by_labels || rng.percent(15) {
        let count = rng.between(1, 2);
        let expressions: Vec<Value> = (0..count).map(|_| expression(rng, words)).collect();
        selector["matchExpressions"] = json!(expressions);
    }
    selector
}

fn expression(rng: &mut Rng, words: &Words) -> Value {
    let (key, values) = rng.pick(words);
    match *rng.pick(&["In", "In", "NotIn", "Exists", "DoesNotExist"]) {
        operator @ ("In" | "NotIn") => {
            let first = rng.below(values.len());
            let count = rng.between(1, values.len() - first);
            json!({ "key": key, "operator": operator, "values": values[first..first + count] })
        }
        operator => json!({ "key": key, "operator": operator }),
    }
}

/// A list that is missing, empty, or has one to `most` elements, with these percentages for missing and empty.
pub(super) fn some_list(
    rng: &mut Rng,
    (missing, empty): (usize, usize),
    most: usize,
    mut one: impl FnMut(&mut Rng) -> Value,
) -> Option<Value> {
    let draw = rng.below(100);
    if draw < missing {
        return None;
    }
    let count = if draw < missing + empty { 0 } else { rng.between(1, most) };
    Some(Value::Array((0..count).map(|_| one(rng)).collect()))
}
