//! From text to tree: anchors, aliases and merge keys are resolved; nothing can multiply without bounds.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use granit_parser::{Event, Marker, Parser, ScalarStyle, Tag};
use thiserror::Error;

use super::node::{Content, Key, Node, Position};

/// Bytes of a file: four times what a ConfigMap can hold.
const LONGEST: usize = 4 << 20;
/// Nodes of a document, those that aliases repeat included.
const MOST_NODES: usize = 200_000;
/// Levels of a document. NMState needs ten.
const DEEPEST: usize = 64;
/// Characters of a key. YAML allows 1024 on one line.
const LONGEST_KEY: usize = 512;
const MERGE: &str = "<<";

/// Why a text cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{at}: {message}")]
pub struct YamlError {
    /// Where the parser stopped.
    pub at: Position,
    /// What is wrong, and the remedy where it is not obvious.
    pub message: String,
}

/// A document.
#[derive(Debug, Clone)]
pub struct Document {
    /// Its value.
    pub root: Rc<Node>,
    /// Where the first merge key is, if there is one.
    pub merge_key: Option<Position>,
}

/// Reads one document.
pub fn parse(text: &str) -> Result<Document, YamlError> {
    if text.len() > LONGEST {
        let message = format!("the file has {} bytes, {LONGEST} at most", text.len());
        return Err(YamlError { at: Position { line: 1, column: 1 }, message });
    }
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text.strip_prefix('\u{feff}').unwrap_or(text)) {
        let (event, span) = event.map_err(|error| fail(position(*error.marker()), error.info()))?;
        builder.event(event, position(span.start))?;
    }
    let null = || Node::new(Position { line: 1, column: 1 }, Content::Scalar { text: "".into(), plain: true });
    Ok(Document { root: builder.root.unwrap_or_else(|| Rc::new(null())), merge_key: builder.merge_key })
}

fn position(marker: Marker) -> Position {
    Position { line: marker.line().max(1), column: marker.col() + 1 }
}

fn fail(at: Position, message: impl Into<String>) -> YamlError {
    YamlError { at, message: message.into() }
}

/// A list or map that is not complete yet.
struct Open {
    at: Position,
    anchor: usize,
    content: OpenContent,
}

