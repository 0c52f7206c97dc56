//! What happens to a bridge's flows without us: ovs-vswitchd goes, and all flows with it, or somebody takes some away. One
//! connection tells both; nothing has to be asked again and again.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use crate::openflow_wire::{ECHO_REQUEST, Message, hello, monitor_removals};

/// What comes together is told together: looking at all flows is the work of a process.
const SETTLING: Duration = Duration::from_secs(1);
/// How soon a bridge that cannot be asked is asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// Listens at a bridge.
#[derive(Debug)]
pub(super) struct FlowChanges {
    changed: watch::Receiver<u64>,
    tasks: [AbortHandle; 2],
}

impl FlowChanges {
    /// Of the bridge whose socket this is.
    pub(super) fn listen(socket: PathBuf) -> Self {
        let (tell, changed) = watch::channel(0_u64);
        // Room for one: many removals are one piece of news.
        let (heard, mut removals) = mpsc::channel(1);
        let settled = tell.clone();
        let settling = tokio::spawn(async move {
            while removals.recv().await.is_some() {
                tokio::time::sleep(SETTLING).await;
                settled.send_modify(|count| *count += 1);
            }
        });
        let listening = tokio::spawn(async move {
            loop {
                until_gone(&socket, &heard).await;
                tell.send_modify(|count| *count += 1);
            }
        });
        Self { changed, tasks: [listening.abort_handle(), settling.abort_handle()] }
    }

    /// Returns when flows may be gone; never if that cannot be told any more.
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

/// Returns when ovs-vswitchd, that has this socket, is gone.
async fn until_gone(socket: &Path, removed: &mpsc::Sender<()>) {
    match UnixStream::connect(socket).await {
        Ok(stream) => drop(converse(stream, removed).await),
        Err(_) => tokio::time::sleep(AGAIN).await,
    }
}

async fn converse(mut stream: UnixStream, removed: &mpsc::Sender<()>) -> io::Result<()> {
    stream.write_all(&hello()).await?;
    stream.write_all(&monitor_removals()).await?;
    loop {
        let message = Message::read(&mut stream).await?;
        if message.kind == ECHO_REQUEST {
            stream.write_all(&message.echo()).await?;
        } else if message.is_removal() {
            // If there is no room, it will be told anyway.
            let _ = removed.try_send(());
        }
        // A switch that knows no monitors says so; then its end is all that is heard.
    }
}
