//! The state machine.

use super::{EMPTY_HASH, FileId, FileView, HEAD, Record, View, hash};

/// Longer lines are handed out in parts.
pub const LONGEST_LINE: usize = 16 * 1024;
/// Bytes that one read should return; together with [`LONGEST_LINE`] the bound of memory.
pub const READ_SIZE: usize = 64 * 1024;

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Read from this file at this offset, and pass the bytes to [`Follower::read`].
    Read {
        /// The file.
        file: FileId,
        /// Where.
        offset: u64,
    },
    /// Nothing to read: observe again when something may have changed.
    Wait,
}

/// What is handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// A line without its newline, or a part of a long one.
    Line {
        /// The text, as it was written.
        text: Vec<u8>,
        /// The rest of a line whose start was handed out before.
        continued: bool,
    },
    /// Lines may be missing here; why.
    Gap(String),
}

/// Where to start without a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With the last bytes of the current file, from the first line that starts there.
    Last(u64),
}

#[derive(Debug, Clone, Copy)]
struct Position {
    file: FileId,
    /// Behind the last byte that was read.
    offset: u64,
    /// Of what was read.
    head_length: usize,
    head_hash: u64,
    modified: i128,
}

/// Follows one log.
#[derive(Debug)]
pub struct Follower {
    position: Option<Position>,
    start: Start,
    /// Read, but its newline was not.
    partial: Vec<u8>,
    /// A part of this line was handed out.
    in_line: bool,
    /// Started within a line: skip to its end.
    skip: bool,
}

impl Follower {
    /// Continues from a record, or starts.
    #[must_use]
    pub fn new(record: Option<&Record>, start: Start) -> Self {
        let position = record.map(|record| Position {
            file: record.file,
            offset: record.offset,
            head_length: record.head_length,
            head_hash: record.head_hash,
            modified: record.modified,
        });
        let in_line = record.is_some_and(|record| record.in_line);
        Self { position, start, partial: Vec::new(), in_line, skip: false }
    }

    /// The position after what was handed out. None before the first line was found.
    #[must_use]
    pub fn record(&self) -> Option<Record> {
        let position = self.position.filter(|_| !self.skip)?;
        let held = u64::try_from(self.partial.len()).unwrap_or(u64::MAX);
        let offset = position.offset.saturating_sub(held);
        // Bytes behind the recorded offset may be gone when it is compared.
        let head_is_handed_out = usize::try_from(offset).is_ok_and(|offset| offset < position.head_length);
        let (head_length, head_hash) =
            if head_is_handed_out { (0, EMPTY_HASH) } else { (position.head_length, position.head_hash) };
        let modified = position.modified;
        Some(Record { file: position.file, offset, in_line: self.in_line, head_length, head_hash, modified })
    }

    /// The file that is being read: keep it open, because its name may go.
    #[must_use]
    pub fn file(&self) -> Option<FileId> {
        self.position.map(|position| position.file)
    }

    /// Decides what to do; may hand out the unterminated end of a file that is complete.
    pub fn next(&mut self, view: &View, out: &mut Vec<Output>) -> Step {
        // Each turn moves to a newer file, so there are at most this many.
        for _ in 0..view.rotated.len() + 3 {
            let Some(position) = self.position else {
                let Some(current) = &view.current else { return Step::Wait };
                self.start_in(current);
                continue;
            };
            let Some(file) = find(view, &position) else {
                self.lost(view, &position, out);
                continue;
            };
            self.learn(file);
            if file.size > position.offset {
                return Step::Read { file: file.id, offset: position.offset };
            }
            let Some(successor) = successor(view, file) else { return Step::Wait };
            let position = self.position.unwrap_or(position);
            self.flush(out);
            self.position = Some(Position::start_of(successor).after(&position));
        }
        Step::Wait
    }

    /// Takes bytes that were read where [`Follower::next`] said.
    pub fn read(&mut self, bytes: &[u8], out: &mut Vec<Output>) {
        let Some(position) = &mut self.position else { return };
        position.hash_head(bytes);
        position.offset = position.offset.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let mut rest = bytes;
        while !rest.is_empty() {
            let newline = rest.iter().position(|byte| *byte == b'\n');
            let room = LONGEST_LINE - self.partial.len();
            match newline {
                Some(end) if end <= room => {
                    self.partial.extend_from_slice(&rest[..end]);
                    rest = &rest[end + 1..];
                    self.hand_out(out, true);
                }
                _ if rest.len() > room => {
                    self.partial.extend_from_slice(&rest[..room]);
                    rest = &rest[room..];
                    self.hand_out(out, false);
                }
                _ => {
                    self.partial.extend_from_slice(rest);
                    rest = &[];
                }
            }
        }
    }

