//! Events in a real API server.

use kubernetes::{Note, ObjectReference, Recorder, Severity};
use serde_json::Value;

use crate::common::{PODS, cluster, connect, eventually, get, pod, post, run};

fn note(pod: &Value) -> Note {
    let field = |name: &str| pod["metadata"][name].as_str().unwrap().to_owned();
    Note {
        object: ObjectReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: field("namespace"),
            name: field("name"),
            uid: field("uid"),
        },
        severity: Severity::Warning,
        reason: "NoAddress".into(),
        message: "the subnet is used up".into(),
    }
}

#[test]
fn repeated_events_are_counted_across_restarts() {
    let lab = cluster("events");
    run(async {
        let api = connect(&lab).await;
        let web = post(&api, PODS, &pod("web")).await.unwrap();
        let events = "/api/v1/namespaces/default/events?fieldSelector=reason%3DNoAddress";
        let counts = |count: u64| move |list: &Value| list["items"][0]["count"] == count;
        let recorder = Recorder::new(&api, "ovnkube-controller", "controller-0");
        recorder.record(note(&web));
        eventually(&api, events, "the Event", counts(1)).await;
        recorder.record(note(&web));
        let list = eventually(&api, events, "its repetition", counts(2)).await;
        assert_eq!(list["items"].as_array().unwrap().len(), 1);
        let event = &list["items"][0];
        assert_eq!(event["involvedObject"]["uid"], web["metadata"]["uid"]);
        assert_eq!(event["type"], "Warning");
        assert_eq!(event["source"]["component"], "ovnkube-controller");
        assert_eq!(event["reportingComponent"], "ovnkube-controller");
        let described = lab.kubectl(&["describe", "pod", "web"]).unwrap();
        assert!(described.contains("the subnet is used up") && described.contains("x2 over"), "{described}");

        // A new recorder continues the count; an expired Event is created again.
        drop(recorder);
        let recorder = Recorder::new(&api, "ovnkube-controller", "controller-0");
        recorder.record(note(&web));
        let list = eventually(&api, events, "the third", counts(3)).await;
        let name = list["items"][0]["metadata"]["name"].as_str().unwrap();
        api.delete(&format!("/api/v1/namespaces/default/events/{name}"), Vec::new()).await.unwrap();
        recorder.record(note(&web));
        eventually(&api, events, "a new one", counts(1)).await;

        // A cluster-scoped object, and one in a missing namespace.
        let mut node = note(&web);
        node.object = ObjectReference { kind: "Node".into(), name: "n1".into(), ..ObjectReference::default() };
        node.reason = "NodeNote".into();
        let mut nowhere = note(&web);
        nowhere.object.namespace = "nowhere".into();
        recorder.record(nowhere);
        recorder.record(node);
        let of_node = "/api/v1/namespaces/default/events?fieldSelector=reason%3DNodeNote";
        eventually(&api, of_node, "the node's Event", counts(1)).await;
        assert_eq!(recorder.dropped(), 1);
        assert_eq!(get(&api, events).await.unwrap()["items"].as_array().unwrap().len(), 1);
    });
}
