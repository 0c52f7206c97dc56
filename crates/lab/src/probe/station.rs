//! A thread inside a network namespace with a runtime of its own: sockets that its tasks open live in that network.

use std::future::Future;
use std::path::Path;
use std::thread::JoinHandle;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::namespace::join_network;

/// It ends with this value, and its tasks with it.
#[derive(Debug)]
pub(super) struct Station {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Station {
    /// Enters a network.
    pub(super) fn enter(network: &Path) -> Result<Self> {
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
                    // An error says that the station was dropped, which is a stop as well.
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

    /// Starts a task in the network.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }

    /// Runs a task in the network and waits for its answer.
    pub(super) fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Result<T> {
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        self.spawn(async move { drop(answer.send(task.await)) });
        answered.recv().map_err(|_| Error::Invalid("a thread of the prober ended before its work was done".into()))
    }

    /// TCP segments that were sent again in this network since it exists.
    pub(super) fn retransmitted(&self) -> Result<u64> {
        let text = self.run(async { std::fs::read_to_string("/proc/thread-self/net/snmp") })?;
        let text = text.map_err(Error::io("cannot read /proc/thread-self/net/snmp"))?;
        retransmitted(&text).ok_or_else(|| Error::Invalid("/proc/thread-self/net/snmp has no Tcp RetransSegs".into()))
    }
}

impl Drop for Station {
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
    fn retransmissions_are_found_by_name() {
        let snmp =
            "Ip: Forwarding\nIp: 1\nTcp: RtoMin OutSegs RetransSegs\nTcp: 200 1000 17\nUdp: InDatagrams\nUdp: 5\n";
        assert_eq!(retransmitted(snmp), Some(17));
        assert_eq!(retransmitted("Tcp: OutSegs\nTcp: 5\n"), None);
    }

    #[test]
    fn a_station_runs_in_the_network_it_entered() {
        let own = Station::enter(Path::new("/proc/self/ns/net")).unwrap();
        let seen = own.run(async { std::fs::read_link("/proc/thread-self/ns/net").unwrap() }).unwrap();
        assert_eq!(seen, std::fs::read_link("/proc/self/ns/net").unwrap());
        assert!(Station::enter(Path::new("/proc/self/ns/nothing")).is_err());
    }
}
