//! Splits a stream of chunks into lines. A line within one chunk is not copied.

/// A line exceeds the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line is longer than {limit} bytes")]
pub(crate) struct TooLong {
    pub(crate) limit: usize,
}

/// Buffer capacity kept between lines, in bytes; more is freed after a large object.
const KEPT: usize = 64 << 10;

/// Buffers an incomplete line between chunks.
#[derive(Debug)]
pub(crate) struct Lines {
    partial: Vec<u8>,
    limit: usize,
}

impl Lines {
    pub(crate) fn new(limit: usize) -> Self {
        Self { partial: Vec::new(), limit }
    }

    /// Passes every line that ends in this chunk to `on_line`, without the newline; skips empty lines.
    pub(crate) fn feed<E: From<TooLong>>(
        &mut self,
        mut chunk: &[u8],
        mut on_line: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(end) = memchr::memchr(b'\n', chunk) {
            let (line, rest) = (&chunk[..end], &chunk[end + 1..]);
            chunk = rest;
            if self.partial.is_empty() {
                self.check(line.len())?;
                emit_line(line, &mut on_line)?;
                continue;
            }
            self.check(self.partial.len() + line.len())?;
            self.partial.extend_from_slice(line);
            let result = emit_line(&self.partial, &mut on_line);
            self.partial.clear();
            self.partial.shrink_to(KEPT);
            result?;
        }
        self.check(self.partial.len() + chunk.len())?;
        self.partial.extend_from_slice(chunk);
        Ok(())
    }

    fn check(&self, length: usize) -> Result<(), TooLong> {
        if length > self.limit { Err(TooLong { limit: self.limit }) } else { Ok(()) }
    }
}

fn emit_line<E>(line: &[u8], on_line: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() { Ok(()) } else { on_line(line) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chunks: &[&[u8]], limit: usize) -> Result<Vec<String>, TooLong> {
        let mut lines = Lines::new(limit);
        let mut lines_seen = Vec::new();
        for chunk in chunks {
            lines.feed(chunk, |line| {
                lines_seen.push(String::from_utf8(line.to_vec()).unwrap());
                Ok::<(), TooLong>(())
            })?;
        }
        Ok(lines_seen)
    }

    #[test]
    fn chunks_may_end_anywhere() {
        let text = "one\ntwo\n\nthree\r\nfour\nrest".as_bytes();
        let expected = ["one", "two", "three", "four"];
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let chunks = [&text[..first], &text[first..second], &text[second..]];
                assert_eq!(split(&chunks, 100).unwrap(), expected, "cut at {first} and {second}");
            }
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(split(&bytes, 100).unwrap(), expected);
    }

    #[test]
    fn a_whole_line_is_not_copied() {
        let mut lines = Lines::new(100);
        let chunk = b"one\ntwo\n";
        let within = chunk.as_ptr_range();
        lines
            .feed(chunk, |line| {
                assert!(within.contains(&line.as_ptr()));
                Ok::<(), TooLong>(())
            })
            .unwrap();
    }

    #[test]
    fn the_length_of_a_line_is_limited_across_chunks() {
        assert_eq!(split(&[b"123456\n"], 5), Err(TooLong { limit: 5 }));
        assert_eq!(split(&[b"123", b"456"], 5), Err(TooLong { limit: 5 }));
        assert_eq!(split(&[b"123", b"456\n"], 5), Err(TooLong { limit: 5 }));
        assert_eq!(split(&[b"123", b"45\n12345\n"], 5).unwrap(), ["12345", "12345"]);
    }

    #[test]
    fn the_buffer_of_a_large_line_is_freed() {
        let mut lines = Lines::new(1 << 20);
        let large = vec![b'x'; 1 << 19];
        let mut length = 0;
        for chunk in [large.as_slice(), b"\n"] {
            lines
                .feed(chunk, |line| {
                    length += line.len();
                    Ok::<(), TooLong>(())
                })
                .unwrap();
        }
        assert_eq!(length, 1 << 19);
        assert!(lines.partial.capacity() <= KEPT);
    }

    #[test]
    fn an_error_of_the_callback_ends_the_chunk() {
        let mut lines = Lines::new(100);
        let mut calls = 0;
        let result = lines.feed(b"a\nb\nc\n", |_| {
            calls += 1;
            if calls == 2 { Err(TooLong { limit: 0 }) } else { Ok(()) }
        });
        assert_eq!((result, calls), (Err(TooLong { limit: 0 }), 2));
    }
}
