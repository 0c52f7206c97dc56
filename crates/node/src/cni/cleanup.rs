//! Everything of the pods' network off the host again.

use std::io;

use super::{install, wiring};
use crate::kernel::{pod_filter, pod_link};
use crate::options::CniOptions;
use crate::switch::ports::{Ports, Which};
use crate::switch::rows::pod_ports;

/// Takes the runtime's files, the ports of pods and their interfaces off the host. What is gone already is no error; what
/// fails is told, and the rest goes on. Pods that still run lose their network.
pub async fn clean_up(options: &CniOptions, ports: &Ports) -> Result<(), String> {
    let mut failures: Vec<String> = Vec::new();
    failures.extend(install::withdraw(options).err());
    failures.extend(install::remove_plugin(options).err());
    let rows: Vec<_> = pod_ports(&ports.snapshot(), None).into_iter().map(|port| port.port_row).collect();
    if !rows.is_empty() {
        failures.extend(ports.detach(Which::Rows(rows)).await.err().map(|error| error.to_string()));
    }
    failures.extend(remove_pairs().err().map(|error| format!("interfaces of pods cannot be removed: {error}")));
    if let Err(error) = pod_filter::remove_table() {
        failures.push(format!("the nftables table netdev {} cannot be removed: {error}", pod_filter::TABLE));
    }
    match std::fs::remove_dir_all(&options.socket_folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            failures.push(format!("{} cannot be removed: {error}", options.socket_folder.display()));
        }
        _ => {}
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
}

fn remove_pairs() -> io::Result<()> {
    for (name, _) in pod_link::pairs()?.into_iter().filter(|(name, alias)| wiring::is_host_end(name, alias)) {
        pod_link::remove_pair(&name)?;
    }
    Ok(())
}
