//! A monitor of a node's Open vSwitch database: when each logical port was reported as installed.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use lab::Machine;
use ovsdb::client::{Client, Config, TableMonitor};
use ovsdb::replica::Snapshot;
use serde_json::Value;
use tokio::runtime::Handle;

use crate::world::TIMEOUT;

#[derive(Default)]
struct Seen {
    installed: Mutex<HashMap<String, Instant>>,
    changed: Condvar,
}

/// Runs in its own thread until this program ends.
pub(crate) struct PortMonitor {
    seen: Arc<Seen>,
    client: Client,
    runtime: Handle,
}

impl PortMonitor {
    pub(crate) fn of(machine: &Machine) -> Result<Self> {
        let remote = format!("unix:/proc/{}/root/run/openvswitch/db.sock", machine.init().pid);
        let config = Config::new(vec![remote.parse()?], "Open_vSwitch")
            .monitor(TableMonitor::new("Interface").columns(&["name", "external_ids"]));
        let seen = Arc::new(Seen::default());
        let (ready, started) = std::sync::mpsc::channel();
        let watching = seen.clone();
        std::thread::spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
            runtime.block_on(async {
                let client = Client::start(config);
                let connected = client.connected(TIMEOUT).await;
                let _ = ready.send(connected.map(|()| (client.clone(), Handle::current())));
                let mut changes = client.subscribe();
                loop {
                    changes.next().await;
                    watching.update(&client.snapshot());
                }
            });
        });
        let (client, runtime) = started
            .recv()
            .context("the monitor thread ended")?
            .context("cannot connect to the Open vSwitch database")?;
        Ok(Self { seen, client, runtime })
    }

    /// When a logical port was seen to be installed; waits for it.
    pub(crate) fn installed(&self, port: &str) -> Result<Instant> {
        let deadline = Instant::now() + TIMEOUT;
        let mut installed = self.seen.installed.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(when) = installed.get(port) {
                return Ok(*when);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("port {port} was not installed within {TIMEOUT:?}");
            }
            let woken = self.seen.changed.wait_timeout(installed, left).unwrap_or_else(PoisonError::into_inner);
            installed = woken.0;
        }
    }

    /// Carries operations out, as one transaction.
    pub(crate) fn transact(&self, operations: &[Value]) -> Result<()> {
        self.runtime
            .block_on(self.client.transact_raw(operations, false))
            .map(drop)
            .context("Open vSwitch refused the transaction")
    }
}

impl Seen {
    fn update(&self, snapshot: &Snapshot) {
        let now = Instant::now();
        let Some(interfaces) = snapshot.table("Interface") else { return };
        let mut installed = self.installed.lock().unwrap_or_else(PoisonError::into_inner);
        for row in interfaces.iter() {
            let Some(ids) = row.get("external_ids") else { continue };
            if let (Some(port), Some("true")) = (ids.get_str("iface-id"), ids.get_str("ovn-installed").as_deref()) {
                installed.entry(port).or_insert(now);
            }
        }
        drop(installed);
        self.changed.notify_all();
    }
}
