//! Container images as tar files (docker-archive format, for `ctr images import`), built without a registry.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::directories::{CACHE_VARIABLE, Directories, require_space};
use crate::error::{Error, Result, create_dir};

/// The pod sandbox image.
pub(crate) const PAUSE: &str = "localhost/pause:lab";
/// The cluster DNS.
pub(crate) const COREDNS: &str = "localhost/coredns:lab";
/// Kubernetes' network test program, with busybox.
pub(crate) const AGNHOST: &str = "localhost/agnhost:lab";

const APPLETS: &[&str] =
    &["sh", "ls", "cat", "wget", "nc", "nslookup", "ping", "ping6", "ip", "hostname", "sleep", "ps", "env", "mount"];

#[derive(Debug)]
pub(crate) enum Entry {
    File(String, PathBuf),
    /// A program that runs as its owner, root, whoever starts it.
    Setuid(String, PathBuf),
    Link(String, &'static str),
    Text(&'static str, &'static str),
}

impl Entry {
    /// A file of the host under another name.
    pub(crate) fn file(name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self::File(name.into(), path.into())
    }

    /// The path in the image.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::File(name, _) | Self::Setuid(name, _) | Self::Link(name, _) => name,
            Self::Text(name, _) => name,
        }
    }
}

/// What the C library needs to resolve names and users.
const ETC: [Entry; 3] = [
    Entry::Text("etc/passwd", "root:x:0:0:root:/:/bin/sh\n"),
    Entry::Text("etc/group", "root:x:0:\n"),
    Entry::Text("etc/nsswitch.conf", "hosts: files dns\n"),
];

/// The tar files of pause and agnhost; builds them if necessary.
pub(crate) fn ensure(directories: &Directories, node_image: &Path, kubernetes: &Path) -> Result<Vec<PathBuf>> {
    let pause = vec![Entry::file("pause", kubernetes.join("pause"))];
    let mut agnhost = vec![Entry::file("agnhost", kubernetes.join("agnhost"))];
    agnhost.extend(shell(node_image));
    Ok(vec![
        ensure_one(directories, PAUSE, &["/pause"], &[], &pause)?,
        ensure_one(directories, AGNHOST, &["/agnhost"], &["pause"], &agnhost)?,
    ])
}

/// The tar file of CoreDNS; builds it if necessary.
pub(crate) fn ensure_coredns(directories: &Directories, program: &Path) -> Result<PathBuf> {
    ensure_one(directories, COREDNS, &["/coredns"], &[], &[Entry::file("coredns", program)])
}

/// A busybox shell with common commands, and what the C library needs.
pub(crate) fn shell(node_image: &Path) -> Vec<Entry> {
    let mut entries = vec![Entry::file("bin/busybox", node_image.join("usr/bin/busybox"))];
    entries.extend(ETC);
    entries.extend(APPLETS.iter().map(|applet| Entry::Link(format!("bin/{applet}"), "busybox")));
    entries
}

fn ensure_one(
    directories: &Directories,
    reference: &str,
    entrypoint: &[&str],
    arguments: &[&str],
    entries: &[Entry],
) -> Result<PathBuf> {
    let dir = directories.cache().join("container-images");
    let (inputs, bytes) = inputs(reference, entries)?;
    let name = format!("{reference} {entrypoint:?} {arguments:?} {inputs}");
    ensure_file(&dir, reference, &name, bytes, |file| write_archive(file, reference, entrypoint, arguments, entries))
}

/// A fingerprint of an image's inputs, and their size in bytes. From size and modification time: hashing 60 MB at every
/// start would take too long.
pub(crate) fn inputs(reference: &str, entries: &[Entry]) -> Result<(String, u64)> {
    let mut text = format!("{entries:?}");
    let mut bytes = 0;
    for entry in entries {
        if let Entry::File(_, path) | Entry::Setuid(_, path) = entry {
            let meta = std::fs::metadata(path)
                .map_err(Error::io(format!("cannot find {} for {reference}", path.display())))?;
            text.push_str(&format!("{} {} {:?}", path.display(), meta.len(), meta.modified().ok()));
            bytes += meta.len();
        }
    }
    Ok((text, bytes))
}

