//! Loads manifests from files, directories and stdin: YAML with several documents, JSON, lists. Mistakes are reported
//! with file, line and object; the rest is still loaded.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use objects::ObjectKind;
use serde::Serialize;
use serde_json::Value;

use super::kinds::{self, Known};
use super::yaml;

/// Longest file or standard input: more is not a manifest, but a device or a mistake.
const LONGEST: u64 = 256 << 20;

/// Kind, namespace, name.
pub(super) type Key = (ObjectKind, String, String);

/// File and line of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct SourceLocation {
    pub(super) file: String,
    pub(super) line: Option<u64>,
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file),
            None => f.write_str(&self.file),
        }
    }
}

/// A manifest that cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Mistake {
    #[serde(flatten)]
    pub(super) location: SourceLocation,
    pub(super) object: Option<String>,
    pub(super) message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.object {
            Some(object) => write!(f, "{}: {object}: {}", self.location, self.message),
            None => write!(f, "{}: {}", self.location, self.message),
        }
    }
}

/// An object, and where it was defined.
#[derive(Debug, Clone)]
pub(super) struct Manifest {
    pub(super) object: Value,
    pub(super) location: SourceLocation,
}

/// Result of loading.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) manifests: BTreeMap<Key, Manifest>,
    /// Number of objects that do not concern the network, by kind.
    pub(super) ignored: BTreeMap<String, usize>,
    pub(super) mistakes: Vec<Mistake>,
    /// Files without any object.
    pub(super) notes: Vec<String>,
}

impl Loaded {
    /// Loads all files, directories and `-` (stdin).
    pub(super) fn read(names: &[String]) -> Self {
        let mut loaded = Self::default();
        for name in names {
            if name == "-" {
                loaded.reader("stdin", std::io::stdin().lock());
            } else {
                loaded.path(Path::new(name), &mut Vec::new());
            }
        }
        loaded
    }

    fn mistake(&mut self, file: &str, line: Option<u64>, object: Option<String>, message: impl Into<String>) {
        let location = SourceLocation { file: file.to_owned(), line };
        self.mistakes.push(Mistake { location, object, message: message.into() });
    }

    fn reader(&mut self, name: &str, reader: impl std::io::Read) {
        let mut bytes = Vec::new();
        match reader.take(LONGEST + 1).read_to_end(&mut bytes) {
            Ok(_) if bytes.len() as u64 > LONGEST => {
                let limit = LONGEST >> 20;
                let message = format!("is larger than {limit} MiB; hint: split it, or check that it is a manifest");
                self.mistake(name, None, None, message);
            }
            Ok(_) => self.bytes(name, bytes),
            Err(error) => self.mistake(name, None, None, unreadable(&error)),
        }
    }

