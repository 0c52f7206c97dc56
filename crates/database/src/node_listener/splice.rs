//! Copies between two connections without buffers of its own: what TLS has decrypted is written to the other side at once.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

/// How long the last bytes may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// One direction.
#[derive(Debug, Default)]
struct Direction {
    /// Something was written and not flushed.
    dirty: bool,
    /// The writer takes nothing.
    blocked: bool,
    copied: u64,
    /// `copied` at the last check, if the writer took nothing then.
    stuck_at: Option<u64>,
    /// What is not written yet, but was looked at.
    looked: usize,
}

impl Direction {
    /// Copies what there is; ready at the end of the reader. Nothing is written that `look` has not accepted.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        look: &mut impl FnMut(&[u8]) -> io::Result<()>,
        reader: &mut (impl AsyncBufRead + Unpin),
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        self.blocked = true;
        loop {
            let ended = match Pin::new(&mut *reader).poll_fill_buf(context) {
                Poll::Ready(Ok([])) => Some(Ok(())),
                Poll::Ready(Ok(bytes)) => {
                    if let Some(new) = bytes.get(self.looked..).filter(|new| !new.is_empty()) {
                        look(new)?;
                        self.looked = bytes.len();
                    }
                    let count = ready!(Pin::new(&mut *writer).poll_write(context, bytes))?;
                    if count == 0 {
                        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                    }
                    Pin::new(&mut *reader).consume(count);
                    self.looked -= count;
                    self.copied += count as u64;
                    self.dirty = true;
                    continue;
                }
                Poll::Ready(Err(error)) => Some(Err(error)),
                Poll::Pending => None,
            };
            if self.dirty {
                ready!(Pin::new(&mut *writer).poll_flush(context))?;
                self.dirty = false;
            }
            self.blocked = false;
            return ended.map_or(Poll::Pending, Poll::Ready);
        }
    }

    /// Whether nothing was taken since the last call, although there was something.
    fn is_stalled(&mut self) -> bool {
        let stalled = self.blocked && self.stuck_at == Some(self.copied);
        self.stuck_at = self.blocked.then_some(self.copied);
        stalled
    }
}

/// Copies in both directions until one side ends or fails, or takes nothing for `stalled` or longer, though there is something
/// for it, or `look` refuses what `one` sends; then closes both.
pub(super) async fn splice<A, B>(
    one: &mut A,
    other: &mut B,
    mut look: impl FnMut(&[u8]) -> io::Result<()>,
    stalled: Duration,
) -> io::Result<()>
where
    A: AsyncBufRead + AsyncWrite + Unpin,
    B: AsyncBufRead + AsyncWrite + Unpin,
{
    let (mut forth, mut back) = (Direction::default(), Direction::default());
    let mut checks = interval_at(Instant::now() + stalled, stalled);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let ended = loop {
        tokio::select! {
            ended = poll_fn(|context| {
                if let Poll::Ready(ended) = forth.poll(context, &mut look, one, other) {
                    return Poll::Ready(ended);
                }
                back.poll(context, &mut |_| Ok(()), other, one)
            }) => break ended,
            _ = checks.tick() => if forth.is_stalled() || back.is_stalled() {
                break Err(io::ErrorKind::TimedOut.into());
            },
        }
    };
    let _ = timeout(CLOSE_LIMIT, async { tokio::join!(one.shutdown(), other.shutdown()) }).await;
    ended
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, BufReader, duplex};

    use super::*;

    const STALLED: Duration = Duration::from_millis(100);

    #[tokio::test]
    async fn all_bytes_arrive_in_both_directions_and_the_end_of_one_side_ends_the_other() {
        let (client, near) = duplex(100);
        let (far, server) = duplex(7);
        let task = tokio::spawn(async move {
            splice(&mut BufReader::new(near), &mut BufReader::new(far), |_| Ok(()), STALLED).await
        });
        let sent: Vec<u8> = (0..100_000_u32).map(|number| number.to_be_bytes()[3]).collect();
        let (mut client_read, mut client_write) = tokio::io::split(client);
        let (mut server_read, mut server_write) = tokio::io::split(server);
        let (mut there, mut here) = (vec![0; sent.len()], vec![0; sent.len()]);
        let (one, two, three, four) = tokio::join!(
            client_write.write_all(&sent),
            server_write.write_all(&sent),
            server_read.read_exact(&mut there),
            client_read.read_exact(&mut here),
        );
        one.and(two).unwrap();
        three.and(four).unwrap();
        assert!(there == sent && here == sent);
        server_write.shutdown().await.unwrap();
        assert_eq!(client_read.read(&mut [0]).await.unwrap(), 0);
        task.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_side_that_takes_nothing_is_given_up_and_an_idle_one_is_not() {
        let (mut client, near) = duplex(8);
        let (far, server) = duplex(8);
        let task = tokio::spawn(async move {
            splice(&mut BufReader::new(near), &mut BufReader::new(far), |_| Ok(()), STALLED).await
        });
        tokio::time::sleep(10 * STALLED).await;
        assert!(!task.is_finished());
        // More than both buffers and the reader's hold; the server reads none of it.
        let _ = client.write_all(&[0; 65_536]).await;
        assert_eq!(task.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(server);
    }
}
