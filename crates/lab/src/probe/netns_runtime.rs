//! A tokio runtime on a thread inside a network namespace: sockets that its tasks open belong to that namespace.

use std::future::Future;
use std::path::Path;
use std::thread::JoinHandle;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::namespace::join_network;

/// Dropping it ends the thread and its tasks.
#[derive(Debug)]
pub(super) struct NetnsRuntime {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl NetnsRuntime {
    /// Starts a thread and moves it into a network namespace.
    pub(super) fn start(network: &Path) -> Result<Self> {
        let network = network.to_owned();
        let (stop, stopped) = oneshot::channel::<()>();
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        let work = move || {
            let entered = join_network(&network).and_then(|()| {
                let mut runtime = tokio::runtime::Builder::new_current_thread();
                runtime.enable_all().build().map_err(Error::io("cannot start the prober's runtime"))
            });
            match entered {
                Ok(runtime) => {
                    let _ = answer.send(Ok(runtime.handle().clone()));
                    // An error means that the handle was dropped, which stops it as well.
                    let _ = runtime.block_on(stopped);
                }
                Err(error) => drop(answer.send(Err(error))),
            }
        };
        let thread = std::thread::Builder::new()
            .name("lab-probe".into())
            .spawn(work)
            .map_err(Error::io("cannot start a thread of the prober"))?;
        let handle = answered
            .recv()
            .unwrap_or_else(|_| Err(Error::Invalid("a thread of the prober panicked in a namespace".into())))?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }

    /// Runs a task and waits for its result.
    pub(super) fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Result<T> {
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        self.spawn(async move { drop(answer.send(task.await)) });
        answered.recv().map_err(|_| Error::Invalid("a thread of the prober ended before its work was done".into()))
    }

    /// TCP segments retransmitted in this network namespace since it was created.
    pub(super) fn retransmitted(&self) -> Result<u64> {
        let text = self.run(async { std::fs::read_to_string("/proc/thread-self/net/snmp") })?;
        let text = text.map_err(Error::io("cannot read /proc/thread-self/net/snmp"))?;
        retransmitted(&text).ok_or_else(|| Error::Invalid("/proc/thread-self/net/snmp has no Tcp RetransSegs".into()))
    }
}

impl Drop for NetnsRuntime {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// `RetransSegs` of `/proc/net/snmp`: a line of names, then a line of values.
fn retransmitted(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let column = lines.next()?.split(' ').position(|name| name == "RetransSegs")?;
    lines.next()?.split(' ').nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmissions_are_parsed_by_column_name() {
        let snmp =
            "Ip: Forwarding\nIp: 1\nTcp: RtoMin OutSegs RetransSegs\nTcp: 200 1000 17\nUdp: InDatagrams\nUdp: 5\n";
        assert_eq!(retransmitted(snmp), Some(17));
        assert_eq!(retransmitted("Tcp: OutSegs\nTcp: 5\n"), None);
    }

    #[test]
    fn tasks_run_in_the_network_namespace() {
        let own = NetnsRuntime::start(Path::new("/proc/self/ns/net")).unwrap();
        let seen = own.run(async { std::fs::read_link("/proc/thread-self/ns/net").unwrap() }).unwrap();
        assert_eq!(seen, std::fs::read_link("/proc/self/ns/net").unwrap());
        assert!(NetnsRuntime::start(Path::new("/proc/self/ns/nothing")).is_err());
    }
}
