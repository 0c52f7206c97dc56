//! Label selectors.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Labels by key.
pub(crate) type Labels = BTreeMap<String, String>;

/// A label selector: all requirements must hold; an empty one selects everything.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Selector {
    #[serde(default)]
    match_labels: Labels,
    #[serde(default)]
    match_expressions: Vec<Requirement>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Requirement {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Selector {
    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.holds(labels))
    }
}

impl Requirement {
    fn holds(&self, labels: &Labels) -> bool {
        match (self.operator, labels.get(&self.key)) {
            (Operator::In, Some(value)) => self.values.contains(value),
            (Operator::In, None) => false,
            (Operator::NotIn, Some(value)) => !self.values.contains(value),
            (Operator::NotIn, None) => true,
            (Operator::Exists, value) => value.is_some(),
            (Operator::DoesNotExist, value) => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_operator_matches_as_documented() {
        let labels = Labels::from([("app".to_owned(), "web".to_owned()), ("tier".to_owned(), String::new())]);
        let expression = |key: &str, operator: &str, values: &[&str]| {
            let requirement = json!({ "key": key, "operator": operator, "values": values });
            json!({ "matchExpressions": [requirement] })
        };
        for (selector, matches) in [
            (json!({}), true),
            (json!({ "matchLabels": { "app": "web" } }), true),
            (json!({ "matchLabels": { "app": "web", "tier": "" } }), true),
            (json!({ "matchLabels": { "app": "web", "zone": "" } }), false),
            (expression("app", "In", &["db", "web"]), true),
            (expression("app", "In", &["db"]), false),
            (expression("zone", "In", &["", "db"]), false),
            (expression("app", "NotIn", &["db"]), true),
            (expression("app", "NotIn", &["web"]), false),
            (expression("zone", "NotIn", &["web"]), true),
            (expression("tier", "Exists", &[]), true),
            (expression("zone", "Exists", &[]), false),
            (expression("tier", "DoesNotExist", &[]), false),
            (expression("zone", "DoesNotExist", &[]), true),
            (
                json!({
                    "matchLabels": { "app": "web" },
                    "matchExpressions": [{ "key": "tier", "operator": "DoesNotExist" }],
                }),
                false,
            ),
        ] {
            let parsed: Selector = serde_json::from_value(selector.clone()).expect("a selector");
            assert_eq!(parsed.matches(&labels), matches, "{selector}");
        }
    }
}
