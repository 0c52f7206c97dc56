//! Removes the pods' network from the host (`ovnkube node --cleanup`).

use std::io;

use super::install::{self, FileError};
use super::wiring;
use crate::kernel::{pod_filter, pod_link};
use crate::options::CniOptions;
use crate::switch::ports::{PortError, PortSelector, Ports};
use crate::switch::rows::pod_ports;

/// Something that could not be removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CleanUpError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Port(#[from] PortError),
    #[error("cannot remove interfaces of pods: {0}")]
    Interfaces(io::Error),
    #[error("cannot remove the nftables table netdev {table}: {0}", table = pod_filter::TABLE)]
    Table(io::Error),
}

/// Removes the runtime's files, the OVS ports of pods and their interfaces, whether or not they exist. A failure does not stop
/// the rest: all failures are returned. Pods that still run lose their network.
pub(crate) async fn clean_up(options: &CniOptions, ports: &Ports) -> Vec<CleanUpError> {
    let mut failures: Vec<CleanUpError> = Vec::new();
    failures.extend(install::remove_configuration(options).err().map(CleanUpError::from));
    failures.extend(install::remove_plugin(options).err().map(CleanUpError::from));
    let rows: Vec<_> = pod_ports(&ports.snapshot(), None).into_iter().map(|port| port.port_row).collect();
    if !rows.is_empty() {
        failures.extend(ports.detach(PortSelector::Rows(rows)).await.err().map(CleanUpError::from));
    }
    failures.extend(remove_pairs().err().map(CleanUpError::Interfaces));
    failures.extend(pod_filter::remove_table().err().map(CleanUpError::Table));
    match std::fs::remove_dir_all(&options.socket_dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let path = options.socket_dir.clone();
            failures.push(FileError { action: "remove directory", path, error }.into());
        }
        _ => {}
    }
    failures
}

fn remove_pairs() -> io::Result<()> {
    for (name, _) in pod_link::pairs()?.into_iter().filter(|(name, alias)| wiring::is_host_end(name, alias)) {
        pod_link::remove_pair(&name)?;
    }
    Ok(())
}
