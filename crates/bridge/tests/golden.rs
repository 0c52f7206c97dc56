//! Rendered files, byte for byte. `UPDATE_GOLDEN=1` writes them again, for review in the diff.

use std::path::Path;

use bridge::{check, ignition, machine_config, nmstate_files};

/// The enhancement document's own example.
const EXAMPLE: &str = include_str!("../../../deploy/examples/bridge/install-config.yaml");

fn compare(name: &str, rendered: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, rendered).expect("a golden file to write");
    }
    assert_eq!(std::fs::read_to_string(&path).expect("a golden file"), rendered, "{name}");
}

#[test]
fn the_documents_example_is_rendered_in_all_forms() {
    let checked = check(EXAMPLE, &[]);
    let shown: Vec<String> = checked.violations.iter().map(|found| found.code.to_string()).collect();
    // NMState ignores copy-mac-from where the document has it.
    assert_eq!(shown, ["BR033"; 3]);
    assert!(checked.is_valid());
    let files = nmstate_files(&checked.hosts);
    let names: Vec<String> = files.iter().map(bridge::HostFile::name).collect();
    assert_eq!(names, ["master-0.yml", "master-1.yml", "master-2.yml"]);
    compare("master-0.yml", &files[0].content);
    assert_eq!(files[0].content, files[1].content);
    compare("master-0.ign", &ignition(&files[..1]).unwrap());
    compare("all-hosts.ign", &ignition(&files).unwrap());
    compare("10-br-ex-master.yml", &machine_config(&files, "master"));
}

#[test]
fn merge_keys_are_resolved() {
    let checked = check(include_str!("hosts/valid/merge-keys.yml"), &[]);
    compare("worker-0.yml", &nmstate_files(&checked.hosts)[2].content);
}
