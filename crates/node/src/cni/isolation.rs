//! Keeps what pods send from the host's own stack where the switch forwards in userspace.
//!
//! ADD protects the host end of its own pod before the pod can send ([`pod_filter`]). This reconciler covers the rest: pods
//! wired by an earlier version or another implementation, chains that somebody deleted or changed, chains whose device is
//! gone, and a bridge whose `datapath_type` changes. The kernel datapath takes frames before the host's stack sees them, and
//! a chain would take them from it: there the table is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use cni::{Code, Failure};

use super::{Inner, wiring};
use crate::kernel::filter_changes::{Concern, FilterChanges};
use crate::kernel::pod_filter::{self, Chain};
use crate::kernel::pod_link;
use crate::switch::rows::pod_ports;

/// How often everything is compared although no change was seen.
const RESYNC: Duration = Duration::from_secs(600);
/// The first pause after a failure; it doubles up to the longest.
const SOON: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// What differs between host ends and chains.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    /// Host ends without a chain.
    protect: Vec<String>,
    /// Those whose chain was tampered with.
    restore: Vec<String>,
    /// Chains without a device.
    remove: Vec<String>,
}

impl Plan {
    /// `busy`: host ends that a request is about right now, which protects or removes them itself.
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

    /// Carries it out; how many host ends were open.
    fn carry(self) -> io::Result<usize> {
        pod_filter::wake()?;
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
    /// Never ends.
    pub(super) async fn keep_isolated(self: Arc<Self>) {
        let mut changes = FilterChanges::listen(Concern::PodChains)
            .inspect_err(|error| {
                tracing::warn!(%error, "cannot subscribe to nftables events; deleted chains are restored by the 10-minute resync");
            })
            .ok();
        let mut switch = self.parts.ports.subscribe();
        let (mut pause, mut first) = (SOON, true);
        loop {
            let userspace = self.parts.ports.userspace();
            let again = match self.isolate(userspace, first).await {
                Ok(()) => {
                    first &= userspace.is_none();
                    pause = SOON;
                    RESYNC
                }
                Err(failure) => {
                    tracing::warn!(error = %failure, "cannot keep frames of pods from the host's stack; retrying in {pause:?}");
                    let waited = pause;
                    pause = (pause * 2).min(LONGEST);
                    waited
                }
            };
            let datapath_changed = async {
                while self.parts.ports.userspace() == userspace {
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
                if self.beside(pod_filter::remove_table).await?.unwrap_or(false) {
                    tracing::info!(table, "br-int forwards in the kernel; removed the nftables table for userspace");
                }
                return Ok(());
            }
            Some(true) => {}
        }
        let mut busy = self.busy_ends();
        let of_ports: BTreeSet<String> =
            pod_ports(&self.parts.ports.snapshot(), None).into_iter().map(|port| port.name).collect();
        let looking = move || {
            // Chains first: each is younger than its device, so one whose device is not in the later list is stale.
            let chains = pod_filter::chains()?;
            let pairs = pod_link::pairs()?.into_iter();
            let ends = pairs.filter(|(name, alias)| wiring::is_host_end(name, alias) || of_ports.contains(name));
            io::Result::Ok((ends.map(|(name, _)| name).collect::<BTreeSet<_>>(), chains))
        };
        let (ends, chains) = self.beside(looking).await?.map_err(|error| failed(&error))?;
        busy.extend(self.busy_ends());
        let plan = Plan::new(&ends, &chains, &busy);
        let opened = self.beside(move || plan.carry()).await?.map_err(|error| failed(&error))?;
        if opened > 0 {
            self.metrics.filter_repairs.inc_by(opened as u64);
            if first {
                tracing::info!(table, interfaces = opened, "frames of running pods are kept from the host's stack now");
            } else {
                tracing::warn!(table, interfaces = opened, "nftables chains of pods were deleted or changed; restored");
            }
        }
        Ok(())
    }

    fn busy_ends(&self) -> BTreeSet<String> {
        self.desk.busy().iter().map(wiring::host_end).collect()
    }
}

fn failed(error: &io::Error) -> Failure {
    Failure::new(Code::Io, "nftables (family netdev) refused").with_details(error.to_string())
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
    fn only_what_differs_is_changed_and_requests_are_left_alone() {
        let chain = |name: &str, intact| Chain { name: name.to_owned(), intact };
        let chains = [chain("whole", true), chain("open", false), chain("gone", true), chain("leaving", true)];
        let plan = Plan::new(&names(&["whole", "open", "bare", "coming"]), &chains, &names(&["coming", "leaving"]));
        let list = |name: &str| vec![name.to_owned()];
        assert_eq!(plan, Plan { protect: list("bare"), restore: list("open"), remove: list("gone") });
        assert_eq!(Plan::new(&names(&["whole"]), &chains[..1], &names(&[])), Plan::default());
    }
}
