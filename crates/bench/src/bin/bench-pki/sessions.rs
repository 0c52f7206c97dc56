//! Many sessions with the southbound server.

use std::time::Instant;

use anyhow::{Context, Result};
use ovsdb::client::{Client, Subscription};
use serde_json::json;

use crate::site::{Site, TIMEOUT, Transport};

/// Open sessions. Must be created and used in a runtime.
pub(crate) struct Sessions {
    clients: Vec<(Client, Subscription)>,
}

impl Sessions {
    /// Opens sessions, all at once; returns when each has its first dump.
    pub(crate) async fn open(site: &Site, transport: Transport, count: usize) -> Result<Self> {
        Self::of((0..count).map(|_| site.connect(transport)).collect::<Result<_>>()?).await
    }

    /// The sessions of these clients; returns when each has its first dump.
    pub(crate) async fn of(clients: Vec<Client>) -> Result<Self> {
        let with_changes = |client: Client| {
            let changes = client.subscribe();
            (client, changes)
        };
        let mut clients: Vec<_> = clients.into_iter().map(with_changes).collect();
        for (client, changes) in &mut clients {
            client.connected(TIMEOUT).await?;
            // The dump of its table; later changes come after it.
            changes.take();
        }
        Ok(Self { clients })
    }

    /// How many sessions were lost since they were opened.
    pub(crate) fn dropped(&self) -> u64 {
        self.clients
            .iter()
            .map(|(client, _)| {
                let status = client.status();
                let status = status.borrow();
                status.sessions.saturating_sub(1) + u64::from(!status.connected)
            })
            .sum()
    }

    /// Executes a transaction over the first session; returns the seconds until it was acknowledged, and until all sessions have
    /// seen it.
    pub(crate) async fn write(&mut self, number: u64) -> Result<(f64, f64)> {
        let operation = json!({ "op": "update", "table": "SB_Global", "where": [], "row": { "nb_cfg": number } });
        let start = Instant::now();
        let (writer, _) = self.clients.first().context("no session")?;
        writer.transact_raw(&[operation], false).await?;
        let acknowledged = start.elapsed().as_secs_f64();
        for (_, changes) in &mut self.clients {
            tokio::time::timeout(TIMEOUT, changes.next()).await.context("a session has not seen a transaction")?;
        }
        Ok((acknowledged, start.elapsed().as_secs_f64()))
    }

    /// The same, seen by other sessions than the one that writes.
    pub(crate) async fn write_seen_by(&mut self, others: &mut Self, number: u64) -> Result<(f64, f64)> {
        let start = Instant::now();
        let (acknowledged, _) = self.write(number).await?;
        for (_, changes) in &mut others.clients {
            tokio::time::timeout(TIMEOUT, changes.next()).await.context("a session has not seen a transaction")?;
        }
        Ok((acknowledged, start.elapsed().as_secs_f64()))
    }
}
