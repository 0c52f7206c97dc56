//! A hash that is the same in every version and on every machine: it is stored in cookies and table comments.

/// FNV-1a. It need not resist collisions: a client that could construct one could also write the flows.
pub(crate) fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_fnv_1a() {
        assert_eq!(super::fingerprint(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(super::fingerprint("a"), 0xaf63_dc4c_8601_ec8c);
    }
}
