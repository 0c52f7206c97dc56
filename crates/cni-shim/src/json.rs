//! The little JSON that the plugin needs: writing strings, and finding `cniVersion`.

/// A JSON string literal, escaped.
pub(crate) fn string(text: &str) -> String {
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

/// The `cniVersion` of a configuration, if it looks like a version. It only goes into the plugin's own errors, so searching the
/// text is enough.
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
    fn strings_are_escaped() {
        assert_eq!(string("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
    }

    #[test]
    fn the_version_is_found_and_nothing_else_is_mistaken_for_it() {
        assert_eq!(cni_version(br#"{"cniVersion" : "1.1.0", "name": "x"}"#), Some("1.1.0"));
        for odd in [&b"{}"[..], br#"{"cniVersion": 1}"#, br#"{"cniVersion": "1.0\"}"#, b"\xff", br#""cniVersion":""#] {
            assert_eq!(cni_version(odd), None);
        }
    }
}
