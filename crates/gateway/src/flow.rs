//! OpenFlow flows and their difference. The cookie is a hash of the flow, so cookies alone identify what is installed, and only
//! flows that differ are changed.

use std::collections::BTreeMap;
use std::fmt;

/// Upper 16 bits of the cookies of flows that ovnkube owns.
pub const COOKIE: u64 = 0xdeff << 48;
/// Selects the bits that [`COOKIE`] sets.
pub const COOKIE_MASK: u64 = 0xffff << 48;

/// A flow in the syntax of `ovs-ofctl`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// OpenFlow table, from 0.
    pub table: u8,
    /// The highest matching one wins.
    pub priority: u16,
    /// Match fields, such as `ip,in_port=1`; empty matches all.
    pub matching: String,
    /// Actions, such as `output:2`.
    pub actions: String,
}

impl Flow {
    pub(crate) fn new(table: u8, priority: u16, matching: impl Into<String>, actions: impl Into<String>) -> Self {
        Self { table, priority, matching: matching.into(), actions: actions.into() }
    }

    /// [`COOKIE`] and a hash of everything else, so that different flows have different cookies.
    pub fn cookie(&self) -> u64 {
        COOKIE | (crate::fingerprint::fingerprint(&self.body()) & !COOKIE_MASK)
    }

    fn body(&self) -> String {
        let comma = if self.matching.is_empty() { "" } else { "," };
        format!("table={},priority={}{comma}{},actions={}", self.table, self.priority, self.matching, self.actions)
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cookie={:#x},{}", self.cookie(), self.body())
    }
}

/// Flows of ovnkube that a bridge has, by cookie.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Installed(std::collections::BTreeSet<u64>);

impl Installed {
    /// Parses the output of `ovs-ofctl dump-flows`; flows of other owners are skipped.
    pub fn read(dump: &str) -> Self {
        let cookies = dump.split([' ', ',', '\n']).filter_map(|word| word.trim().strip_prefix("cookie=0x"));
        let ours = cookies
            .filter_map(|digits| u64::from_str_radix(digits, 16).ok())
            .filter(|cookie| cookie & COOKIE_MASK == COOKIE);
        Self(ours.collect())
    }

    /// Number of flows.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without a flow.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The change from installed to desired flows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlowChange {
    /// Input lines of `ovs-ofctl --bundle add-flows`.
    pub lines: Vec<String>,
    /// The flows after the change.
    pub installed: Installed,
}

impl FlowChange {
    /// Adds and deletes what differs. Flows that stay are not in `lines`, so they keep their counters and age.
    pub fn between(installed: &Installed, wanted: &[Flow]) -> Self {
        let wanted: BTreeMap<u64, &Flow> = wanted.iter().map(|flow| (flow.cookie(), flow)).collect();
        let gone = installed.0.iter().filter(|cookie| !wanted.contains_key(cookie));
        let gone = gone.map(|cookie| format!("delete cookie={cookie:#x}/-1"));
        let new = wanted.iter().filter(|(cookie, _)| !installed.0.contains(cookie));
        let new = new.map(|(_, flow)| format!("add {flow}"));
        Self { lines: gone.chain(new).collect(), installed: Installed(wanted.keys().copied().collect()) }
    }

    /// Only adds: for the time when not all desired flows are known.
    pub fn adding(installed: &Installed, wanted: &[Flow]) -> Self {
        let mut change = Self::between(installed, wanted);
        change.lines.retain(|line| line.starts_with("add "));
        change.installed.0.extend(&installed.0);
        change
    }

    /// True if installed and desired flows are equal.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(port: u16) -> Flow {
        Flow::new(0, 200, format!("tcp,in_port=1,tp_dst={port}"), "output:2")
    }

    #[test]
    fn only_flows_that_differ_are_changed() {
        let first = FlowChange::between(&Installed::default(), &[flow(1), flow(2)]);
        assert_eq!(first.lines.len(), 2);
        assert!(first.lines.iter().all(|line| line.starts_with("add cookie=0xdeff")), "{first:?}");
        assert!(FlowChange::between(&first.installed, &[flow(2), flow(1)]).is_empty());
        let next = FlowChange::between(&first.installed, &[flow(2), flow(3)]);
        assert_eq!(next.lines, [format!("delete cookie={:#x}/-1", flow(1).cookie()), format!("add {}", flow(3))]);
    }

    #[test]
    fn installed_flows_are_parsed_from_a_dump() {
        let dump = format!(
            " cookie={:#x}, duration=1s, table=0, n_packets=0, n_bytes=0, priority=200,tcp actions=output:2\n \
             cookie=0x0, duration=1s, table=0, priority=0 actions=NORMAL\n cookie=0xdeff105, table=0, actions=drop\n",
            flow(1).cookie()
        );
        let installed = Installed::read(&dump);
        assert_eq!(installed.len(), 1);
        assert!(FlowChange::between(&installed, &[flow(1)]).is_empty());
        let nothing = FlowChange::between(&installed, &[]);
        assert_eq!(nothing.lines.len(), 1);
        assert!(nothing.installed.is_empty());
    }
}
