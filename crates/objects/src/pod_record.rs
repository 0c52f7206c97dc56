//! A pod's network as the controller recorded it, and what the pod's annotation makes of it.
//!
//! ```text
//!  status condition k8s.ovn.org/NetworkAllocated ─▶ the record: the controller writes it in one patch with the annotation
//!  annotation with the addresses that kubelet reports ─▶ as good as a record: a pod of an older controller
//!  any other annotation ─▶ no record
//! ```
//!
//! Whoever may edit a pod may write its annotations, so these prove nothing. Its status is reserved for kubelets and
//! controllers, and no update of the pod itself changes it: what stands there was decided, not claimed.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::Deserialize;
use serde_json::{Value, json};

use super::PodNetwork;

/// The type of the condition whose message is the network of a pod, in the annotation's own words.
pub const NETWORK_ALLOCATED: &str = "k8s.ovn.org/NetworkAllocated";
const REASON: &str = "AddressesAllocated";

/// A Pod's status, as far as we read it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus<'a> {
    /// Its phase.
    #[serde(borrow)]
    pub phase: Cow<'a, str>,
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

/// How the annotation stands to the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mirror {
    /// It says the same.
    Same,
    /// There is no annotation.
    Absent,
    /// There is an annotation, and no condition: of an older controller, or of somebody who had no business to write it.
    Unrecorded,
    /// It says something else: it was changed after the controller wrote it.
    Differs,
}

impl PodStatus<'_> {
    /// The text that may be believed, and how the annotation stands to it.
    pub fn recorded<'s>(&'s self, annotation: Option<&'s str>) -> (Option<&'s str>, Mirror) {
        if let Some(record) = self.condition().filter(|text| PodNetwork::read(text).is_ok()) {
            let mirror = match annotation {
                None => Mirror::Absent,
                Some(text) if text == record => Mirror::Same,
                Some(_) => Mirror::Differs,
            };
            return (Some(record), mirror);
        }
        match annotation {
            None => (None, Mirror::Absent),
            Some(text) => (self.reports(text).then_some(text), Mirror::Unrecorded),
        }
    }

    fn condition(&self) -> Option<&str> {
        let mut conditions = self.conditions.iter().flatten();
        let own = conditions.find(|condition| condition.kind == NETWORK_ALLOCATED && condition.status == "True");
        own.map(|condition| condition.message.as_ref())
    }

    /// Whether kubelet reports exactly the addresses of an annotation: the pod runs with them.
    fn reports(&self, annotation: &str) -> bool {
        let reported = self.addresses.iter().flatten().map(|address| address.ip.parse::<IpAddr>().ok());
        let Some(mut reported) = reported.collect::<Option<Vec<IpAddr>>>().filter(|reported| !reported.is_empty())
        else {
            return false;
        };
        let Ok(network) = PodNetwork::read(annotation) else { return false };
        let mut said: Vec<IpAddr> = network.addresses.iter().map(|address| address.address()).collect();
        reported.sort_unstable();
        said.sort_unstable();
        reported == said
    }
}

/// The condition that records a pod's network; whoever writes it adds the time.
pub fn network_condition(annotation: &str) -> Value {
    json!({ "type": NETWORK_ALLOCATED, "status": "True", "reason": REASON, "message": annotation })
}

/// Records a network on an object that is held here rather than by an API server, as the patch would.
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

    fn recorded(status: &Value, annotation: Option<&str>) -> (Option<String>, Mirror) {
        let status = status.to_string();
        let status: PodStatus<'_> = serde_json::from_str(&status).unwrap();
        let (text, mirror) = status.recorded(annotation);
        (text.map(str::to_owned), mirror)
    }

    #[test]
    fn the_condition_is_believed_whatever_the_annotation_says() {
        let status = json!({ "conditions": [{"type": "Ready", "status": "False"}, network_condition(OURS)] });
        for (annotation, mirror) in [
            (Some(OURS), Mirror::Same),
            (None, Mirror::Absent),
            (Some(FORGED), Mirror::Differs),
            (Some("x"), Mirror::Differs),
        ] {
            assert_eq!(recorded(&status, annotation), (Some(OURS.to_owned()), mirror), "{annotation:?}");
        }
    }

    #[test]
    fn an_annotation_alone_is_believed_only_if_the_pod_runs_with_its_addresses() {
        let running = json!({ "podIP": "10.128.0.5", "podIPs": [{"ip": "10.128.0.5"}, {"ip": "fd01:0::5"}] });
        let believed = (Some(OURS.to_owned()), Mirror::Unrecorded);
        assert_eq!(recorded(&running, Some(OURS)), believed);
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
            assert_eq!(recorded(&status, Some(annotation)), (None, Mirror::Unrecorded), "{status} {annotation}");
        }
        assert_eq!(recorded(&json!({}), None), (None, Mirror::Absent));
    }
}
