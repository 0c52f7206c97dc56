//! Records of a raft member's file, as bytes: reading with verification, and rewriting the addresses in them.
//!
//! ```text
//!   OVSDB CLUSTER <length> <SHA-1>\n<JSON>\n      the header: identity, and the snapshot with its servers (`prev_servers`)
//!   OVSDB CLUSTER <length> <SHA-1>\n<JSON>\n      an entry; one that changes the configuration has `servers`
//!   …                                             terms, votes, notes, commit indexes
//! ```
//!
//! The length and the checksum include the last newline. An incomplete record at the end, whether it is cut off or continues
//! with zeros, was never acknowledged: ovsdb-server discards it when it starts, and so does this reader.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde_json::value::RawValue;

const MAGIC: &str = "OVSDB CLUSTER ";
/// How a record begins, after the end of the one before. JSON strings contain no line feed.
pub(crate) const NEXT: &[u8] = b"\nOVSDB CLUSTER ";

/// Iterates over the records of a log, in the order in which they were written.
pub(crate) struct Records<R> {
    reader: R,
    number: u64,
}

/// Why a file cannot be read as a raft log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A record is not what its length and checksum say.
    #[error("record {record} is damaged: {problem}")]
    Damaged {
        /// Counted from 1, the header.
        record: u64,
        /// Cut off, wrong checksum, or no JSON.
        problem: String,
    },
}

impl<R: BufRead> Records<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader, number: 0 }
    }

    /// Whether nothing but zeros follows: after a power failure, a file may be longer than what was written to it.
    fn rest_is_zero(&mut self) -> io::Result<bool> {
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() || !is_zero(buffer) {
                return Ok(buffer.is_empty());
            }
            let length = buffer.len();
            self.reader.consume(length);
        }
    }

    fn damaged(&self, problem: &str) -> LogError {
        LogError::Damaged { record: self.number, problem: problem.to_owned() }
    }

    /// The JSON of the next record, verified; none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, LogError> {
        self.number += 1;
        let mut line = Vec::new();
        self.reader.by_ref().take(256).read_until(b'\n', &mut line)?;
        let Some(line) = line.strip_suffix(b"\n") else {
            // Incomplete, or the end.
            let torn = line.len() < 256 || is_zero(&line) && self.rest_is_zero()?;
            return if torn { Ok(None) } else { Err(self.damaged("no header line")) };
        };
        let text = std::str::from_utf8(line).unwrap_or_default();
        let fields = text.strip_prefix(MAGIC).and_then(|rest| rest.split_once(' '));
        let Some((length, checksum)) = fields.and_then(|(length, sum)| Some((length.parse::<u64>().ok()?, sum))) else {
            return Err(self.damaged("no header line"));
        };
        let mut json = Vec::new();
        self.reader.by_ref().take(length).read_to_end(&mut json)?;
        if (json.len() as u64) < length {
            // Records that follow were acknowledged: then it is the length that is wrong.
            if json.windows(NEXT.len()).any(|part| part == NEXT) {
                return Err(self.damaged("its length goes beyond the end of the file, and others follow"));
            }
            return Ok(None);
        }
        if sha1(&json) != checksum {
            if json.ends_with(&[0]) && self.rest_is_zero()? {
                return Ok(None);
            }
            return Err(self.damaged("its checksum is wrong"));
        }
        Ok(Some(json))
    }
}

