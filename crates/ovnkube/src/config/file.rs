//! The file's layer: reads it, and judges its sections, keys and values against the settings table.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::ini::{self, Document, Entry};
use super::{FILE_VARIABLE, Source};
use crate::settings::{self, SETTINGS, Setting};
use crate::suggest::nearest;

/// A configuration is a page of text; a file that is larger is another file, named by mistake.
const LARGEST_FILE: u64 = 1024 * 1024;

/// A file that is not a configuration at all has a problem in each line: more than a screenful helps nobody.
const MOST_PROBLEMS: usize = 40;

/// What a file sets, by the setting's flag (which is unique).
#[derive(Debug, Default)]
pub(super) struct Entries(HashMap<&'static str, (String, Source)>);

impl Entries {
    /// Sets one, over what was there.
    pub(super) fn insert(&mut self, setting: &'static Setting, value: String, source: Source) {
        self.0.insert(setting.flag, (value, source));
    }

    /// Takes the value of one setting out.
    pub(super) fn remove(&mut self, setting: &Setting) -> Option<(String, Source)> {
        self.0.remove(setting.flag)
    }
}

/// Reads the named file, which must be there, or else the default one, which may be absent.
pub(super) fn read(
    named: Option<&Path>,
    default_file: &Path,
    problems: &mut Vec<String>,
) -> (Option<PathBuf>, Entries) {
    let path = named.unwrap_or(default_file);
    match contents(path) {
        Ok(bytes) => (Some(path.to_owned()), judge(path, &ini::parse(&bytes), problems)),
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
            format!("no such file; name one that exists with --config or {FILE_VARIABLE}, or name none")
        }
        io::ErrorKind::IsADirectory => "a directory, not a file; name the file in it".to_owned(),
        io::ErrorKind::PermissionDenied => "no permission to read it; change its mode, or the user".to_owned(),
        io::ErrorKind::FileTooLarge => "larger than 1 MiB; this is not a configuration file".to_owned(),
        _ => format!("cannot be read: {error}; check the path"),
    }
}

pub(super) fn judge(path: &Path, document: &Document, problems: &mut Vec<String>) -> Entries {
    let sections = settings::sections();
    // Remarks come from the grammar and from the table; told in the order of the file's lines.
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
                entries.0.insert(setting.flag, (entry.value.clone(), source));
            }
            Err(why) => remarks.push((entry.line, format!("[{}] {}: {why}", entry.section, entry.key))),
        }
    }
    remarks.sort_by_key(|(line, _)| *line);
    let path = path.display();
    let told = remarks.iter().take(MOST_PROBLEMS);
    problems.extend(told.map(|(line, text)| format!("{path}:{line}: {text}")));
    if let Some(more @ 1..) = remarks.len().checked_sub(MOST_PROBLEMS) {
        problems.push(format!("{path}: {more} more problems; check that this is the right file"));
    }
    entries
}

/// The setting that the entry gives a good value to.
fn value_of(entry: &Entry) -> Result<&'static Setting, String> {
    let Some(setting) = settings::in_section(&entry.section).find(|setting| setting.key == entry.key) else {
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
        judge(Path::new("ovn_k8s.conf"), &ini::parse(text.as_bytes()), &mut problems);
        problems
    }

    #[test]
    fn every_problem_is_told_in_the_order_of_lines() {
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
    fn a_file_of_rubbish_does_not_flood_the_screen() {
        let problems = problems_of(&"rubbish!\n".repeat(1000));
        assert_eq!(problems.len(), MOST_PROBLEMS + 1);
        assert!(problems[MOST_PROBLEMS].contains("960 more problems"));
        assert_eq!(problems_of(&"rubbish!\n".repeat(MOST_PROBLEMS)).len(), MOST_PROBLEMS);
    }

    #[test]
    fn unreadable_files_say_why() {
        for (kind, why) in [
            (io::ErrorKind::NotFound, "no such file; name one"),
            (io::ErrorKind::IsADirectory, "a directory, not a file"),
            (io::ErrorKind::PermissionDenied, "no permission to read it"),
            (io::ErrorKind::FileTooLarge, "larger than 1 MiB"),
            (io::ErrorKind::NotADirectory, "check the path"),
        ] {
            assert!(why_unreadable(&kind.into()).contains(why), "{kind}");
        }
    }

    #[test]
    fn the_example_is_a_good_file_as_it_is_and_uncommented() {
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
