//! The ovnkube container image: the static binaries, and from the node image the tools that they run, with their
//! libraries. `deploy/image/Containerfile` builds the same for a registry.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::container_image::{self, Entry};
use crate::error::{Error, Result, create_dir};
use crate::spec::Product;

/// As the manifests of `deploy/` reference it.
pub(crate) const OVNKUBE: &str = "localhost/ovnkube:lab";

/// OVN and network tools that pods run, or that users expect in them.
const TOOLS: &[&str] = &[
    "usr/bin/ovn-controller",
    "usr/bin/ovn-appctl",
    "usr/bin/ovn-nbctl",
    "usr/bin/ovn-northd",
    "usr/bin/ovn-sbctl",
    "usr/bin/ovn-trace",
    "usr/bin/ovs-appctl",
    "usr/bin/ovs-ofctl",
    "usr/bin/ovs-vsctl",
    "usr/bin/ovsdb-client",
    "usr/bin/ovsdb-tool",
    "usr/sbin/ovsdb-server",
    "usr/bin/ip",
    "usr/sbin/conntrack",
    "usr/sbin/nft",
];

/// Files that the tools read.
const DATA: &[&str] = &["usr/share/ovn/ovn-nb.ovsschema", "usr/share/ovn/ovn-sb.ovsschema"];

/// Packs the image into a directory. Not cached: the binaries change with each build.
pub(crate) fn pack(dir: &Path, node_image: &Path, product: &Product) -> Result<PathBuf> {
    let mut entries = vec![
        Entry::file("usr/bin/ovnkube", product.ovnkube()),
        Entry::file("usr/libexec/ovnkube/ovn-k8s-cni-overlay", product.shim()),
        // As on every Debian: `/var/run` is `/run`.
        Entry::Link("var/run".into(), "/run"),
    ];
    // busybox's `ip` would hide iproute2's.
    entries.extend(container_image::shell(node_image).into_iter().filter(|entry| entry.name() != "bin/ip"));
    let files = TOOLS.iter().chain(DATA).map(|file| (*file).to_owned()).chain(libraries(node_image)?);
    entries.extend(files.map(|file| {
        let source = node_image.join(&file);
        Entry::File(file, source)
    }));
    create_dir(dir)?;
    let path = dir.join("ovnkube.tar");
    container_image::write_archive(&path, OVNKUBE, &["/usr/bin/ovnkube"], &[], &entries)
        .map_err(Error::io(format!("cannot write the container image {}", path.display())))?;
    Ok(path)
}

/// The shared libraries of the tools, and the loader, as paths without the leading slash.
fn libraries(node_image: &Path) -> Result<BTreeSet<String>> {
    let output = Command::new("chroot")
        .arg(node_image)
        .arg("ldd")
        .args(TOOLS.iter().map(|tool| format!("/{tool}")))
        .output()
        .map_err(Error::io("cannot run chroot"))?;
    if !output.status.success() {
        return Err(Error::Invalid(format!(
            "cannot list the libraries of OVN's tools in {}: {}",
            node_image.display(),
            String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")
        )));
    }
    Ok(files_of(&String::from_utf8_lossy(&output.stdout)))
}

/// Parses `ldd`: `libc.so.6 => /lib/x/libc.so.6 (0x…)`, or `/lib64/ld.so (0x…)` for the loader.
fn files_of(listing: &str) -> BTreeSet<String> {
    let path = |line: &str| {
        let named = line.split_once("=> ").map_or(line, |(_, path)| path).trim();
        let (path, _) = named.split_once(" (0x")?;
        path.strip_prefix('/').map(str::to_owned)
    };
    listing.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_output_is_parsed() {
        let listing = "/usr/bin/x:\n\tlinux-vdso.so.1 (0x00007f)\n\tlibm.so.6 => /lib/a/libm.so.6 (0x00)\n\
                       \t/lib64/ld-linux.so.2 (0x00007f)\n/usr/bin/busybox:\n\tnot a dynamic executable\n";
        assert_eq!(Vec::from_iter(files_of(listing)), ["lib/a/libm.so.6", "lib64/ld-linux.so.2"]);
    }
}
