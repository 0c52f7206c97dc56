//! What happens to a bridge's flows without us: ovs-vswitchd goes, and all flows with it, or somebody takes some away. One
//! connection tells both; nothing has to be asked again and again.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

/// OpenFlow 1.4, the first that has monitors in its standard.
const VERSION: u8 = 5;
const HELLO: u8 = 0;
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
const MULTIPART_REQUEST: u8 = 18;
const MULTIPART_REPLY: u8 = 19;
const FLOW_MONITOR: u16 = 16;
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
    stream.write_all(&[VERSION, HELLO, 0, 8, 0, 0, 0, 1]).await?;
    stream.write_all(&monitor()).await?;
    loop {
        let mut header = [0; 8];
        stream.read_exact(&mut header).await?;
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let mut body = vec![0; length.saturating_sub(header.len())];
        stream.read_exact(&mut body).await?;
        match header[1] {
            ECHO_REQUEST => {
                header[1] = ECHO_REPLY;
                stream.write_all(&[&header[..], &body].concat()).await?;
            }
            MULTIPART_REPLY if body.starts_with(&FLOW_MONITOR.to_be_bytes()) => {
                // If there is no room, it will be told anyway.
                let _ = removed.try_send(());
            }
            // A switch that knows no monitors says so; then its end is all that is heard.
            _ => {}
        }
    }
}

/// The request to be told when a flow is removed, from whichever table by whomever.
fn monitor() -> Vec<u8> {
    const REMOVED: u16 = 1 << 2;
    const ANY: u32 = u32::MAX;
    let header = [&[VERSION, MULTIPART_REQUEST, 0, 40, 0, 0, 0, 2][..], &FLOW_MONITOR.to_be_bytes(), &[0; 6]].concat();
    // Number, port, group, when to tell, all tables, a new monitor; then what a flow must match: nothing.
    let own = [&1_u32.to_be_bytes()[..], &ANY.to_be_bytes(), &ANY.to_be_bytes(), &REMOVED.to_be_bytes(), &[0xff, 0]];
    let anything = [0, 1, 0, 4, 0, 0, 0, 0];
    [header, own.concat(), anything.to_vec()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_as_long_as_it_says() {
        assert_eq!(monitor().len(), 40);
    }
}
