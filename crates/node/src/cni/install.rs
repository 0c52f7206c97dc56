//! The runtime's files: the plugin, and the configuration that says that this node has a network.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use cni::Version;
use serde_json::json;
use tokio::sync::watch;

use crate::options::CniOptions;
use crate::readiness::State;

/// The plugin's name, and thereby the network's type.
pub const PLUGIN: &str = "ovn-k8s-cni-overlay";
/// Ours, before whatever else is there: runtimes take the first by name.
pub const CONFIGURATION: &str = "10-ovn-kubernetes.conf";

/// A node that is not ready for a moment, as while the agent is restarted, is not taken from the scheduler.
const MOMENT: Duration = Duration::from_secs(15);

/// Keeps the files as the node's state says: the plugin always, the configuration while the node is ready. Never ends.
pub async fn keep(options: &CniOptions, mut state: watch::Receiver<State>, tell: impl Fn(State)) {
    loop {
        let ready = match tokio::time::timeout(MOMENT, state.wait_for(State::is_ok)).await {
            Ok(Ok(_)) => true,
            Ok(Err(_)) => return,
            Err(_) => false,
        };
        let kept = install_plugin(options).and_then(|()| if ready { declare(options) } else { withdraw(options) });
        tell(kept);
        if state.changed().await.is_err() {
            return;
        }
    }
}

/// Puts the plugin where runtimes look for it, if there is another one or none.
pub fn install_plugin(options: &CniOptions) -> State {
    let Some(shim) = &options.shim else { return Ok(()) };
    let to = options.binaries.join(PLUGIN);
    let installed = fs::read(shim).and_then(|bytes| put(&to, &bytes, 0o755));
    installed.map_err(|error| format!("the plugin {} cannot be installed as {}: {error}", shim.display(), to.display()))
}

/// Says that this node has a network.
pub fn declare(options: &CniOptions) -> State {
    let file = options.configurations.join(CONFIGURATION);
    put(&file, configuration(options.version).as_bytes(), 0o644)
        .map_err(|error| format!("the configuration {} cannot be written: {error}", file.display()))
}

/// Says no longer that this node has a network.
pub fn withdraw(options: &CniOptions) -> State {
    let file = options.configurations.join(CONFIGURATION);
    match fs::remove_file(&file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("the configuration {} cannot be removed: {error}", file.display()))
        }
        _ => Ok(()),
    }
}

/// Takes the plugin away again.
pub fn remove_plugin(options: &CniOptions) -> State {
    let plugin = options.binaries.join(PLUGIN);
    match fs::remove_file(&plugin) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("the plugin {} cannot be removed: {error}", plugin.display()))
        }
        _ => Ok(()),
    }
}

/// What the runtime reads. A runtime that does not know the version refuses every answer.
fn configuration(version: Version) -> String {
    let network = json!({"cniVersion": version.name(), "name": "ovn-kubernetes", "type": PLUGIN,
        "ipam": {}, "dns": {}, "capabilities": {}});
    format!("{network:#}\n")
}

/// Writes a file whole or not at all, and only if it is another one.
fn put(file: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let same = fs::read(file).is_ok_and(|old| old == bytes)
        && fs::metadata(file).is_ok_and(|meta| meta.permissions().mode() & 0o777 == mode);
    if same {
        return Ok(());
    }
    let folder = file.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(folder)?;
    let name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    // Runtimes skip what begins with a dot; beside it, so that a rename is enough.
    let new = folder.join(format!(".{name}.new"));
    let written = write(&new, bytes, mode).and_then(|()| fs::rename(&new, file));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written?;
    File::open(folder)?.sync_all()
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
    use std::path::PathBuf;
    use std::time::Duration;

    /// A folder that goes with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("ovnkube-install-{}-{name}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn options(&self) -> CniOptions {
            CniOptions {
                socket_folder: self.0.join("socket"),
                binaries: self.0.join("bin"),
                configurations: self.0.join("net.d"),
                shim: Some(self.0.join("shim")),
                version: Version::V1_0_0,
                patience: Duration::from_secs(1),
            }
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn files_appear_whole_are_left_alone_when_they_are_the_same_and_go() {
        let folder = Folder::new("files");
        let options = folder.options();
        assert!(install_plugin(&options).unwrap_err().contains("shim"));
        fs::write(folder.0.join("shim"), "one").unwrap();
        install_plugin(&options).unwrap();
        let plugin = options.binaries.join(PLUGIN);
        let first = fs::metadata(&plugin).unwrap();
        assert_eq!(first.permissions().mode() & 0o777, 0o755);
        install_plugin(&options).unwrap();
        assert_eq!(fs::metadata(&plugin).unwrap().ino(), first.ino());
        fs::write(folder.0.join("shim"), "another").unwrap();
        install_plugin(&options).unwrap();
        assert_eq!(fs::read_to_string(&plugin).unwrap(), "another");
        assert_eq!(fs::read_dir(&options.binaries).unwrap().count(), 1);

        declare(&options).unwrap();
        let text = fs::read_to_string(options.configurations.join(CONFIGURATION)).unwrap();
        let network: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&network["type"], &network["name"]), (&json!(PLUGIN), &json!("ovn-kubernetes")));
        withdraw(&options).unwrap();
        withdraw(&options).unwrap();
        assert_eq!(fs::read_dir(&options.configurations).unwrap().count(), 0);
    }
}
