//! Finds the end of a message. OVSDB sends JSON objects without delimiters, so the only way
//! is to count brackets outside strings.

/// Nesting levels at which opened brackets are counted.
const LEVELS: usize = 8;

/// Finds the end of one message in any chunks.
#[derive(Debug, Default)]
pub(crate) struct Framer {
    depth: usize,
    in_string: bool,
    escaped: bool,
    opened: [u64; LEVELS],
}

impl Framer {
    /// Takes bytes up to the end of the message. `Ok(Some(n))`: the first `n` of them end it; `Ok(None)`: it is incomplete.
    /// The error is a byte that can start no message.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Option<usize>, u8> {
        for (index, &byte) in bytes.iter().enumerate() {
            if self.in_string {
                if self.escaped {
                    self.escaped = false;
                } else if byte == b'\\' {
                    self.escaped = true;
                } else if byte == b'"' {
                    self.in_string = false;
                }
                continue;
            }
            match byte {
                b'{' | b'[' => {
                    self.depth += 1;
                    if let Some(count) = self.opened.get_mut(self.depth) {
                        *count += 1;
                    }
                }
                b'}' | b']' if self.depth > 0 => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Ok(Some(index + 1));
                    }
                }
                b'"' if self.depth > 0 => self.in_string = true,
                b' ' | b'\n' | b'\r' | b'\t' => {}
                _ if self.depth > 0 => {}
                _ => return Err(byte),
            }
        }
        Ok(None)
    }

    /// How many brackets were opened at this depth; the message's own is at depth 1.
    pub(crate) fn opened_at(&self, depth: usize) -> u64 {
        self.opened.get(depth).copied().unwrap_or(0)
    }
}

/// The message from the object with its first error on, if it carries one. Every reply has the key; in a good one its
/// value is null. The object's start, since the server may put the details before the error.
pub(crate) fn error_in(message: &[u8]) -> Option<&[u8]> {
    const KEY: &[u8] = b"\"error\"";
    let mut at = 0;
    while let Some(next) = find(&message[at..], KEY) {
        let key = at + next;
        at = key + KEY.len();
        // Without a colon it is a value, not a key.
        let value = message[at..].trim_ascii_start().strip_prefix(b":").map(<[u8]>::trim_ascii_start);
        if value.is_some_and(|value| !value.starts_with(b"null")) {
            let start = message[..key].iter().rposition(|byte| *byte == b'{').unwrap_or(key);
            return Some(&message[start..]);
        }
    }
    None
}

/// Where `needle` first stands.
pub(crate) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_strings_do_not_count() {
        let message = br#"{"a":"}]\"}","b":[{"c":"\\"}]}{"next":1}"#;
        let end = Framer::default().feed(message).expect("a message").expect("its end");
        assert_eq!(&message[end..], br#"{"next":1}"#);
    }

    #[test]
    fn a_message_ends_at_the_same_byte_however_it_is_cut() {
        let message = br#" {"id":1,"result":[{"uuid":["uuid","x\\"]},{"n":"\"{"}],"error":null}"#;
        for cut in 0..message.len() {
            let mut framer = Framer::default();
            assert_eq!(framer.feed(&message[..cut]), Ok(None), "cut at {cut}");
            assert_eq!(framer.feed(&message[cut..]), Ok(Some(message.len() - cut)), "cut at {cut}");
        }
        let mut framer = Framer::default();
        let ends = message.iter().filter(|byte| framer.feed(&[**byte]) == Ok(Some(1))).count();
        assert_eq!(ends, 1);
    }

    #[test]
    fn anything_but_a_json_object_is_refused() {
        assert_eq!(Framer::default().feed(b"HTTP/1.1 400"), Err(b'H'));
        assert_eq!(Framer::default().feed(b"\x16\x03\x01"), Err(0x16));
        assert_eq!(Framer::default().feed(b"}"), Err(b'}'));
    }

    #[test]
    fn rows_of_a_monitor_reply_are_the_brackets_at_depth_four() {
        let reply = br#"{"id":1,"error":null,"result":{"A":{"u1":{"new":{"x":["set",[]]}},"u2":{"new":{}}},"B":{"u3":{"new":{}}}}}"#;
        let mut framer = Framer::default();
        assert_eq!(framer.feed(reply), Ok(Some(reply.len())));
        assert_eq!(framer.opened_at(4), 3);
    }

    #[test]
    fn a_null_error_is_no_error() {
        let has_error = |message: &[u8]| error_in(message).is_some();
        assert!(!has_error(br#"{"id":1,"result":[{"uuid":["uuid","x"]}],"error":null}"#));
        assert!(!has_error(br#"{"id":1,"result":[{}],"error" : null}"#));
        assert!(has_error(br#"{"id":1,"result":[{},{"error":"constraint violation"}],"error":null}"#));
        assert!(has_error(br#"{"id":1,"result":null,"error":{"error":"unknown database"}}"#));
        assert!(!has_error(br#"{"id":1,"result":[{"rows":[{"name":"\"error\":1"}]}],"error":null}"#));
        assert!(!has_error(br#"{"id":1,"result":["error"],"error":null}"#));
        let late = br#"{"error":null,"result":[{"details":"x","error":"late"}]}"#;
        assert_eq!(error_in(late), Some(&br#"{"details":"x","error":"late"}]}"#[..]));
    }
}
