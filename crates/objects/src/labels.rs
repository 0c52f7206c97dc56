//! Labels and label selectors.
//!
//! Both have a canonical text: equal labels and equal selectors have equal texts, in whatever order they were written, and a
//! selector can be parsed from its text.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::{Key, field};
use crate::Name;

/// The labels of an object as one text that many objects share: sorted lines `key=value`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(Arc<str>);

impl Default for Labels {
    fn default() -> Self {
        Self("".into())
    }
}

impl Labels {
    /// `None` if the key is absent; a label may have the empty value.
    pub fn get(&self, key: &str) -> Option<&str> {
        let line = self.0.lines().find(|line| line.strip_prefix(key).is_some_and(|rest| rest.starts_with('=')))?;
        line.get(key.len() + 1..)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of holders of this text.
    pub fn reference_count(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    fn of(mut pairs: Vec<(Cow<'_, str>, Cow<'_, str>)>) -> Self {
        pairs.retain(|(key, value)| is_plain(key) && is_plain(value));
        pairs.sort_unstable();
        let lines: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
        Self(lines.join("\n").into())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Labels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of labels")
            }

            fn visit_unit<E>(self) -> Result<Labels, E> {
                Ok(Labels::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
                let mut pairs = Vec::new();
                while let Some((key, value)) = map.next_entry::<Key<'de>, Key<'de>>()? {
                    pairs.push((key.0, value.0));
                }
                Ok(Labels::of(pairs))
            }
        }

        deserializer.deserialize_any(Pairs)
    }
}

/// Whether all characters are allowed in keys and values of labels.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
}

/// A requirement on one label. The order is that of the canonical text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Requirement {
    key: Name,
    operator: Operator,
    /// Sorted; empty unless `In` or `NotIn`.
    values: Box<[Name]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// The text of a selector without requirements.
const EVERYTHING: &str = "*";

/// A label selector; without requirements it selects everything.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LabelSelector(Box<[Requirement]>);

impl LabelSelector {
    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            let listed = || value.is_some_and(|value| requirement.values.iter().any(|listed| **listed == *value));
            match requirement.operator {
                Operator::In => listed(),
                Operator::NotIn => !listed(),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        })
    }

    /// Parses a selector of the API; an error names the field.
    pub(crate) fn read(value: &Value, path: &str) -> Result<Self, String> {
        let mut requirements = Vec::new();
        for (key, _) in field::object(value, path)? {
            if !matches!(key.as_str(), "matchLabels" | "matchExpressions") {
                return Err(format!("{path}.{key}: unknown field of a label selector"));
            }
        }
        if let Some(labels) = field::get(value, "matchLabels") {
            let path = format!("{path}.matchLabels");
            for (key, value) in field::object(labels, &path)? {
                let path = format!("{path}[{key}]");
                let value = word(field::text(value, &path)?, &path)?;
                requirements.push(Requirement {
                    key: key_of(key, &path)?,
                    operator: Operator::In,
                    values: [value].into(),
                });
            }
        }
        let expressions = field::list(value, "matchExpressions", path)?;
        for (index, expression) in expressions.iter().enumerate() {
            let path = format!("{path}.matchExpressions[{index}]");
            let key = field::required_text(expression, "key", &path)?;
            let operator = match field::required_text(expression, "operator", &path)? {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    return Err(format!("{path}.operator: {other:?} is not one of In, NotIn, Exists, DoesNotExist"));
                }
            };
            let mut values: Vec<Name> = Vec::new();
            for value in field::list(expression, "values", &path)? {
                let path = format!("{path}.values");
                values.push(word(field::text(value, &path)?, &path)?);
            }
            let takes_values = matches!(operator, Operator::In | Operator::NotIn);
            if takes_values == values.is_empty() {
                let what = if takes_values { "needs at least one value" } else { "takes no values" };
                return Err(format!("{path}.values: the operator {what}"));
            }
            values.sort_unstable();
            values.dedup();
            requirements.push(Requirement {
                key: key_of(key, &format!("{path}.key"))?,
                operator,
                values: values.into(),
            });
        }
        Ok(Self::of(requirements))
    }

    fn of(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_unstable();
        requirements.dedup();
        Self(requirements.into())
    }

    /// Parses the canonical text.
    pub fn parse(text: &str) -> Option<Self> {
        let mut requirements = Vec::new();
        for part in text.split(',').filter(|part| *part != EVERYTHING) {
            let (key, operator, values) = if let Some(key) = part.strip_prefix('!') {
                (key, Operator::DoesNotExist, "")
            } else if let Some((key, values)) = part.split_once("!=") {
                (key, Operator::NotIn, values)
            } else if let Some((key, values)) = part.split_once('=') {
                (key, Operator::In, values)
            } else {
                (part, Operator::Exists, "")
            };
            let takes_values = matches!(operator, Operator::In | Operator::NotIn);
            let values = values.split('|').filter(|_| takes_values).map(Name::from).collect();
            requirements.push(Requirement { key: key.into(), operator, values });
        }
        Some(Self::of(requirements))
    }
}

