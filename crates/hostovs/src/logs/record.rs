//! Where to resume.

use std::fmt;
use std::str::FromStr;

use super::FileId;

/// The position after the last line that was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The file.
    pub file: FileId,
    /// Where the next line, or the rest of a long line, starts.
    pub offset: u64,
    /// The position is within a line, of which a part was handed out.
    pub in_line: bool,
    /// How many bytes of the file's head were hashed.
    pub head_length: usize,
    /// Their hash.
    pub head_hash: u64,
    /// When the file was last written, as far as known.
    pub modified: i128,
}

/// Why a record cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid resume record {0:?}; expected: 1 DEVICE INODE OFFSET IN-LINE HEAD-LENGTH HEAD-HASH MODIFIED")]
pub struct RecordError(String);

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, in_line, head_length, head_hash, modified } = self;
        let in_line = u8::from(*in_line);
        write!(f, "1 {} {} {offset} {in_line} {head_length} {head_hash:016x} {modified}", file.device, file.inode)
    }
}

impl FromStr for Record {
    type Err = RecordError;

    fn from_str(text: &str) -> Result<Self, RecordError> {
        parse(text).ok_or_else(|| RecordError(text.chars().take(200).collect()))
    }
}

fn parse(text: &str) -> Option<Record> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [version, device, inode, offset, in_line, head_length, head_hash, modified] = fields.as_slice() else {
        return None;
    };
    let record = Record {
        file: FileId { device: device.parse().ok()?, inode: inode.parse().ok()? },
        offset: offset.parse().ok()?,
        in_line: *in_line == "1",
        head_length: head_length.parse().ok().filter(|length| *length <= super::HEAD)?,
        head_hash: u64::from_str_radix(head_hash, 16).ok()?,
        modified: modified.parse().ok()?,
    };
    (*version == "1").then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_broken_ones_are_refused() {
        let file = FileId { device: 1, inode: u64::MAX };
        let record =
            Record { file, offset: 77, in_line: true, head_length: 128, head_hash: 0xabc, modified: 1_700_000_000_000 };
        assert_eq!(record.to_string().parse(), Ok(record));
        let valid = record.to_string();
        for broken in
            ["", "x", "2 1 1 1 0 0 0 0", "1 1 1 -1 0 0 0 0", "1 1 1 1 0 999 0 0", &valid[2..], &format!("{valid} 1")]
        {
            assert!(broken.parse::<Record>().is_err(), "{broken}");
        }
    }
}
