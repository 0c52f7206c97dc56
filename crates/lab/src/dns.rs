//! A name server whose records a test changes: the zone `names.lab`, on machine `outside`.
//!
//! The records are a file in the lab's directory, in the format of `/etc/hosts`, which the server reads for each query: a
//! change is in effect when the call that made it returns. Answers have a time to live of 0, and the server denies unknown
//! names without an SOA record, so that no resolver caches anything.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{Error, Result, read_file, write_file};
use crate::lab::Lab;
use crate::machine::Machine;
use crate::spec::Family;

/// The zone that the lab's name server knows.
pub const ZONE: &str = "names.lab";
const PORT: u16 = 53;
/// How often a thread of the server checks whether the lab is removed.
const CHECK: Duration = Duration::from_millis(200);

const A: u16 = 1;
const AAAA: u16 = 28;
const INTERNET: u16 = 1;

/// Serves until it is dropped.
#[derive(Debug)]
pub(crate) struct NameServer {
    stopped: Arc<AtomicBool>,
}

impl NameServer {
    /// Serves the records of a lab's directory on a machine.
    pub(crate) fn start(machine: &Machine, family: Family, dir: &Path) -> Result<Self> {
        let server = Self { stopped: Arc::default() };
        let mut addresses: Vec<IpAddr> = Vec::new();
        addresses.extend(family.has_v4().then_some(IpAddr::from(Ipv4Addr::UNSPECIFIED)));
        addresses.extend(family.has_v6().then_some(IpAddr::from(Ipv6Addr::UNSPECIFIED)));
        // One socket serves both families.
        let Some(address) = addresses.last() else { return Ok(server) };
        let address = SocketAddr::new(*address, PORT);
        let context = format!("cannot serve names at {address} of {}", machine.name);
        let socket = machine.with_network(|| UdpSocket::bind(address))?.map_err(Error::io(context.clone()))?;
        socket.set_read_timeout(Some(CHECK)).map_err(Error::io(context.clone()))?;
        let (stopped, records) = (server.stopped.clone(), records_path(dir));
        let serve = move || serve(&socket, &records, &stopped);
        std::thread::Builder::new().name("names".into()).spawn(serve).map_err(Error::io(context))?;
        Ok(server)
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

fn serve(socket: &UdpSocket, records: &Path, stopped: &AtomicBool) {
    let mut buffer = [0; 512];
    while !stopped.load(Ordering::Relaxed) {
        match socket.recv_from(&mut buffer) {
            Ok((length, client)) => {
                let text = std::fs::read_to_string(records).unwrap_or_default();
                if let Some(answer) = answer(&buffer[..length], &text) {
                    // The client asks again.
                    let _ = socket.send_to(&answer, client);
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => tracing::debug!(%error, "name server cannot receive a query; continuing"),
        }
    }
}

/// Addresses of a name; none if it has no record.
fn addresses<'a>(records: &'a str, name: &'a str) -> impl Iterator<Item = IpAddr> + 'a {
    let fields = records.lines().filter_map(|line| line.split_once(' '));
    fields.filter(move |(_, owner)| *owner == name).filter_map(|(address, _)| address.parse().ok())
}

fn in_zone(name: &str) -> bool {
    name.strip_suffix(ZONE).is_some_and(|host| host.is_empty() || host.ends_with('.'))
}

/// The response to a query; none if it is not a query. Pure.
fn answer(query: &[u8], records: &str) -> Option<Vec<u8>> {
    const RESPONSE: u8 = 0x84;
    let (header, rest) = query.split_at_checked(12)?;
    let is_query = header[2] & 0x80 == 0 && header[4..6] == [0, 1];
    let (name, length) = is_query.then(|| name(rest)).flatten()?;
    let question = rest.get(..length + 4)?;
    let number = |at: usize| u16::from_be_bytes([question[at], question[at + 1]]);
    let (kind, class) = (number(length), number(length + 2));
    let found: Vec<IpAddr> = addresses(records, &name).collect();
    // No error, no such name, refused.
    let code = if !in_zone(&name) {
        5
    } else if found.is_empty() {
        3
    } else {
        0
    };
    let matching =
        |address: &&IpAddr| class == INTERNET && (kind == A && address.is_ipv4() || kind == AAAA && address.is_ipv6());
    let answers: Vec<&IpAddr> = found.iter().filter(matching).collect();
    let count = u8::try_from(answers.len().min(20)).ok()?;
    let mut response = vec![header[0], header[1], RESPONSE | header[2] & 0x01, code, 0, 1, 0, count, 0, 0, 0, 0];
    response.extend_from_slice(question);
    for address in answers.into_iter().take(20) {
        let bytes = match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        // A pointer to the name in the question, type, class, and a time to live of 0.
        response.extend_from_slice(&[0xc0, 12]);
        response.extend_from_slice(&kind.to_be_bytes());
        response.extend_from_slice(&[0, 1, 0, 0, 0, 0, 0]);
        response.push(u8::try_from(bytes.len()).ok()?);
        response.extend_from_slice(&bytes);
    }
    Some(response)
}

/// The name at the start of a question, in lower case without the last dot, and its length in bytes.
fn name(bytes: &[u8]) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    let mut at = 0;
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        // Longer ones are pointers, which a question does not have.
        let label = bytes.get(at..at + length).filter(|_| length < 64)?;
        labels.push(std::str::from_utf8(label).ok()?.to_ascii_lowercase());
        at += length;
    }
}

fn records_path(dir: &Path) -> PathBuf {
    dir.join("names")
}

/// `/etc/resolv.conf` of a machine, given the addresses of the name server.
pub(crate) fn resolver_configuration(servers: impl Iterator<Item = IpAddr>) -> String {
    let lines: String = servers.map(|address| format!("nameserver {address}\n")).collect();
    format!("{lines}options timeout:1 attempts:3\n")
}

/// Replaces the addresses of a name; without addresses, the name does not exist any more.
pub(crate) fn set(dir: &Path, name: &str, new: &[IpAddr]) -> Result<()> {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    if !in_zone(&name) || name.contains(char::is_whitespace) || name == ZONE {
        return Err(Error::Invalid(format!("cannot set {name:?}: the lab's name server has only names below {ZONE}")));
    }
    let path = records_path(dir);
    let mut text: String = list(dir)?
        .lines()
        .filter(|line| line.split_once(' ').is_some_and(|(_, owner)| owner != name))
        .map(|line| format!("{line}\n"))
        .collect();
    text.extend(new.iter().map(|address| format!("{address} {name}\n")));
    // Renamed: the server never reads half a file.
    let unfinished = path.with_extension("new");
    write_file(&unfinished, text)?;
    std::fs::rename(&unfinished, &path).map_err(Error::io(format!("cannot replace {}", path.display())))
}

/// All records: an address and a name on each line.
pub(crate) fn list(dir: &Path) -> Result<String> {
    let path = records_path(dir);
    if path.exists() { read_file(&path) } else { Ok(String::new()) }
}

impl Lab {
    /// Sets the addresses of a name below [`ZONE`]; without addresses, the name does not exist any more.
    pub fn set_name(&self, name: &str, addresses: &[IpAddr]) -> Result<()> {
        set(self.dir(), name, addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: &str = "192.0.2.1 db-1.names.lab\n2001:db8::1 db-1.names.lab\n192.0.2.2 db-2.names.lab\n";

    fn query(name: &str, kind: u16) -> Vec<u8> {
        let mut bytes = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        for label in name.split('.') {
            bytes.push(u8::try_from(label.len()).unwrap());
            bytes.extend_from_slice(label.as_bytes());
        }
        bytes.push(0);
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&[0, 1]);
        // An additional record (EDNS), which is ignored.
        bytes.extend_from_slice(&[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
        bytes
    }

    #[test]
    fn records_are_answered_by_type() {
        let response = answer(&query("DB-1.names.lab", A), RECORDS).unwrap();
        assert_eq!((response[..2].to_vec(), response[3], response[7]), (vec![7, 9], 0, 1));
        assert!(response.ends_with(&[0, 0, 0, 0, 0, 4, 192, 0, 2, 1]), "{response:?}");
        let response = answer(&query("db-1.names.lab", AAAA), RECORDS).unwrap();
        assert!(response.ends_with(&[0, 16, 0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]), "{response:?}");
        let codes = |name: &str, kind| answer(&query(name, kind), RECORDS).map(|response| (response[3], response[7]));
        assert_eq!(codes("db-2.names.lab", AAAA), Some((0, 0)));
        assert_eq!(codes("db-3.names.lab", A), Some((3, 0)));
        assert_eq!(codes("xnames.lab", A), Some((5, 0)));
        assert_eq!(answer(&[0; 5], RECORDS), None);
        assert_eq!(answer(&response, RECORDS), None);
        assert_eq!(answer(&query("db-1.names.lab", A)[..20], RECORDS), None);
    }

    #[test]
    fn records_are_replaced_and_removed() {
        let dir = std::env::temp_dir().join(format!("names-{}", std::process::id()));
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        set(&dir, "db-1.names.lab", &[ip("192.0.2.1"), ip("2001:db8::1")]).unwrap();
        set(&dir, "db-2.names.lab.", &[ip("192.0.2.2")]).unwrap();
        assert_eq!(list(&dir).unwrap(), RECORDS);
        set(&dir, "db-1.names.lab", &[]).unwrap();
        assert_eq!(list(&dir).unwrap(), "192.0.2.2 db-2.names.lab\n");
        for bad in ["db-1.example", "names.lab", "xnames.lab", "a b.names.lab"] {
            assert!(set(&dir, bad, &[]).unwrap_err().to_string().contains("names below names.lab"), "{bad}");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
