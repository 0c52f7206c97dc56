//! The installed plugin: small, and without dependencies on the host.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

const LARGEST: u64 = 1_500_000;

#[test]
fn the_plugin_is_small_and_static() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let built = Command::new(root.join("crates/cni-shim/build.sh")).env("CARGO", env!("CARGO")).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let program = root.join("target/shim/ovn-k8s-cni-overlay");
    let bytes = std::fs::read(&program).unwrap();
    assert!(bytes.len() as u64 <= LARGEST, "{} bytes", bytes.len());
    // A dynamic program has a header of type 3 (PT_INTERP).
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let half = |at: usize| usize::from(u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()));
    let (headers, size, count) = (usize::try_from(word(32)).unwrap(), half(54), half(56));
    assert!(count > 0);
    for header in 0..count {
        let at = headers + header * size;
        assert_ne!(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()), 3, "it is dynamically linked");
    }
    let output = Command::new(&program).env_clear().env("CNI_COMMAND", "VERSION").output().unwrap();
    assert!(output.status.success());
}
