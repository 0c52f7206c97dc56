//! Flows of a bridge, changed with `ovs-ofctl`: one bundle for a change, no process if nothing differs.

use std::path::{Path, PathBuf};

use gateway::{COOKIE, COOKIE_MASK, Flow, FlowChange, Installed};
use ovsdb::client::Remote;

use super::process::{CommandError, run};
use crate::daemon::ovs_run_dir;

const TIMEOUT: &str = "--timeout=30";
/// The first OpenFlow version with bundles.
const VERSION: &str = "--protocols=OpenFlow14";

/// The flows of ovnkube on one bridge.
#[derive(Debug)]
pub(super) struct OpenFlow {
    socket: PathBuf,
    /// None if it must be read from the bridge.
    installed: Option<Installed>,
}

/// What [`OpenFlow::apply`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Applied {
    /// Number of flows added and deleted.
    pub(super) changed: usize,
    /// Whether the bridge had no flow of ovnkube before.
    pub(super) was_empty: bool,
}

impl OpenFlow {
    /// A bridge of the switch that has this database.
    pub(super) fn of(bridge: &str, switch: &Remote) -> Self {
        Self { socket: ovs_run_dir(switch).join(format!("{bridge}.mgmt")), installed: None }
    }

    /// The bridge's management socket, which ovs-vswitchd serves.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Another client may have changed the flows: read them again.
    pub(super) fn invalidate(&mut self) {
        self.installed = None;
    }

    /// Writes the difference. Unless `complete`, nothing is deleted.
    pub(super) async fn apply(&mut self, desired: &[Flow], complete: bool) -> Result<Applied, CommandError> {
        let installed = match self.installed.take() {
            Some(installed) => installed,
            None => {
                let own = format!("cookie={COOKIE:#x}/{COOKIE_MASK:#x}");
                Installed::read(&self.ofctl(&["dump-flows"], Some(&own), None).await?)
            }
        };
        let was_empty = installed.is_empty();
        let change =
            if complete { FlowChange::between(&installed, desired) } else { FlowChange::adding(&installed, desired) };
        if !change.is_empty() {
            let input = change.lines.join("\n") + "\n";
            self.ofctl(&["--bundle", "add-flows"], Some("-"), Some(&input)).await?;
        }
        self.installed = Some(change.installed);
        Ok(Applied { changed: change.lines.len(), was_empty })
    }

    async fn ofctl(&self, words: &[&str], last: Option<&str>, stdin: Option<&str>) -> Result<String, CommandError> {
        let mut arguments = vec![TIMEOUT.to_owned(), VERSION.to_owned()];
        arguments.extend(words.iter().map(ToString::to_string));
        arguments.push(format!("unix:{}", self.socket.display()));
        arguments.extend(last.map(str::to_owned));
        run("ovs-ofctl", &arguments, stdin).await
    }
}
