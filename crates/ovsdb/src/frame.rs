//! Cutting a stream of bytes into JSON texts. OVSDB puts nothing between them: a text ends where its brackets close.

use std::ops::Range;

/// What a stream may demand of us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The greatest text, in bytes.
    pub bytes: usize,
    /// The deepest nesting of brackets. What follows reads by recursion.
    pub depth: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 1 << 30, depth: 64 }
    }
}

/// A stream that is no sequence of JSON texts, or demands too much.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Something else stands between two texts.
    #[error("the peer sent byte {0:#04x} where a JSON text should begin")]
    NoJson(u8),
    /// Brackets close that were never opened.
    #[error("the peer closed a bracket that it did not open")]
    Unbalanced,
    /// A text is too long.
    #[error("the peer sent a message of more than {0} bytes")]
    TooLong(usize),
    /// A text is nested too deeply.
    #[error("the peer sent a message nested deeper than {0} levels")]
    TooDeep(u32),
}

/// Collects bytes and gives out whole texts.
#[derive(Debug, Default)]
pub struct Framer {
    buffer: Vec<u8>,
    /// Bytes before this have been looked at.
    scanned: usize,
    depth: u32,
    in_string: bool,
    limits: Limits,
}

impl Framer {
    /// With limits of one's own.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Where received bytes are appended.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Whether a text has begun and not ended.
    pub fn is_partial(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// The next whole text, if it has arrived.
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
            // The usual case, and that of the large ones: nothing is copied.
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

    /// Looks at what is new; returns where the text ends.
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
                    // What is escaped has not arrived yet.
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
    fn texts_are_cut_where_they_end() {
        let stream = br#" {"a":"}\"]"}[1,[2]]
 {"b":"\\"}"#;
        let whole = frames(&[stream], Limits::default()).unwrap();
        assert_eq!(whole, [r#"{"a":"}\"]"}"#, "[1,[2]]", r#"{"b":"\\"}"#]);
        let single: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(frames(&single, Limits::default()).unwrap(), whole);
    }

    #[test]
    fn what_is_no_json_or_too_much_is_refused() {
        let small = Limits { bytes: 16, depth: 4 };
        assert_eq!(frames(&[b"HTTP/1.1"], small), Err(FrameError::NoJson(b'H')));
        assert_eq!(frames(&[b"]"], small), Err(FrameError::NoJson(b']')));
        assert_eq!(frames(&[b"[[[[[1]]]]]"], small), Err(FrameError::TooDeep(4)));
        assert_eq!(frames(&[br#"["aaaaaaaaaaaaaaaaaaaaaaaaaa"#], small), Err(FrameError::TooLong(16)));
        assert_eq!(frames(&[br#"["aaaaaaaaaaaaaaaaaaaaaaaaaa"]"#], small), Err(FrameError::TooLong(16)));
        // Half a text is no error: the rest may come.
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
        fn every_json_value_comes_back(values in proptest::collection::vec(".{0,20}", 1..5)) {
            let stream: String = values.iter().map(|value| serde_json::json!([value, {"k": value}]).to_string()).collect();
            let back = frames(&[stream.as_bytes()], Limits::default()).unwrap();
            prop_assert_eq!(back.len(), values.len());
            prop_assert_eq!(back.concat(), stream);
        }
    }
}
