//! ovn-northd, started and watched by whoever leads, where that is asked for.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::options::{DatabaseAccess, Options};

/// A northd that ends is started again after this time.
const PAUSE: Duration = Duration::from_secs(1);

/// A northd that runs as long as this is held.
#[derive(Debug)]
pub(crate) struct Northd(AbortHandle);

impl Drop for Northd {
    fn drop(&mut self) {
        // The child is killed with the task that waits for it; its lock in the database goes with its connection.
        self.0.abort();
    }
}

impl Northd {
    /// Starts one, if that is asked for.
    pub(crate) fn start(options: &Options) -> Option<Self> {
        let program = options.northd.clone()?;
        let arguments = arguments(&options.northbound, &options.southbound);
        Some(Self(tokio::spawn(keep(program, arguments)).abort_handle()))
    }
}

fn arguments(northbound: &DatabaseAccess, southbound: &DatabaseAccess) -> Vec<String> {
    let list = |access: &DatabaseAccess| {
        let remotes: Vec<String> = access.remotes.iter().map(ToString::to_string).collect();
        remotes.join(",")
    };
    let mut arguments = vec![
        format!("--ovnnb-db={}", list(northbound)),
        format!("--ovnsb-db={}", list(southbound)),
        "-vconsole:warn".into(),
        "--log-file=/dev/null".into(),
    ];
    if let Some(tls) = northbound.tls.as_ref().or(southbound.tls.as_ref()) {
        let path = |path: &Path| path.display().to_string();
        arguments.extend(["-p".into(), path(&tls.private_key), "-c".into(), path(&tls.certificate)]);
        arguments.extend(["-C".into(), path(&tls.authorities)]);
    }
    arguments
}

async fn keep(program: PathBuf, arguments: Vec<String>) {
    loop {
        let child = Command::new(&program).args(&arguments).stdin(Stdio::null()).kill_on_drop(true).spawn();
        match child {
            Ok(mut child) => {
                tracing::info!(program = %program.display(), pid = child.id(), "ovn-northd started");
                let ended = child.wait().await;
                tracing::error!(?ended, "ovn-northd ended; starting it again");
            }
            Err(error) => {
                tracing::error!(program = %program.display(), %error, "ovn-northd cannot be started; hint: see --run-northd");
            }
        }
        sleep(PAUSE).await;
    }
}
