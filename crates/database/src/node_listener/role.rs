//! Whether the database has the role of nodes, which ovn-northd writes.
//!
//! A database that was rebuilt is empty at first. A node that connects then may write nothing, and ovn-controller does not wait
//! before it tries again: three of them sent a thousand transactions a second, which delayed ovn-northd.

use std::path::PathBuf;
use std::time::Duration;

use crate::kind::Kind;
use backoff::Backoff;
use ovsdb::client::{Client, Config, Remote, TableMonitor};
use ovsdb::replica::Table;

use super::ROLE;

const TABLE: &str = "RBAC_Role";

/// Answer of a [`RoleCheck`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RoleState {
    /// The server does not reply, or is not in contact with its cluster.
    Unknown,
    /// Nodes may change nothing.
    Missing,
    Present,
}

/// A client of the server behind the listener.
#[derive(Debug)]
pub(super) struct RoleCheck {
    /// None in tests whose server has no database: the role counts as present.
    socket: Option<PathBuf>,
    client: Option<Client>,
}

impl RoleCheck {
    pub(super) fn new(socket: Option<PathBuf>) -> Self {
        Self { socket, client: None }
    }

    /// Another server runs, or none.
    pub(super) fn restart(&mut self, runs: bool) {
        self.client = self.socket.as_ref().filter(|_| runs).map(|socket| {
            let mut config = Config::new(vec![Remote::Unix(socket.clone())], Kind::Southbound.schema());
            config.leader_only = false;
            config.backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));
            Client::start(config.monitor(TableMonitor::new(TABLE).columns(&["name"])))
        });
    }

    pub(super) fn state(&self) -> RoleState {
        if self.socket.is_none() {
            return RoleState::Present;
        }
        let Some(client) = &self.client else { return RoleState::Unknown };
        if !client.status().borrow().connected {
            return RoleState::Unknown;
        }
        let snapshot = client.snapshot();
        let mut roles = snapshot.table(TABLE).into_iter().flat_map(Table::iter);
        if roles.any(|role| role.text("name").as_deref() == Some(ROLE)) {
            RoleState::Present
        } else {
            RoleState::Missing
        }
    }
}
