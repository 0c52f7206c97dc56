//! `lab fault`: faults on a running lab, by hand.

use std::time::{Duration, Instant};

use clap::Subcommand;

use super::say;
use crate::error::Result;
use crate::fault;
use crate::place::Place;
use crate::record::Record;

#[derive(Debug, Subcommand)]
pub(super) enum Fault {
    /// Kill a component with SIGKILL
    Kill {
        /// The component
        component: String,
    },
    /// Stop a component with SIGSTOP: it keeps its sockets and answers nobody
    Pause {
        /// The component
        component: String,
    },
    /// Let a stopped component go on
    Resume {
        /// The component
        component: String,
    },
    /// Cut two machines off from each other
    Partition {
        /// One machine
        one: String,
        /// The other
        other: String,
    },
    /// Lose packets from and to a machine at random
    Lose {
        /// The machine
        machine: String,
        /// How many of a hundred
        percent: u8,
    },
    /// Undo every partition and loss
    Heal,
    /// Put a small file system at a path of a machine and fill it
    FillDisk {
        /// The machine
        machine: String,
        /// The folder
        path: String,
        /// The file system's size
        #[arg(long, default_value_t = 16)]
        mib: u32,
    },
}

/// Waits until the keeper has noticed a component's end, so that what is asked next tells of it.
fn await_noticed(place: &Place, lab: &str, killed: &fault::Killed) {
    let noticed = || {
        let record = Record::load(place, lab).ok();
        let found = record.as_ref().and_then(|record| record.component(&killed.component).ok());
        found.is_none_or(|component| component.process != killed.process || component.ended.is_some())
    };
    let deadline = Instant::now() + Duration::from_secs(5);
    while !noticed() && Instant::now() < deadline {
        std::thread::yield_now();
    }
}

pub(super) fn run(place: &Place, record: &Record, fault: &Fault) -> Result<()> {
    crate::place::require_root("lab fault")?;
    let done = match fault {
        Fault::Kill { component } => {
            let killed = fault::kill(record, component)?;
            await_noticed(place, &record.name, &killed);
            killed.to_string()
        }
        Fault::Pause { component } => fault::pause(record, component)?.to_string(),
        Fault::Resume { component } => {
            fault::resume(record, component)?;
            format!("{component} goes on")
        }
        Fault::Partition { one, other } => fault::partition(record, one, other)?.to_string(),
        Fault::Lose { machine, percent } => fault::lose(record, machine, *percent)?.to_string(),
        Fault::Heal => format!("undid {} faults of the underlay", fault::heal_all(record)?),
        Fault::FillDisk { machine, path, mib } => {
            let disk = fault::small_disk(record, machine, path, *mib)?;
            let bytes = disk.fill()?;
            format!("{disk}: {bytes} bytes written, 0 free; `lab exec {machine} umount {path}` takes it away")
        }
    };
    say(&format!("{done}\n"))
}
