//! Other ovs-vswitchds: only one can serve a datapath, and it must be the one of systemd's unit.

use std::fmt;

/// A process named ovs-vswitchd, in the host's network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its ID on the host.
    pub id: u32,
    /// Its control group, such as `/system.slice/ovs-vswitchd.service`.
    pub control_group: String,
}

/// An ovs-vswitchd that should not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intruder {
    process: Process,
}

/// Names of control groups of containers and pods.
const CONTAINERS: [&str; 6] = ["kubepods", "crio-", "docker-", "/docker/", "libpod-", "cri-containerd-"];

impl Intruder {
    /// Whether its control group is that of a container.
    #[must_use]
    pub fn is_in_container(&self) -> bool {
        CONTAINERS.iter().any(|name| self.process.control_group.contains(name))
    }

    /// Reason of Events.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        if self.is_in_container() { "ContainerisedVswitchd" } else { "SecondVswitchd" }
    }
}

impl fmt::Display for Intruder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Process { id, control_group } = &self.process;
        if self.is_in_container() {
            write!(
                f,
                "ovs-vswitchd also runs in a container (process {id}, {control_group}), but a host can have only one; \
                 delete the DaemonSet that runs it from the cluster"
            )
        } else {
            write!(
                f,
                "a second ovs-vswitchd runs beside the unit (process {id}, {control_group}), but a host can have only one; \
                 find what started it with systemctl status {id}, and stop it"
            )
        }
    }
}

/// The processes that are not part of the unit. `main_process` is the unit's; 0 if it does not run.
#[must_use]
pub fn intruders(processes: &[Process], unit: &str, main_process: u32) -> Vec<Intruder> {
    // A daemon with a monitor has two processes, in one control group.
    let is_the_units =
        |process: &Process| process.id == main_process || process.control_group.rsplit('/').any(|part| part == unit);
    let others = processes.iter().filter(|process| !is_the_units(process));
    others.map(|process| Intruder { process: process.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(id: u32, control_group: &str) -> Process {
        Process { id, control_group: control_group.to_owned() }
    }

    #[test]
    fn processes_outside_of_the_unit_are_named_with_the_remedy() {
        let unit = "ovs-vswitchd.service";
        let ours = [process(7, "/system.slice/ovs-vswitchd.service"), process(6, "/system.slice/ovs-vswitchd.service")];
        assert!(intruders(&ours, unit, 7).is_empty());
        assert!(intruders(&[process(7, "")], unit, 7).is_empty(), "the main process counts wherever it is");

        let pod = process(9, "/kubepods.slice/kubepods-pod1.slice/cri-containerd-abc.scope");
        let found = intruders(&[ours[0].clone(), pod], unit, 7);
        assert_eq!((found.len(), found[0].reason()), (1, "ContainerisedVswitchd"));
        assert!(found[0].to_string().contains("process 9") && found[0].to_string().contains("delete the DaemonSet"));

        let found = intruders(&[process(8, "/user.slice/session-1.scope")], unit, 0);
        assert_eq!(found[0].reason(), "SecondVswitchd");
        assert!(found[0].to_string().contains("systemctl status 8"));
    }
}
