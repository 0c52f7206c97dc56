//! bandwidth: the limits of a pod become rules of its node's switch, which every datapath enforces by meters.

use ovn_schema::Feature;
use ovn_schema::northbound::{LogicalSwitch, Qos};
use ovsdb::uuid::Uuid;

use super::Given;
use crate::contribution::Draft;
use crate::objects::{Annotated, Rate, Wishes};
use crate::refusal::Refusal;

const PRIORITY: i64 = 10;
/// What may pass at once at least, in kilobits: two of the largest packets that a kernel hands over as one. With less, a
/// slow limit would let none of them through, however long they wait.
const LEAST_BURST: u32 = 1024;

/// What may pass at once, in kilobits: a tenth of a second's worth.
fn burst(Rate(rate): Rate) -> i64 {
    i64::from((rate / 10).max(LEAST_BURST))
}

pub(super) fn add(draft: &mut Draft<'_>, switch: Uuid, port: &str, wishes: &Wishes, given: Given<'_>) {
    let limits =
        [("ingress", "to-lport", "outport", &wishes.ingress), ("egress", "from-lport", "inport", &wishes.egress)];
    for (key, direction, side, limit) in limits {
        match limit {
            Annotated::Absent => {}
            Annotated::Broken(why) => {
                let message = format!(
                    "{why}; this limit is not set, and the container runtime may refuse the pod for it: correct the annotation, or remove it"
                );
                draft.refuse(Refusal::new("BandwidthRefused", message));
            }
            Annotated::Valid(_) if !given.settings.features.has(Feature::QosRules) => {
                let message = format!(
                    "annotation kubernetes.io/{key}-bandwidth: the northbound database has no rules for bandwidth (QoS): this \
                     needs a newer OVN; the pod works without this limit"
                );
                draft.refuse(Refusal::new("BandwidthUnsupported", message));
            }
            Annotated::Valid(rate) => {
                let row = Qos {
                    priority: PRIORITY,
                    direction: direction.into(),
                    matching: format!("{side} == \"{port}\""),
                    bandwidth: [("rate".to_owned(), i64::from(rate.0)), ("burst".to_owned(), burst(*rate))].into(),
                    external_ids: draft.mark(&[]),
                    ..Default::default()
                };
                draft.child(LogicalSwitch::qos_rules, switch, &format!("{key} bandwidth"), &row);
            }
        }
    }
}
