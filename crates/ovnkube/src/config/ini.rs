//! The grammar of the INI file: parses lines into entries with line numbers, and a remark per invalid line.
//!
//! The rules are those of `ovn_k8s.conf`: `[section]`, `key=value`, names in any case,
//! comments from `#` or `;` to the end of the line, values (or parts of them) in double quotes, and the
//! escapes `\\`, `\"`, `\n`, `\t`, `\b`.

use std::collections::HashMap;

/// A `key=value` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) line: usize,
    pub(crate) section: String,
    pub(crate) key: String,
    pub(crate) value: String,
}

/// A section header, kept so that an unknown section is reported once instead of per key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) line: usize,
    pub(crate) section: String,
}

/// Problem of a line, with its remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remark {
    pub(crate) line: usize,
    pub(crate) text: String,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Document {
    pub(crate) headers: Vec<Header>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) remarks: Vec<Remark>,
}

/// Section of the current line.
enum CurrentSection {
    BeforeAnySection,
    Section(String),
    /// After an invalid header, which was reported; its keys cannot be checked.
    Unknown,
}

/// Parses a file. Never fails: an invalid line becomes a remark, and the rest is still parsed.
pub(crate) fn parse(bytes: &[u8]) -> Document {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut document = Document::default();
    let mut current = CurrentSection::BeforeAnySection;
    let mut first_lines: HashMap<(String, String), usize> = HashMap::new();
    for (index, raw) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = index + 1;
        let mut remark = |text: String| document.remarks.push(Remark { line, text });
        let text = match readable(raw) {
            Ok(text) => text,
            Err(why) => {
                remark(why);
                continue;
            }
        };
        if text.is_empty() || text.starts_with(['#', ';']) {
            continue;
        }
        if text.starts_with('[') {
            match header(text) {
                Ok(section) => {
                    current = CurrentSection::Section(section.clone());
                    document.headers.push(Header { line, section });
                }
                Err(why) => {
                    current = CurrentSection::Unknown;
                    remark(why);
                }
            }
            continue;
        }
        let (key, value) = match key_and_value(text) {
            Ok(pair) => pair,
            Err(why) => {
                remark(why);
                continue;
            }
        };
        let section = match &current {
            CurrentSection::Section(section) => section.clone(),
            CurrentSection::Unknown => continue,
            CurrentSection::BeforeAnySection => {
                remark(format!("{key}: a key before any section; add a line such as [logging] above it"));
                continue;
            }
        };
        if let Some(first) = first_lines.get(&(section.clone(), key.clone())) {
            remark(format!("[{section}] {key}: already set in line {first}; keep one of the two"));
            continue;
        }
        match unquote(value) {
            Ok(value) => {
                first_lines.insert((section.clone(), key.clone()), line);
                document.entries.push(Entry { line, section, key, value });
            }
            Err(why) => remark(format!("[{section}] {key}: {why}")),
        }
    }
    document
}

/// The trimmed line, or why it is not text.
fn readable(raw: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(raw).map_err(|error| {
        let byte = error.valid_up_to() + 1;
        format!("not UTF-8 text (byte {byte} of the line); save the file as UTF-8")
    })?;
    if text.contains('\0') {
        return Err("a NUL byte; this is not a text file, or was saved as UTF-16: save it as UTF-8".to_owned());
    }
    Ok(text.trim())
}

fn header(text: &str) -> Result<String, String> {
    let Some((name, rest)) = text[1..].split_once(']') else {
        return Err("a section header without its closing bracket; write it as [section]".to_owned());
    };
    let (name, rest) = (name.trim(), rest.trim());
    if !is_name(name) {
        return Err(format!("{name:?} is not a section name; write it as [section]"));
    }
    if !rest.is_empty() && !rest.starts_with(['#', ';']) {
        return Err(format!("text after the section header [{name}]; move it to its own line"));
    }
    Ok(name.to_lowercase())
}

fn key_and_value(text: &str) -> Result<(String, &str), String> {
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key.trim(), value.trim()),
        None => (text, ""),
    };
    if !is_name(key) {
        return Err("neither a [section], nor key=value, nor a comment; correct the line or put # before it".to_owned());
    }
    if !text.contains('=') {
        return Err(format!("{key}: a key without a value; write {key}=value"));
    }
    Ok((key.to_lowercase(), value))
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