    /// `parents` are the directories that lead here, by device and inode: a link to one of them is a loop.
    fn path(&mut self, path: &Path, parents: &mut Vec<(u64, u64)>) {
        let name = path.display().to_string();
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) => return self.mistake(&name, None, None, unreadable(&error)),
        };
        if !metadata.is_dir() {
            match std::fs::File::open(path) {
                Ok(file) => self.reader(&name, file),
                Err(error) => self.mistake(&name, None, None, unreadable(&error)),
            }
            return;
        }
        let identity = (metadata.dev(), metadata.ino());
        if parents.contains(&identity) {
            return self.mistake(&name, None, None, "is a link to a directory that contains it; hint: remove the link");
        }
        let entries = match std::fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) => return self.mistake(&name, None, None, unreadable(&error)),
        };
        let mut paths: Vec<_> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
        paths.sort();
        let is_manifest = |path: &Path| {
            path.extension().is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|known| ending == *known))
        };
        paths.retain(|path| path.is_dir() || is_manifest(path));
        if paths.is_empty() && parents.is_empty() {
            self.mistake(&name, None, None, "no manifests found; hint: their names must end with .yaml, .yml or .json");
        }
        parents.push(identity);
        for path in paths {
            self.path(&path, parents);
        }
        parents.pop();
    }

    fn bytes(&mut self, file: &str, bytes: Vec<u8>) {
        match String::from_utf8(bytes) {
            Ok(text) => self.text(file, text.strip_prefix('\u{feff}').unwrap_or(&text)),
            Err(_) => self.mistake(file, None, None, "is not text in UTF-8"),
        }
    }

    /// Parses the text of a file: JSON, or YAML documents.
    pub(super) fn text(&mut self, file: &str, text: &str) {
        let found = |it: &Self| it.manifests.len() + it.ignored.values().sum::<usize>() + it.mistakes.len();
        let before = found(self);
        self.documents(file, text);
        if found(self) == before {
            self.notes.push(format!("{file} contains no object"));
        }
    }

    fn documents(&mut self, file: &str, text: &str) {
        if text.trim_start().starts_with('{') {
            // JSON is YAML, but parsing it as JSON is much faster; there may be several objects in a row.
            let objects: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
            match objects {
                Ok(objects) => return objects.into_iter().for_each(|object| self.object(file, 1, object, None)),
                Err(error) if file.ends_with(".json") => {
                    let line = Some(error.line() as u64);
                    return self.mistake(file, line, None, format!("is not JSON: {error}"));
                }
                // Braces are valid YAML as well.
                Err(_) => {}
            }
        }
        for (line, document) in documents(text) {
            match yaml::parse(document) {
                Ok(Value::Null) => {}
                Ok(object) => self.object(file, line, object, None),
                Err(error) => {
                    // If the text is incomplete, the error is after the last line.
                    let within = error.location().map_or(1, |location| location.line()).max(1);
                    let line = line + within.min(document.lines().count() as u64) - 1;
                    let cause = yaml::cause(without_location(&error.to_string()));
                    self.mistake(file, Some(line), None, format!("is not YAML: {cause}"));
                }
            }
        }
    }

    /// An object, or a list of objects; items may lack apiVersion and kind.
    fn object(&mut self, file: &str, first: u64, mut object: Value, of: Option<(&str, &str)>) {
        let line = Some(first);
        if !object.is_object() {
            return self.mistake(file, line, None, "not an object; hint: a manifest starts with apiVersion and kind");
        }
        for (field, usual) in of.into_iter().flat_map(|(version, kind)| [("apiVersion", version), ("kind", kind)]) {
            if object[field].is_null() {
                object[field] = usual.into();
            }
        }
        let text = |field: &str| object[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let (version, kind) = match (text("apiVersion"), text("kind")) {
            (Some(version), Some(kind)) => (version, kind),
            (version, _) => {
                let missing = if version.is_none() { "apiVersion" } else { "kind" };
                let object = (!name.is_empty()).then_some(name);
                return self.mistake(file, line, object, format!("has no {missing}"));
            }
        };
        if let (Some(items), Some(single)) = (object["items"].as_array_mut(), kind.strip_suffix("List")) {
            let of = (!single.is_empty()).then_some((version.as_str(), single));
            for item in std::mem::take(items) {
                self.object(file, first, item, of);
            }
            return;
        }
        match kinds::known(&version, &kind) {
            Known::Network(of) => self.known(file, line, of, &name, object),
            Known::Other => *self.ignored.entry(kind).or_default() += 1,
            Known::Nothing(hint) => {
                let message = format!("unknown kind {kind:?} in {version}; hint: {hint}");
                self.mistake(file, line, Some(format!("{kind} {name}").trim().to_owned()), message);
            }
        }
    }

    fn known(&mut self, file: &str, line: Option<u64>, kind: ObjectKind, name: &str, mut object: Value) {
        if name.is_empty() {
            let metadata = &object["metadata"];
            let message = match (metadata["generateName"].as_str(), &metadata["name"]) {
                (_, Value::Bool(_) | Value::Number(_)) => {
                    "metadata.name is not a string; hint: put it in quotes".to_owned()
                }
                (Some(begin), _) => format!("has only generateName {begin:?}; hint: give it a metadata.name"),
                (None, _) => "has no metadata.name".to_owned(),
            };
            return self.mistake(file, line, Some(kind.name().to_owned()), message);
        }
        let namespace = if kind.is_namespaced() {
            let given = object["metadata"]["namespace"].as_str().filter(|namespace| !namespace.is_empty());
            given.unwrap_or("default").to_owned()
        } else {
            String::new()
        };
        let shown = shown(kind, &namespace, name);
        for text in [name, &namespace] {
            let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
            if text.len() > 253 || !text.chars().all(good) {
                let message = format!("invalid name {text:?}; hint: names have lower-case letters, digits, - and .");
                return self.mistake(file, line, Some(shown), message);
            }
        }
        if kind.is_namespaced() {
            object["metadata"]["namespace"] = namespace.as_str().into();
        } else if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
        let location = SourceLocation { file: file.to_owned(), line };
        match self.manifests.entry((kind, namespace, name.to_owned())) {
            Entry::Vacant(free) => {
                free.insert(Manifest { object, location });
            }
            Entry::Occupied(first) => {
                let message = format!("already defined in {}, which is planned", first.get().location);
                self.mistakes.push(Mistake { location, object: Some(shown), message });
            }
        }
    }
}

