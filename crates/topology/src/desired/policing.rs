//! Control-plane policing: a rate limit for each kind of packet that the data plane hands to ovn-controller.
//!
//! ovn-controller handles these packets in one thread, so a flood of one kind would delay all others. Every router and
//! every switch has the limits: pods reach the switch's paths (neighbour discovery, rejections) without a router.
//!
//! All ports of a node share a meter. What a flood leaves of a low limit is nothing: others' packets of that kind would be
//! lost as long as it lasts. So the limit of a kind that pods depend on is above the flood of one pod, and far below what
//! ovn-controller can handle (decision 41).

use ovn_schema::Feature;
use ovn_schema::northbound::{Copp, Meter, MeterBand};
use ovsdb::uuid::Uuid;

use super::Inputs;
use crate::contribution::Draft;

const COPP_KEY: &str = "copp";
/// End of the name of each limit's meter, after the kind of packets.
pub(crate) const LIMIT_SUFFIX: &str = "-rate-limiter";

/// Packets per second of kinds that a pod can send and other pods wait for.
const AWAITED: i64 = 12_000;
/// Of addresses that routers learn: each is a write to the southbound database.
const LEARNED: i64 = 1000;
/// Of kinds that ovnkube does not use, or that nobody waits for.
const UNUSED: i64 = 25;

/// All kinds that OVN 25.03 knows, with packets per second. A server ignores a kind that it does not know.
const POLICED: [(&str, i64); 17] = [
    ("arp", LEARNED),
    ("arp-resolve", AWAITED),
    ("bfd", UNUSED),
    ("dhcpv4-opts", UNUSED),
    ("dhcpv6-opts", UNUSED),
    ("dns", UNUSED),
    ("event-elb", UNUSED),
    ("icmp4-error", AWAITED),
    ("icmp6-error", AWAITED),
    ("igmp", UNUSED),
    // Answers to pods, and what routers learn from answers to theirs.
    ("nd-na", AWAITED),
    ("nd-ns", LEARNED),
    ("nd-ns-resolve", AWAITED),
    ("nd-ra-opts", UNUSED),
    ("reject", AWAITED),
    ("svc-monitor", UNUSED),
    ("tcp-reset", AWAITED),
];

/// The row of limits, for the cluster's own routers and switches.
pub(super) fn add(draft: &mut Draft<'_>, inputs: Inputs<'_>) -> Option<Uuid> {
    let features = &inputs.settings.features;
    if !features.has(Feature::ControlPlanePolicing) {
        return None;
    }
    let mut meters = ovn_schema::StringMap::new();
    for (protocol, rate) in POLICED {
        let name = format!("{protocol}{LIMIT_SUFFIX}");
        let band = MeterBand { action: "drop".into(), rate, external_ids: draft.mark(&[]), ..Default::default() };
        let meter = Meter {
            name: name.clone(),
            unit: "pktps".into(),
            fair: features.has(Feature::FairMeters).then_some(true),
            external_ids: draft.mark(&[]),
            ..Default::default()
        };
        let uuid = draft.row(&format!("meter {name}"), &meter);
        draft.child(Meter::bands, uuid, &format!("band {name}"), &band);
        meters.insert(protocol.to_owned(), name);
    }
    let copp = Copp { name: "ovnkube-default".into(), meters, external_ids: draft.mark(&[]) };
    Some(draft.row(COPP_KEY, &copp))
}

/// The row of limits, for routers and switches of other owners.
pub(super) fn of_cluster(draft: &Draft<'_>, inputs: Inputs<'_>) -> Option<Uuid> {
    inputs.settings.features.has(Feature::ControlPlanePolicing).then(|| draft.of_cluster::<Copp>(COPP_KEY))
}
