//! The processes of ovs-vswitchd on this host, from `/proc`.

use std::path::Path;

use hostovs::processes::Process;

/// All of them in this network namespace, also those in containers. Needs the host's process IDs.
pub(crate) fn vswitchds() -> std::io::Result<Vec<Process>> {
    let network = std::fs::read_link("/proc/self/ns/net")?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        let id = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        // A process may end at any moment.
        if let Some(process) = id.and_then(|id| read(&path, id, &network)) {
            found.push(process);
        }
    }
    Ok(found)
}

fn read(path: &Path, id: u32, network: &Path) -> Option<Process> {
    let name = std::fs::read_to_string(path.join("comm")).ok()?;
    if name.trim() != "ovs-vswitchd" || std::fs::read_link(path.join("ns/net")).ok()? != network {
        return None;
    }
    let groups = std::fs::read_to_string(path.join("cgroup")).unwrap_or_default();
    Some(Process { id, control_group: control_group(&groups) })
}

/// The control group that systemd manages: of the unified hierarchy, else of systemd's own.
fn control_group(groups: &str) -> String {
    let of = |prefix: &str| groups.lines().find_map(|line| line.split_once(prefix).filter(|(id, _)| !id.contains(':')));
    let systemds = of(":name=systemd:").map(|(_, path)| path).filter(|path| *path != "/");
    let unified = of("::").map(|(_, path)| path).filter(|path| *path != "/");
    unified.or(systemds).unwrap_or("/").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_group_is_found_in_both_hierarchies() {
        assert_eq!(control_group("0::/system.slice/ovs-vswitchd.service\n"), "/system.slice/ovs-vswitchd.service");
        assert_eq!(
            control_group("2:cpu:/x\n1:name=systemd:/system.slice/a.service\n0::/\n"),
            "/system.slice/a.service"
        );
        assert_eq!(control_group(""), "/");
    }
}
