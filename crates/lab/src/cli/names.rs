//! `lab names`: records of the lab's name server.

use std::net::IpAddr;

use clap::Subcommand;

use super::print;
use crate::directories::Directories;
use crate::dns;
use crate::error::Result;

// Fields named `name` would share their value with the global `--name`.
#[derive(Debug, Subcommand)]
pub(super) enum Names {
    /// Show all records
    List,
    /// Set the addresses of a name
    Set {
        /// A name below names.lab
        #[arg(value_name = "NAME")]
        record: String,
        /// Its addresses; former ones are replaced
        #[arg(required = true)]
        addresses: Vec<IpAddr>,
    },
    /// Remove a name
    Remove {
        /// A name below names.lab
        #[arg(value_name = "NAME")]
        record: String,
    },
}

pub(super) fn run(directories: &Directories, lab: &str, names: &Names) -> Result<()> {
    let dir = directories.lab(lab);
    match names {
        Names::List => print(&dns::list(&dir)?),
        Names::Set { record, addresses } => {
            crate::directories::require_root("lab names")?;
            dns::set(&dir, record, addresses)?;
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            print(&format!("{record} is {}\n", addresses.join(", ")))
        }
        Names::Remove { record } => {
            crate::directories::require_root("lab names")?;
            dns::set(&dir, record, &[])?;
            print(&format!("{record} does not exist any more\n"))
        }
    }
}
