//! Detects the loss of a bridge's flows: ovs-vswitchd restarts, or another client deletes some. One OpenFlow connection with a
//! flow monitor reports both; there is no polling.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use crate::openflow_wire::{ECHO_REQUEST, Message, hello, monitor_removals};

/// Deletions within this time are one notification: reading all flows starts a process.
const SETTLING: Duration = Duration::from_secs(1);
/// Delay before the next attempt to connect.
const RETRY: Duration = Duration::from_secs(1);

/// Notifies when flows may have been lost.
#[derive(Debug)]
pub(super) struct FlowChanges {
    changed: watch::Receiver<u64>,
    tasks: [AbortHandle; 2],
}

impl FlowChanges {
    /// Connects to the management socket of a bridge.
    pub(super) fn listen(socket: PathBuf) -> Self {
        let (notify, changed) = watch::channel(0_u64);
        // Capacity 1: many removals are one notification.
        let (removed, mut removals) = mpsc::channel(1);
        let settled = notify.clone();
        let settling = tokio::spawn(async move {
            while removals.recv().await.is_some() {
                tokio::time::sleep(SETTLING).await;
                settled.send_modify(|count| *count += 1);
            }
        });
        let listening = tokio::spawn(async move {
            loop {
                watch(&socket, &removed).await;
                notify.send_modify(|count| *count += 1);
            }
        });
        Self { changed, tasks: [listening.abort_handle(), settling.abort_handle()] }
    }

    /// Returns when flows may have been lost; never after the tasks have ended.
    pub(super) async fn next(&mut self) {
        if self.changed.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for FlowChanges {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Returns when the connection is lost or refused: ovs-vswitchd may have restarted.
async fn watch(socket: &Path, removed: &mpsc::Sender<()>) {
    match UnixStream::connect(socket).await {
        Ok(stream) => drop(read_removals(stream, removed).await),
        Err(_) => tokio::time::sleep(RETRY).await,
    }
}

async fn read_removals(mut stream: UnixStream, removed: &mpsc::Sender<()>) -> io::Result<()> {
    stream.write_all(&hello()).await?;
    stream.write_all(&monitor_removals()).await?;
    loop {
        let message = Message::read(&mut stream).await?;
        if message.kind == ECHO_REQUEST {
            stream.write_all(&message.echo()).await?;
        } else if message.is_removal() {
            // If the channel is full, a notification is pending.
            let _ = removed.try_send(());
        }
        // A switch without flow monitors replies with an error; then only its restart is noticed.
    }
}
