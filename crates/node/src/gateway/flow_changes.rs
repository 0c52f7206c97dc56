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

/// Why flows may have been lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// A client deleted some.
    Deleted,
    /// The connection was lost or refused: ovs-vswitchd may have restarted, without flows.
    Disconnected,
}

/// Number of events so far.
#[derive(Debug, Default, Clone, Copy)]
struct Events {
    deletions: u64,
    disconnects: u64,
}

/// Notifies when flows may have been lost.
#[derive(Debug)]
pub(super) struct FlowChanges {
    changed: watch::Receiver<Events>,
    /// Disconnects that [`FlowChanges::next`] has returned.
    disconnects: u64,
    tasks: [AbortHandle; 2],
}

impl FlowChanges {
    /// Connects to the management socket of a bridge.
    pub(super) fn listen(socket: PathBuf) -> Self {
        let (notify, changed) = watch::channel(Events::default());
        // Capacity 1: many removals are one notification.
        let (removed, mut removals) = mpsc::channel(1);
        let settled = notify.clone();
        let settling = tokio::spawn(async move {
            while removals.recv().await.is_some() {
                tokio::time::sleep(SETTLING).await;
                settled.send_modify(|events| events.deletions += 1);
            }
        });
        let listening = tokio::spawn(async move {
            loop {
                watch(&socket, &removed).await;
                notify.send_modify(|events| events.disconnects += 1);
            }
        });
        Self { changed, disconnects: 0, tasks: [listening.abort_handle(), settling.abort_handle()] }
    }

    /// Returns when flows may have been lost, and why; never after the tasks have ended.
    pub(super) async fn next(&mut self) -> Loss {
        if self.changed.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        let disconnects = self.changed.borrow_and_update().disconnects;
        match std::mem::replace(&mut self.disconnects, disconnects) == disconnects {
            true => Loss::Deleted,
            false => Loss::Disconnected,
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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn a_restart_of_the_switch_is_not_a_deletion() {
        let path = std::env::temp_dir().join(format!("ovnkube-flow-changes-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let mut changes = FlowChanges::listen(path.clone());
        let (mut switch, _) = listener.accept().await.unwrap();
        let mut requests = vec![0; hello().len() + monitor_removals().len()];
        switch.read_exact(&mut requests).await.unwrap();
        // A multipart reply with updates of a flow monitor.
        switch.write_all(&[5, 19, 0, 16, 0, 0, 0, 2, 0, 16, 0, 0, 0, 0, 0, 0]).await.unwrap();
        assert_eq!(changes.next().await, Loss::Deleted);
        drop(switch);
        assert_eq!(changes.next().await, Loss::Disconnected);
        std::fs::remove_file(&path).unwrap();
    }
}
