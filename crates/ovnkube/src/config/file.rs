//! The file layer: reads the file, and checks sections, keys and values against the settings table.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::ini::{self, Document, Entry};
use super::{FILE_VARIABLE, Source};
use crate::settings::{self, DEPRECATED, SETTINGS, Setting};
use crate::suggest::nearest;

/// A larger file is not a configuration file.
const LARGEST_FILE: u64 = 1024 * 1024;

/// Limit of reported problems: a wrong file has one in each line.
const MOST_PROBLEMS: usize = 40;

/// Values of a file, by the setting's flag (which is unique).
#[derive(Debug, Default)]
pub(super) struct Entries {
    values: HashMap<&'static str, (String, Source)>,
    /// One per deprecated key.
    pub(super) warnings: Vec<String>,
}

impl Entries {
    /// Sets or replaces a value.
    pub(super) fn insert(&mut self, setting: &'static Setting, value: String, source: Source) {
        self.values.insert(setting.flag, (value, source));
    }

    /// Removes and returns the value of a setting.
    pub(super) fn remove(&mut self, setting: &Setting) -> Option<(String, Source)> {
        self.values.remove(setting.flag)
    }
}

/// Reads the named file, which must exist, or else the default one, which may be missing.
pub(super) fn read(
    named: Option<&Path>,
    default_file: &Path,
    problems: &mut Vec<String>,
) -> (Option<PathBuf>, Entries) {
    let path = named.unwrap_or(default_file);
    match contents(path) {
        Ok(bytes) => (Some(path.to_owned()), check(path, &ini::parse(&bytes), problems)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => (None, Entries::default()),
        Err(error) => {
            problems.push(format!("{}: {}", path.display(), why_unreadable(&error)));
            (None, Entries::default())
        }
    }
}

pub(super) fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

fn why_unreadable(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!("no such file; set an existing one with --config or {FILE_VARIABLE}, or none")
        }
        io::ErrorKind::IsADirectory => "a directory, not a file; set the path of a file".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "no permission to read it; change its mode, or run as another user".to_owned()
        }
        io::ErrorKind::FileTooLarge => "larger than 1 MiB; this is not a configuration file".to_owned(),
        _ => format!("cannot be read: {error}; check the path"),
    }
}

pub(super) fn check(path: &Path, document: &Document, problems: &mut Vec<String>) -> Entries {
    let sections = settings::sections();
    // Problems of the grammar and of the table, in the order of lines.
    let mut remarks: Vec<(usize, String)> =
        document.remarks.iter().map(|remark| (remark.line, remark.text.clone())).collect();
    for header in &document.headers {
        if !sections.contains(&header.section.as_str()) {
            let remedy = remedy(&header.section, &sections);
            remarks.push((header.line, format!("[{}]: unknown section; {remedy}", header.section)));
        }
    }
    let mut entries = Entries::default();
    let known = |entry: &&Entry| sections.contains(&entry.section.as_str());
    for entry in document.entries.iter().filter(known) {
        match value_of(entry) {
            Ok(setting) => {
                let source = Source::File { path: path.display().to_string(), line: entry.line };
                if entry.key == setting.key {
                    entries.insert(setting, entry.value.clone(), source);
                    continue;
                }
                let name = format!("{source}: [{}] {}", entry.section, entry.key);
                entries.warnings.push(super::deprecated(&name, &format!("[{}] {}", setting.section, setting.key)));
                entries.values.entry(setting.flag).or_insert((entry.value.clone(), source));
            }
            Err(why) => remarks.push((entry.line, format!("[{}] {}: {why}", entry.section, entry.key))),
        }
    }
    remarks.sort_by_key(|(line, _)| *line);
    let path = path.display();
    let reported = remarks.iter().take(MOST_PROBLEMS);
    problems.extend(reported.map(|(line, text)| format!("{path}:{line}: {text}")));
    if let Some(more @ 1..) = remarks.len().checked_sub(MOST_PROBLEMS) {
        problems.push(format!("{path}: {more} more problems; check that this is the right file"));
    }
    entries
}

/// The setting of an entry with a valid value.
fn value_of(entry: &Entry) -> Result<&'static Setting, String> {
    let former = |entry: &Entry| {
        let is_it =
            |former: &&settings::Deprecated| (former.setting.section, former.key) == (&*entry.section, &*entry.key);
        DEPRECATED.iter().find(is_it).map(|former| former.setting)
    };
    let current = settings::in_section(&entry.section).find(|setting| setting.key == entry.key);
    let Some(setting) = current.or_else(|| former(entry)) else {
        if let Some(elsewhere) = SETTINGS.iter().find(|setting| setting.key == entry.key) {
            return Err(format!("unknown key; it belongs to [{}]", elsewhere.section));
        }
        let keys: Vec<_> = settings::in_section(&entry.section).map(|setting| setting.key).collect();
        return Err(format!("unknown key; {}", remedy(&entry.key, &keys)));
    };
    (setting.check)(&entry.value).map_err(|why| format!("{:?}: {why}; allowed: {}", entry.value, setting.allowed))?;
    Ok(setting)
}

