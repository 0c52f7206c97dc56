//! Row identities.

use std::fmt;
use std::str::FromStr;

/// Identity of a row, 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid([u8; 16]);

impl Uuid {
    /// The default of a uuid column; no row has it.
    pub const ZERO: Self = Self([0; 16]);

    /// From bytes in the order of the text.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Bytes in the order of the text.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Parses `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`, in either case.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        if text.len() != 36 {
            return None;
        }
        let mut bytes = [0; 16];
        let mut at = 0;
        for (index, byte) in bytes.iter_mut().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                if text[at] != b'-' {
                    return None;
                }
                at += 1;
            }
            *byte = hex(text[at])? << 4 | hex(text[at + 1])?;
            at += 2;
        }
        Some(Self(bytes))
    }

    /// Formats without allocation.
    pub fn encode(self) -> [u8; 36] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b'-'; 36];
        let mut at = 0;
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                at += 1;
            }
            text[at] = DIGITS[usize::from(byte >> 4)];
            text[at + 1] = DIGITS[usize::from(byte & 15)];
            at += 2;
        }
        text
    }
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.encode()))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The string is not 32 hexadecimal digits with four dashes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid UUID {0:?}: expected 01234567-89ab-cdef-0123-456789abcdef")]
pub struct UuidError(String);

impl FromStr for Uuid {
    type Err = UuidError;

    fn from_str(text: &str) -> Result<Self, UuidError> {
        Self::parse(text).ok_or_else(|| UuidError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let text = "36bef046-7da7-43a5-905a-c17899216fcb";
        assert_eq!(Uuid::parse(text).unwrap().to_string(), text);
        assert_eq!(Uuid::parse(&text.to_uppercase()).unwrap().to_string(), text);
        for wrong in [
            "",
            "36bef046",
            "36bef046x7da7-43a5-905a-c17899216fcb",
            "g6bef046-7da7-43a5-905a-c17899216fcb",
            "36bef046-7da7-43a5-905a-c17899216fcb0",
        ] {
            assert!(wrong.parse::<Uuid>().is_err(), "{wrong}");
        }
    }
}
