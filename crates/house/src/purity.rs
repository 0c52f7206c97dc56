//! Purity: a pure crate depends only on what its allow-list names.
//!
//! An allow-list, not a deny-list: no list can contain every crate that opens a socket. The graph is cargo's own, for the
//! features of that one crate alone, since within a build of the whole workspace other members' features would leak in.

use std::collections::BTreeSet;
use std::path::Path;

use crate::HouseError;
use crate::finding::Finding;
use crate::graph::{Disallowed, Graph};
use crate::policy::{FILE, Policy, PureCrate};
use crate::workspace::{Workspace, cargo, display, output};

pub(crate) fn check(workspace: &Workspace, policy: &Policy) -> Result<Vec<Finding>, HouseError> {
    let mut findings = check_plan(workspace, policy);
    for (name, pure) in &policy.pure {
        if workspace.member(name).is_some() {
            // What is linked in; and the same plus what runs in the compiler.
            let linked = graph(&workspace.root, name, pure, policy, "normal,no-proc-macro")?;
            let whole = graph(&workspace.root, name, pure, policy, "normal,build")?;
            findings.extend(check_crate(name, pure, &linked, &whole));
        }
    }
    Ok(findings)
}

/// Checks that policy and workspace name the same crates.
fn check_plan(workspace: &Workspace, policy: &Policy) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in policy.pure.keys() {
        if workspace.member(name).is_none() && !policy.planned.contains(name) {
            findings.push(Finding::error(
                FILE,
                format!("[pure.{name}] names a crate that is not in the workspace"),
                format!("correct the name, remove the section, or add \"{name}\" to `planned`"),
            ));
        }
    }
    for name in policy.planned.iter().filter(|name| workspace.member(name).is_some()) {
        findings.push(if policy.pure.contains_key(name) {
            Finding::warning(FILE, format!("{name} exists and is still `planned`"), "remove it from `planned`")
        } else {
            Finding::error(
                FILE,
                format!("{name} is planned as a pure crate, exists now, and has no policy"),
                format!("add [pure.{name}] with what it may depend on, and remove it from `planned`"),
            )
        });
    }
    findings
}

/// Checks that all dependencies are allowed, and that no entry of the lists is unused.
fn check_crate(name: &str, pure: &PureCrate, linked: &Graph, whole: &Graph) -> Vec<Finding> {
    let mut findings = Vec::new();
    let linked = linked.disallowed(name, |package| pure.allow.contains(package));
    let known: BTreeSet<&str> = linked.iter().map(|disallowed| disallowed.name.as_str()).collect();
    findings.extend(linked.iter().map(|disallowed| violation(name, disallowed, "allow", "is not allowed")));

    let at_build_time = |package: &str| pure.allow.contains(package) || pure.build_time.contains(package);
    let at_build_time = whole.disallowed(name, at_build_time);
    // A linked package that is not allowed has been reported already.
    for disallowed in at_build_time.iter().filter(|disallowed| !known.contains(disallowed.name.as_str())) {
        findings.push(violation(name, disallowed, "build-time", "is not allowed, not even at build time"));
    }

    let used = whole.names();
    for (list, entries) in [("allow", &pure.allow), ("build-time", &pure.build_time)] {
        for entry in entries {
            let doubled = list == "build-time" && pure.allow.contains(entry);
            if doubled || !used.contains(entry.as_str()) {
                let why = if doubled { "is in `allow` already" } else { "is not used" };
                findings.push(Finding::warning(
                    name,
                    format!("{entry} in `{list}` {why}"),
                    format!("remove it from [pure.{name}] in {FILE}"),
                ));
            }
        }
    }
    findings
}

fn violation(pure: &str, disallowed: &Disallowed, list: &str, problem: &str) -> Finding {
    let Disallowed { name, chain, brings } = disallowed;
    let mut problem = format!("{name} {problem}; brought in by {}", chain.join(" → "));
    if !brings.is_empty() {
        let brings: Vec<&str> = brings.iter().map(String::as_str).collect();
        problem.push_str(&format!(" and brings {}", brings.join(", ")));
    }
    let from = chain.iter().rev().nth(1).map_or(pure, String::as_str);
    let remedy = format!(
        "drop the dependency of {from} on {name}, or a feature of {from} that asks for it, or move what needs it to an \
         edge crate; only if {name} does no I/O, add it to `{list}` of [pure.{pure}] in {FILE}"
    );
    Finding::error(pure, problem, remedy)
}

/// The graph of one crate for all targets of the policy.
fn graph(root: &Path, name: &str, pure: &PureCrate, policy: &Policy, edges: &str) -> Result<Graph, HouseError> {
    let mut command = cargo();
    command.args(["tree", "--offline", "--locked", "--package", name, "--edges", edges]);
    command.args(["--prefix", "depth", "--format", " {p}", "--charset", "ascii", "--color", "never"]);
    for target in &policy.targets {
        command.args(["--target", target]);
    }
    if !pure.default_features {
        command.arg("--no-default-features");
    }
    if !pure.features.is_empty() {
        command.arg("--features").arg(pure.features.join(","));
    }
    command.arg("--manifest-path").arg(root.join("Cargo.toml"));
    let tree = output(&mut command)?;
    Graph::parse(&tree).map_err(|line| HouseError::UnexpectedOutput { command: display(&command), problem: line })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn findings(allow: &[&str], build_time: &[&str]) -> Vec<Finding> {
        let pure =
            PureCrate { allow: set(allow), build_time: set(build_time), default_features: true, features: vec![] };
        let linked = Graph::parse("0 core v1\n1 serde v1").expect("a tree");
        let whole = Graph::parse("0 core v1\n1 serde v1\n2 derive v1 (proc-macro)\n3 syn v1").expect("a tree");
        check_crate("core", &pure, &linked, &whole)
    }

    #[test]
    fn a_macro_may_run_for_a_pure_crate_without_being_linked_into_it() {
        assert_eq!(findings(&["serde"], &["derive", "syn"]), []);
    }

    #[test]
    fn a_build_time_entry_does_not_allow_linking() {
        let found = findings(&[], &["serde", "derive", "syn"]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].problem.contains("serde is not allowed; brought in by core → serde"), "{found:?}");
    }

    #[test]
    fn a_disallowed_macro_is_reported_once_with_its_dependencies() {
        let found = findings(&["serde"], &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].problem.contains("core → serde → derive and brings syn"), "{found:?}");
        assert!(found[0].remedy.contains("`build-time` of [pure.core]"), "{found:?}");
    }

    #[test]
    fn unused_and_doubled_entries_are_warnings() {
        let found = findings(&["serde", "rand"], &["derive", "syn", "serde"]);
        assert!(found.iter().all(|finding| finding.level == Level::Warning), "{found:?}");
        let problems: Vec<_> = found.iter().map(|finding| finding.problem.as_str()).collect();
        assert_eq!(problems, ["rand in `allow` is not used", "serde in `build-time` is in `allow` already"]);
    }
}
