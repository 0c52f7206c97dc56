//! Isolation from the host: drops pods' frames at the host's ingress if the datapath is in userspace.
//!
//! ADD protects the host end of its own pod before the pod can send ([`pod_filter`]). This reconciler covers the rest: pods
//! connected by an earlier version or by OVN-Kubernetes (Go), chains that another client deleted or changed, chains whose device
//! is gone, and a changed `datapath_type`. The kernel datapath takes frames before the host's stack sees them, and a chain would
//! drop them: there the table is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use backoff::{Backoff, Retries};
use cni::{Code, Failure};

use super::{Inner, wiring};
use crate::kernel::filter_changes::{FilterChanges, FilterScope};
use crate::kernel::pod_filter::{self, Chain};
use crate::kernel::pod_link;
use crate::switch::rows::pod_ports;

/// Interval of a full comparison although no event arrived.
const RESYNC: Duration = Duration::from_secs(600);
/// Delay after a failure.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// Changes that make the chains match the host ends.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    /// Host ends without a chain.
    protect: Vec<String>,
    /// Host ends whose chain another client changed.
    restore: Vec<String>,
    /// Chains without a device.
    remove: Vec<String>,
}

impl Plan {
    /// `busy`: host ends with a running request, which protects or removes them itself.
    fn new(ends: &BTreeSet<String>, chains: &[Chain], busy: &BTreeSet<String>) -> Self {
        let intact: BTreeMap<&str, bool> = chains.iter().map(|chain| (chain.name.as_str(), chain.intact)).collect();
        let mut plan = Self::default();
        for end in ends.difference(busy) {
            match intact.get(end.as_str()) {
                None => plan.protect.push(end.clone()),
                Some(false) => plan.restore.push(end.clone()),
                Some(true) => {}
            }
        }
        let stale = intact.keys().filter(|name| !ends.contains(**name) && !busy.contains(**name));
        plan.remove = stale.map(|name| (*name).to_owned()).collect();
        plan
    }

    /// Returns how many host ends were not isolated.
    fn apply(self) -> io::Result<usize> {
        pod_filter::ensure_table()?;
        let mut opened = 0;
        for end in self.protect {
            opened += usize::from(pod_link::isolate(&end)?);
        }
        for end in self.restore {
            pod_filter::restore(&end)?;
            opened += 1;
        }
        for name in self.remove {
            pod_filter::unprotect(&name)?;
        }
        Ok(opened)
    }
}

impl Inner {
    /// Never returns.
    pub(super) async fn isolate_pods(self: Arc<Self>) {
        let mut changes = FilterChanges::subscribe(FilterScope::PodChains)
            .inspect_err(|error| {
                tracing::warn!(%error, "cannot subscribe to nftables events; deleted chains are restored by the 10-minute resync");
            })
            .ok();
        let mut switch = self.deps.ports.subscribe();
        let (mut retries, mut first) = (Retries::without_jitter(BACKOFF), true);
        loop {
            let userspace = self.deps.ports.userspace();
            let again = match self.isolate(userspace, first).await {
                Ok(()) => {
                    first &= userspace.is_none();
                    retries.reset();
                    RESYNC
                }
                Err(failure) => {
                    let pause = retries.next_delay();
                    tracing::warn!(error = %failure, "cannot isolate pods from the host's stack; retrying in {pause:?}");
                    pause
                }
            };
            let datapath_changed = async {
                while self.deps.ports.userspace() == userspace {
                    switch.next().await;
                }
            };
            tokio::select! {
                () = tokio::time::sleep(again) => {}
                () = next(&mut changes) => {}
                () = datapath_changed => {}
            }
        }
    }

    async fn isolate(&self, userspace: Option<bool>, first: bool) -> Result<(), Failure> {
        let table = pod_filter::TABLE;
        match userspace {
            None => return Ok(()),
            Some(false) => {
                if self.run_blocking(pod_filter::remove_table).await?.unwrap_or(false) {
                    tracing::info!(
                        table,
                        "br-int has the kernel datapath; removed the nftables table of the userspace datapath"
                    );
                }
                return Ok(());
            }
            Some(true) => {}
        }
        let mut busy = self.busy_ends();
        let of_ports: BTreeSet<String> =
            pod_ports(&self.deps.ports.snapshot(), None).into_iter().map(|port| port.name).collect();
        let looking = move || {
            // Chains first: each is younger than its device, so a chain whose device is missing from the later list is stale.
            let chains = pod_filter::chains()?;
            let pairs = pod_link::pairs()?.into_iter();
            let ends = pairs.filter(|(name, alias)| wiring::is_host_end(name, alias) || of_ports.contains(name));
            io::Result::Ok((ends.map(|(name, _)| name).collect::<BTreeSet<_>>(), chains))
        };
        let (ends, chains) = self.run_blocking(looking).await?.map_err(|error| failed(&error))?;
        busy.extend(self.busy_ends());
        let plan = Plan::new(&ends, &chains, &busy);
        let opened = self.run_blocking(move || plan.apply()).await?.map_err(|error| failed(&error))?;
        if opened > 0 {
            self.metrics.filter_repairs.inc_by(opened as u64);
            if first {
                tracing::info!(table, interfaces = opened, "isolated running pods from the host's stack");
            } else {
                tracing::warn!(
                    table,
                    interfaces = opened,
                    "another client deleted or changed nftables chains of pods; restored"
                );
            }
        }
        Ok(())
    }

    fn busy_ends(&self) -> BTreeSet<String> {
        self.locks.busy().iter().map(wiring::host_end).collect()
    }
}

fn failed(error: &io::Error) -> Failure {
    Failure::new(Code::Io, "cannot read or write nftables chains (family netdev)").with_details(error.to_string())
}

async fn next(changes: &mut Option<FilterChanges>) {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn only_differences_are_changed_and_busy_host_ends_are_left_alone() {
        let chain = |name: &str, intact| Chain { name: name.to_owned(), intact };
        let chains = [chain("whole", true), chain("open", false), chain("gone", true), chain("leaving", true)];
        let plan = Plan::new(&names(&["whole", "open", "bare", "coming"]), &chains, &names(&["coming", "leaving"]));
        let list = |name: &str| vec![name.to_owned()];
        assert_eq!(plan, Plan { protect: list("bare"), restore: list("open"), remove: list("gone") });
        assert_eq!(Plan::new(&names(&["whole"]), &chains[..1], &names(&[])), Plan::default());
    }
}
