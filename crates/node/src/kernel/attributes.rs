//! Netlink attributes as bytes, for families without typed messages in our dependencies.

use std::io;

use super::netlink_socket::u16_at;

/// Flag of an attribute that contains others.
pub(super) const NESTED: u16 = 1 << 15;
/// Type without this flag and the one for network byte order.
const TYPE: u16 = 0x3fff;

/// Encodes an attribute, with padding.
pub(super) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    let mut bytes = Vec::with_capacity(value.len() + 8);
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A zero-terminated string.
pub(super) fn text(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

/// The value of the first attribute of a type; None if it is missing or truncated.
pub(super) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut rest = bytes;
    while let Some(length) = length_of(rest) {
        let value = rest.get(4..length)?;
        if u16_at(rest, 2).ok()? & TYPE == kind {
            return Some(value);
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

fn length_of(bytes: &[u8]) -> Option<usize> {
    u16_at(bytes, 0).ok().map(usize::from).filter(|length| *length >= 4)
}

/// A string attribute.
pub(super) fn find_text(bytes: &[u8], kind: u16) -> Option<&str> {
    let value = find(bytes, kind)?;
    std::str::from_utf8(value.split(|byte| *byte == 0).next()?).ok()
}

/// A u32 attribute in network byte order.
pub(super) fn find_u32(bytes: &[u8], kind: u16) -> Option<u32> {
    Some(u32::from_be_bytes(find(bytes, kind)?.try_into().ok()?))
}

/// True if the error says that the object of a request does not exist.
pub(super) fn is_absent(error: &io::Error) -> bool {
    use nix::errno::Errno;
    error.raw_os_error().is_some_and(|code| [Errno::ENOENT, Errno::ENODEV].iter().any(|errno| *errno as i32 == code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_and_truncated_bytes_are_harmless() {
        let bytes = [attribute(1, &text("a table")), attribute(4 | NESTED, &attribute(3, &text("eth0")))].concat();
        assert_eq!(find_text(&bytes, 1), Some("a table"));
        assert_eq!(find(&bytes, 4).and_then(|hook| find_text(hook, 3)), Some("eth0"));
        assert_eq!(find(&bytes, 2), None);
        assert_eq!(find_u32(&attribute(5, &7_u32.to_be_bytes()), 5), Some(7));
        // Cut off, without a length, with one beyond the end.
        assert_eq!(find_text(&bytes[..9], 1), None);
        assert_eq!(find(&[0; 12], 0), None);
        assert_eq!(find(&[0xff; 6], 1), None);
    }
}
