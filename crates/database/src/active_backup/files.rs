//! Decides what a member does with its file before its server starts. Pure.
//!
//! | file | marker | record in the API | step |
//! |---|---|---|---|
//! | missing | | none | create a database |
//! | standalone | none | none | mark it: its content becomes the database |
//! | standalone | an ID | none | record that ID; the first to record one wins |
//! | standalone | of the record | ID | start |
//! | missing | | ID | create an empty file, to be filled by replication |
//! | standalone, damaged | none, or of another ID | ID | put the file aside, then create an empty one |
//! | raft member, other database; damaged without a record | | | refuse: nothing is overwritten |

use crate::active_backup::marker::Marker;
use crate::file::FileState;
use crate::kind::Kind;
use crate::record::Record;

/// What to do next. After each step but [`Step::Start`] and [`Step::Refuse`], everything is read and decided again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Create the database with its first row, and mark it with a new ID, complete.
    Create,
    /// Mark the file with a new ID, complete.
    Mark,
    /// Record the marker's ID in the API, unless another one is recorded by then.
    Publish,
    /// Create an empty file, marked as not complete.
    CreateEmpty,
    /// Put the file aside: it is not the recorded database. Nothing is deleted.
    SetAside,
    /// Start the server: the file belongs to the recorded database.
    Start,
    /// Nothing can be done without an administrator.
    Refuse(Problem),
}

/// Why a member does not start, with the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file is a raft member.
    #[error(
        "{file} is a raft member, and this member runs with --form active-backup; to keep its content: `ovsdb-tool \
         cluster-to-standalone` into another file, move both away, and move the new one here; otherwise move it away"
    )]
    RaftMember {
        /// Its path below the data directory, for the message.
        file: String,
    },
    /// The file belongs to another database.
    #[error("{file} is database {found}, not {expected}; check which volume is mounted")]
    OtherDatabase {
        /// Its path below the data directory, for the message.
        file: String,
        /// Schema name in the file, e.g. `OVN_Southbound`.
        found: String,
        /// Schema name of this member's database.
        expected: &'static str,
    },
    /// The file is not a usable database, and no other server may have its content.
    #[error("{file} is damaged ({why}), and no database is recorded that it could be replicated from; move it away")]
    Damaged {
        /// Its path below the data directory, for the message.
        file: String,
        /// The first damage, in words of `FileState::Damaged`.
        why: String,
    },
}

/// What the decision depends on.
#[derive(Debug)]
pub struct BootstrapInputs<'a> {
    /// Which database the member is of: its schema is compared with the file's.
    pub kind: Kind,
    /// For messages only; nothing is read.
    pub path: &'a str,
    /// As found at the start; absent, damaged or of another database.
    pub file: &'a FileState,
    /// What this member knows about the file; none for a file of unknown origin.
    pub marker: Option<&'a Marker>,
    /// The record as it was read just now; none if no database was ever recorded.
    pub record: Option<&'a Record>,
}

/// The next step. Only these inputs count, so a crash between two steps loses nothing.
pub fn next(inputs: &BootstrapInputs<'_>) -> Step {
    let file = || inputs.path.to_owned();
    match (inputs.file, inputs.record) {
        (FileState::Clustered(_), _) => Step::Refuse(Problem::RaftMember { file: file() }),
        (FileState::Standalone(found), _) if found != inputs.kind.schema() => {
            let expected = inputs.kind.schema();
            Step::Refuse(Problem::OtherDatabase { file: file(), found: found.clone(), expected })
        }
        (FileState::Missing, None) => Step::Create,
        (FileState::Missing, Some(_)) => Step::CreateEmpty,
        (FileState::Damaged(why), None) => Step::Refuse(Problem::Damaged { file: file(), why: why.clone() }),
        (FileState::Damaged(_), Some(_)) => Step::SetAside,
        // An incomplete one that lost its record: an administrator removed that, for want of a complete one.
        (FileState::Standalone(_), None) if inputs.marker.is_none_or(|marker| !marker.complete) => Step::Mark,
        (FileState::Standalone(_), None) => Step::Publish,
        (FileState::Standalone(_), Some(record)) => {
            let ours = inputs.marker.is_some_and(|marker| marker.is_of(record.cluster()));
            if ours { Step::Start } else { Step::SetAside }
        }
    }
}

