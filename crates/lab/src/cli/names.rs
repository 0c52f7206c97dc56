//! `lab names`: records of the lab's name server.

use std::net::IpAddr;

use clap::Subcommand;

use super::print;
use crate::directories::Directories;
use crate::dns;
use crate::error::Result;

#[derive(Debug, Subcommand)]
pub(super) enum Names {
    /// Show all records
    List,
    /// Set the addresses of a name
    Set {
        /// A name below names.lab
        name: String,
        /// Its addresses; former ones are replaced
        #[arg(required = true)]
        addresses: Vec<IpAddr>,
    },
    /// Remove a name
    Remove {
        /// A name below names.lab
        name: String,
    },
}

pub(super) fn run(directories: &Directories, lab: &str, names: &Names) -> Result<()> {
    let dir = directories.lab(lab);
    match names {
        Names::List => print(&dns::list(&dir)?),
        Names::Set { name, addresses } => {
            crate::directories::require_root("lab names")?;
            dns::set(&dir, name, addresses)?;
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            print(&format!("{name} is {}\n", addresses.join(", ")))
        }
        Names::Remove { name } => {
            crate::directories::require_root("lab names")?;
            dns::set(&dir, name, &[])?;
            print(&format!("{name} does not exist any more\n"))
        }
    }
}
