//! Which NMState file a node takes.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::hosts::short_name;
use crate::{DIRECTORY, EVERY_HOST};

const ENDING: &str = ".yml";
/// Files that look like one of ours, so that it is unclear which one the administrator means.
const OTHER_ENDINGS: [&str; 3] = [".yaml", ".json", ".nmstate"];

/// A node's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selected {
    /// The file of this name in [`DIRECTORY`].
    File(String),
    /// There is none, neither its own nor one for all hosts: br-ex is not ours to configure.
    Nothing,
}

/// Why no file is taken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SelectionError {
    /// The name says nothing about which host this is.
    #[error("the host name {0:?} does not identify a host: set one that is neither localhost nor {EVERY_HOST}")]
    NoIdentity(String),
    /// Several files have the host's name, or one has almost the name that it should have.
    #[error("{DIRECTORY}: it is unclear which file is meant for {host}: {}; keep one, {host}{ENDING}", files.join(", "))]
    Ambiguous {
        /// The host's short name, or the name of the file for all hosts.
        host: String,
        /// The files.
        files: Vec<String>,
    },
}

/// Selects from the names of the files in [`DIRECTORY`]: `<short host name>.yml`, else `cluster.yml`.
///
/// A file of the same name in other letters, with the domain, or with another ending makes it ambiguous, and nothing is
/// taken: a wrong network configuration is worse than none.
pub fn select<'a>(host_name: &str, files: impl IntoIterator<Item = &'a str>) -> Result<Selected, SelectionError> {
    let host_name = host_name.trim().trim_end_matches('.').to_ascii_lowercase();
    let short = short_name(&host_name).ok_or_else(|| SelectionError::NoIdentity(host_name.clone()))?;
    // Sorted, because the order of a directory is arbitrary.
    let files: BTreeSet<&str> = files.into_iter().collect();
    for host in [short.as_str(), EVERY_HOST] {
        let is_candidate = |file: &&str| {
            let file = file.to_ascii_lowercase();
            let mut endings = OTHER_ENDINGS.into_iter().chain([ENDING]);
            let stem = endings.find_map(|ending| file.strip_suffix(ending));
            stem.is_some_and(|stem| stem == host || (host == short && stem == host_name))
        };
        let found: Vec<String> = files.iter().copied().filter(is_candidate).map(str::to_owned).collect();
        match found.as_slice() {
            [] => {}
            [file] if *file == format!("{host}{ENDING}") => return Ok(Selected::File(file.clone())),
            _ => return Err(SelectionError::Ambiguous { host: host.to_owned(), files: found }),
        }
    }
    Ok(Selected::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> Result<Selected, SelectionError> {
        Ok(Selected::File(name.to_owned()))
    }

    #[test]
    fn a_hosts_own_file_comes_before_that_of_all_hosts() {
        let files = ["cluster.yml", "master-0.yml", "master-1.yml", "applied"];
        assert_eq!(select("master-0", files), file("master-0.yml"));
        assert_eq!(select("Master-0.example.com.\n", files), file("master-0.yml"));
        assert_eq!(select("worker-0", files), file("cluster.yml"));
        assert_eq!(select("worker-0", ["master-0.yml", "applied", ".worker-0.yml.swp"]), Ok(Selected::Nothing));
        assert_eq!(select("worker-0", []), Ok(Selected::Nothing));
    }

    #[test]
    fn nothing_is_taken_where_several_files_could_be_meant() {
        for files in [
            ["master-0.yml", "Master-0.yml"],
            ["master-0.yml", "master-0.yaml"],
            ["master-0.yml", "master-0.example.com.yml"],
            ["master-0.yaml", "cluster.yml"],
        ] {
            let error = select("master-0.example.com", files).unwrap_err();
            assert!(matches!(&error, SelectionError::Ambiguous { host, .. } if host == "master-0"), "{error}");
            let reversed = select("master-0.example.com", [files[1], files[0]]);
            assert_eq!(reversed, Err(error), "the order of a directory does not matter");
        }
        let error = select("w", ["cluster.yml", "CLUSTER.yml"]).unwrap_err().to_string();
        assert_eq!(
            error,
            "/etc/nmstate/openshift: it is unclear which file is meant for cluster: CLUSTER.yml, cluster.yml; keep one, cluster.yml"
        );
    }

    #[test]
    fn a_host_without_a_name_of_its_own_takes_nothing() {
        for name in ["", "localhost", "localhost.localdomain", "cluster", "../cluster", "a b"] {
            let selected = select(name, ["cluster.yml", "localhost.yml"]);
            assert!(matches!(selected, Err(SelectionError::NoIdentity(_))), "{name}: {selected:?}");
        }
    }
}
