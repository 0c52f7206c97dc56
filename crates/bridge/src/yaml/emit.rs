//! From tree to text: block style, keys in their order, no anchors; the same tree always gives the same text.

use std::fmt::Write as _;
use std::rc::Rc;

use super::node::{Content, Key, Node};

/// Writes a document.
pub fn emit(root: &Rc<Node>) -> String {
    let mut text = String::new();
    match &root.content {
        Content::Map(entries) if !entries.is_empty() => map(&mut text, entries, 0, 0),
        Content::List(items) if !items.is_empty() => list(&mut text, items, 0, 0),
        _ => {
            inline(&mut text, root);
            text.push('\n');
        }
    }
    text
}

/// `first` is how far the first line is indented already.
fn map(out: &mut String, entries: &[(Key, Rc<Node>)], indent: usize, first: usize) {
    for (index, (key, value)) in entries.iter().enumerate() {
        let missing = if index == 0 { indent - first } else { indent };
        out.extend(std::iter::repeat_n(' ', missing));
        scalar(out, &key.text, key.plain);
        out.push(':');
        match &value.content {
            Content::Map(entries) if !entries.is_empty() => {
                out.push('\n');
                map(out, entries, indent + 2, 0);
            }
            Content::List(items) if !items.is_empty() => {
                out.push('\n');
                list(out, items, indent, 0);
            }
            _ => {
                out.push(' ');
                inline(out, value);
                out.push('\n');
            }
        }
    }
}

fn list(out: &mut String, items: &[Rc<Node>], indent: usize, first: usize) {
    for (index, item) in items.iter().enumerate() {
        let missing = if index == 0 { indent - first } else { indent };
        out.extend(std::iter::repeat_n(' ', missing));
        match &item.content {
            Content::Map(entries) if !entries.is_empty() => {
                out.push_str("- ");
                map(out, entries, indent + 2, indent + 2);
            }
            Content::List(items) if !items.is_empty() => {
                out.push_str("- ");
                list(out, items, indent + 2, indent + 2);
            }
            _ => {
                out.push_str("- ");
                inline(out, item);
                out.push('\n');
            }
        }
    }
}

fn inline(out: &mut String, node: &Node) {
    match &node.content {
        Content::Scalar { text, plain } => scalar(out, text, *plain),
        Content::List(_) => out.push_str("[]"),
        Content::Map(_) => out.push_str("{}"),
    }
}

fn scalar(out: &mut String, text: &str, plain: bool) {
    // A scalar of several lines is no number, boolean or null: quoted, it is the same. Some plain ones would be markers
    // of documents at the start of a line.
    let marker = text.starts_with("---") || text.starts_with("...");
    let odd =
        text.is_empty() || marker || text.chars().any(|c| c.is_control() || "\u{2028}\u{2029}\u{feff}".contains(c));
    if plain && !odd {
        out.push_str(text);
    } else if plain && text.is_empty() {
        out.push('~');
    } else {
        quoted(out, text);
    }
}

fn quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() || ('\u{2000}'..='\u{206f}').contains(&c) || ('\u{fe00}'..='\u{ffff}').contains(&c) => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn scalars_stay_what_they_are() {
        let text = "mtu: 0x5dc\nmac: 12:34:56:00:00:01\nname: \"1e3\"\nquoted: \"true\"\nplain: true\nnothing: ~\nempty: \"\"\nlist:\n- - a\n  - b\n- []\n- x: 1\n  y: {}\n";
        assert_eq!(emit(&parse(text).unwrap().root), text);
    }

    #[test]
    fn several_lines_and_odd_characters_are_quoted() {
        let root = parse("a: |\n  x\n  \ty\nb: one\n  two\nc: \"\\u2028\\0\"\nd: 'it''s \"it\"'\n").unwrap().root;
        assert_eq!(emit(&root), "a: \"x\\n\\ty\\n\"\nb: one two\nc: \"\\u2028\\u0000\"\nd: \"it's \\\"it\\\"\"\n");
    }

    #[test]
    fn generated_texts_are_quoted_where_they_must_be() {
        for (text, written) in [("br-ex", "br-ex"), ("no", "\"no\""), ("1", "\"1\""), ("a: b", "\"a: b\"")] {
            assert_eq!(emit(&Node::text_of(text)), format!("{written}\n"));
        }
    }
}