impl fmt::Display for LabelSelector {
    /// `app=web|api,tier!=test,zone,!old`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(EVERYTHING);
        }
        for (index, Requirement { key, operator, values }) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            match operator {
                Operator::In => write!(f, "{key}={}", values.join("|"))?,
                Operator::NotIn => write!(f, "{key}!={}", values.join("|"))?,
                Operator::Exists => f.write_str(key)?,
                Operator::DoesNotExist => write!(f, "!{key}")?,
            }
        }
        Ok(())
    }
}

fn key_of(text: &str, path: &str) -> Result<Name, String> {
    if text.is_empty() {
        return Err(format!("{path}: the label key is empty"));
    }
    word(text, path)
}

fn word(text: &str, path: &str) -> Result<Name, String> {
    if !is_plain(text) {
        let text = super::annotation::shortened(text);
        return Err(format!("{path}: {text} is not allowed in a label (letters, digits, '-', '_', '.', '/')"));
    }
    Ok(text.into())
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)]
mod tests {
    use super::*;
    use serde_json::json;

    fn labels(value: Value) -> Labels {
        serde_json::from_str(&value.to_string()).unwrap()
    }

    fn selector(value: Value) -> LabelSelector {
        LabelSelector::read(&value, "spec.podSelector").unwrap()
    }

    #[test]
    fn operators_match_as_in_the_api() {
        let web = labels(json!({"app": "web", "tier": "front", "empty": ""}));
        let expression = |key: &str, operator: &str, values: &[&str]| {
            selector(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
        };
        for (selector, selects) in [
            (selector(json!({})), true),
            (selector(json!({"matchLabels": {"app": "web"}})), true),
            (selector(json!({"matchLabels": {"app": "web", "tier": "back"}})), false),
            (selector(json!({"matchLabels": {"ap": "web"}})), false),
            (expression("app", "In", &["db", "web"]), true),
            (expression("app", "In", &["db"]), false),
            (expression("app", "NotIn", &["db"]), true),
            (expression("none", "NotIn", &["db"]), true),
            (expression("app", "NotIn", &["web"]), false),
            (expression("tier", "Exists", &[]), true),
            (expression("none", "Exists", &[]), false),
            (expression("none", "DoesNotExist", &[]), true),
            (expression("app", "DoesNotExist", &[]), false),
            (expression("empty", "In", &[""]), true),
            (expression("none", "In", &[""]), false),
        ] {
            assert_eq!(selector.matches(&web), selects, "{selector}");
            assert_eq!(LabelSelector::parse(&selector.to_string()), Some(selector));
        }
    }

    #[test]
    fn equal_selectors_have_the_same_text() {
        let one = selector(json!({"matchLabels": {"a": "1", "b": "2"}}));
        let two = selector(json!({"matchExpressions": [{"key": "b", "operator": "In", "values": ["2", "2"]}],
            "matchLabels": {"a": "1"}}));
        assert_eq!((one.to_string(), one), ("a=1,b=2".to_owned(), two));
    }

    #[test]
    fn errors_name_the_field() {
        for (value, field) in [
            (json!("x"), "spec.podSelector: "),
            (json!({"matchLabel": {}}), "spec.podSelector.matchLabel: "),
            (json!({"matchLabels": {"a": 1}}), "spec.podSelector.matchLabels[a]: "),
            (json!({"matchLabels": {"a b": "1"}}), "spec.podSelector.matchLabels[a b]: "),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "Like"}]}),
                "spec.podSelector.matchExpressions[0].operator: ",
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
                "spec.podSelector.matchExpressions[0].values: ",
            ),
            (json!({"matchExpressions": [{"operator": "In"}]}), "spec.podSelector.matchExpressions[0].key: "),
        ] {
            let why = LabelSelector::read(&value, "spec.podSelector").unwrap_err();
            assert!(why.starts_with(field), "{why}");
        }
    }
}
