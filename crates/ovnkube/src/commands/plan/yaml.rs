//! YAML as kubectl reads it.
//!
//! kubectl's parser does not look at indentation in two places where it means nothing, and the specification does: on the
//! lines of a quoted scalar behind its first, and on lines within `[]` and `{}` that begin with tabs. Our parser says at
//! which line it stops. There, white space in front of the line is replaced by spaces that satisfy the specification, and the
//! text is read again: what the line says does not depend on them.

use std::borrow::Cow;

use serde_json::Value;

/// Each of them reads the document once more.
const MOST_REPAIRS: usize = 1000;
/// How the parser calls the two.
const IN_QUOTES: &str = "invalid indentation in multiline quoted scalar";
const TAB: &str = "tab";

/// Reads one document. The error is about lines of the text as it was given.
pub(super) fn parse(text: &str) -> Result<Value, serde_saphyr::Error> {
    let mut text = Cow::Borrowed(text);
    let mut last = 0;
    for _ in 0..MOST_REPAIRS {
        let error = match read(&text) {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        // The parser goes on behind a line that was repaired, or the repair was none.
        let line = error.location().map_or(0, |location| location.line());
        let repaired = if line > last { repair(&text, line, &error.to_string()) } else { None };
        match repaired {
            Some(repaired) => (text, last) = (Cow::Owned(repaired), line),
            None => return Err(error),
        }
    }
    read(&text)
}

fn read(text: &str) -> Result<Value, serde_saphyr::Error> {
    // As the API server reads it, `n` is a letter and no boolean.
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    serde_saphyr::from_str_with_options(text, options)
}

/// The text with another indentation of a line, if only that is wrong with it.
fn repair(text: &str, line: u64, error: &str) -> Option<String> {
    let place = usize::try_from(line.checked_sub(1)?).ok()?;
    let start: usize = text.split_inclusive('\n').take(place).map(str::len).sum();
    let (before, rest) = text.split_at(start);
    let said = rest.trim_start_matches([' ', '\t']);
    let white = &rest[..rest.len() - said.len()];
    let in_quotes = error.contains(IN_QUOTES);
    let in_brackets = || error.to_lowercase().contains(TAB) && white.contains('\t') && is_open(before);
    if said.is_empty() || !(in_quotes || in_brackets()) {
        return None;
    }
    // No block begins further to the right than what its line has to say.
    let indented = |line: &str| line.len() - line.trim_start_matches([' ', '-', '?', ':', '\t']).len();
    let spaces = " ".repeat(before.lines().map(indented).max().unwrap_or_default() + 2);
    Some(format!("{before}{spaces}{said}"))
}

/// Whether a text ends within brackets: everything else that comes before a line is a document by itself.
fn is_open(before: &str) -> bool {
    !before.trim().is_empty() && read(before).is_err()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn indentation_that_means_nothing_is_not_looked_at() {
        for (text, value) in [
            ("a:\n  b: \"one\n  two\"\n  c: 1\n", json!({"a": {"b": "one two", "c": 1}})),
            ("a:\n  b: 'one\n\n two\nthree\n'\nc: 1\n", json!({"a": {"b": "one\ntwo three "}, "c": 1})),
            ("a:\n  b: \"\n    {}\n  \"\n  c: x\n", json!({"a": {"b": " {} ", "c": "x"}})),
            ("a:\n- - k: \"one\n- two\n\"\n", json!({"a": [[{"k": "one - two "}]]})),
            ("a:\n  b: [\n\t\t1,\n\t2\n  ]\n  c: {\n\tx: y}\n", json!({"a": {"b": [1, 2], "c": {"x": "y"}}})),
            ("a: [\n\t\"x\",\n\t\"y\"\n]\n", json!({"a": ["x", "y"]})),
            ("a: |\n  \tkept\n  'as it\nb: 1\n", json!({"a": "\tkept\n'as it\n", "b": 1})),
        ] {
            let read = parse(text);
            assert_eq!(read.as_ref().ok(), Some(&value), "{text}: {read:?}");
        }
    }

    #[test]
    fn what_kubectl_refuses_is_refused() {
        for text in ["a:\n\tb: 1\n", "a: 'open\nb: 1\n", "a: [1\nb: 2\n", "a:\n  b: 1\n c: 2\n"] {
            assert!(parse(text).is_err(), "{text}: {:?}", parse(text));
        }
    }

    #[test]
    fn a_mistake_behind_repairs_has_its_own_line() {
        let error = parse("a:\n  b: \"one\ntwo\"\n  c: [1\nd: 2\n").unwrap_err();
        assert!(error.location().is_some_and(|location| location.line() >= 4), "{error:?}");
    }
}
