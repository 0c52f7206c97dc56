//! The measured node agent: its own process, called through its socket as by a plugin.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use lab::Machine;

use crate::world::{NAMESPACE, Sandbox, TIMEOUT, until};

/// Metrics address of an agent, on its node.
pub(crate) const METRICS: &str = "127.0.0.1:9102";
const CONFIGURATION: &str = r#"{"cniVersion":"1.1.0","name":"ovn-kubernetes","type":"ovn-k8s-cni-overlay"}"#;

#[derive(Debug, Clone)]
pub(crate) struct Agent {
    pub(crate) pid: u32,
    pub(crate) machine: Machine,
}

impl Agent {
    /// The socket, as it is seen from here.
    fn socket(&self) -> PathBuf {
        let path = cni_shim::SOCKET.replacen("/var/run", "/run", 1);
        format!("/proc/{}/root{path}", self.machine.init().pid).into()
    }

    /// Sends a command; returns what the plugin would print.
    fn ask(&self, command: &str, more: &[(&str, String)]) -> Result<String> {
        let words = [("CNI_COMMAND", command.to_owned()), ("CNI_PATH", "/opt/cni/bin".to_owned())];
        let words = words.iter().chain(more).map(|(key, value)| (OsString::from(key), OsString::from(value)));
        let outcome = cni_shim::run(words, CONFIGURATION.as_bytes(), &self.socket(), TIMEOUT);
        if !outcome.success {
            bail!("{command}: {}", outcome.output);
        }
        Ok(outcome.output)
    }

    fn about(&self, command: &str, sandbox: &Sandbox) -> Result<String> {
        let Sandbox { pod, uid, .. } = sandbox;
        let arguments = format!("K8S_POD_NAMESPACE={NAMESPACE};K8S_POD_NAME={pod};K8S_POD_UID={uid}");
        let more = [
            ("CNI_CONTAINERID", uid.replace('-', "")),
            ("CNI_NETNS", sandbox.path()),
            ("CNI_IFNAME", "eth0".to_owned()),
            ("CNI_ARGS", arguments),
        ];
        self.ask(command, &more).with_context(|| format!("pod {pod}"))
    }

    pub(crate) fn add(&self, sandbox: &Sandbox) -> Result<()> {
        self.about("ADD", sandbox).map(drop)
    }

    pub(crate) fn remove(&self, sandbox: &Sandbox) -> Result<()> {
        self.about("DEL", sandbox).map(drop)
    }

    /// Waits until it can connect pods.
    pub(crate) fn await_service(&self) -> Result<()> {
        let mut last = String::new();
        let waited = until("the agent is ready", || match self.ask("STATUS", &[]) {
            Ok(_) => Ok(Some(())),
            Err(error) => {
                last = error.to_string();
                Ok(None)
            }
        });
        waited.with_context(|| last)
    }

    /// CPU seconds so far, of all its threads, user and system.
    pub(crate) fn cpu(&self) -> Result<f64> {
        Ok(bench::process_cpu_seconds(self.pid)?)
    }

    /// Current and peak resident memory, in MB (of 1,000,000 bytes).
    pub(crate) fn memory(&self) -> Result<(f64, f64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))
            .with_context(|| format!("cannot read /proc/{}: the agent has exited", self.pid))?;
        let of = |key: &str| -> Result<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_suffix("kB"));
            Ok(line.with_context(|| format!("/proc/{}/status has no {key}", self.pid))?.trim().parse::<f64>()? * 1024.0
                / 1e6)
        };
        Ok((of("VmRSS:")?, of("VmHWM:")?))
    }

    /// The value of a metric without labels.
    pub(crate) fn counter(&self, name: &str) -> Result<f64> {
        let text = self.machine.with_network(|| -> Result<String> {
            let mut stream = TcpStream::connect(METRICS).context("cannot read the agent's metrics")?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        })??;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.with_context(|| format!("the agent has no metric {name}"))?.trim().parse()?)
    }
}
