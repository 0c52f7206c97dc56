//! The tree.

use std::fmt;
use std::rc::Rc;

/// Line and column, both counted from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A key of a map.
#[derive(Debug, Clone)]
pub struct Key {
    /// Its text.
    pub text: Rc<str>,
    /// Whether it was written without quotes.
    pub plain: bool,
    /// Where it is.
    pub at: Position,
}

/// A value. What an alias stands for is shared, not copied, and has the position of its anchor.
#[derive(Debug, Clone)]
pub struct Node {
    /// Where it is.
    pub at: Position,
    /// What it is.
    pub content: Content,
    /// Nodes in it if no alias were shared, this one included.
    pub(super) size: usize,
    /// Levels below and with this one.
    pub(super) depth: usize,
}

/// The three kinds of values.
#[derive(Debug, Clone)]
pub enum Content {
    /// A text, number, boolean or nothing.
    Scalar {
        /// Its text, without quotes.
        text: Rc<str>,
        /// Whether it was written without quotes, so that it may be a number, a boolean or null.
        plain: bool,
    },
    /// Values in order.
    List(Vec<Rc<Node>>),
    /// Entries in order; no key occurs twice.
    Map(Vec<(Key, Rc<Node>)>),
}

impl Node {
    pub(super) fn new(at: Position, content: Content) -> Self {
        let (size, depth) = match &content {
            Content::Scalar { .. } => (0, 0),
            Content::List(items) => measure(items.iter()),
            Content::Map(entries) => measure(entries.iter().map(|(_, value)| value)),
        };
        Self { at, content, size: size.saturating_add(1), depth: depth + 1 }
    }

    /// A text, quoted where it would be something else without quotes.
    pub(crate) fn text_of(text: &str) -> Rc<Self> {
        let word = text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-/".contains(c));
        let reserved = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
        let plain = word && !reserved.contains(&text.to_ascii_lowercase().as_str());
        Rc::new(Self::new(Position::default(), Content::Scalar { text: text.into(), plain }))
    }

    /// A value as it is displayed, without quotes: a number, a boolean, an address.
    pub(crate) fn plain(value: impl fmt::Display) -> Rc<Self> {
        let text = value.to_string().into();
        Rc::new(Self::new(Position::default(), Content::Scalar { text, plain: true }))
    }

    pub(crate) fn list(items: Vec<Rc<Self>>) -> Rc<Self> {
        Rc::new(Self::new(Position::default(), Content::List(items)))
    }

    pub(crate) fn map(entries: Vec<(&str, Rc<Self>)>) -> Rc<Self> {
        let key = |text: &str| Key { text: text.into(), plain: true, at: Position::default() };
        let entries = entries.into_iter().map(|(text, value)| (key(text), value)).collect();
        Rc::new(Self::new(Position::default(), Content::Map(entries)))
    }

    /// Values in it, this one and what aliases repeat included.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The entries of a map; nothing if it is none.
    pub fn entries(&self) -> &[(Key, Rc<Self>)] {
        match &self.content {
            Content::Map(entries) => entries,
            _ => &[],
        }
    }

    /// A map's value; none if it is null, too.
    pub fn get(&self, key: &str) -> Option<&Rc<Self>> {
        let found = self.entries().iter().find(|(known, _)| &*known.text == key);
        found.map(|(_, value)| value).filter(|value| !value.is_null())
    }

    /// The values of a list.
    pub fn items(&self) -> Option<&[Rc<Self>]> {
        match &self.content {
            Content::List(items) => Some(items),
            _ => None,
        }
    }

    /// Whether it is a map.
    pub fn is_map(&self) -> bool {
        matches!(self.content, Content::Map(_))
    }

    /// Whether it is nothing.
    pub fn is_null(&self) -> bool {
        matches!(&self.content, Content::Scalar { text, plain: true }
            if matches!(&**text, "" | "~" | "null" | "Null" | "NULL"))
    }

    /// A scalar's text.
    pub fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar { text, .. } if !self.is_null() => Some(text),
            _ => None,
        }
    }

    /// A boolean as NMState reads it: quoted ones and `yes`, `on`, `1` are some, too.
    pub fn boolean(&self) -> Option<bool> {
        match self.text()?.to_ascii_lowercase().as_str() {
            "1" | "true" | "yes" | "on" | "y" => Some(true),
            "0" | "false" | "no" | "off" | "n" => Some(false),
            _ => None,
        }
    }

    /// A whole number as NMState reads it: decimal or, after `0x`, hexadecimal.
    pub fn number(&self) -> Option<u64> {
        let text = self.text()?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }
}

fn measure<'a>(children: impl Iterator<Item = &'a Rc<Node>>) -> (usize, usize) {
    children.fold((0, 0), |(size, depth), child| (child.size.saturating_add(size), child.depth.max(depth)))
}
