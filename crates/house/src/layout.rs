//! Layout: small files, crates that open with their purpose, the same lints and license everywhere, listed test programs.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

use crate::HouseError;
use crate::finding::Finding;
use crate::policy::describe;
use crate::test_lists;
use crate::workspace::{Member, Workspace};

const LONGEST_SOURCE: usize = 500;
const LONGEST_MAIN: usize = 40;
const SOURCES: [&str; 4] = ["rs", "go", "py", "sh"];
const LICENSE: &str = "Apache-2.0";
const ARCHITECTURE: &str = "docs/architecture.md";
const MAKEFILE: &str = "Makefile";

pub(crate) fn check(workspace: &Workspace) -> Result<Vec<Finding>, HouseError> {
    let mut findings = Vec::new();
    for file in workspace.files()? {
        // Binary files have no lines.
        if let Ok(text) = String::from_utf8(read(&workspace.root.join(&file))?) {
            findings.extend(check_size(&file, &text));
        }
    }
    findings.extend(check_license(&table(&workspace.root.join("Cargo.toml"))?));
    for member in &workspace.members {
        findings.extend(check_manifest(&member.name, &table(&member.manifest)?));
        for opening in &member.openings {
            let text = String::from_utf8_lossy(&read(opening)?).into_owned();
            findings.extend(check_opening(&workspace.relative(opening), &text));
        }
    }
    let architecture = workspace.root.join(ARCHITECTURE);
    if architecture.is_file() {
        let text = String::from_utf8_lossy(&read(&architecture)?).into_owned();
        findings.extend(check_architecture(&workspace.members, &text));
    }
    let makefile = workspace.root.join(MAKEFILE);
    if makefile.is_file() {
        let text = String::from_utf8_lossy(&read(&makefile)?).into_owned();
        findings.extend(test_lists::check(&workspace.members, &text));
    }
    Ok(findings)
}

fn check_size(file: &Path, text: &str) -> Option<Finding> {
    let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    if !SOURCES.contains(&extension) {
        return None;
    }
    let lines = text.lines().count();
    let (longest, remedy) = if file.file_name().is_some_and(|name| name == "main.rs") {
        (LONGEST_MAIN, "move the code to a module that can be tested")
    } else {
        (LONGEST_SOURCE, "split it: one idea per file")
    };
    let place = file.display().to_string();
    (lines > longest).then(|| Finding::error(place, format!("has {lines} lines, {longest} at most"), remedy))
}

fn check_license(root: &Table) -> Option<Finding> {
    let license = at(root, &["workspace", "package", "license"]).and_then(Value::as_str);
    (license != Some(LICENSE)).then(|| {
        let found = license.unwrap_or("missing");
        let problem = format!("the workspace's license is {found}, not {LICENSE}");
        Finding::error("Cargo.toml", problem, format!("write license = \"{LICENSE}\" under [workspace.package]"))
    })
}

fn check_manifest(name: &str, manifest: &Table) -> Vec<Finding> {
    let inherits = |path: &[&str]| at(manifest, path) == Some(&Value::Boolean(true));
    let mut findings = Vec::new();
    if !inherits(&["lints", "workspace"]) {
        let remedy = "add `workspace = true` under [lints] in its Cargo.toml";
        findings.push(Finding::error(name, "does not use the workspace's lints", remedy));
    }
    if !inherits(&["package", "license", "workspace"]) {
        let remedy = "write `license.workspace = true` under [package] in its Cargo.toml";
        findings.push(Finding::error(name, "does not use the workspace's license", remedy));
    }
    findings
}

fn check_opening(place: &str, text: &str) -> Option<Finding> {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let has_purpose = first.strip_prefix("//!").is_some_and(|rest| !rest.trim().is_empty());
    (!has_purpose).then(|| {
        let remedy = "start the file with `//!` and a sentence that states its purpose";
        Finding::error(place, "does not state its purpose", remedy)
    })
}

fn check_architecture(members: &[Member], text: &str) -> Vec<Finding> {
    let is_part = |sign: char| sign.is_alphanumeric() || sign == '-' || sign == '_';
    let words: Vec<&str> = text.split(|sign| !is_part(sign)).collect();
    let missing = members.iter().filter(|member| !words.contains(&member.name.as_str()));
    let finding = |member: &Member| {
        let problem = format!("does not mention the crate {}", member.name);
        Finding::error(ARCHITECTURE, problem, "add the crate and its purpose to the table of crates")
    };
    missing.map(finding).collect()
}

fn at<'a>(table: &'a Table, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(table.get(*first)?, |value, key| value.get(*key))
}

fn table(path: &Path) -> Result<Table, HouseError> {
    let text = String::from_utf8_lossy(&read(path)?).into_owned();
    let parsed = toml::from_str(&text);
    parsed.map_err(|error| HouseError::Toml { path: path.to_owned(), problem: describe(&text, &error) })
}

fn read(path: &Path) -> Result<Vec<u8>, HouseError> {
    fs::read(path).map_err(|source| HouseError::Read { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_at_the_limit_passes_and_one_line_more_fails() {
        let size = |file: &str, lines: usize| check_size(Path::new(file), &"x\n".repeat(lines));
        assert_eq!(size("src/a.rs", 500), None);
        assert!(size("src/a.rs", 501).is_some());
        assert_eq!(size("src/main.rs", 40), None);
        assert!(size("src/main.rs", 41).is_some());
        assert_eq!(size("docs/a.md", 5000), None);
    }

    #[test]
    fn a_crate_inherits_lints_and_license() {
        let manifest = |text: &str| check_manifest("x", &toml::from_str(text).expect("TOML"));
        assert_eq!(manifest("[package]\nlicense.workspace = true\n[lints]\nworkspace = true"), []);
        assert_eq!(manifest("[package]\nlicense = 'Apache-2.0'\n[lints]\nworkspace = true").len(), 1);
        assert_eq!(manifest("[package]\nlicense.workspace = true\n[lints]\nworkspace = false").len(), 1);
        assert!(check_license(&toml::from_str("[workspace.package]\nlicense = 'MIT'").expect("TOML")).is_some());
    }

    #[test]
    fn an_opening_must_state_a_purpose() {
        assert_eq!(check_opening("lib.rs", "\n//! The core.\n"), None);
        for text in ["", "mod a;", "// The core.", "//!\n", "#![allow(x)]\n//! Late."] {
            assert!(check_opening("lib.rs", text).is_some(), "{text:?}");
        }
    }

    #[test]
    fn the_architecture_names_every_crate_by_its_whole_name() {
        let member = |name: &str| Member {
            name: name.to_owned(),
            manifest: "Cargo.toml".into(),
            openings: vec![],
            tests: vec![],
        };
        let members = [member("net"), member("net-model")];
        assert_eq!(check_architecture(&members, "`net`, net-model/"), []);
        let found = check_architecture(&members, "net-model/ only");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].problem, "does not mention the crate net");
    }
}
