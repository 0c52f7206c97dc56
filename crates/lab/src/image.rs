//! The node image: a Debian root directory from which every machine of the lab runs its programs.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use sha2::{Digest, Sha256};

use crate::directories::{CACHE_VARIABLE, Directories, require_space};
use crate::error::{Error, Result, create_dir, remove_tree};
use crate::namespace::in_own_thread;
use crate::process::lines_of;
use crate::progress::Progress;
use crate::record::{Record, lab_names};
use crate::spec::Suite;

/// Packages of the image. A change here leads to a new image.
const PACKAGES: &[&str] = &[
    // a system that could boot by itself later
    "systemd",
    "systemd-sysv",
    "dbus",
    "udev",
    "kmod",
    "tini",
    // network
    "openvswitch-switch",
    "ovn-host",
    "ovn-central",
    "iproute2",
    "nftables",
    "iptables",
    "ethtool",
    "conntrack",
    // what Kubernetes needs
    "etcd-server",
    "etcd-client",
    "containerd",
    "runc",
    "containernetworking-plugins",
    "haproxy",
    "ca-certificates",
    // test tools
    "curl",
    "e2fsprogs",
    "iputils-ping",
    "netcat-openbsd",
    "busybox-static",
    "procps",
    "tcpdump",
    "less",
];

/// mmdebstrap options, part of the recipe: no documentation, and no daemon started by a package installation.
const OPTIONS: &[&str] = &[
    "--variant=minbase",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--aptopt=Apt::Install-Recommends \"false\"",
    "--setup-hook=mkdir -p \"$1/usr/sbin\" && printf '#!/bin/sh\\nexit 101\\n' > \"$1/usr/sbin/policy-rc.d\" && chmod 755 \"$1/usr/sbin/policy-rc.d\"",
];

/// The index of unstable is valid for one week only, and mirrors lag. Its signature is still checked.
const UNSTABLE_OPTIONS: &[&str] = &["--aptopt=Acquire::Check-Valid-Until \"false\""];

const SPACE_MIB: u64 = 1500;

/// Root directory of the image of a suite; builds it if necessary.
pub fn ensure(directories: &Directories, suite: Suite, progress: &Progress) -> Result<PathBuf> {
    let images = directories.cache().join("images");
    let image = images.join(format!("{}-{}", suite.as_str(), recipe_hash(suite)));
    if image.exists() {
        return Ok(image);
    }
    require_space(&images, "the node image", SPACE_MIB, CACHE_VARIABLE)?;
    let lock_path = images.join(format!("{}.lock", suite.as_str()));
    let lock = std::fs::File::create(&lock_path).map_err(Error::io(format!("cannot write {}", lock_path.display())))?;
    // Another process may be building it: wait, then check again.
    lock.lock().map_err(Error::io(format!("cannot lock {}", lock_path.display())))?;
    if image.exists() {
        return Ok(image);
    }
    let step = format!("node image {}", suite.as_str());
    progress.step(&step, || build(suite, &images, &image, |line| progress.note(&step, line)))?;
    remove_older(directories, &images, suite, &image);
    Ok(image)
}

fn options(suite: Suite) -> impl Iterator<Item = &'static &'static str> {
    let more = if suite == Suite::Sid { UNSTABLE_OPTIONS } else { &[] };
    OPTIONS.iter().chain(more)
}

fn recipe_hash(suite: Suite) -> String {
    let mut hash = Sha256::new();
    for part in PACKAGES.iter().chain(options(suite)).copied().chain([suite.as_str()]) {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

fn build(suite: Suite, images: &Path, image: &Path, note: impl Fn(&str) + Sync) -> Result<()> {
    // Built under another name and renamed at the end, so that a directory with the final name is always complete.
    let unfinished = images.join(format!("{}.unfinished", suite.as_str()));
    remove_tree(&unfinished)?;
    create_dir(&unfinished)?;
    let built = bootstrap(&format!("the node image ({})", suite.as_str()), suite, PACKAGES, &[], &unfinished, note);
    if built.is_err() {
        let _ = remove_tree(&unfinished);
    }
    built?;
    std::fs::rename(&unfinished, image).map_err(Error::io(format!("cannot move the image to {}", image.display())))
}

/// Builds a Debian with these packages, as a directory or, if the target's name ends in `.tar`, a tar file.
pub(crate) fn bootstrap(
    what: &str,
    suite: Suite,
    packages: &[&str],
    more_options: &[&str],
    target: &Path,
    note: impl Fn(&str) + Sync,
) -> Result<()> {
    // mmdebstrap mounts file systems below the directory. In separate namespaces they disappear with it however it
    // ends; and it is killed with this thread, so that an interrupted start leaves no builder behind.
    let (status, lines) = in_own_thread(|| {
        unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID)
            .map_err(Error::errno("cannot create namespaces for mmdebstrap"))?;
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
            .map_err(Error::errno("cannot make mounts private"))?;
        run_mmdebstrap(suite, packages, more_options, target, &note)
    })?;
    if status.success() { Ok(()) } else { Err(explain(what, suite, target.parent().unwrap_or(target), &lines)) }
}

fn run_mmdebstrap(
    suite: Suite,
    packages: &[&str],
    more_options: &[&str],
    target: &Path,
    note: &impl Fn(&str),
) -> Result<(ExitStatus, Vec<String>)> {
    require_mmdebstrap()?;
    let mut child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "mmdebstrap"])
        .args(options(suite))
        .args(more_options)
        .arg(format!("--include={}", packages.join(",")))
        .arg(suite.as_str())
        .arg(target)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(Error::io("cannot run mmdebstrap"))?;
    let mut lines = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        for line in lines_of(stderr) {
            note(&line);
            lines.push(line);
        }
    }
    let status = child.wait().map_err(Error::io("cannot wait for mmdebstrap"))?;
    Ok((status, lines))
}

