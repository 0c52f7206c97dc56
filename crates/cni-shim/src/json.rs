//! As much JSON as it takes: texts are written, one field is found.

/// A text as JSON.
pub(crate) fn text(text: &str) -> String {
    let mut written = String::with_capacity(text.len() + 2);
    written.push('"');
    for character in text.chars() {
        match character {
            '"' => written.push_str("\\\""),
            '\\' => written.push_str("\\\\"),
            control if (control as u32) < 0x20 => written.push_str(&format!("\\u{:04x}", control as u32)),
            plain => written.push(plain),
        }
    }
    written.push('"');
    written
}

/// The version that a configuration asks for, if it has one that looks like a version. It only decorates our own errors,
/// so a look at the text is enough.
pub(crate) fn cni_version(config: &[u8]) -> Option<&str> {
    let config = std::str::from_utf8(config).ok()?;
    let (_, rest) = config.split_once("\"cniVersion\"")?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    let (version, _) = rest.split_once('"')?;
    let plain = !version.is_empty() && version.len() <= 16;
    (plain && version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(text("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
    }

    #[test]
    fn versions_are_found_and_nothing_else_is_taken_for_one() {
        assert_eq!(cni_version(br#"{"cniVersion" : "1.1.0", "name": "x"}"#), Some("1.1.0"));
        for odd in [&b"{}"[..], br#"{"cniVersion": 1}"#, br#"{"cniVersion": "1.0\"}"#, b"\xff", br#""cniVersion":""#] {
            assert_eq!(cni_version(odd), None);
        }
    }
}
