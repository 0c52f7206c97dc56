//! The runtime's files: the plugin, and the network configuration, which exists while the node is ready.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cni::Version;
use serde_json::json;
use tokio::sync::watch;

use crate::options::CniOptions;
use crate::readiness::State;

/// File name of the plugin, and type of the network.
const PLUGIN: &str = "ovn-k8s-cni-overlay";
/// Runtimes use the first file in alphabetical order.
const CONFIGURATION: &str = "10-ovn-kubernetes.conf";

/// A node that is not ready for a shorter time, as during a restart of the agent, keeps its configuration file.
const WITHDRAW_AFTER: Duration = Duration::from_secs(15);

/// A file of the runtime that cannot be written or removed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {error}", path.display())]
pub(crate) struct FileError {
    /// An infinitive, such as `install plugin`.
    pub(super) action: &'static str,
    pub(super) path: PathBuf,
    pub(super) error: io::Error,
}

/// Installs the plugin, and writes or removes the configuration as the node's state changes. Never returns.
pub(crate) async fn run(options: &CniOptions, mut state: watch::Receiver<State>) {
    loop {
        let ready = match tokio::time::timeout(WITHDRAW_AFTER, state.wait_for(State::is_ok)).await {
            Ok(Ok(_)) => true,
            Ok(Err(_)) => return,
            Err(_) => false,
        };
        let update = || if ready { write_configuration(options) } else { remove_configuration(options) };
        if let Err(error) = install_plugin(options).and_then(|()| update()) {
            tracing::warn!(%error, "cannot update the runtime's files; retrying when the node's state changes");
        }
        if state.changed().await.is_err() {
            return;
        }
    }
}

/// Copies the plugin to the runtime's directory if it differs.
fn install_plugin(options: &CniOptions) -> Result<(), FileError> {
    let Some(shim) = &options.shim else { return Ok(()) };
    let to = options.binaries.join(PLUGIN);
    let installed = fs::read(shim).and_then(|bytes| write_if_changed(&to, &bytes, 0o755));
    installed.map_err(|error| {
        let error = io::Error::new(error.kind(), format!("from {}: {error}", shim.display()));
        FileError { action: "install plugin", path: to, error }
    })
}

/// With this file the runtime reports the node's network as ready.
fn write_configuration(options: &CniOptions) -> Result<(), FileError> {
    let path = options.configurations.join(CONFIGURATION);
    write_if_changed(&path, configuration(options.version).as_bytes(), 0o644).map_err(|error| FileError {
        action: "write",
        path,
        error,
    })
}

/// Without the file the runtime reports the node's network as not ready.
pub(super) fn remove_configuration(options: &CniOptions) -> Result<(), FileError> {
    remove(options.configurations.join(CONFIGURATION))
}

pub(super) fn remove_plugin(options: &CniOptions) -> Result<(), FileError> {
    remove(options.binaries.join(PLUGIN))
}

/// Removes a file, whether or not it exists.
fn remove(path: PathBuf) -> Result<(), FileError> {
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError { action: "remove", path, error }),
        _ => Ok(()),
    }
}

/// Content of the configuration file. A runtime that does not support the version refuses every result.
fn configuration(version: Version) -> String {
    let network = json!({"cniVersion": version.name(), "name": "ovn-kubernetes", "type": PLUGIN,
        "ipam": {}, "dns": {}, "capabilities": {}});
    format!("{network:#}\n")
}

/// Writes a file atomically, by a rename, and only if content or mode differ.
fn write_if_changed(file: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let same = fs::read(file).is_ok_and(|old| old == bytes)
        && fs::metadata(file).is_ok_and(|meta| meta.permissions().mode() & 0o777 == mode);
    if same {
        return Ok(());
    }
    let directory = file.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(directory)?;
    let name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    // In the same directory for the rename; runtimes skip names that begin with a dot.
    let new = directory.join(format!(".{name}.new"));
    let written = write(&new, bytes, mode).and_then(|()| fs::rename(&new, file));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written?;
    File::open(directory)?.sync_all()
}

fn write(file: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut opened = File::create(file)?;
    opened.write_all(bytes)?;
    opened.set_permissions(fs::Permissions::from_mode(mode))?;
    opened.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;
    use std::time::Duration;

    /// A directory that is removed with the test.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let directory = std::env::temp_dir().join(format!("ovnkube-install-{}-{name}", std::process::id()));
            fs::create_dir_all(&directory).unwrap();
            Self(directory)
        }

        fn options(&self) -> CniOptions {
            CniOptions {
                socket_dir: self.0.join("socket"),
                binaries: self.0.join("bin"),
                configurations: self.0.join("net.d"),
                shim: Some(self.0.join("shim")),
                version: Version::V1_0_0,
                add_timeout: Duration::from_secs(1),
            }
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn files_are_written_atomically_left_alone_if_equal_and_removed() {
        let directory = Directory::new("files");
        let options = directory.options();
        assert!(install_plugin(&options).unwrap_err().to_string().contains("shim"));
        fs::write(directory.0.join("shim"), "one").unwrap();
        install_plugin(&options).unwrap();
        let plugin = options.binaries.join(PLUGIN);
        let first = fs::metadata(&plugin).unwrap();
        assert_eq!(first.permissions().mode() & 0o777, 0o755);
        install_plugin(&options).unwrap();
        assert_eq!(fs::metadata(&plugin).unwrap().ino(), first.ino());
        fs::write(directory.0.join("shim"), "another").unwrap();
        install_plugin(&options).unwrap();
        assert_eq!(fs::read_to_string(&plugin).unwrap(), "another");
        assert_eq!(fs::read_dir(&options.binaries).unwrap().count(), 1);

        write_configuration(&options).unwrap();
        let text = fs::read_to_string(options.configurations.join(CONFIGURATION)).unwrap();
        let network: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&network["type"], &network["name"]), (&json!(PLUGIN), &json!("ovn-kubernetes")));
        remove_configuration(&options).unwrap();
        remove_configuration(&options).unwrap();
        assert_eq!(fs::read_dir(&options.configurations).unwrap().count(), 0);
    }
}
