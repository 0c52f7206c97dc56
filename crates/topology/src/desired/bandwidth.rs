//! Bandwidth limits of a pod: QoS rules of its node's switch, enforced by meters on every datapath.

use objects::{Annotated, PodOptions, Rate};
use ovn_schema::Feature;
use ovn_schema::northbound::{LogicalSwitch, Qos};
use ovsdb::uuid::Uuid;

use super::Inputs;
use crate::contribution::Draft;
use crate::refusal::Refusal;

const PRIORITY: i64 = 10;
/// The smallest burst, in kilobits: two of the largest segments that a kernel hands over as one packet. With less, a low
/// limit would never let one pass.
const LEAST_BURST: u32 = 1024;

/// The burst, in kilobits: a tenth of a second's worth.
fn burst(Rate(rate): Rate) -> i64 {
    i64::from((rate / 10).max(LEAST_BURST))
}

pub(super) fn add(draft: &mut Draft<'_>, switch: Uuid, port: &str, options: &PodOptions, inputs: Inputs<'_>) {
    let limits =
        [("ingress", "to-lport", "outport", &options.ingress), ("egress", "from-lport", "inport", &options.egress)];
    for (key, direction, side, limit) in limits {
        match limit {
            Annotated::Absent => {}
            Annotated::Broken(why) => {
                let message = format!(
                    "{why}; this limit is not set, and the container runtime may refuse the pod: correct the annotation, or remove it"
                );
                draft.refuse(Refusal::new("BandwidthRefused", message));
            }
            Annotated::Valid(_) if !inputs.settings.features.has(Feature::QosRules) => {
                let message = format!(
                    "annotation kubernetes.io/{key}-bandwidth: the northbound database has no QoS rules: this \
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