#[cfg(test)]
mod tests {
    use ovsdb::uuid::Uuid;

    use super::*;
    use crate::file::Header;

    fn id(number: u128) -> String {
        Uuid::from_bytes(number.to_be_bytes()).to_string()
    }

    fn decide(file: &FileState, marker: Option<&Marker>, record: Option<&Record>) -> Step {
        next(&BootstrapInputs { kind: Kind::Northbound, path: "/nb.db", file, marker, record })
    }

    fn standalone() -> FileState {
        FileState::Standalone("OVN_Northbound".into())
    }

    #[test]
    fn files_of_others_are_refused_and_unknown_ones_are_put_aside() {
        let record = Record::new(id(1), "n1");
        let header = Header {
            name: "OVN_Northbound".into(),
            cluster: None,
            server: Uuid::ZERO,
            address: String::new(),
            joined: true,
            joins_by: Vec::new(),
        };
        let (other, damaged) = (FileState::Standalone("OVN_Southbound".into()), FileState::Damaged("empty".into()));
        for record in [None, Some(&record)] {
            for file in [&FileState::Clustered(header.clone()), &other] {
                assert!(matches!(decide(file, None, record), Step::Refuse(_)), "{file:?}");
            }
        }
        assert!(matches!(decide(&damaged, None, None), Step::Refuse(Problem::Damaged { .. })));
        assert_eq!(decide(&damaged, None, Some(&record)), Step::SetAside);
        assert_eq!(decide(&standalone(), None, Some(&record)), Step::SetAside);
        let foreign = Marker { database_id: id(2), complete: true };
        assert_eq!(decide(&standalone(), Some(&foreign), Some(&record)), Step::SetAside);
    }

    /// Any interleaving of three members, with lost volumes in between: one database, and a member without its data never
    /// counts as complete.
    #[test]
    fn one_database_is_recorded_and_only_its_data_is_complete() {
        for seed in 0..5_000_u64 {
            let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut draw = |below: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                (random >> 11) % below
            };
            let (mut record, mut next_id) = (None::<Record>, 0);
            // Of each member: whether its file exists, its marker, and the ID of the data in the file.
            let mut disks: Vec<(bool, Option<Marker>, Option<String>)> = vec![(false, None, None); 3];
            for _ in 0..60 {
                let member = usize::try_from(draw(3)).unwrap();
                if draw(12) == 0 {
                    disks[member] = (false, None, None);
                    continue;
                }
                let (exists, marker, data) = &mut disks[member];
                let file = if *exists { standalone() } else { FileState::Missing };
                match decide(&file, marker.as_ref(), record.as_ref()) {
                    step @ (Step::Create | Step::Mark) => {
                        assert!(step == Step::Create || *exists);
                        next_id += 1;
                        *marker = Some(Marker { database_id: id(next_id), complete: true });
                        (*exists, *data) = (true, Some(id(next_id)));
                    }
                    Step::Publish => record = Some(Record::new(marker.clone().unwrap().database_id, "n")),
                    Step::CreateEmpty => {
                        let database_id = record.as_ref().unwrap().cluster_id.clone();
                        *marker = Some(Marker { database_id, complete: false });
                        (*exists, *data) = (true, None);
                    }
                    Step::SetAside => (*exists, *marker, *data) = (false, None, None),
                    Step::Start => {
                        let (marker, record) = (marker.clone().unwrap(), record.as_ref().unwrap());
                        assert!(marker.is_of(record.cluster()));
                        assert_eq!(marker.complete, data.as_ref() == Some(&record.cluster_id), "seed {seed}");
                    }
                    step @ Step::Refuse(_) => panic!("seed {seed}: {step:?}"),
                }
            }
        }
    }
}
