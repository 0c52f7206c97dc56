//! Access of the agent's pod to its host: each is taken away in turn, and what it is for fails. `make test-permissions`.

use std::time::Duration;

use lab::{Databases, Family, GatewayMode, Lab, poll};
use serde_json::{Value, json};

use crate::common::cluster_of;

const LIMIT: Duration = Duration::from_secs(150);

/// What shows that something is missing.
enum Evidence {
    /// The node's condition `NodeNetworkReady` is not true, and says this.
    NotReady(&'static str),
    /// This shell command succeeds on the node, and does not with the whole pod.
    OnHost(&'static str),
    /// The runtime cannot start a pod, because of this.
    PodFails(&'static str),
}

struct Case {
    what: &'static str,
    /// Container and mount, or none for `hostPID`.
    mount: Option<(&'static str, &'static str)>,
    /// On the node, before the changed pod starts.
    before: &'static str,
    evidence: Evidence,
}

const CASES: [Case; 9] = [
    Case {
        what: "agent: /run/openvswitch",
        mount: Some(("ovnkube-node", "host-run-ovs")),
        before: "true",
        evidence: Evidence::NotReady("open vswitch"),
    },
    Case {
        what: "agent: /run/ovn",
        mount: Some(("ovnkube-node", "host-run-ovn")),
        before: "true",
        evidence: Evidence::NotReady("ovn-controller"),
    },
    Case {
        what: "agent: /run/ovn-kubernetes",
        mount: Some(("ovnkube-node", "host-run-ovn-kubernetes")),
        before: "rm -rf /run/ovn-kubernetes/cni",
        evidence: Evidence::PodFails("cannot reach the ovnkube node agent"),
    },
    Case {
        what: "agent: /run/netns",
        mount: Some(("ovnkube-node", "host-run-netns")),
        before: "true",
        evidence: Evidence::PodFails("cannot enter the network namespace"),
    },
    Case {
        what: "agent: /opt/cni/bin",
        mount: Some(("ovnkube-node", "host-cni-bin")),
        before: "rm -f /opt/cni/bin/ovn-k8s-cni-overlay",
        evidence: Evidence::OnHost("test ! -e /opt/cni/bin/ovn-k8s-cni-overlay"),
    },
    Case {
        what: "agent: /etc/cni/net.d",
        mount: Some(("ovnkube-node", "host-cni-conf")),
        before: "rm -f /etc/cni/net.d/10-ovn-kubernetes.conf",
        evidence: Evidence::OnHost("test ! -e /etc/cni/net.d/10-ovn-kubernetes.conf"),
    },
    Case {
        what: "ovn-controller: /run/openvswitch",
        mount: Some(("ovn-controller", "host-run-ovs")),
        before: "true",
        evidence: Evidence::NotReady("ovn-controller"),
    },
    Case {
        what: "ovn-controller: /run/ovn",
        mount: Some(("ovn-controller", "host-run-ovn")),
        before: "true",
        evidence: Evidence::NotReady("ovn-controller"),
    },
    Case {
        what: "hostPID",
        mount: None,
        before: "true",
        evidence: Evidence::OnHost("! ovn-appctl --timeout=5 -t ovn-controller version"),
    },
];

/// Needed only where a signer issues certificates for nodes, which the labs of this test have not.
const WITH_SIGNER: [(&str, &str); 2] = [("ovnkube-node", "host-pki"), ("ovn-controller", "host-pki")];

fn daemon_set(lab: &Lab) -> Value {
    let text = lab.kubectl(&["-n", "ovn-kubernetes", "get", "daemonset", "ovnkube", "-o", "json"]).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Replaces the pods' specification and the pods.
fn replace(lab: &Lab, spec: &Value, before: &str) {
    let namespace = ["-n", "ovn-kubernetes"];
    let patch = json!([{"op": "replace", "path": "/spec/template/spec", "value": spec},
        {"op": "replace", "path": "/spec/updateStrategy", "value": {"type": "OnDelete"}}]);
    lab.kubectl(
        &[&namespace[..], &["patch", "daemonset", "ovnkube", "--type=json", "-p", &patch.to_string()]].concat(),
    )
    .unwrap();
    lab.kubectl(&[&namespace[..], &["delete", "pod", "-l", "app=ovnkube", "--wait=true"]].concat()).unwrap();
    lab.machine("n1").unwrap().run(&["sh", "-c", before]).unwrap();
}

fn await_ready(lab: &Lab) {
    let why = || lab.kubectl(&["-n", "ovn-kubernetes", "get", "pods", "-o", "wide"]).unwrap_or_default();
    poll(LIMIT, || {
        let status = &daemon_set(lab)["status"];
        let ready = status["numberReady"] == 1 && status["updatedNumberScheduled"] == 1;
        (ready && condition(lab).0 == "True").then_some(()).ok_or_else(why)
    })
    .unwrap_or_else(|pods| panic!("the whole pod is not ready: {pods}; {:?}", condition(lab)));
}

/// Status and message of the node's condition.
fn condition(lab: &Lab) -> (String, String) {
    let node: Value = serde_json::from_str(&lab.kubectl(&["get", "node", "n1", "-o", "json"]).unwrap()).unwrap();
    let conditions = node["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|one| one["type"] == "k8s.ovn.org/NodeNetworkReady");
    let text = |key: &str| found.and_then(|one| one[key].as_str()).unwrap_or_default().to_owned();
    (text("status"), text("message"))
}

fn shows(lab: &Lab, evidence: &Evidence, number: usize) -> Result<(), String> {
    match evidence {
        Evidence::NotReady(words) => poll(LIMIT, || {
            let (status, message) = condition(lab);
            (status != "True" && message.contains(words)).then_some(()).ok_or(format!("{status}: {message}"))
        }),
        Evidence::OnHost(script) => poll(LIMIT, || {
            // Only once the agent works otherwise, or the missing thing may merely be late.
            let running = daemon_set(lab)["status"]["updatedNumberScheduled"] == 1;
            let log =
                lab.kubectl(&["-n", "ovn-kubernetes", "logs", "ds/ovnkube", "-c", "ovnkube-node"]).unwrap_or_default();
            let works = running && log.contains("CNI server listening") && condition(lab).0 == "True";
            let said = lab.machine("n1").unwrap().run(&["sh", "-c", script]).map_err(|error| error.to_string());
            if works { said.map(drop) } else { Err(format!("the agent does not work: {:?}", condition(lab))) }
        }),
        Evidence::PodFails(words) => {
            let name = format!("probe-{number}");
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"},
                "spec": {"nodeName": "n1", "terminationGracePeriodSeconds": 0, "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": "pause", "image": "localhost/agnhost:lab", "args": ["pause"]}]}});
            lab.apply(&pod.to_string()).unwrap();
            let field = format!("--field-selector=involvedObject.name={name}");
            let found = poll(LIMIT, || {
                let events = lab
                    .kubectl(&["-n", "shop", "get", "events", &field, "-o", "jsonpath={.items[*].message}"])
                    .unwrap();
                if events.contains(words) { Ok(()) } else { Err(events) }
            });
            lab.kubectl(&["-n", "shop", "delete", "pod", &name, "--grace-period=0", "--force"]).unwrap();
            found
        }
    }
}

#[test]
#[ignore = "takes some minutes: make test-permissions"]
fn each_access_to_the_host_is_needed() {
    let lab = cluster_of(1, "permissions", Family::V4, GatewayMode::Shared, Databases::Standalone);
    let whole = daemon_set(&lab)["spec"]["template"]["spec"].clone();
    // Every hostPath of each container has a case.
    let mounted: Vec<(&str, &str)> = CASES.iter().filter_map(|case| case.mount).collect();
    let is_host = |name: &Value| {
        whole["volumes"]
            .as_array()
            .unwrap()
            .iter()
            .any(|volume| volume["name"] == *name && volume["hostPath"].is_object())
    };
    for container in whole["containers"].as_array().unwrap() {
        for mount in container["volumeMounts"].as_array().unwrap().iter().filter(|mount| is_host(&mount["name"])) {
            let key = (container["name"].as_str().unwrap(), mount["name"].as_str().unwrap());
            assert!(mounted.contains(&key) || WITH_SIGNER.contains(&key), "no case for {key:?}");
        }
    }
    let mut failures = Vec::new();
    for (number, case) in CASES.iter().enumerate() {
        let mut spec = whole.clone();
        match case.mount {
            Some((container, mount)) => {
                let containers = spec["containers"].as_array_mut().unwrap();
                let container = containers.iter_mut().find(|one| one["name"] == container).unwrap();
                container["volumeMounts"].as_array_mut().unwrap().retain(|one| one["name"] != mount);
            }
            None => spec["hostPID"] = json!(false),
        }
        replace(&lab, &spec, case.before);
        match shows(&lab, &case.evidence, number) {
            Ok(()) => println!("{}: needed", case.what),
            Err(last) => failures.push(format!("{}: not shown to be needed; last: {last}", case.what)),
        }
        replace(&lab, &whole, "true");
        await_ready(&lab);
        if let Evidence::OnHost(script) = case.evidence {
            let with_it = lab.machine("n1").unwrap().run(&["sh", "-c", script]);
            if with_it.is_ok() {
                failures.push(format!("{}: `{script}` succeeds with it, too", case.what));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
