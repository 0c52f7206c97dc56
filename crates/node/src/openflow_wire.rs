//! The OpenFlow 1.4 messages that the agent exchanges with ovs-vswitchd: echoes, flow monitors, flow counts. 1.4 is the first
//! version with standard flow monitors.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

const VERSION: u8 = 5;
const HELLO: u8 = 0;
pub(crate) const ECHO_REQUEST: u8 = 2;
pub(crate) const ECHO_REPLY: u8 = 3;
const MULTIPART_REQUEST: u8 = 18;
const MULTIPART_REPLY: u8 = 19;
const AGGREGATE: u16 = 2;
const FLOW_MONITOR: u16 = 16;
/// Event of a flow update: removed.
const REMOVED: u16 = 2;
/// Reason of a removal: deleted on request, not by a timeout or with its group.
const DELETED: u8 = 2;

#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) kind: u8,
    id: [u8; 4],
    body: Vec<u8>,
}

impl Message {
    pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut header = [0; 8];
        stream.read_exact(&mut header).await?;
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let mut body = vec![0; length.saturating_sub(header.len())];
        stream.read_exact(&mut body).await?;
        Ok(Self { kind: header[1], id: [header[4], header[5], header[6], header[7]], body })
    }

    /// The reply to an echo request.
    pub(crate) fn echo(&self) -> Vec<u8> {
        message(ECHO_REPLY, self.id, &self.body)
    }

    /// The body, if it is a multipart reply to this kind of request.
    fn reply_to(&self, request: u16) -> Option<&[u8]> {
        let body = self.body.strip_prefix(&request.to_be_bytes())?;
        (self.kind == MULTIPART_REPLY).then_some(body)?.get(6..)
    }

    /// Updates of a flow monitor, if it contains any.
    fn updates(&self) -> Option<&[u8]> {
        self.reply_to(FLOW_MONITOR)
    }

    /// Number of flows, if it is the reply to [`count_flows`].
    pub(crate) fn flows(&self) -> Option<u64> {
        // After the packet and byte counts, 8 bytes each.
        self.reply_to(AGGREGATE)?.get(16..)?.first_chunk().map(|count| u32::from_be_bytes(*count).into())
    }

    /// True if it reports removed flows.
    pub(crate) fn is_removal(&self) -> bool {
        self.updates().is_some()
    }

    /// Number of flows deleted on request. Flows with a timeout are not counted: other flows create and remove them (`learn`).
    pub(crate) fn deletions(&self) -> u64 {
        let mut rest = self.updates().unwrap_or_default();
        let mut count = 0;
        while let Some([a, b, event @ .., _table, reason, idle_a, idle_b, hard_a, hard_b]) = rest.first_chunk::<10>() {
            let length = usize::from(u16::from_be_bytes([*a, *b]));
            let lasting = [idle_a, idle_b, hard_a, hard_b].iter().all(|byte| **byte == 0);
            count += u64::from(u16::from_be_bytes(*event) == REMOVED && *reason == DELETED && lasting);
            rest = rest.get(length.max(8)..).unwrap_or_default();
        }
        count
    }
}

fn message(kind: u8, id: [u8; 4], body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len() + 8).unwrap_or(u16::MAX);
    [&[VERSION, kind], &length.to_be_bytes()[..], &id, body].concat()
}

/// First message of a connection.
pub(crate) fn hello() -> Vec<u8> {
    message(HELLO, [0, 0, 0, 1], &[])
}

/// Every switch replies at once.
pub(crate) fn echo_request() -> Vec<u8> {
    message(ECHO_REQUEST, [0, 0, 0, 3], &[])
}

/// Requests the number of flows.
pub(crate) fn count_flows() -> Vec<u8> {
    let any = u32::MAX.to_be_bytes();
    // All tables, ports, groups and cookies; then an empty match.
    let own = [&[0xff, 0, 0, 0][..], &any, &any, &[0; 4], &[0; 16], &[0, 1, 0, 4, 0, 0, 0, 0]].concat();
    message(MULTIPART_REQUEST, [0, 0, 0, 4], &[&AGGREGATE.to_be_bytes()[..], &[0; 6], &own].concat())
}

/// Requests an update for every removed flow of every table, by any client.
pub(crate) fn monitor_removals() -> Vec<u8> {
    const WHEN_REMOVED: u16 = 1 << 2;
    const ANY: u32 = u32::MAX;
    // Monitor ID, port, group, flags, all tables, command (add); then an empty match.
    let own =
        [&1_u32.to_be_bytes()[..], &ANY.to_be_bytes(), &ANY.to_be_bytes(), &WHEN_REMOVED.to_be_bytes(), &[0xff, 0]];
    let anything = [0, 1, 0, 4, 0, 0, 0, 0];
    let body = [&FLOW_MONITOR.to_be_bytes()[..], &[0; 6], &own.concat(), &anything].concat();
    message(MULTIPART_REQUEST, [0, 0, 0, 2], &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_the_request_is_right() {
        let request = monitor_removals();
        assert_eq!((request.len(), request[3]), (40, 40));
    }

    #[test]
    fn deletions_are_counted_and_timeouts_are_not() {
        let update = |event: u8, reason: u8, idle: u8| {
            let mut update = vec![0, 32, 0, event, 7, reason, 0, idle, 0, 0];
            update.resize(32, 0);
            update
        };
        let (deleted, expired, learned) = (update(2, DELETED, 0), update(2, 0, 60), update(2, DELETED, 60));
        let paused = vec![0, 8, 0, 5, 0, 0, 0, 0];
        let body = [vec![0, 16, 0, 0, 0, 0, 0, 0], deleted.clone(), expired, paused, learned, update(1, 0, 0), deleted];
        let mut message = Message { kind: MULTIPART_REPLY, id: [0; 4], body: body.concat() };
        assert!(message.is_removal());
        assert_eq!(message.deletions(), 2);
        message.body.truncate(20);
        assert_eq!(message.deletions(), 1);
        message.body = [vec![0, 2, 0, 0, 0, 0, 0, 0], vec![0; 16], vec![0, 0, 1, 2, 0, 0, 0, 0]].concat();
        assert_eq!((message.flows(), message.deletions()), (Some(258), 0));
        message.body[1] = 16;
        message.kind = ECHO_REPLY;
        assert_eq!((message.is_removal(), message.deletions()), (false, 0));
    }
}
