//! Splits a byte stream into JSON texts. OVSDB has no delimiters: a text ends where its brackets close.

use std::ops::Range;

/// Limits of incoming messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest text, in bytes.
    pub bytes: usize,
    /// Deepest nesting of brackets: parsers recurse.
    pub depth: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 1 << 30, depth: 64 }
    }
}

/// A stream that is not a sequence of JSON texts, or exceeds the limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A byte between two texts that is not white space.
    #[error("the peer sent byte {0:#04x} where a JSON text must start")]
    NoJson(u8),
    /// A closing bracket without an opening one.
    #[error("the peer sent an unbalanced closing bracket")]
    Unbalanced,
    /// Longer than [`Limits::bytes`].
    #[error("the peer sent a message of more than {0} bytes")]
    TooLong(usize),
    /// Deeper than [`Limits::depth`].
    #[error("the peer sent a message nested deeper than {0} levels")]
    TooDeep(u32),
}

/// Collects bytes and returns complete texts.
#[derive(Debug, Default)]
pub struct Framer {
    buffer: Vec<u8>,
    /// Bytes before this offset have been scanned.
    scanned: usize,
    depth: u32,
    in_string: bool,
    limits: Limits,
}

impl Framer {
    /// An empty buffer with these limits.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Append received bytes here.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Whether an incomplete text is buffered.
    pub fn is_partial(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// The next complete text; `None` until more bytes arrive.
    pub fn next_frame(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        if self.depth == 0 {
            self.skip_space()?;
        }
        let Some(end) = self.scan()? else {
            if self.buffer.len() > self.limits.bytes {
                return Err(FrameError::TooLong(self.limits.bytes));
            }
            return Ok(None);
        };
        if end > self.limits.bytes {
            return Err(FrameError::TooLong(self.limits.bytes));
        }
        self.scanned = 0;
        if end == self.buffer.len() {
            // The usual case, and that of large texts: no copy.
            return Ok(Some(std::mem::take(&mut self.buffer)));
        }
        let rest = self.buffer.split_off(end);
        Ok(Some(std::mem::replace(&mut self.buffer, rest)))
    }

    fn skip_space(&mut self) -> Result<(), FrameError> {
        let space = self.buffer.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.buffer.drain(..space);
        match self.buffer.first() {
            None | Some(b'{' | b'[') => Ok(()),
            Some(other) => Err(FrameError::NoJson(*other)),
        }
    }

    /// Scans new bytes; returns the end of the text.
    fn scan(&mut self) -> Result<Option<usize>, FrameError> {
        let mut at = self.scanned;
        while at < self.buffer.len() {
            if self.in_string {
                match find_in_string(&self.buffer, at..self.buffer.len()) {
                    InString::Ends(end) => {
                        self.in_string = false;
                        at = end + 1;
                    }
                    InString::Escape(escape) if escape + 1 < self.buffer.len() => at = escape + 2,
                    // The escaped byte has not arrived yet.
                    InString::Escape(escape) => {
                        self.scanned = escape;
                        return Ok(None);
                    }
                    InString::GoesOn => at = self.buffer.len(),
                }
                continue;
            }
            match self.buffer[at] {
                b'"' => self.in_string = true,
                b'{' | b'[' => {
                    self.depth += 1;
                    if self.depth > self.limits.depth {
                        return Err(FrameError::TooDeep(self.limits.depth));
                    }
                }
                b'}' | b']' => {
                    self.depth = self.depth.checked_sub(1).ok_or(FrameError::Unbalanced)?;
                    if self.depth == 0 {
                        return Ok(Some(at + 1));
                    }
                }
                _ => {}
            }
            at += 1;
        }
        self.scanned = at;
        Ok(None)
    }
}

enum InString {
    Ends(usize),
    Escape(usize),
    GoesOn,
}

fn find_in_string(buffer: &[u8], range: Range<usize>) -> InString {
    let from = range.start;
    match memchr::memchr2(b'"', b'\\', &buffer[range]) {
        None => InString::GoesOn,
        Some(at) if buffer[from + at] == b'"' => InString::Ends(from + at),
        Some(at) => InString::Escape(from + at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames(chunks: &[&[u8]], limits: Limits) -> Result<Vec<String>, FrameError> {
        let mut framer = Framer::new(limits);
        let mut all = Vec::new();
        for chunk in chunks {
            framer.buffer().extend_from_slice(chunk);
            while let Some(frame) = framer.next_frame()? {
                all.push(String::from_utf8(frame).unwrap());
            }
        }
        Ok(all)
    }

    #[test]
    fn a_stream_is_split_into_texts() {
        let stream = br#" {"a":"}\"]"}[1,[2]]
 {"b":"\\"}"#;
        let whole = frames(&[stream], Limits::default()).unwrap();
        assert_eq!(whole, [r#"{"a":"}\"]"}"#, "[1,[2]]", r#"{"b":"\\"}"#]);
        let single: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(frames(&single, Limits::default()).unwrap(), whole);
    }

    #[test]
    fn malformed_and_oversized_streams_are_rejected() {
        let small = Limits { bytes: 16, depth: 4 };
        assert_eq!(frames(&[b"HTTP/1.1"], small), Err(FrameError::NoJson(b'H')));
        assert_eq!(frames(&[b"]"], small), Err(FrameError::NoJson(b']')));
        assert_eq!(frames(&[b"[[[[[1]]]]]"], small), Err(FrameError::TooDeep(4)));
        assert_eq!(frames(&[br#"["aaaaaaaaaaaaaaaaaaaaaaaaaa"#], small), Err(FrameError::TooLong(16)));
        assert_eq!(frames(&[br#"["aaaaaaaaaaaaaaaaaaaaaaaaaa"]"#], small), Err(FrameError::TooLong(16)));
        // An incomplete text is not an error.
        assert_eq!(frames(&[br#"{"a":"#], small), Ok(vec![]));
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_chunks_never_panic_and_chunks_do_not_matter(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0_usize..200) {
            let limits = Limits { bytes: 100, depth: 8 };
            let mut one = Framer::new(limits);
            one.buffer().extend_from_slice(&bytes);
            let mut whole = Vec::new();
            let end = loop { match one.next_frame() { Ok(Some(frame)) => whole.push(frame), Ok(None) => break None, Err(error) => break Some(error) } };
            let mut two = Framer::new(limits);
            let mut parts = Vec::new();
            let mut failed = None;
            let cut = cut.min(bytes.len());
            for chunk in [&bytes[..cut], &bytes[cut..]] {
                two.buffer().extend_from_slice(chunk);
                loop { match two.next_frame() { Ok(Some(frame)) => parts.push(frame), Ok(None) => break, Err(error) => { failed = Some(error); break } } }
                if failed.is_some() { break }
            }
            prop_assert_eq!(whole, parts);
            prop_assert_eq!(end.is_some(), failed.is_some());
        }

        #[test]
        fn every_json_value_round_trips(values in proptest::collection::vec(".{0,20}", 1..5)) {
            let stream: String = values.iter().map(|value| serde_json::json!([value, {"k": value}]).to_string()).collect();
            let back = frames(&[stream.as_bytes()], Limits::default()).unwrap();
            prop_assert_eq!(back.len(), values.len());
            prop_assert_eq!(back.concat(), stream);
        }
    }
}
