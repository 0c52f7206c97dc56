//! What a node may ask ovsdb-server for.
//!
//! OVN's role limits the rows that a node may change. It does not limit locks: a node that takes `ovn_northd`, which ovn-northd
//! needs, stops all changes of the network. Nor does it limit the length of a message, which the server keeps in memory until it
//! is complete. Both are decided here, from the bytes of the stream; what they mean otherwise is the server's business.

use std::fmt;

/// What ovn-controller and OVN's tools use; not `lock`, `steal`, `unlock` and `convert`.
const METHODS: [&str; 12] = [
    "cancel",
    "echo",
    "get_schema",
    "get_server_id",
    "list_dbs",
    "monitor",
    "monitor_cancel",
    "monitor_cond",
    "monitor_cond_change",
    "monitor_cond_since",
    "set_db_change_aware",
    "transact",
];
/// Bytes of a message. A node that claims 5,000 ports at once sends one or two million.
const LONGEST: usize = 16 << 20;
/// Bytes of a member's name, or of a method, that are looked at: more than any known one has, however it is escaped.
const CAPTURED: usize = 128;

/// Why a session is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Forbidden {
    Method(String),
    TooLong,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method(method) => write!(text, "a node may not use method {method:?}"),
            Self::TooLong => write!(text, "a message is longer than {LONGEST} bytes"),
        }
    }
}

impl std::error::Error for Forbidden {}

/// Follows the messages of a node. Its state is that of a JSON parser without values.
#[derive(Debug, Default)]
pub(super) struct Requests {
    depth: u32,
    /// Bytes of this message so far.
    length: usize,
    in_string: bool,
    escaped: bool,
    /// A string directly in the message, with its quotes and escapes.
    captured: Vec<u8>,
    /// After the colon of a member of the message.
    in_value: bool,
    /// The member is `method`.
    is_method: bool,
    /// Why the session ends.
    forbidden: Option<Forbidden>,
}

impl Requests {
    /// Looks at the next bytes; an error if the server must not get them.
    pub(super) fn look(&mut self, bytes: &[u8]) -> Result<(), Forbidden> {
        let looked = bytes.iter().try_for_each(|byte| self.step(*byte));
        self.forbidden = looked.clone().err();
        looked
    }

    /// Why the session has to end.
    pub(super) fn forbidden(&self) -> Option<&Forbidden> {
        self.forbidden.as_ref()
    }

    fn step(&mut self, byte: u8) -> Result<(), Forbidden> {
        if self.depth > 0 {
            self.length += 1;
            if self.length > LONGEST {
                return Err(Forbidden::TooLong);
            }
        }
        if self.in_string {
            return self.step_in_string(byte);
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.captured.clear();
                self.capture(byte);
            }
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    *self = Self::default();
                }
            }
            b':' if self.depth == 1 => self.in_value = true,
            b',' if self.depth == 1 => (self.in_value, self.is_method) = (false, false),
            _ => {}
        }
        Ok(())
    }

    fn step_in_string(&mut self, byte: u8) -> Result<(), Forbidden> {
        self.capture(byte);
        if self.escaped {
            self.escaped = false;
        } else if byte == b'\\' {
            self.escaped = true;
        } else if byte == b'"' {
            self.in_string = false;
            return self.ended();
        }
        Ok(())
    }

    fn capture(&mut self, byte: u8) {
        if self.depth == 1 && self.captured.len() <= CAPTURED {
            self.captured.push(byte);
        }
    }

    /// A string is complete.
    fn ended(&mut self) -> Result<(), Forbidden> {
        if self.depth != 1 {
            return Ok(());
        }
        let text: Option<String> = serde_json::from_slice(&self.captured).ok();
        if !self.in_value {
            self.is_method = text.as_deref() == Some("method");
            return Ok(());
        }
        if !self.is_method || text.as_deref().is_some_and(|method| METHODS.contains(&method)) {
            return Ok(());
        }
        Err(Forbidden::Method(text.unwrap_or_else(|| String::from_utf8_lossy(&self.captured).into_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(text: &str, size: usize) -> Result<(), Forbidden> {
        let mut requests = Requests::default();
        text.as_bytes().chunks(size).try_for_each(|chunk| requests.look(chunk))
    }

    #[test]
    fn what_a_node_needs_passes_however_it_is_split() {
        let session = r#"{"id":1,"method":"monitor_cond_since","params":["a",{"method":"steal"},["\"method\":\"lock\""]]}
            {"id":"echo","result":[],"error":null}{"method":"transact","params":[{"op":"insert","row":{"x":"}{\\"}}],"id":2}
            {"id":3,"result":{"method":"lock"},"error":null,"x":"method"}{"params":[],"method":"echo","id":4}"#;
        for size in 1..session.len() {
            assert_eq!(look(session, size), Ok(()), "in pieces of {size}");
        }
        assert_eq!(look("what is no JSON", 4), Ok(()));
    }

    #[test]
    fn locks_are_forbidden_in_every_notation() {
        for (message, method) in [
            (r#"{"id":1,"method":"lock","params":["ovn_northd"]}"#, "lock"),
            (r#"{"params":[{"a":["}"]}], "method" : "steal","id":1}"#, "steal"),
            (r#"{"\u006dethod":"ste\u0061l"}"#, "steal"),
            (r#"{"method":"echo","method":"unlock"}"#, "unlock"),
            (r#"{"id":1}{"method":"convert"}"#, "convert"),
            (r#"{"id":{"a":1},"m\u0065thod":"LOCK"}"#, "LOCK"),
        ] {
            for size in 1..message.len() {
                assert_eq!(look(message, size), Err(Forbidden::Method(method.into())), "{message} in pieces of {size}");
            }
        }
        assert!(look(&format!(r#"{{"method":"{}lock"}}"#, r"\u0061".repeat(CAPTURED)), 7).is_err());
    }

    #[test]
    fn a_message_has_a_limit_and_a_session_has_none() {
        // In pieces: the memory of this process is measured by another test.
        let repeat = |requests: &mut Requests, piece: &str, least: usize| {
            (0..=least / piece.len()).try_for_each(|_| requests.look(piece.as_bytes()))
        };
        let mut short = Requests::default();
        assert_eq!(repeat(&mut short, r#"{"method":"echo","params":["x"],"id":1}"#, 2 * LONGEST), Ok(()));
        let mut long = Requests::default();
        long.look(br#"{"method":"transact","params":["#).unwrap();
        assert_eq!(repeat(&mut long, r#"{"op":"select"},"#, LONGEST / 2), Ok(()));
        assert_eq!(repeat(&mut long, r#"{"op":"select"},"#, LONGEST), Err(Forbidden::TooLong));
        assert_eq!(long.forbidden(), Some(&Forbidden::TooLong));
    }
}