enum OpenContent {
    List(Vec<Rc<Node>>),
    Map { entries: Vec<(Key, Rc<Node>)>, seen: HashSet<Rc<str>>, merge: Option<Rc<Node>>, key: Option<Key> },
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Rc<Node>>,
    root: Option<Rc<Node>>,
    merge_key: Option<Position>,
    nodes: usize,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, at: Position) -> Result<(), YamlError> {
        match event {
            Event::DocumentStart(..) if self.root.is_some() => {
                Err(fail(at, "a second document: write one document per file, without ---"))
            }
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = check_tag(tag.as_deref(), at)? == Some("str");
                let plain = style == ScalarStyle::Plain && !is_text;
                let node = Node::new(at, Content::Scalar { text: text.as_ref().into(), plain });
                self.value(Rc::new(node), anchor, at)
            }
            Event::SequenceStart(_, anchor, tag) => {
                check_tag(tag.as_deref(), at)?;
                self.start(Open { at, anchor, content: OpenContent::List(Vec::new()) })
            }
            Event::MappingStart(_, anchor, tag) => {
                check_tag(tag.as_deref(), at)?;
                let (entries, seen) = (Vec::new(), HashSet::new());
                self.start(Open { at, anchor, content: OpenContent::Map { entries, seen, merge: None, key: None } })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(at),
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some(node) => self.value(node, 0, at),
                None => Err(fail(at, "the alias refers to a value that contains it")),
            },
            _ => Ok(()),
        }
    }

    fn start(&mut self, open: Open) -> Result<(), YamlError> {
        if let Some(Open { content: OpenContent::Map { key: None, .. }, .. }) = self.open.last() {
            return Err(fail(open.at, "a key that is a list or a map: keys must be texts"));
        }
        if self.open.len() >= DEEPEST {
            return Err(fail(open.at, format!("nested deeper than {DEEPEST} levels")));
        }
        self.open.push(open);
        Ok(())
    }

    fn end(&mut self, at: Position) -> Result<(), YamlError> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let content = match open.content {
            OpenContent::List(items) => Content::List(items),
            OpenContent::Map { mut entries, mut seen, merge, .. } => {
                if let Some(merge) = merge {
                    self.merge(&merge, &mut entries, &mut seen)?;
                }
                Content::Map(entries)
            }
        };
        // Its content is counted already.
        let node = Rc::new(Node::new(open.at, content));
        self.put(node, open.anchor, at)
    }

    /// A scalar or what an alias stands for: a key, or a value.
    fn value(&mut self, node: Rc<Node>, anchor: usize, at: Position) -> Result<(), YamlError> {
        self.count(node.size, at)?;
        if let Some(Open { content: OpenContent::Map { seen, key, merge, .. }, .. }) = self.open.last_mut()
            && key.is_none()
        {
            let Content::Scalar { text, plain } = &node.content else {
                return Err(fail(at, "a key that is a list or a map: keys must be texts"));
            };
            if text.chars().count() > LONGEST_KEY {
                return Err(fail(at, format!("a key of more than {LONGEST_KEY} characters")));
            }
            let is_merge = *plain && &**text == MERGE;
            if (is_merge && merge.is_some()) || !(is_merge || seen.insert(Rc::clone(text))) {
                return Err(fail(at, format!("the key {text:?} occurs twice in one map: remove one")));
            }
            if is_merge && self.merge_key.is_none() {
                self.merge_key = Some(at);
            }
            *key = Some(Key { text: Rc::clone(text), plain: *plain, at });
            if anchor != 0 {
                self.anchors.insert(anchor, node);
            }
            return Ok(());
        }
        self.put(node, anchor, at)
    }

    fn put(&mut self, node: Rc<Node>, anchor: usize, at: Position) -> Result<(), YamlError> {
        if self.open.len() + node.depth > DEEPEST + 1 {
            return Err(fail(at, format!("nested deeper than {DEEPEST} levels")));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(OpenContent::List(items)) => items.push(node),
            Some(OpenContent::Map { entries, merge, key, .. }) => match key.take() {
                Some(key) if key.plain && &*key.text == MERGE => *merge = Some(node),
                Some(key) => entries.push((key, node)),
                None => return Err(fail(at, "a key that is a list or a map: keys must be texts")),
            },
        }
        Ok(())
    }

    /// Adds the entries of other maps. A map's own keys come first, then those of the first map that is merged.
    fn merge(
        &mut self,
        merge: &Rc<Node>,
        entries: &mut Vec<(Key, Rc<Node>)>,
        seen: &mut HashSet<Rc<str>>,
    ) -> Result<(), YamlError> {
        let sources = match &merge.content {
            Content::Map(_) => std::slice::from_ref(merge),
            Content::List(items) => items,
            Content::Scalar { .. } => &[],
        };
        if sources.is_empty() || !sources.iter().all(|source| source.is_map()) {
            return Err(fail(merge.at, "the value of << must be a map, a list of maps, or aliases of maps"));
        }
        for (key, value) in sources.iter().flat_map(|source| source.entries()) {
            self.count(value.size, merge.at)?;
            if seen.insert(Rc::clone(&key.text)) {
                entries.push((key.clone(), Rc::clone(value)));
            }
        }
        Ok(())
    }

    fn count(&mut self, nodes: usize, at: Position) -> Result<(), YamlError> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MOST_NODES {
            let message = format!("more than {MOST_NODES} values: aliases repeat all values of their anchors");
            return Err(fail(at, message));
        }
        Ok(())
    }
}

