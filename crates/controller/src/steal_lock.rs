//! Turns northd's request for its lock into one that takes it.
//!
//! northd locks the southbound database, so that one instance is active. A controller that hangs, or lost its host, leaves a
//! northd whose session keeps that lock until the server's probe ends it, ten seconds or more. Only the leader starts a
//! northd, so the one that connects last is the right one. What two of them write is the same anyway.

/// As ovn-northd sends it: OVS writes JSON without spaces, with sorted members. Quotes in data are escaped, so this appears
/// nowhere else.
const LOCK: &[u8] = br#""method":"lock","params":["ovn_northd"]"#;
const STEAL: &[u8] = br#""method":"steal","params":["ovn_northd"]"#;
/// The lock is requested at the start of a session.
const SEARCHED: usize = 256 << 10;

/// Rewrites the first request in a stream of bytes. Anything else passes unchanged.
#[derive(Debug, Default)]
pub(crate) struct StealLock {
    /// The start of what may become the request.
    held: Vec<u8>,
    seen: usize,
    done: bool,
}

impl StealLock {
    /// Whether all that follows passes unchanged; then nothing is held back.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// What to send, given the next bytes.
    pub(crate) fn rewrite(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut output = std::mem::take(&mut self.held);
        output.extend_from_slice(bytes);
        if self.done {
            return output;
        }
        self.seen += bytes.len();
        if let Some(start) = output.windows(LOCK.len()).position(|window| window == LOCK) {
            output.splice(start..start + LOCK.len(), STEAL.iter().copied());
            self.done = true;
        } else if self.seen > SEARCHED {
            self.done = true;
        } else {
            let longest = LOCK.len().min(output.len() + 1) - 1;
            let partial = (1..=longest).rev().find(|length| LOCK.starts_with(&output[output.len() - length..]));
            self.held = output.split_off(output.len() - partial.unwrap_or(0));
        }
        output
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: &str =
        r#"{"id":1,"method":"echo","params":[]}{"id":2,"method":"lock","params":["ovn_northd"]}{"id":3,"method":"x"}"#;

    #[test]
    fn the_request_is_rewritten_however_it_is_split() {
        let expected = SESSION.replace("\"lock\"", "\"steal\"");
        for size in 1..=SESSION.len() {
            let mut steal = StealLock::default();
            let sent: Vec<u8> = SESSION.as_bytes().chunks(size).flat_map(|chunk| steal.rewrite(chunk)).collect();
            assert_eq!(String::from_utf8(sent).unwrap(), expected, "in pieces of {size}");
        }
    }

    #[test]
    fn nothing_else_is_changed_or_held_back() {
        let data = r#"{"op":"insert","row":{"name":"\"method\":\"lock\",\"params\":[\"ovn_northd\"]"}}"#;
        for text in [data, r#"{"id":2,"method":"lock","params":["other"]}"#, "", "\"method"] {
            let mut steal = StealLock::default();
            let mut sent = steal.rewrite(text.as_bytes());
            sent.extend(steal.rewrite(b"}"));
            assert_eq!(String::from_utf8(sent).unwrap(), format!("{text}}}"));
        }
    }

    #[test]
    fn a_long_session_is_no_longer_searched() {
        let mut steal = StealLock::default();
        let large = vec![b'x'; SEARCHED + 1];
        assert_eq!(steal.rewrite(&large).len(), large.len());
        assert_eq!(steal.rewrite(LOCK), LOCK);
    }
}
