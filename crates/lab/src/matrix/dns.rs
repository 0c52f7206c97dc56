//! One DNS query over UDP, from a pod's network namespace, as the pod's resolver sends it.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use netmodel::Family;

const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
const CLASS_INTERNET: u16 = 1;
/// Any ID works: each query has its own socket.
const QUERY_ID: u16 = 0x0b57;

/// The addresses of a name, of one family.
pub(super) fn resolve(server: SocketAddr, name: &str, family: Family, limit: Duration) -> Result<Vec<IpAddr>, String> {
    let any = Family::of(server.ip()).unspecified();
    let ask = || -> std::io::Result<Vec<u8>> {
        let socket = UdpSocket::bind((any, 0))?;
        socket.set_read_timeout(Some(limit))?;
        socket.connect(server)?;
        socket.send(&query(name, family))?;
        let mut answer = vec![0; 1500];
        let length = socket.recv(&mut answer)?;
        answer.truncate(length);
        Ok(answer)
    };
    let answer = ask().map_err(|error| format!("DNS query for {name} to {server} failed: {error}"))?;
    match addresses(&answer) {
        Some(found) if !found.is_empty() => Ok(found),
        Some(_) => Err(format!("{server} has no address of this family for {name}")),
        None => Err(format!("cannot parse the answer of {server} for {name}")),
    }
}

fn query(name: &str, family: Family) -> Vec<u8> {
    let mut message = Vec::new();
    // ID, "recursion desired", one question.
    for word in [QUERY_ID, 0x0100, 1, 0, 0, 0] {
        message.extend(word.to_be_bytes());
    }
    for label in name.split('.').filter(|label| !label.is_empty()) {
        message.push(u8::try_from(label.len()).unwrap_or(u8::MAX));
        message.extend(label.as_bytes());
    }
    message.push(0);
    let kind = match family {
        Family::V4 => TYPE_A,
        Family::V6 => TYPE_AAAA,
    };
    message.extend(kind.to_be_bytes());
    message.extend(CLASS_INTERNET.to_be_bytes());
    message
}

/// The addresses in an answer; `None` if it is malformed or answers another query.
fn addresses(message: &[u8]) -> Option<Vec<IpAddr>> {
    let word = |at: usize| Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?));
    if word(0)? != QUERY_ID {
        return None;
    }
    let (questions, answers) = (word(4)?, word(6)?);
    let mut at = 12;
    for _ in 0..questions {
        at = after_name(message, at)? + 4;
    }
    let mut found = Vec::new();
    for _ in 0..answers {
        at = after_name(message, at)?;
        let (kind, length) = (word(at)?, usize::from(word(at + 8)?));
        let data = message.get(at + 10..at + 10 + length)?;
        match kind {
            TYPE_A => found.push(IpAddr::from(<[u8; 4]>::try_from(data).ok()?)),
            TYPE_AAAA => found.push(IpAddr::from(<[u8; 16]>::try_from(data).ok()?)),
            _ => {}
        }
        at += 10 + length;
    }
    Some(found)
}

/// The end of a name: an empty label, or a compression pointer.
fn after_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            pointer if pointer >= 0xc0 => return Some(at + 2),
            length => at += 1 + usize::from(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_parsed_and_malformed_ones_rejected() {
        let mut answer = query("web.shop", Family::V4);
        answer[7] = 1;
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 10, 96, 1, 2]);
        assert_eq!(addresses(&answer), Some(vec!["10.96.1.2".parse().unwrap()]));
        for length in 0..answer.len() {
            assert_eq!(addresses(&answer[..length]), None, "{length}");
        }
        let mut foreign = answer.clone();
        foreign[0] = 0;
        assert_eq!(addresses(&foreign), None);
        assert_eq!(addresses(&query("web", Family::V6)), Some(Vec::new()));
    }
}