/// The cached tar file of these inputs; writes it if necessary.
pub(crate) fn ensure_file(
    dir: &Path,
    what: &str,
    inputs: &str,
    bytes: u64,
    write: impl FnOnce(&Path) -> std::io::Result<()>,
) -> Result<PathBuf> {
    let name: String = sha256_hex(inputs.as_bytes()).chars().take(12).collect();
    let file = dir.join(format!("{name}.tar"));
    if file.exists() {
        return Ok(file);
    }
    require_space(dir, what, (bytes * 2) >> 20, CACHE_VARIABLE)?;
    create_dir(dir)?;
    // Tests that run side by side, in one process or several, may need the same image.
    static WRITERS: AtomicU64 = AtomicU64::new(0);
    let writer = WRITERS.fetch_add(1, Ordering::Relaxed);
    let unfinished = dir.join(format!("{name}.unfinished-{}-{writer}", std::process::id()));
    write(&unfinished).map_err(Error::io(format!("cannot write the container image {}", unfinished.display())))?;
    std::fs::rename(&unfinished, &file).map_err(Error::io("cannot rename the container image"))?;
    Ok(file)
}

/// Writes a single-layer image.
pub(crate) fn write_archive(
    path: &Path,
    reference: &str,
    entrypoint: &[&str],
    arguments: &[&str],
    entries: &[Entry],
) -> std::io::Result<()> {
    let layer = layer(&["bin/", "tmp/", "etc/"], entries)?;
    let digest = sha256_hex(&layer);
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": { "Entrypoint": entrypoint, "Cmd": arguments, "Env": ["PATH=/bin:/usr/bin:/usr/sbin:/"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
        "history": [{ "created_by": "ovnkube lab" }],
    })
    .to_string();
    let config_name = format!("{}.json", sha256_hex(config.as_bytes()));
    let manifest = json!([{ "Config": config_name, "RepoTags": [reference], "Layers": ["layer.tar"] }]).to_string();
    let mut archive = tar::Builder::new(std::fs::File::create(path)?);
    append(&mut archive, &config_name, config.as_bytes(), 0o644)?;
    append(&mut archive, "layer.tar", &layer, 0o644)?;
    append(&mut archive, "manifest.json", manifest.as_bytes(), 0o644)?;
    archive.into_inner()?.sync_all()
}

/// The host's architecture, in OCI notation.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "amd64",
    }
}

/// A layer with these directories, writable for all, and these files.
pub(crate) fn layer(dirs: &[&str], entries: &[Entry]) -> std::io::Result<Vec<u8>> {
    let mut layer = tar::Builder::new(Vec::new());
    for dir in dirs {
        let mut header = header(tar::EntryType::Directory, 0o1777, 0);
        layer.append_data(&mut header, dir, std::io::empty())?;
    }
    for entry in entries {
        match entry {
            Entry::File(name, path) => append(&mut layer, name, &std::fs::read(path)?, 0o755)?,
            Entry::Setuid(name, path) => append(&mut layer, name, &std::fs::read(path)?, 0o6755)?,
            Entry::Text(name, text) => append(&mut layer, name, text.as_bytes(), 0o644)?,
            Entry::Link(name, target) => {
                layer.append_link(&mut header(tar::EntryType::Symlink, 0o777, 0), name, target)?;
            }
        }
    }
    layer.into_inner()
}

pub(crate) fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header
}

pub(crate) fn append<W: std::io::Write>(
    archive: &mut tar::Builder<W>,
    name: &str,
    content: &[u8],
    mode: u32,
) -> std::io::Result<()> {
    archive.append_data(&mut header(tar::EntryType::Regular, mode, content.len() as u64), name, content)
}

/// The SHA-256 of some bytes, in hex.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
