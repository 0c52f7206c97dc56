//! `house.toml`: which crates are pure, and what they may depend on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::HouseError;

/// The policy file's name, at the root of the workspace.
pub(crate) const FILE: &str = "house.toml";

/// Contents of `house.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Policy {
    /// The targets whose dependency graphs count.
    pub(crate) targets: BTreeSet<String>,
    /// Crates that will be pure once they exist.
    #[serde(default)]
    pub(crate) planned: BTreeSet<String>,
    /// By crate name.
    #[serde(default)]
    pub(crate) pure: BTreeMap<String, PureCrate>,
}

/// What one pure crate may depend on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct PureCrate {
    /// Crates that may be linked into it.
    pub(crate) allow: BTreeSet<String>,
    /// Crates that may run in the compiler for it, in addition to `allow`.
    #[serde(default)]
    pub(crate) build_time: BTreeSet<String>,
    /// Whether the pure part includes the default features.
    #[serde(default = "yes")]
    pub(crate) default_features: bool,
    /// The features of the pure part.
    #[serde(default)]
    pub(crate) features: Vec<String>,
}

fn yes() -> bool {
    true
}

impl Policy {
    pub(crate) fn load(root: &Path) -> Result<Self, HouseError> {
        let path = root.join(FILE);
        let text = fs::read_to_string(&path).map_err(|source| HouseError::Read { path: path.clone(), source })?;
        Self::parse(&text).map_err(|problem| HouseError::Toml { path, problem })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let policy: Self = toml::from_str(text).map_err(|error| describe(text, &error))?;
        if policy.targets.is_empty() {
            return Err("`targets` is empty: name at least one target to check".to_owned());
        }
        Ok(policy)
    }
}

/// A TOML error in one line; its own display draws the source over several.
pub(crate) fn describe(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().replace('\n', " ");
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => format!("line {}: {message}", before.matches('\n').count() + 1),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_names_the_features_of_the_pure_part() {
        let text = "targets = ['t']\n[pure.ovsdb]\nallow = ['serde']\ndefault-features = false\nfeatures = ['wire']";
        let policy = Policy::parse(text).expect("a policy");
        assert!(!policy.pure["ovsdb"].default_features);
        assert_eq!(policy.pure["ovsdb"].features, ["wire"]);
        assert!(policy.pure["ovsdb"].build_time.is_empty());
    }

    #[test]
    fn a_misspelt_key_is_an_error_with_its_line() {
        let error = Policy::parse("targets = ['t']\n[pure.x]\nalow = []").expect_err("misspelt");
        assert!(error.starts_with("line ") && error.contains("alow"), "{error}");
        assert!(!error.contains('\n'));
    }

    #[test]
    fn no_target_is_an_error() {
        assert!(Policy::parse("targets = []").expect_err("no target").contains("targets"));
    }
}