fn unreadable(error: &std::io::Error) -> String {
    let hint = match error.kind() {
        ErrorKind::NotFound => "; hint: check the path, which is relative to the current directory",
        ErrorKind::PermissionDenied => "; hint: check the permissions of the file and of its directories",
        _ => "",
    };
    format!("cannot be read: {error}{hint}")
}

/// A parser's message without its line and column, which are not those of the file.
pub(super) fn without_location(words: &str) -> String {
    let words = words.lines().next().unwrap_or_default();
    let words = words.strip_prefix("error: ").unwrap_or(words);
    let words = words.strip_prefix("line ").and_then(|rest| rest.split_once(": ")).map_or(words, |(_, rest)| rest);
    words.rsplit_once(" at line ").map_or(words, |(words, _)| words).to_owned()
}

/// Display name of an object.
pub(super) fn shown(kind: ObjectKind, namespace: &str, name: &str) -> String {
    if namespace.is_empty() { format!("{} {name}", kind.name()) } else { format!("{} {namespace}/{name}", kind.name()) }
}

/// The documents of a text, with the numbers of their first lines. A line that starts with `---` is always a separator.
fn documents(text: &str) -> Vec<(u64, &str)> {
    let mut all = Vec::new();
    let (mut begin, mut first) = (0, 1);
    let (mut at, mut number) = (0, 0);
    for line in text.split_inclusive('\n') {
        number += 1;
        let bare = line.trim_end();
        if bare == "---" || bare.starts_with("--- ") {
            all.push((first, &text[begin..at]));
            // Text after the dashes belongs to the document.
            begin = at + if bare == "---" { line.len() } else { 3 };
            first = if bare == "---" { number + 1 } else { number };
        }
        at += line.len();
    }
    all.push((first, &text[begin..]));
    let says = |line: &str| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#') && !line.starts_with('%') && line != "..."
    };
    all.retain(|(_, document)| document.lines().any(says));
    // The first line that is not empty.
    all.into_iter()
        .map(|(first, document)| {
            let skip: usize = document.split_inclusive('\n').take_while(|line| !says(line)).map(str::len).sum();
            (first + document[..skip].matches('\n').count() as u64, &document[skip..])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Loaded {
        let mut loaded = Loaded::default();
        loaded.text("a.yaml", text);
        loaded
    }

    fn mistakes(text: &str) -> Vec<String> {
        load(text).mistakes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn documents_lists_and_json_are_loaded() {
        let yaml = "# a comment\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n---\napiVersion: v1\nkind: List\nitems:\n\
            - {apiVersion: v1, kind: Node, metadata: {name: n, namespace: wrong}}\n\
            - {apiVersion: apps/v1, kind: Deployment, metadata: {name: d}}\n...\n";
        let loaded = load(yaml);
        assert_eq!(loaded.mistakes, vec![]);
        let keys: Vec<String> = loaded.manifests.keys().map(|(kind, ns, name)| shown(*kind, ns, name)).collect();
        assert_eq!(keys, ["Node n", "Pod default/a"]);
        assert_eq!(loaded.ignored, BTreeMap::from([("Deployment".to_owned(), 1)]));
        let pod = loaded.manifests.values().nth(1).unwrap();
        assert_eq!(pod.location.to_string(), "a.yaml:3");
        assert_eq!(pod.object["metadata"]["namespace"], "default");

        let json = r#"{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a","namespace":"x"}}]}
            {"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"}}"#;
        assert_eq!((load(json).manifests.len(), load(json).mistakes.len()), (2, 0));
    }

    #[test]
    fn mistakes_have_file_line_and_object_and_the_rest_is_loaded() {
        let good = "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n";
        for (bad, expected) in [
            ("apiVersion: v1\nkind: Pod\nmetadata: {name: [\n", "a.yaml:"),
            (
                "apiVersion: v1\nkind: Podd\nmetadata: {name: a}\n",
                "a.yaml:5: Podd a: unknown kind \"Podd\" in v1; hint: did you mean Pod",
            ),
            (
                "apiVersion: v1\nkind: NetworkPolicy\nmetadata: {name: a}\n",
                "hint: NetworkPolicy is in networking.k8s.io",
            ),
            ("kind: Pod\nmetadata: {name: a}\n", "a.yaml:5: a: has no apiVersion"),
            ("apiVersion: v1\nmetadata: {name: a}\n", "a: has no kind"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {}\n", "Pod: has no metadata.name"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}\n", "generateName \"a-\""),
            ("apiVersion: v1\nkind: Pod\nmetadata: {name: A/b}\n", "invalid name"),
            ("apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n", "Namespace x: already defined in a.yaml:1"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {name: 7}\n", "Pod: metadata.name is not a string"),
            ("- 1\n", "not an object"),
            ("just words\n", "not an object"),
        ] {
            let text = format!("{good}---\n{bad}");
            let all = mistakes(&text);
            assert_eq!(all.len(), 1, "{bad}: {all:?}");
            assert!(all[0].contains(expected), "{bad}: {all:?}");
            assert_eq!(load(&text).manifests.len(), 1);
        }
        let mut json = Loaded::default();
        json.text("a.json", "{\n\"a\": }");
        assert!(json.mistakes[0].to_string().starts_with("a.json:2: is not JSON"), "{:?}", json.mistakes);
        assert_eq!(
            load("{apiVersion: v1, kind: Node, metadata: {name: n}}").manifests.len(),
            1,
            "braces are valid YAML"
        );
    }

    #[test]
    fn a_file_without_objects_gets_a_note() {
        for text in ["", "# a comment\n---\n", "{apiVersion: v1, kind: List, items: []}"] {
            let loaded = load(text);
            assert_eq!(
                (loaded.notes, loaded.mistakes),
                (vec!["a.yaml contains no object".to_owned()], vec![]),
                "{text}"
            );
        }
        for text in ["apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n", "- 1\n"] {
            assert_eq!(load(text).notes, Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn a_missing_file_gets_a_hint() {
        let loaded = Loaded::read(&["/nowhere/a.yaml".to_owned()]);
        let message = loaded.mistakes[0].to_string();
        assert!(message.starts_with("/nowhere/a.yaml: cannot be read: No such file"), "{message}");
        assert!(message.contains("; hint: check the path"), "{message}");
    }

    #[test]
    fn a_yaml_error_has_the_line_of_the_file() {
        let all = mistakes("apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n---\napiVersion: v1\nkind: 'Pod\n");
        assert!(all.len() == 1 && all[0].starts_with("a.yaml:6: is not YAML: "), "{all:?}");
        assert!(!all[0].contains(" line "), "{all:?}");
    }
}
