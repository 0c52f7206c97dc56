//! The flows of a bridge, carried by `ovs-ofctl`: one bundle for a change, nothing where nothing changes.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use gateway::{COOKIE, COOKIE_MASK, Flow, FlowChange, Installed};
use ovsdb::client::Remote;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

const PATIENCE: &str = "--timeout=30";
/// The first version that has bundles.
const VERSION: &str = "--protocols=OpenFlow14";

/// A way to a bridge's flows.
#[derive(Debug)]
pub(super) struct OpenFlow {
    socket: PathBuf,
    installed: Option<Installed>,
}

impl OpenFlow {
    /// Of a bridge of the switch whose database is there.
    pub(super) fn of(bridge: &str, switch: &Remote) -> Self {
        let folder = match switch {
            Remote::Unix(path) => path.parent().map_or_else(|| "/var/run/openvswitch".into(), Path::to_path_buf),
            Remote::Tcp(_) | Remote::Ssl(_) => PathBuf::from("/var/run/openvswitch"),
        };
        Self { socket: folder.join(format!("{bridge}.mgmt")), installed: None }
    }

    /// Where ovs-vswitchd listens for this bridge.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// What is installed may have changed without us.
    pub(super) fn forget(&mut self) {
        self.installed = None;
    }

    /// Makes the bridge have these flows; returns how many lines that took. While not everything is known, those that are
    /// there stay.
    pub(super) async fn carry(&mut self, wanted: &[Flow], complete: bool) -> Result<usize, String> {
        let installed = match self.installed.take() {
            Some(installed) => installed,
            None => {
                let which = format!("cookie={COOKIE:#x}/{COOKIE_MASK:#x}");
                Installed::read(&self.run(&["dump-flows"], Some(&which), None).await?)
            }
        };
        let change =
            if complete { FlowChange::between(&installed, wanted) } else { FlowChange::adding(&installed, wanted) };
        if !change.is_empty() {
            let input = change.lines.join("\n") + "\n";
            self.run(&["--bundle", "add-flows"], Some("-"), Some(&input)).await?;
        }
        self.installed = Some(change.installed);
        Ok(change.lines.len())
    }

    async fn run(&self, words: &[&str], last: Option<&str>, input: Option<&str>) -> Result<String, String> {
        let mut all = vec![PATIENCE.to_owned(), VERSION.to_owned()];
        all.extend(words.iter().map(ToString::to_string));
        all.push(format!("unix:{}", self.socket.display()));
        all.extend(last.map(str::to_owned));
        run("ovs-ofctl", &all, input).await
    }
}

/// Runs a program to its end, with text on its standard input.
pub(super) async fn run(program: &str, words: &[String], input: Option<&str>) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{program} cannot be run: {error}; install it on this host");
    let mut child = Command::new(program)
        .args(words)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let stdin = child.stdin.take();
    let text = input.unwrap_or_default().to_owned();
    let write = async move {
        if let Some(mut stdin) = stdin {
            // One that ends early says why by its status.
            let _ = stdin.write_all(text.as_bytes()).await;
        }
    };
    let ((), output) = tokio::join!(write, child.wait_with_output());
    let output = output.map_err(failed)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(format!("{program} {}: {said}", words.join(" ")))
}