/// Appends a record: its length and checksum, then the JSON.
pub(crate) fn write(writer: &mut impl Write, json: &[u8]) -> io::Result<()> {
    writeln!(writer, "{MAGIC}{} {}", json.len(), sha1(json))?;
    writer.write_all(json)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// The checksum of a record, in hexadecimal digits.
pub(crate) fn sha1(bytes: &[u8]) -> String {
    digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Addresses that a record contains: of this server, and of the servers of a configuration.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// Only in the header.
    pub(crate) local: Option<String>,
    /// The configuration, by server ID; none if the record has none.
    pub(crate) servers: Option<BTreeMap<String, String>>,
}

type Fields<'a> = BTreeMap<&'a str, &'a RawValue>;

/// Fields that contain a configuration.
const SERVERS: [&str; 2] = ["prev_servers", "servers"];

/// Where the members of a record's configuration listen.
pub(crate) fn addresses(json: &[u8]) -> serde_json::Result<Addresses> {
    let fields: Fields<'_> = serde_json::from_slice(json)?;
    let get = |field: &str| fields.get(field).map(|value| value.get());
    let servers = SERVERS.iter().find_map(|field| get(field));
    Ok(Addresses {
        local: get("local_address").map(serde_json::from_str).transpose()?,
        servers: servers.map(serde_json::from_str).transpose()?,
    })
}

/// The record with every address replaced by what `rename` returns for it; the bytes of all other fields stay.
pub(crate) fn rename(json: &[u8], rename: impl Fn(&str) -> String) -> serde_json::Result<Vec<u8>> {
    let fields: Fields<'_> = serde_json::from_slice(json)?;
    let mut changed: BTreeMap<&str, Box<RawValue>> = BTreeMap::new();
    for (field, value) in &fields {
        let new = match *field {
            "local_address" => serde_json::to_string(&rename(&serde_json::from_str::<String>(value.get())?))?,
            "remote_addresses" => {
                let list: Vec<String> = serde_json::from_str(value.get())?;
                serde_json::to_string(&list.iter().map(|address| rename(address)).collect::<Vec<_>>())?
            }
            field if SERVERS.contains(&field) => {
                let servers: BTreeMap<String, String> = serde_json::from_str(value.get())?;
                let servers: BTreeMap<&String, String> =
                    servers.iter().map(|(id, address)| (id, rename(address))).collect();
                serde_json::to_string(&servers)?
            }
            _ => continue,
        };
        changed.insert(field, RawValue::from_string(new)?);
    }
    let same = changed.iter().all(|(field, new)| fields.get(field).is_some_and(|old| old.get() == new.get()));
    if same {
        return Ok(json.to_vec());
    }
    let merged: Fields<'_> =
        fields.iter().map(|(field, old)| (*field, changed.get(field).map_or(*old, |new| &**new))).collect();
    let mut text = serde_json::to_vec(&merged)?;
    text.push(b'\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_ovsdb() {
        assert_eq!(sha1(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
    }

    #[test]
    fn only_addresses_change() {
        let json = br#"{"server_id":"5","prev_servers":{"5":"ssl:a:1","6":"ssl:b:1"},"prev_data":[{"name":"N"},{"a":1.50, "b":"ssl:a:1"}],"local_address":"ssl:a:1","prev_index":9007199254740993}
"#;
        let found = addresses(json).unwrap();
        assert_eq!(found.local.as_deref(), Some("ssl:a:1"));
        assert_eq!(found.servers.unwrap().len(), 2);
        let renamed = rename(json, |address| address.replace("ssl:a:", "ssl:new-a:")).unwrap();
        let text = String::from_utf8(renamed).unwrap();
        assert_eq!(
            text,
            "{\"local_address\":\"ssl:new-a:1\",\"prev_data\":[{\"name\":\"N\"},{\"a\":1.50, \"b\":\"ssl:a:1\"}],\
             \"prev_index\":9007199254740993,\"prev_servers\":{\"5\":\"ssl:new-a:1\",\"6\":\"ssl:b:1\"},\"server_id\":\"5\"}\n"
        );
        let entry = b"{\"term\":2,\"index\":7,\"data\":[null,{}]}\n";
        assert_eq!(rename(entry, |_| "x".into()).unwrap(), entry);
        assert_eq!(addresses(entry).unwrap(), Addresses::default());
    }

    #[test]
    fn a_torn_last_record_ends_the_log_and_damage_is_refused() {
        let mut file = Vec::new();
        write(&mut file, b"{\"term\":1}\n").unwrap();
        write(&mut file, b"{\"term\":2}\n").unwrap();
        let all = |bytes: &[u8]| {
            let mut records = Records::new(bytes);
            let mut read = 0;
            while records.next().map_err(|error| error.to_string())?.is_some() {
                read += 1;
            }
            Ok::<_, String>(read)
        };
        assert_eq!(all(&file), Ok(2));
        for cut in [1, 5, 15, 40] {
            assert_eq!(all(&file[..file.len() - cut]), Ok(1), "{cut}");
        }
        for (kept, zeros) in [(file.len(), 4096), (file.len() - 5, 5), (file.len() - 5, 600)] {
            let filled = [&file[..kept], &vec![0; zeros]].concat();
            assert_eq!(all(&filled), Ok(if kept == file.len() { 2 } else { 1 }), "{zeros} zeros");
        }
        let after_zeros = [file.as_slice(), &[0; 600], b"OVSDB CLUSTER 1 2\n"].concat();
        assert!(all(&after_zeros).unwrap_err().contains("record 3"), "what follows is not known");
        let mut damaged = file.clone();
        damaged[file.len() / 2 - 3] = b'7';
        assert_eq!(all(&damaged), Err("record 1 is damaged: its checksum is wrong".into()));
        assert!(all(b"hello\n").unwrap_err().contains("no header line"));
    }

    #[test]
    fn a_length_beyond_the_end_is_damage_if_other_records_follow() {
        let mut file = Vec::new();
        let mut starts = Vec::new();
        for json in [b"{\"term\":1}\n", b"{\"term\":2}\n", b"{\"term\":3}\n"] {
            starts.push(file.len());
            write(&mut file, json).unwrap();
        }
        for (record, start) in starts.into_iter().enumerate() {
            let mut long = file.clone();
            long.insert(start + MAGIC.len(), b'9');
            let mut records = Records::new(long.as_slice());
            for _ in 0..record {
                assert!(records.next().unwrap().is_some());
            }
            match (record, records.next()) {
                // What a crash leaves.
                (2, read) => assert_eq!(read.unwrap(), None),
                (_, read) => {
                    let error = read.unwrap_err().to_string();
                    assert!(error.contains(&format!("record {} is damaged: its length", record + 1)), "{error}");
                }
            }
        }
    }
}
