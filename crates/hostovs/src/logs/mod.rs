//! A follower of a log file as a state machine: each line once, across rotations and restarts.
//!
//! ```text
//!  View (identity, size and head of the files) ──▶ Follower::next ──▶ Read { file, offset } ──▶ bytes ──▶ Follower::read ──▶ Output
//!                                                       └──▶ Wait                             Follower::record ──▶ the next process
//! ```
//!
//! A file is known by its identity (device and inode) and by its head, a hash of its first bytes: an inode can be reused, and a
//! truncated file keeps it. A rotated file is left when its successor has content: the daemon writes there, and no more here.

mod follower;
mod record;
mod rotated;

pub use follower::{Follower, LONGEST_LINE, Output, READ_SIZE, Start, Step};
pub use record::{Record, RecordError};
pub use rotated::{Rank, rank};

/// Number of bytes at the start of a file that identify it.
pub const HEAD: usize = 128;

/// Identity of a file while it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct FileId {
    /// Device.
    pub device: u64,
    /// Inode.
    pub inode: u64,
}

/// A file as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileView {
    /// Its identity.
    pub id: FileId,
    /// Its size in bytes.
    pub size: u64,
    /// When it was last written, in nanoseconds.
    pub modified: i128,
    /// Its first bytes, at most [`HEAD`].
    pub head: Vec<u8>,
}

/// The files of one log.
///
/// `open` must be observed after the others: only then "the successor has content, and this file has no more than what was read"
/// means that the daemon writes no more to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    /// The file at the log's path; none between a rename and the daemon's reopening.
    pub current: Option<FileView>,
    /// Rotated files that can be read as they are, oldest first.
    pub rotated: Vec<FileView>,
    /// The file that is being read, which may have no name any more.
    pub open: Option<FileView>,
}

/// The hash of nothing.
const EMPTY_HASH: u64 = 0xcbf2_9ce4_8422_2325;

/// Continues a hash (FNV-1a) with more bytes.
fn hash(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests;