fn require_mmdebstrap() -> Result<()> {
    for (program, package) in [("mmdebstrap", "mmdebstrap"), ("setpriv", "util-linux")] {
        let path = std::env::var_os("PATH").unwrap_or_default();
        if !std::env::split_paths(&path).any(|dir| dir.join(program).is_file()) {
            return Err(Error::MissingTool {
                program: program.into(),
                purpose: "it builds Debian images".into(),
                remedy: format!("apt-get install {package}, or `make prerequisites`"),
            });
        }
    }
    Ok(())
}

/// Reduces mmdebstrap's output to the relevant line.
fn explain(what: &str, suite: Suite, images: &Path, lines: &[String]) -> Error {
    let what = format!("the packages of {what}");
    let find = |words: &[&str]| lines.iter().find(|line| words.iter().any(|word| line.contains(word))).cloned();
    if let Some(cause) = find(&["No space left on device", "not enough free space", "You don't have enough free space"])
    {
        let free_mib = crate::directories::free_mib(images).unwrap_or(0);
        tracing::debug!(error = cause, "mmdebstrap ran out of space; giving up");
        return Error::DiskFull {
            path: images.to_owned(),
            what,
            needed_mib: SPACE_MIB,
            free_mib,
            variable: CACHE_VARIABLE,
        };
    }
    if let Some(cause) = find(&[
        "Temporary failure resolving",
        "Could not connect",
        "Could not resolve",
        "Failed to fetch",
        "Unable to connect",
    ]) {
        return Error::Unreachable {
            what,
            cause,
            remedy: "check the network, the proxy (http_proxy) and that `apt-get update` works here, then retry".into(),
        };
    }
    let cause = lines.iter().find(|line| line.starts_with("E:")).or(lines.last()).cloned().unwrap_or_default();
    Error::Unreachable { what, cause, remedy: format!("run `mmdebstrap {} /tmp/try` for details", suite.as_str()) }
}

/// Removes images of older recipes, except those that a lab uses.
fn remove_older(directories: &Directories, images: &Path, suite: Suite, newest: &Path) {
    let Ok(entries) = std::fs::read_dir(images) else {
        return;
    };
    let in_use: Vec<PathBuf> = lab_names(directories)
        .iter()
        .filter_map(|name| Record::load(directories, name).ok())
        .map(|record| record.image)
        .collect();
    for entry in entries.flatten() {
        let path = entry.path();
        let ours = entry.file_name().to_string_lossy().starts_with(&format!("{}-", suite.as_str()));
        if ours && path != newest && !in_use.contains(&path) {
            let _ = remove_tree(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(lines: &[&str]) -> String {
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        explain("the node image", Suite::Trixie, &std::env::temp_dir(), &lines).to_string()
    }

    #[test]
    fn each_suite_has_its_own_image() {
        assert_ne!(recipe_hash(Suite::Trixie), recipe_hash(Suite::Sid));
    }

    #[test]
    fn an_unreachable_mirror_and_a_full_disk_have_different_errors() {
        let network = message(&[
            "I: running apt-get update...",
            "Err:1 trixie InRelease  Temporary failure resolving 'mirror'",
            "E: apt-get update failed",
        ]);
        assert!(network.contains("Temporary failure") && network.contains("check the network"), "{network}");
        let disk = message(&["dpkg: error processing archive: No space left on device", "E: mmdebstrap failed"]);
        assert!(disk.contains("no space left") && disk.contains(CACHE_VARIABLE), "{disk}");
        let other = message(&["I: chroot", "E: something odd", "I: removing", "E: mmdebstrap failed to run"]);
        assert!(other.contains("something odd"), "{other}");
    }
}
