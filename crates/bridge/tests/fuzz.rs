//! No input makes the checks or the renderers panic, and what is rendered means the same as what was read.

use bridge::{check, ignition, machine_config, nmstate_files, yaml};
use proptest::prelude::*;

const SEEDS: [&str; 5] = [
    include_str!("hosts/valid/merge-keys.yml"),
    include_str!("hosts/valid/bond.yml"),
    include_str!("hosts/valid/static-ipv6.yml"),
    include_str!("hosts/valid/two-nics.yml"),
    include_str!("hosts/violations/br004-host-names.yml"),
];
/// What may be inserted: the characters and words that YAML and the rules give a meaning.
const PIECES: [&str; 28] = [
    "\n",
    " ",
    "  ",
    "\t",
    ":",
    "- ",
    "&a ",
    "*a",
    "*net",
    "<<: *net\n",
    "[",
    "]",
    "{",
    "}",
    "\"",
    "'",
    "|\n",
    ">\n",
    "# ",
    "!!str ",
    "? ",
    "---\n",
    "~",
    "br-ex",
    "0",
    "\u{0}",
    "\u{feff}",
    "é",
];

/// A change: where (of 1000), how many characters go, and what comes.
fn changes() -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
    prop::collection::vec((0..1000usize, 0..40usize, 0..PIECES.len()), 0..6)
}

fn changed(text: &str, changes: &[(usize, usize, usize)]) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    for (place, gone, piece) in changes {
        let start = place * characters.len() / 1000;
        let end = (start + gone).min(characters.len());
        characters.splice(start..end, PIECES[*piece].chars());
    }
    characters.into_iter().collect()
}

fn exercise(text: &str) {
    let checked = check(text, &[]);
    for violation in &checked.violations {
        assert!(violation.at.line >= 1 && violation.at.column >= 1, "{violation}");
    }
    let files = nmstate_files(&checked.hosts);
    ignition(&files).expect("JSON");
    let all = machine_config(&files, "worker");
    yaml::parse(&all).expect("YAML that was rendered");
    if let Ok(document) = yaml::parse(text) {
        let written = yaml::emit(&document.root);
        let again = yaml::parse(&written).expect("YAML that was written");
        assert_eq!(yaml::emit(&again.root), written);
        let plain = shape(&document.root);
        assert_eq!(shape(&again.root), plain, "{written}");
    }
}

/// The values, without positions.
fn shape(node: &yaml::Node) -> String {
    match &node.content {
        _ if node.is_null() => "null".to_owned(),
        yaml::Content::Scalar { text, .. } => format!("{text:?}"),
        yaml::Content::List(items) => format!("{:?}", items.iter().map(|item| shape(item)).collect::<Vec<_>>()),
        yaml::Content::Map(entries) => {
            format!("{:?}", entries.iter().map(|(key, value)| (&*key.text, shape(value))).collect::<Vec<_>>())
        }
    }
}

proptest! {
    #[test]
    fn mutated_configurations_do_not_panic(seed in 0..SEEDS.len(), changes in changes()) {
        exercise(&changed(SEEDS[seed], &changes));
    }

    #[test]
    fn arbitrary_text_does_not_panic(pieces in prop::collection::vec(0..PIECES.len(), 0..60)) {
        exercise(&pieces.iter().map(|piece| PIECES[*piece]).collect::<String>());
    }

    #[test]
    fn arbitrary_scalars_survive(text in any::<String>()) {
        let written = format!("a: {}\n", quoted(&text));
        if let Ok(document) = yaml::parse(&written) {
            let again = yaml::parse(&yaml::emit(&document.root)).unwrap();
            prop_assert_eq!(shape(&again.root), shape(&document.root));
        }
    }

    #[test]
    fn no_host_name_selects_a_file_of_another_host(name in "\\PC{0,12}", files in prop::collection::vec("[a-cA-C.]{1,4}(\\.yml|\\.yaml)?", 0..6)) {
        if let Ok(bridge::Selected::File(file)) = bridge::select(&name, files.iter().map(String::as_str)) {
            let short = name.trim().split('.').next().unwrap_or_default().to_ascii_lowercase();
            let own = format!("{short}.yml");
            prop_assert!(file == own || file == "cluster.yml");
            prop_assert!(files.contains(&file));
        }
    }
}

/// A text in double quotes, with the escapes that JSON and YAML share.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("JSON")
}
