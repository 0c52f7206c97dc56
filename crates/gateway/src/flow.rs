//! A flow, and how its identity makes changes small: a cookie says what a flow is, so what is installed is known by its
//! cookies alone.

use std::collections::BTreeMap;
use std::fmt;

/// What the cookies of our flows begin with.
pub const COOKIE: u64 = 0xdeff << 48;
/// The bits of a cookie that say that it is ours.
pub const COOKIE_MASK: u64 = 0xffff << 48;

/// One flow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// Its table.
    pub table: u8,
    /// Its priority.
    pub priority: u16,
    /// What it is for, as OpenFlow writes it.
    pub matching: String,
    /// What it does.
    pub actions: String,
}

impl Flow {
    pub(crate) fn new(table: u8, priority: u16, matching: impl Into<String>, actions: impl Into<String>) -> Self {
        Self { table, priority, matching: matching.into(), actions: actions.into() }
    }

    /// Says that it is ours, and what it is: another flow has another cookie.
    pub fn cookie(&self) -> u64 {
        COOKIE | (crate::text::fingerprint(&self.body()) & !COOKIE_MASK)
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

/// Our flows that a bridge has, by their cookies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Installed(std::collections::BTreeSet<u64>);

impl Installed {
    /// Reads what `ovs-ofctl dump-flows` printed; flows of others are left out.
    pub fn read(dump: &str) -> Self {
        let cookies = dump.split([' ', ',', '\n']).filter_map(|word| word.trim().strip_prefix("cookie=0x"));
        let ours = cookies
            .filter_map(|digits| u64::from_str_radix(digits, 16).ok())
            .filter(|cookie| cookie & COOKIE_MASK == COOKIE);
        Self(ours.collect())
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What to do so that a bridge has the flows that it shall have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlowChange {
    /// Lines for `ovs-ofctl --bundle add-flows`.
    pub lines: Vec<String>,
    /// What is installed afterwards.
    pub installed: Installed,
}

impl FlowChange {
    /// From what is installed to what is wanted: flows that stay are not named, so their counters and age stay too.
    pub fn between(installed: &Installed, wanted: &[Flow]) -> Self {
        let wanted: BTreeMap<u64, &Flow> = wanted.iter().map(|flow| (flow.cookie(), flow)).collect();
        let gone = installed.0.iter().filter(|cookie| !wanted.contains_key(cookie));
        let gone = gone.map(|cookie| format!("delete cookie={cookie:#x}/-1"));
        let new = wanted.iter().filter(|(cookie, _)| !installed.0.contains(cookie));
        let new = new.map(|(_, flow)| format!("add {flow}"));
        Self { lines: gone.chain(new).collect(), installed: Installed(wanted.keys().copied().collect()) }
    }

    /// The same, but what is installed stays.
    pub fn adding(installed: &Installed, wanted: &[Flow]) -> Self {
        let mut change = Self::between(installed, wanted);
        change.lines.retain(|line| line.starts_with("add "));
        change.installed.0.extend(&installed.0);
        change
    }

    /// Whether nothing is to be done.
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
    fn only_what_differs_is_touched() {
        let first = FlowChange::between(&Installed::default(), &[flow(1), flow(2)]);
        assert_eq!(first.lines.len(), 2);
        assert!(first.lines.iter().all(|line| line.starts_with("add cookie=0xdeff")), "{first:?}");
        assert!(FlowChange::between(&first.installed, &[flow(2), flow(1)]).is_empty());
        let next = FlowChange::between(&first.installed, &[flow(2), flow(3)]);
        assert_eq!(next.lines, [format!("delete cookie={:#x}/-1", flow(1).cookie()), format!("add {}", flow(3))]);
    }

    #[test]
    fn what_is_installed_is_read_from_a_dump() {
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
