//! Verifies the checksums of a raft member's file before its server starts.
//!
//! ovsdb-server takes the first record with a wrong checksum for the end of the file, starts with what is before, and
//! truncates the rest with its next write. That is right for a record that a crash interrupted: it was never
//! acknowledged. If valid records follow, the member would silently forget what it acknowledged, and its votes.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

use crate::file_cache::Stamp;
use crate::raft_log::NEXT;

/// A header line is far shorter.
const LONGEST_LINE: u64 = 256;

/// The result for one state of a file, which is read again only when it has changed.
#[derive(Debug, Default)]
pub(crate) struct Verified {
    state: Option<Stamp>,
    damage: Option<String>,
}

impl Verified {
    /// What is wrong with a file; none if its records can be used.
    pub(crate) async fn damage(&mut self, path: &Path) -> io::Result<Option<String>> {
        let (owned, before) = (path.to_owned(), self.state);
        let checked = tokio::task::spawn_blocking(move || {
            let state = Stamp::of(&std::fs::metadata(&owned)?);
            let changed = before != Some(state);
            Ok::<_, io::Error>((state, if changed { Some(damage(&owned)?) } else { None }))
        });
        let (state, checked) = checked.await.map_err(io::Error::other)??;
        if let Some(damage) = checked {
            self.damage = damage;
            self.state = Some(state);
        }
        Ok(self.damage.clone())
    }
}

fn damage(path: &Path) -> io::Result<Option<String>> {
    let mut reader = BufReader::with_capacity(1 << 16, File::open(path)?);
    let mut offset = 0_u64;
    loop {
        let mut line = Vec::new();
        let read = reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)? as u64;
        if read == 0 {
            return Ok(None);
        }
        let valid = match header(&line) {
            Some((length, sum)) => digest(&mut reader, length)? == sum,
            None => false,
        };
        if !valid {
            return Ok(has_record_after(&mut reader, offset)?.then(|| {
                format!("the record at offset {offset} is damaged, and others follow that were acknowledged")
            }));
        }
        offset = reader.stream_position()?;
    }
}

/// Length and checksum in `OVSDB CLUSTER <length> <SHA-1>`.
fn header(line: &[u8]) -> Option<(u64, String)> {
    let text = std::str::from_utf8(line).ok()?.strip_suffix('\n')?.strip_prefix("OVSDB CLUSTER ")?;
    let (length, sum) = text.split_once(' ')?;
    Some((length.parse().ok()?, sum.to_owned()))
}

/// The checksum of the next bytes.
fn digest(reader: &mut impl io::Read, length: u64) -> io::Result<String> {
    let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    let mut left = reader.take(length);
    let mut buffer = [0; 1 << 14];
    loop {
        match left.read(&mut buffer)? {
            0 => break,
            read => context.update(&buffer[..read]),
        }
    }
    Ok(context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether another record begins after the damaged one at `offset`.
fn has_record_after(reader: &mut BufReader<File>, offset: u64) -> io::Result<bool> {
    reader.seek(SeekFrom::Start(offset))?;
    let mut window: Vec<u8> = Vec::new();
    let mut buffer = [0; 1 << 14];
    loop {
        let read = reader.read(&mut buffer)?;
        if read == 0 {
            return Ok(false);
        }
        window.extend_from_slice(&buffer[..read]);
        if window.windows(NEXT.len()).any(|part| part == NEXT) {
            return Ok(true);
        }
        window.drain(..window.len().saturating_sub(NEXT.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(json: &str) -> String {
        let data = format!("{json}\n");
        let sum = digest(&mut data.as_bytes(), data.len() as u64).unwrap();
        format!("OVSDB CLUSTER {} {sum}\n{data}", data.len())
    }

    fn damage_of(name: &str, text: &[u8]) -> Option<String> {
        let path = std::env::temp_dir().join(format!("verify-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let found = damage(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        found
    }

    #[test]
    fn a_damaged_record_is_refused_only_if_others_follow() {
        let [first, second, third] = [r#"{"name":"NB"}"#, r#"{"term":1}"#, r#"{"term":2}"#].map(record);
        let whole = format!("{first}{second}{third}");
        assert_eq!(damage_of("whole", whole.as_bytes()), None);
        let flipped = whole.replacen("\"term\":1", "\"term\":7", 1);
        let found = damage_of("flipped", flipped.as_bytes()).unwrap();
        assert!(found.contains(&format!("offset {}", first.len())), "{found}");
        // What a crash leaves: a part of the last record, or zeros instead of it.
        assert_eq!(damage_of("torn", &whole.as_bytes()[..whole.len() - 3]), None);
        let mut zeros = format!("{first}{second}").into_bytes();
        zeros.extend([0; 5000]);
        assert_eq!(damage_of("zeros", &zeros), None);
        // A length that is too large, in the middle and in the last record.
        let long = |record: &str| record.replacen("CLUSTER ", "CLUSTER 9", 1);
        assert!(damage_of("long", format!("{first}{}{third}", long(&second)).as_bytes()).is_some());
        assert_eq!(damage_of("long-last", format!("{first}{second}{}", long(&third)).as_bytes()), None);
        // Zeros in the middle.
        zeros.extend(format!("\n{third}").into_bytes());
        assert!(damage_of("hole", &zeros).is_some());
    }
}