fn remedy(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("allowed: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        check(Path::new("ovn_k8s.conf"), &ini::parse(text.as_bytes()), &mut problems);
        problems
    }

    #[test]
    fn all_problems_are_reported_in_the_order_of_lines() {
        let text = "[loging]\nlevel=1\n[metrics]\nbind-adress=off\nbind-address=here\nformat=json\n[hybridoverlay]\n\
                    [logging]\nverbosity=5\nrubbish!\n";
        assert_eq!(
            problems_of(text),
            [
                "ovn_k8s.conf:1: [loging]: unknown section; did you mean logging?".to_owned(),
                "ovn_k8s.conf:4: [metrics] bind-adress: unknown key; did you mean bind-address?".to_owned(),
                format!(
                    "ovn_k8s.conf:5: [metrics] bind-address: \"here\": not an IP address with a port; allowed: {}",
                    settings::METRICS_ADDRESS.allowed
                ),
                "ovn_k8s.conf:6: [metrics] format: unknown key; it belongs to [logging]".to_owned(),
                format!(
                    "ovn_k8s.conf:7: [hybridoverlay]: unknown section; allowed: {}",
                    settings::sections().join(", ")
                ),
                "ovn_k8s.conf:9: [logging] verbosity: unknown key; allowed: level, format".to_owned(),
                "ovn_k8s.conf:10: neither a [section], nor key=value, nor a comment; correct the line or put # before it".to_owned(),
            ]
        );
    }

    #[test]
    fn a_deprecated_key_is_taken_with_a_warning_and_the_new_one_wins() {
        let read = |text: &str| {
            let mut problems = Vec::new();
            let mut entries = check(Path::new("ovn_k8s.conf"), &ini::parse(text.as_bytes()), &mut problems);
            let value = entries.remove(&settings::node::CNI_ADD_TIMEOUT).map(|(value, _)| value);
            (value, entries.warnings, problems)
        };
        let (value, warnings, problems) = read("[cni]\npatience=20\n");
        assert_eq!((value.as_deref(), problems), (Some("20"), Vec::new()));
        assert_eq!(warnings, ["ovn_k8s.conf:2: [cni] patience is deprecated: use [cni] add-timeout"]);
        for both in ["[cni]\npatience=20\nadd-timeout=30\n", "[cni]\nadd-timeout=30\npatience=20\n"] {
            let (value, warnings, _) = read(both);
            assert_eq!((value.as_deref(), warnings.len()), (Some("30"), 1));
        }
        let (_, _, problems) = read("[cni]\npatience=soon\n");
        assert!(problems[0].starts_with("ovn_k8s.conf:2: [cni] patience: \"soon\": "), "{problems:?}");
    }

    #[test]
    fn the_number_of_reported_problems_is_limited() {
        let problems = problems_of(&"rubbish!\n".repeat(1000));
        assert_eq!(problems.len(), MOST_PROBLEMS + 1);
        assert!(problems[MOST_PROBLEMS].contains("960 more problems"));
        assert_eq!(problems_of(&"rubbish!\n".repeat(MOST_PROBLEMS)).len(), MOST_PROBLEMS);
    }

    #[test]
    fn unreadable_files_are_reported_with_the_reason() {
        for (kind, why) in [
            (io::ErrorKind::NotFound, "no such file; set an existing one"),
            (io::ErrorKind::IsADirectory, "a directory, not a file"),
            (io::ErrorKind::PermissionDenied, "no permission to read it"),
            (io::ErrorKind::FileTooLarge, "larger than 1 MiB"),
            (io::ErrorKind::NotADirectory, "check the path"),
        ] {
            assert!(why_unreadable(&kind.into()).contains(why), "{kind}");
        }
    }

    #[test]
    fn the_example_is_valid_as_it_is_and_uncommented() {
        let example = settings::example_file();
        assert_eq!(problems_of(&example), [""; 0]);
        let uncommented: Vec<_> = example
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(key) if !key.starts_with(' ') => key,
                _ => line,
            })
            .collect();
        let document = ini::parse(uncommented.join("\n").as_bytes());
        assert_eq!(document.entries.len(), SETTINGS.len());
        assert_eq!(problems_of(&uncommented.join("\n")), [""; 0]);
    }
}
