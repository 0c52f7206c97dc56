//! YAML as kubectl reads it.
//!
//! kubectl's parser ignores indentation in two cases where the YAML specification does not: on continuation lines of a
//! quoted scalar, and on lines within `[]` and `{}` that start with tabs. Our parser reports the line. Its leading
//! white space is then replaced by valid indentation and the text is parsed again; the value does not depend on it.

use std::borrow::Cow;

use serde_json::Value;

/// Each repair parses the document once more.
const MOST_REPAIRS: usize = 1000;
/// The parser's messages in these cases.
const IN_QUOTES: &str = "invalid indentation in multiline quoted scalar";
const TAB: &str = "tab";
const TOO_MANY: [&str; 2] = ["budget breached: Nodes", "budget breached: Events"];
const RECURSIVE: &str = "recursive references";

/// Parses one document. Errors refer to lines of the original text.
pub(super) fn parse(text: &str) -> Result<Value, serde_saphyr::Error> {
    // No block of the document is indented further than the content of a line.
    let indented = |line: &str| line.len() - line.trim_start_matches([' ', '-', '?', ':', '\t']).len();
    let indentation = " ".repeat(text.lines().map(indented).max().unwrap_or_default() + 2);
    let mut text = Cow::Borrowed(text);
    let mut last = 0;
    for _ in 0..MOST_REPAIRS {
        let error = match read(&text) {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        // Stop if the parser does not get past the repaired line.
        let line = error.location().map_or(0, |location| location.line());
        let repaired = if line > last { repair(&text, line, &indentation, &error.to_string()) } else { None };
        match repaired {
            Some(repaired) => (text, last) = (Cow::Owned(repaired), line),
            None => return Err(error),
        }
    }
    read(&text)
}

/// The cause of an error, where the parser's words are about its own limits and types.
pub(super) fn cause(message: String) -> String {
    if TOO_MANY.iter().any(|words| message.contains(words)) {
        "too many nodes; hint: check its aliases, each of which repeats all nodes of its anchor".to_owned()
    } else if message.contains(RECURSIVE) {
        "an alias refers to itself".to_owned()
    } else {
        message
    }
}

fn read(text: &str) -> Result<Value, serde_saphyr::Error> {
    // As in the API server, `n` is a string, not a boolean.
    // A document has fewer nodes than bytes; what aliases repeat is limited apart from that.
    let most = text.len().max(250_000);
    let budget = serde_saphyr::budget! { max_nodes: most, max_events: most.saturating_mul(4) };
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false, budget: budget };
    serde_saphyr::from_str_with_options(text, options)
}

/// The text with another indentation of a line, if that is the error.
fn repair(text: &str, line: u64, indentation: &str, error: &str) -> Option<String> {
    let lines_before = usize::try_from(line.checked_sub(1)?).ok()?;
    let start: usize = text.split_inclusive('\n').take(lines_before).map(str::len).sum();
    let (before, rest) = text.split_at(start);
    let said = rest.trim_start_matches([' ', '\t']);
    let white = &rest[..rest.len() - said.len()];
    let in_quotes = error.contains(IN_QUOTES);
    let in_brackets = || error.to_lowercase().contains(TAB) && white.contains('\t') && is_open(before);
    if said.is_empty() || !(in_quotes || in_brackets()) {
        return None;
    }
    Some(format!("{before}{indentation}{said}"))
}

/// Whether a text ends within brackets.
fn is_open(before: &str) -> bool {
    !before.trim().is_empty() && read(before).is_err()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn insignificant_indentation_is_ignored() {
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
    fn a_list_of_thousands_of_objects_is_read() {
        let item = "- {a: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]}\n";
        let read = parse(&item.repeat(20_000)).unwrap();
        assert_eq!(read.as_array().map(Vec::len), Some(20_000));
    }

    #[test]
    fn aliases_that_multiply_are_refused() {
        let levels: String = (1..12)
            .map(|level| format!("l{level}: &l{level} [{}]\n", format!("*l{}, ", level - 1).repeat(10)))
            .collect();
        let error = parse(&format!("l0: &l0 [x, x]\n{levels}")).unwrap_err();
        assert!(cause(error.to_string()).starts_with("too many nodes; hint: "), "{error}");
    }

    #[test]
    fn an_alias_of_a_node_that_contains_it_is_refused() {
        let error = parse("a: &a\n  b: *a\n").unwrap_err();
        assert_eq!(cause(error.to_string()), "an alias refers to itself");
    }

    #[test]
    fn text_that_kubectl_rejects_is_rejected() {
        for text in ["a:\n\tb: 1\n", "a: 'open\nb: 1\n", "a: [1\nb: 2\n", "a:\n  b: 1\n c: 2\n"] {
            assert!(parse(text).is_err(), "{text}: {:?}", parse(text));
        }
    }

    #[test]
    fn an_error_after_repairs_has_its_original_line() {
        let error = parse("a:\n  b: \"one\ntwo\"\n  c: [1\nd: 2\n").unwrap_err();
        assert!(error.location().is_some_and(|location| location.line() >= 4), "{error:?}");
    }
}