/// The value without quotes, escapes and a trailing comment.
fn unquote(text: &str) -> Result<String, String> {
    let mut value = String::new();
    // Trailing space counts only inside quotes.
    let mut length_to_keep = 0;
    let mut quoted = false;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => quoted = !quoted,
            '#' | ';' if !quoted => break,
            '\\' => value.push(match rest.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('b') => '\u{8}',
                Some(same @ ('"' | '\\')) => same,
                Some(other) => {
                    return Err(format!("unknown escape \\{}; write \\\\ for a backslash", other.escape_default()));
                }
                None => {
                    return Err("a backslash at the end of the line; a value must end on its line".to_owned());
                }
            }),
            other => value.push(other),
        }
        if quoted || c == '"' || c == '\\' || !c.is_whitespace() {
            length_to_keep = value.len();
        }
    }
    if quoted {
        return Err("a quote that is not closed; add \" at the end of the value".to_owned());
    }
    value.truncate(length_to_keep);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value_of(line: &str) -> Result<String, String> {
        let mut document = parse(format!("[s]\n{line}\n").as_bytes());
        match document.entries.pop() {
            Some(entry) => Ok(entry.value),
            None => Err(document.remarks.remove(0).text),
        }
    }

    #[test]
    fn values() {
        for (line, value) in [
            ("key=value", "value"),
            ("  key = a b  ", "a b"),
            ("key=", ""),
            ("key=a=b", "a=b"),
            ("key=value # comment", "value"),
            ("key=value;comment", "value"),
            ("key=\"a # b; c\" ; comment", "a # b; c"),
            ("key=\"  spaced  \"", "  spaced  "),
            (r#"key="say \"hi\"\t\\""#, "say \"hi\"\t\\"),
            ("key=a\"b\"c", "abc"),
            ("key=value\r", "value"),
        ] {
            assert_eq!(value_of(line).as_deref(), Ok(value), "{line:?}");
        }
    }

    #[test]
    fn invalid_lines_are_reported_with_reason_and_remedy() {
        for (line, remark) in [
            ("key=\"open", "quote that is not closed"),
            ("key=\\x", "unknown escape \\x; write \\\\"),
            ("key=\"a\\", "backslash at the end"),
            ("key", "write key=value"),
            ("= value", "neither a [section]"),
            ("two words=1", "neither a [section]"),
            ("[open", "closing bracket"),
            ("[]", "not a section name"),
            ("[a] b=c", "text after the section header [a]"),
            ("key=a\0b", "NUL byte"),
        ] {
            let found = value_of(line).unwrap_err();
            assert!(found.contains(remark), "{line:?}: {found}");
        }
    }

    #[test]
    fn every_invalid_line_is_reported_and_the_valid_ones_are_kept() {
        let document = parse(b"early=1\n[Logging]\nLevel=debug\nlevel=info\nrubbish\n\xff=1\nformat=json");
        let lines: Vec<_> = document.remarks.iter().map(|remark| remark.line).collect();
        assert_eq!(lines, [1, 4, 5, 6]);
        assert!(document.remarks[1].text.contains("already set in line 3"));
        assert!(document.remarks[3].text.contains("byte 1"));
        let keys: Vec<_> = document.entries.iter().map(|e| (e.line, e.key.as_str())).collect();
        assert_eq!(keys, [(3, "level"), (7, "format")]);
        assert_eq!(document.entries[0].section, "logging");
    }

    #[test]
    fn keys_after_an_invalid_header_are_not_reported() {
        let document = parse(b"[logging\nlevel=debug\n");
        assert_eq!(document.remarks.len(), 1);
        assert!(document.entries.is_empty());
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        assert!(parse(b"\xef\xbb\xbf[logging]\n").remarks.is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            parse(&bytes);
        }

        #[test]
        fn any_text_of_the_grammars_characters_is_parsed_without_a_panic(text in "[\\[\\]a=\"\\\\#; \n\u{e9}]{0,64}") {
            let document = parse(text.as_bytes());
            let lines = text.split('\n').count();
            prop_assert!(document.remarks.iter().all(|remark| (1..=lines).contains(&remark.line)));
        }

        #[test]
        fn a_quoted_value_round_trips(value in "[^\0\r\n]{0,40}") {
            let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
            prop_assert_eq!(value_of(&format!("key=\"{quoted}\"")), Ok(value));
        }
    }
}
