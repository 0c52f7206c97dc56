//! The network that the controller recorded for a pod, and how the pod's annotation compares with it.
//!
//! ```text
//!  status condition k8s.ovn.org/NetworkAllocated ─▶ the record: the controller writes it in one patch with the annotation
//!  annotation with the addresses that kubelet reports ─▶ counts as the record: a pod of an older controller
//!  any other annotation ─▶ no record
//! ```
//!
//! Everyone who may edit a pod may write its annotations, so these prove nothing. Its status is reserved for kubelets and
//! controllers, and no update of the pod itself changes it.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::Deserialize;
use serde_json::{Value, json};

use super::PodNetwork;

/// Type of the pod condition whose message is the network of the pod, in the format of the annotation.
pub const NETWORK_ALLOCATED: &str = "k8s.ovn.org/NetworkAllocated";
const REASON: &str = "AddressesAllocated";

/// The fields of a Pod's status that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus<'a> {
    /// `Succeeded` and `Failed` are final.
    #[serde(borrow)]
    pub(super) phase: Cow<'a, str>,
    #[serde(borrow)]
    conditions: Option<Vec<PodCondition<'a>>>,
    #[serde(borrow, rename = "podIPs")]
    addresses: Option<Vec<PodAddress<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PodCondition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow)]
    message: Cow<'a, str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PodAddress<'a> {
    #[serde(borrow)]
    ip: Cow<'a, str>,
}

/// How the annotation compares with the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnnotationState {
    /// Equal to the record.
    Same,
    /// The pod has no such annotation.
    Absent,
    /// There is an annotation and no condition: written by an older controller, or forged.
    Unrecorded,
    /// Changed after the controller wrote it.
    Differs,
}

impl PodStatus<'_> {
    /// The trusted text of the network, and how the annotation compares with it.
    pub(super) fn recorded<'s>(&'s self, annotation: Option<&'s str>) -> (Option<&'s str>, AnnotationState) {
        if let Some(record) = self.condition().filter(|text| PodNetwork::read(text).is_ok()) {
            let state = match annotation {
                None => AnnotationState::Absent,
                Some(text) if text == record => AnnotationState::Same,
                Some(_) => AnnotationState::Differs,
            };
            return (Some(record), state);
        }
        match annotation {
            None => (None, AnnotationState::Absent),
            Some(text) => (self.reports(text).then_some(text), AnnotationState::Unrecorded),
        }
    }

    fn condition(&self) -> Option<&str> {
        let mut conditions = self.conditions.iter().flatten();
        let own = conditions.find(|condition| condition.kind == NETWORK_ALLOCATED && condition.status == "True");
        own.map(|condition| condition.message.as_ref())
    }

    /// Whether kubelet reports exactly the addresses of the annotation, so the pod runs with them.
    fn reports(&self, annotation: &str) -> bool {
        let reported = self.addresses.iter().flatten().map(|address| address.ip.parse::<IpAddr>().ok());
        let Some(mut reported) = reported.collect::<Option<Vec<IpAddr>>>().filter(|reported| !reported.is_empty())
        else {
            return false;
        };
        let Ok(network) = PodNetwork::read(annotation) else { return false };
        let mut annotated: Vec<IpAddr> = network.addresses.iter().map(|address| address.address()).collect();
        reported.sort_unstable();
        annotated.sort_unstable();
        reported == annotated
    }
}

/// The condition that records a pod's network; the caller adds `lastTransitionTime`.
pub fn network_condition(annotation: &str) -> Value {
    json!({ "type": NETWORK_ALLOCATED, "status": "True", "reason": REASON, "message": annotation })
}

/// Adds the record to an object in memory, as the patch does on the API server.
pub fn record_network(object: &mut Value, annotation: &str) {
    let conditions = &mut object["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.retain(|condition| condition["type"] != NETWORK_ALLOCATED);
        conditions.push(network_condition(annotation));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str =
        r#"{"default":{"ip_addresses":["10.128.0.5/23","fd01::5/64"],"mac_address":"0a:58:0a:80:00:05"}}"#;
    const FORGED: &str = r#"{"default":{"ip_addresses":["10.128.0.9/23"],"mac_address":"0a:58:0a:80:00:09"}}"#;

    fn recorded(status: &Value, annotation: Option<&str>) -> (Option<String>, AnnotationState) {
        let status = status.to_string();
        let status: PodStatus<'_> = serde_json::from_str(&status).unwrap();
        let (text, state) = status.recorded(annotation);
        (text.map(str::to_owned), state)
    }

    #[test]
    fn the_condition_outranks_the_annotation() {
        let status = json!({ "conditions": [{"type": "Ready", "status": "False"}, network_condition(OURS)] });
        for (annotation, state) in [
            (Some(OURS), AnnotationState::Same),
            (None, AnnotationState::Absent),
            (Some(FORGED), AnnotationState::Differs),
            (Some("x"), AnnotationState::Differs),
        ] {
            assert_eq!(recorded(&status, annotation), (Some(OURS.to_owned()), state), "{annotation:?}");
        }
    }

    #[test]
    fn an_annotation_without_condition_counts_only_if_kubelet_reports_its_addresses() {
        let running = json!({ "podIP": "10.128.0.5", "podIPs": [{"ip": "10.128.0.5"}, {"ip": "fd01:0::5"}] });
        let trusted = (Some(OURS.to_owned()), AnnotationState::Unrecorded);
        assert_eq!(recorded(&running, Some(OURS)), trusted);
        for (status, annotation) in [
            (running.clone(), FORGED),
            (running, "x"),
            (json!({}), OURS),
            (json!({ "podIPs": [] }), OURS),
            (json!({ "podIPs": [{"ip": "10.128.0.5"}] }), OURS),
            (json!({ "podIPs": [{"ip": "?"}], "conditions": null }), OURS),
            (json!({ "conditions": [{"type": NETWORK_ALLOCATED, "status": "False", "message": OURS}] }), OURS),
            (json!({ "conditions": [{"type": NETWORK_ALLOCATED, "status": "True", "message": "x"}] }), OURS),
        ] {
            assert_eq!(
                recorded(&status, Some(annotation)),
                (None, AnnotationState::Unrecorded),
                "{status} {annotation}"
            );
        }
        assert_eq!(recorded(&json!({}), None), (None, AnnotationState::Absent));
    }
}
