//! The shipped rules, as Prometheus reads them: the groups of all PrometheusRule objects of `deploy/monitoring`.

use serde_json::{Value, json};

use super::durations::{compress, compress_expression};
use super::yaml;
use crate::error::{Error, Result};

const RULES: [&str; 4] = [
    include_str!("../../../../deploy/monitoring/controller-alerts.yaml"),
    include_str!("../../../../deploy/monitoring/database-alerts.yaml"),
    include_str!("../../../../deploy/monitoring/node-alerts.yaml"),
    include_str!("../../../../deploy/monitoring/pki-alerts.yaml"),
];

/// All groups of rules, with times divided by `compression`; 1 leaves them as they are.
pub fn rule_groups(compression: u32) -> Result<Vec<Value>> {
    let mut groups = Vec::new();
    for text in RULES {
        let rule = yaml(text)?;
        let own = rule["spec"]["groups"].as_array();
        let own = own.ok_or_else(|| Error::Invalid("a PrometheusRule of deploy/monitoring has no groups".into()))?;
        groups.extend(own.iter().cloned());
    }
    if compression > 1 {
        groups.iter_mut().for_each(|group| compress_group(group, compression));
    }
    Ok(groups)
}

/// A rules file for `promtool` and `prometheus`.
pub fn rules_file(compression: u32) -> Result<String> {
    Ok(json!({ "groups": rule_groups(compression)? }).to_string())
}

/// The names of all shipped alerts.
pub fn alert_names() -> Result<Vec<String>> {
    let groups = rule_groups(1)?;
    let rules = groups.iter().filter_map(|group| group["rules"].as_array()).flatten();
    Ok(rules.filter_map(|rule| Some(rule["alert"].as_str()?.to_owned())).collect())
}

fn compress_group(group: &mut Value, factor: u32) {
    let change = |value: &mut Value, key: &str, change: &dyn Fn(&str) -> String| {
        if let Some(text) = value[key].as_str().map(change) {
            value[key] = text.into();
        }
    };
    change(group, "interval", &|text| compress(text, factor, 1000));
    for rule in group["rules"].as_array_mut().into_iter().flatten() {
        change(rule, "for", &|text| compress(text, factor, 0));
        change(rule, "keep_firing_for", &|text| compress(text, factor, 0));
        change(rule, "expr", &|text| compress_expression(text, factor));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_times_differ_in_compressed_rules() {
        let (real, fast) = (rule_groups(1).unwrap(), rule_groups(60).unwrap());
        let find = |groups: &[Value], name: &str| {
            let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
            rules.clone().find(|rule| rule["alert"] == name).unwrap().clone()
        };
        let (slow, quick) = (find(&real, "OvnkubeFlowsDeleted"), find(&fast, "OvnkubeFlowsDeleted"));
        assert_eq!(slow["annotations"], quick["annotations"]);
        assert!(slow["expr"].as_str().unwrap().contains("offset 35m"));
        assert!(quick["expr"].as_str().unwrap().contains("offset 35s"));
        assert_eq!(find(&fast, "OvnkubeParkedObjects")["for"], "15s");
        assert_eq!(find(&fast, "OvnkubeParkedObjects")["expr"], find(&real, "OvnkubeParkedObjects")["expr"]);
    }

    #[test]
    fn all_alerts_are_found_and_their_names_are_unique() {
        let names = alert_names().unwrap();
        let written: usize = RULES.iter().map(|text| text.matches("- alert:").count()).sum();
        assert_eq!(names.len(), written);
        let mut unique = names.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
    }
}
