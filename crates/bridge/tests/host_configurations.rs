//! Host configurations of `tests/hosts`: the valid ones pass; in the others, exactly the lines with a mark such as
//! `#! BR020` are reported, with that code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bridge::{Code, Form, check};

fn files(directory: &str) -> Vec<(PathBuf, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts").join(directory);
    let entries = std::fs::read_dir(directory).expect("the configurations");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).expect("a configuration"))).collect()
}

#[test]
fn valid_configurations_pass() {
    let files = files("valid");
    assert!(files.len() >= 10);
    for (path, text) in files {
        let checked = check(&text, &[]);
        assert_eq!(checked.violations, [], "{}", path.display());
        assert_eq!(checked.hosts.is_empty(), checked.form == Some(Form::NmState), "{}", path.display());
    }
}

#[test]
fn each_violation_is_reported_at_its_line_and_nothing_else() {
    let mut seen = BTreeSet::new();
    for (path, text) in files("violations") {
        let marks = text.lines().enumerate().flat_map(|(index, line)| {
            let codes = line.split_once("#! ").map(|(_, codes)| codes.split(' ').collect()).unwrap_or(Vec::new());
            codes.into_iter().map(move |code| (index + 1, code.to_owned()))
        });
        let expected: BTreeSet<(usize, String)> = marks.collect();
        let checked = check(&text, &[]);
        let found: BTreeSet<(usize, String)> =
            checked.violations.iter().map(|found| (found.at.line, found.code.to_string())).collect();
        let shown: Vec<String> = checked.violations.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{}: {shown:#?}", path.display());
        assert!(!expected.is_empty(), "{} marks nothing", path.display());
        seen.extend(checked.violations.iter().map(|violation| violation.code));
        // The name of the file says which rule it is about.
        let rule = path.file_name().unwrap().to_string_lossy()[..5].to_uppercase();
        assert!(expected.iter().any(|(_, code)| *code == rule), "{}", path.display());
    }
    let missing: Vec<&Code> = Code::ALL.iter().filter(|code| !seen.contains(code)).collect();
    assert!(missing.is_empty(), "no configuration for {missing:?}");
}

#[test]
fn only_warnings_do_not_refuse_a_configuration() {
    for (path, text) in files("violations") {
        let is_warning = path.file_name().is_some_and(|name| name == "br033-copy-on-bridge.yml");
        assert_eq!(check(&text, &[]).is_valid(), is_warning, "{}", path.display());
    }
}

#[test]
fn a_document_of_unusual_size_is_refused_at_once() {
    let interfaces: String = (0..3000).map(|n| format!("- {{name: eth{n}, type: dummy}}\n")).collect();
    let checked = check(&format!("interfaces:\n{interfaces}"), &[]);
    let shown: Vec<String> = checked.violations.iter().map(ToString::to_string).collect();
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert!(shown[0].contains("BR002: the document of a host has 9002 values; 5000 at most"), "{shown:?}");
}

#[test]
fn machine_networks_decide_where_the_node_ip_is() {
    let text = "interfaces:\n\
        - {name: enp1s0, type: ethernet, ipv4: {enabled: true, address: [{ip: 192.0.2.5, prefix-length: 24}]}}\n\
        - {name: br-ex, type: ovs-bridge, bridge: {port: [{name: enp2s0}, {name: br-ex}]}}\n\
        - name: br-ex\n  type: ovs-interface\n  copy-mac-from: enp2s0\n  \
        ipv4: {enabled: true, address: [{ip: 198.51.100.5, prefix-length: 24}]}\n";
    let codes = |networks: &[&str]| -> Vec<&str> {
        let networks: Vec<_> = networks.iter().map(|network| network.parse().unwrap()).collect();
        check(text, &networks).violations.iter().map(|violation| violation.code.as_str()).collect()
    };
    assert_eq!(codes(&["192.0.2.0/24"]), <[&str; 0]>::default());
    assert_eq!(codes(&[]), <[&str; 0]>::default(), "two candidates: nothing is guessed");
    assert_eq!(codes(&["198.51.100.0/24"]), ["BR043", "BR041"]);
}