    fn hand_out(&mut self, out: &mut Vec<Output>, is_end: bool) {
        let text = std::mem::take(&mut self.partial);
        // The end of a line whose parts were handed out may be empty.
        let is_needed = !(self.skip || self.in_line && is_end && text.is_empty());
        if is_needed {
            out.push(Output::Line { text, continued: self.in_line });
        }
        self.in_line = !is_end;
        self.skip &= !is_end;
    }

    /// The file is complete: what has no newline is a line.
    fn flush(&mut self, out: &mut Vec<Output>) {
        if !self.partial.is_empty() {
            self.hand_out(out, true);
        }
        (self.in_line, self.skip) = (false, false);
    }

    fn start_in(&mut self, current: &FileView) {
        let Start::Last(last) = self.start;
        let offset = current.size.saturating_sub(last);
        // The byte before tells whether a line starts here.
        self.skip = offset > 0;
        self.position = Some(Position { offset: offset.saturating_sub(1), ..Position::start_of(current) });
    }

    /// Hashes the head of the file, as far as it was read.
    fn learn(&mut self, file: &FileView) {
        let Some(position) = &mut self.position else { return };
        position.modified = position.modified.max(file.modified);
        position.file = file.id;
        let read = usize::try_from(position.offset).unwrap_or(usize::MAX);
        let length = file.head.len().min(HEAD).min(read);
        if length > position.head_length {
            (position.head_length, position.head_hash) = (length, hash(EMPTY_HASH, &file.head[..length]));
        }
    }

    /// The file, as it was read, does not exist any more.
    fn lost(&mut self, view: &View, position: &Position, out: &mut Vec<Output>) {
        let was_truncated = view.open.iter().chain(&view.current).any(|file| file.id == position.file);
        self.flush(out);
        let why =
            if was_truncated { "was truncated without an uncompressed copy" } else { "was compressed or deleted" };
        out.push(Output::Gap(format!("the log file {why}; lines that were not read before are missing here")));
        let newer = view.rotated.iter().find(|file| file.modified > position.modified && !was_truncated);
        self.position = newer.or(view.current.as_ref()).map(|file| Position::start_of(file).after(position));
        if self.position.is_none() {
            // Between a rename and the daemon's reopening: the next file is read from its start.
            self.start = Start::Last(u64::MAX);
        }
    }
}

impl Position {
    fn start_of(file: &FileView) -> Self {
        Self { file: file.id, offset: 0, head_length: 0, head_hash: EMPTY_HASH, modified: file.modified }
    }

    /// What was written before the end of the former file is not newer than this one.
    fn after(self, former: &Self) -> Self {
        Self { modified: self.modified.max(former.modified), ..self }
    }

    /// Adds bytes that were read to the head, if they belong to it.
    fn hash_head(&mut self, bytes: &[u8]) {
        if usize::try_from(self.offset).is_ok_and(|offset| offset == self.head_length) {
            let length = bytes.len().min(HEAD - self.head_length);
            self.head_hash = hash(self.head_hash, &bytes[..length]);
            self.head_length += length;
        }
    }

    /// Whether a file starts with what was read.
    fn is_in(&self, file: &FileView) -> bool {
        let head = file.head.get(..self.head_length);
        file.size >= self.offset && head.is_some_and(|head| hash(EMPTY_HASH, head) == self.head_hash)
    }
}

/// The file of a position: the same one, else a copy of it from before it was truncated.
fn find<'a>(view: &'a View, position: &Position) -> Option<&'a FileView> {
    if position.offset == 0 {
        // Nothing was read yet, so there is no head to compare: an older file that was written after what was seen is the copy.
        let older = view.rotated.iter().take_while(|file| file.id != position.file);
        let copy = older.into_iter().find(|file| file.modified > position.modified);
        if copy.is_some() {
            return copy;
        }
    }
    let mut files = view.open.iter().chain(&view.current).chain(view.rotated.iter().rev());
    let same = files.clone().find(|file| file.id == position.file && position.is_in(file));
    // A head that was not read yet would match any file.
    same.or_else(|| files.find(|file| position.head_length > 0 && position.is_in(file)))
}

/// The next newer file, if one of the newer ones has content: then the daemon writes no more to this one.
fn successor<'a>(view: &'a View, file: &FileView) -> Option<&'a FileView> {
    let is_current = view.current.as_ref().is_some_and(|current| current.id == file.id);
    if is_current {
        return None;
    }
    let place = view.rotated.iter().position(|rotated| rotated.id == file.id);
    let after = |place: usize| place + 1;
    let first = place.map(after).or_else(|| view.rotated.iter().position(|rotated| rotated.modified > file.modified));
    let mut newer = view.rotated.iter().skip(first.unwrap_or(usize::MAX)).chain(&view.current);
    newer.clone().any(|newer| newer.size > 0).then(|| newer.next()).flatten()
}