/// The name of a standard tag. Others would be lost when the document is written.
fn check_tag(tag: Option<&Tag>, at: Position) -> Result<Option<&str>, YamlError> {
    match tag {
        None => Ok(None),
        Some(tag) if tag.core_suffix().is_some() => Ok(tag.core_suffix()),
        // A single `!` marks a text.
        Some(tag) if tag.original() == "!" => Ok(Some("str")),
        Some(tag) => Err(fail(at, format!("unknown tag {}: remove it", tag.original()))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::emit;
    use super::*;

    fn read(text: &str) -> String {
        emit(&parse(text).unwrap().root)
    }

    fn error(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn aliases_are_resolved_and_keep_the_line_of_their_anchor() {
        let text = "hosts:\n- name: a\n  net: &net\n    mtu: 1500\n- name: b\n  net: *net\n";
        let root = parse(text).unwrap().root;
        let second = root.get("hosts").and_then(|hosts| hosts.items()?[1].get("net").cloned()).unwrap();
        assert_eq!(second.get("mtu").unwrap().at, Position { line: 4, column: 10 });
        assert_eq!(emit(&second), "mtu: 1500\n");
    }

    #[test]
    fn merged_keys_follow_own_keys_and_do_not_replace_them() {
        let text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  <<: [*a, *b]\n  x: 0\n";
        let merged = parse(text).unwrap();
        assert_eq!(emit(merged.root.get("c").unwrap()), "x: 0\ny: 1\nz: 2\n");
        assert_eq!(merged.merge_key.map(|at| at.line), Some(4));
        assert_eq!(read("a: {\"<<\": 1}\n"), "a:\n  \"<<\": 1\n");
        assert_eq!(error("a:\n  <<: 1\n"), "2:7: the value of << must be a map, a list of maps, or aliases of maps");
        assert_eq!(error("<<: {}\n<<: {}\n"), "2:1: the key \"<<\" occurs twice in one map: remove one");
    }

    #[test]
    fn aliases_that_multiply_are_refused() {
        let levels: String = (1..12)
            .map(|level| format!("l{level}: &l{level} [{}]\n", format!("*l{}, ", level - 1).repeat(10)))
            .collect();
        let found = error(&format!("l0: &l0 [x, x]\n{levels}"));
        assert!(found.contains("more than 200000 values: aliases repeat"), "{found}");
        let merges: String = (0..60_000).map(|_| "- {<<: *m}\n").collect();
        let found = error(&format!("m: &m {{a: 1, b: 2, c: 3}}\nl:\n{merges}"));
        assert!(found.contains("more than 200000 values"), "{found}");
    }

    #[test]
    fn sizes_are_those_without_sharing() {
        let root = parse("a: &a [x, y]\nb: [*a, *a]\n").unwrap().root;
        assert_eq!(root.size(), 1 + 3 + 1 + 3 + 3);
    }

    #[test]
    fn nesting_is_bounded_in_text_and_through_aliases() {
        let brackets = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert!(error(&brackets).contains("deeper than 64"), "{}", error(&brackets));
        let mut text = "l0: &l0 [x]\n".to_owned();
        for level in 1..100 {
            text += &format!("l{level}: &l{level} [*l{}]\n", level - 1);
        }
        assert!(error(&text).contains("nested deeper than 64 levels"), "{}", error(&text));
    }

    #[test]
    fn errors_have_line_and_column() {
        for (text, message) in [
            ("a: 1\na: 2\n", "2:1: the key \"a\" occurs twice"),
            ("a: &a\n  b: *a\n", "2:6: the alias refers to a value that contains it"),
            ("a: 1\n---\nb: 1\n", "2:1: a second document"),
            ("? [a]\n: b\n", "1:3: a key that is a list or a map"),
            ("a: !secret b\n", "unknown tag !secret: remove it"),
        ] {
            assert!(error(text).contains(message), "{text}: {}", error(text));
        }
        for text in ["a: [1\nb: 2\n", "a: *nothing\n", "a:\n\tb: 1\n", "a: 'open\n"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_empty_text_is_nothing() {
        for text in ["", "# only this\n", "---\n", "\u{feff}"] {
            assert!(parse(text).unwrap().root.is_null(), "{text:?}");
        }
    }
}
