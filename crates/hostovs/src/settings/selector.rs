//! Label selectors, as `kubectl --selector` writes them.

use std::collections::{BTreeMap, BTreeSet};

/// Requirements that all must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    Exists(String),
    Missing(String),
    In(String, BTreeSet<String>),
    NotIn(String, BTreeSet<String>),
}

/// Why a text is no selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no requirement; allowed: KEY, !KEY, KEY=VALUE, KEY!=VALUE, KEY in (A, B), KEY notin (A, B), separated by commas"
)]
pub struct SelectorError(String);

impl Selector {
    /// Parses it; an empty one is refused, because it would select every node.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let parts = split(text);
        let requirements = parts.iter().map(|part| requirement(part).ok_or_else(|| SelectorError((*part).to_owned())));
        Ok(Self(requirements.collect::<Result<_, _>>()?))
    }

    /// Whether labels fulfil all requirements.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::Exists(key) => labels.contains_key(key),
            Requirement::Missing(key) => !labels.contains_key(key),
            Requirement::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Requirement::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
        })
    }
}

/// At the commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let at_comma = |sign: char| {
        match sign {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        sign == ',' && depth == 0
    };
    text.split(at_comma).map(str::trim).collect()
}

fn requirement(text: &str) -> Option<Requirement> {
    if let Some(key) = text.strip_prefix('!') {
        return Some(Requirement::Missing(label_key(key)?));
    }
    if let Some((key, value)) = text.split_once("!=") {
        return Some(Requirement::NotIn(label_key(key)?, [label_value(value)?].into()));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Some(Requirement::In(label_key(key)?, [label_value(value)?].into()));
    }
    let Some((head, list)) = text.split_once('(') else { return Some(Requirement::Exists(label_key(text)?)) };
    let values = list.strip_suffix(')')?.split(',').map(label_value).collect::<Option<BTreeSet<_>>>()?;
    let mut words = head.split_whitespace();
    let (key, operator) = (label_key(words.next()?)?, words.next()?);
    match (operator, words.next()) {
        ("in", None) => Some(Requirement::In(key, values)),
        ("notin", None) => Some(Requirement::NotIn(key, values)),
        _ => None,
    }
}

fn label_key(text: &str) -> Option<String> {
    let text = text.trim();
    let is_valid = |sign: char| sign.is_ascii_alphanumeric() || "-_./".contains(sign);
    (!text.is_empty() && text.len() <= 317 && text.chars().all(is_valid)).then(|| text.to_owned())
}

fn label_value(text: &str) -> Option<String> {
    let text = text.trim();
    let is_valid = |sign: char| sign.is_ascii_alphanumeric() || "-_.".contains(sign);
    (text.len() <= 63 && text.chars().all(is_valid)).then(|| text.to_owned())
}
