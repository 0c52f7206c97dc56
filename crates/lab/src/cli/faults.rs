//! `lab fault`: injects faults into a running lab.

use std::time::{Duration, Instant};

use clap::Subcommand;

use super::print;
use crate::directories::Directories;
use crate::error::Result;
use crate::fault;
use crate::record::Record;
use crate::volume_fault;

#[derive(Debug, Subcommand)]
pub(super) enum Fault {
    /// Kill a component with SIGKILL
    Kill {
        /// Name of the component, as in `lab status`
        component: String,
    },
    /// Stop a component with SIGSTOP: it keeps its sockets and does not respond
    Pause {
        /// Name of the component, as in `lab status`
        component: String,
    },
    /// Continue a stopped component with SIGCONT
    Resume {
        /// Name of the component, as in `lab status`
        component: String,
    },
    /// Drop all packets between two machines
    Partition {
        /// Name of one machine
        one: String,
        /// Name of the other machine
        other: String,
    },
    /// Drop packets from and to a machine at random
    Lose {
        /// Name of the machine, as in `lab status`
        machine: String,
        /// Percentage of packets, 1 to 100
        percent: u8,
    },
    /// Undo every partition, every packet loss, and all faults of volumes but lost data
    Heal,
    /// Delete everything on a volume, as if an empty one had been attached
    LoseVolume {
        /// Name of the PersistentVolume
        volume: String,
    },
    /// Fill a volume completely
    FillVolume {
        /// Name of the PersistentVolume
        volume: String,
    },
    /// Delay writes to a volume
    SlowVolume {
        /// Name of the PersistentVolume
        volume: String,
        /// Longest delay of a write in milliseconds
        #[arg(long, default_value_t = 1000)]
        milliseconds: u64,
    },
    /// Make every write to a volume fail
    ReadOnlyVolume {
        /// Name of the PersistentVolume
        volume: String,
    },
    /// Mount a small file system at a path of a machine and fill it
    FillDisk {
        /// Name of the machine, as in `lab status`
        machine: String,
        /// Directory where it is mounted
        path: String,
        /// Size of the file system in MiB
        #[arg(long, default_value_t = 16)]
        mib: u32,
    },
}

/// Waits until the keeper has recorded the exit, so that the next `lab status` shows it.
fn await_noticed(directories: &Directories, lab: &str, killed: &fault::Killed) {
    let noticed = || {
        let record = Record::load(directories, lab).ok();
        let found = record.as_ref().and_then(|record| record.component(&killed.component).ok());
        found.is_none_or(|component| component.process != killed.process || component.ended.is_some())
    };
    let deadline = Instant::now() + Duration::from_secs(5);
    while !noticed() && Instant::now() < deadline {
        std::thread::yield_now();
    }
}

pub(super) fn run(directories: &Directories, record: &Record, fault: &Fault) -> Result<()> {
    crate::directories::require_root("lab fault")?;
    let dir = directories.lab(&record.name);
    let done = match fault {
        Fault::Kill { component } => {
            let killed = fault::kill(record, component)?;
            await_noticed(directories, &record.name, &killed);
            killed.to_string()
        }
        Fault::Pause { component } => fault::pause(record, component)?.to_string(),
        Fault::Resume { component } => {
            fault::resume(record, component)?;
            format!("{component} continues")
        }
        Fault::Partition { one, other } => fault::partition(record, one, other)?.to_string(),
        Fault::Lose { machine, percent } => fault::lose(record, machine, *percent)?.to_string(),
        Fault::Heal => match (fault::heal_all(record)?, volume_fault::heal_all(record, &dir)?) {
            (0, 0) => "nothing to heal".to_owned(),
            (packets, volumes) => {
                format!("undid {packets} partitions and packet losses, and the faults of {volumes} volumes")
            }
        },
        Fault::LoseVolume { volume } => volume_fault::lose(record, &dir, volume)?.to_string(),
        Fault::FillVolume { volume } => volume_fault::fill(record, &dir, volume)?.to_string(),
        Fault::SlowVolume { volume, milliseconds } => {
            volume_fault::slow(record, &dir, volume, Duration::from_millis(*milliseconds))?.to_string()
        }
        Fault::ReadOnlyVolume { volume } => volume_fault::make_read_only(record, &dir, volume)?.to_string(),
        Fault::FillDisk { machine, path, mib } => {
            let disk = fault::small_disk(record, machine, path, *mib)?;
            let bytes = disk.fill()?;
            format!("{disk}: {bytes} bytes written, 0 free; `lab exec {machine} umount {path}` removes it")
        }
    };
    print(&format!("{done}\n"))
}
