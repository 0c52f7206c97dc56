//! Properties of the manifests in `deploy/`: seccomp profiles, probes, mutual TLS, used service accounts, and admission
//! policies for those accounts.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

/// All objects of the manifests in a directory of `deploy/`.
fn objects(directory: &str) -> Vec<Value> {
    objects_in(&format!("deploy/{directory}"))
}

/// All objects of the manifests in a directory.
fn objects_in(directory: &str) -> Vec<Value> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(directory);
    let mut objects = Vec::new();
    for entry in std::fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = std::fs::read_to_string(&path).unwrap();
            let documents = text.split("\n---\n").map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
            objects.extend(documents.filter(Value::is_object));
        }
    }
    assert!(!objects.is_empty(), "{}", directory.display());
    objects
}

fn named<'a>(objects: &'a [Value], kind: &str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

/// Pod specs of workloads, by name.
fn pods(objects: &[Value]) -> Vec<(&str, &Value)> {
    let pod = |object: &'_ Value| object["spec"]["template"]["spec"].is_object();
    let pods = objects.iter().filter(|object| pod(object));
    pods.map(|object| (object["metadata"]["name"].as_str().unwrap(), &object["spec"]["template"]["spec"])).collect()
}

#[test]
fn every_container_has_a_seccomp_profile_and_ours_have_probes() {
    let (ours, examples, names) = (objects("ovnkube"), objects("examples"), objects_in("lab/coredns"));
    assert!(pods(&ours).len() >= 2 && !pods(&examples).is_empty() && !pods(&names).is_empty());
    for (name, pod) in pods(&ours).into_iter().chain(pods(&examples)).chain(pods(&names)) {
        for list in ["containers", "initContainers"] {
            for container in pod[list].as_array().into_iter().flatten() {
                let own = &container["securityContext"]["seccompProfile"]["type"];
                let profile = if own.is_null() { &pod["securityContext"]["seccompProfile"]["type"] } else { own };
                assert_eq!(profile, "RuntimeDefault", "{name}/{}", container["name"]);
            }
        }
    }
    for (name, pod) in pods(&ours) {
        for container in pod["containers"].as_array().unwrap() {
            for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                let probe = &container[probe];
                let asks = probe["exec"].is_object() || probe["httpGet"].is_object();
                assert!(asks, "{name}/{}: {probe}", container["name"]);
            }
        }
        // A recompute that takes minutes must not fail the liveness probe.
        let controller = pod["containers"].as_array().unwrap().iter().find(|one| one["name"] == "ovn-controller");
        let Some(controller) = controller else { continue };
        let liveness = &controller["livenessProbe"];
        let silence = liveness["periodSeconds"].as_u64().unwrap() * liveness["failureThreshold"].as_u64().unwrap();
        assert!(silence >= 300, "{liveness}");
    }
}

#[test]
fn databases_are_reached_by_tls() {
    let objects = objects("ovnkube");
    let config = named(&objects, "ConfigMap").find(|object| object["metadata"]["name"] == "ovn-config").unwrap();
    for key in ["OvnNorth", "OvnSouth"] {
        for remote in config["data"][key].as_str().unwrap().split(',') {
            assert!(remote.starts_with("ssl:"), "{key}: {remote}");
        }
    }
    for key in ["ovn_private_key", "ovn_certificate", "ovn_authorities"] {
        assert!(config["data"][key].as_str().is_some_and(|path| path.starts_with('/')), "{key}");
    }
}

#[test]
fn every_service_account_is_used_and_every_binding_has_one() {
    let objects: Vec<Value> = objects("ovnkube").into_iter().chain(objects("controller")).collect();
    let used: BTreeSet<&str> =
        pods(&objects).into_iter().map(|(_, pod)| pod["serviceAccountName"].as_str().unwrap()).collect();
    let accounts: BTreeSet<&str> =
        named(&objects, "ServiceAccount").map(|account| account["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(accounts, used);
    for binding in named(&objects, "ClusterRoleBinding").chain(named(&objects, "RoleBinding")) {
        for subject in binding["subjects"].as_array().unwrap() {
            assert!(accounts.contains(subject["name"].as_str().unwrap()), "{binding}");
            assert_eq!(subject["namespace"], "ovn-kubernetes", "{binding}");
        }
    }
}

/// The admission policy covers all annotations that the controller and the agents read.
#[test]
fn annotations_that_ovnkube_reads_are_reserved() {
    let policy = include_str!("../../../../deploy/ovnkube/admission.yaml");
    let source = include_str!("../../../objects/src/node.rs");
    let named = source.split('"').filter(|text| text.starts_with("k8s.ovn.org/") && !text.contains(' '));
    // CamelCase names are condition types.
    let read: BTreeSet<&str> = named.filter(|text| !text.contains(char::is_uppercase)).collect();
    assert!(read.len() >= 9, "{read:?}");
    for annotation in read.into_iter().chain([objects::POD_NETWORKS]) {
        assert!(policy.contains(&format!("'{annotation}'")), "{annotation}");
    }
}

/// A policy without a binding has no effect, and one that fails open rejects nothing.
#[test]
fn every_admission_policy_is_bound_and_fails_closed() {
    let objects = objects("ovnkube");
    let bindings: Vec<&Value> = named(&objects, "ValidatingAdmissionPolicyBinding").collect();
    assert_eq!(bindings.len(), named(&objects, "ValidatingAdmissionPolicy").count());
    for policy in named(&objects, "ValidatingAdmissionPolicy") {
        let binding =
            bindings.iter().find(|binding| binding["spec"]["policyName"] == policy["metadata"]["name"]).unwrap();
        assert_eq!(binding["spec"]["validationActions"], serde_json::json!(["Deny"]), "{binding}");
        assert_eq!(policy["spec"]["failurePolicy"], "Fail", "{policy}");
    }
}

/// The policy names the service account of the agents' pods.
#[test]
fn the_own_node_policy_names_the_agents_account() {
    let objects = objects("ovnkube");
    let (_, agents) = pods(&objects).into_iter().find(|(name, _)| *name == "ovnkube").unwrap();
    let account = agents["serviceAccountName"].as_str().unwrap();
    let mut policies = named(&objects, "ValidatingAdmissionPolicy");
    let policy = policies.find(|policy| policy["metadata"]["name"] == "ovnkube-agent-own-node").unwrap();
    let expected = format!("request.userInfo.username == 'system:serviceaccount:ovn-kubernetes:{account}'");
    assert_eq!(policy["spec"]["matchConditions"][0]["expression"], expected.as_str());
    let resources = &policy["spec"]["matchConstraints"]["resourceRules"][0]["resources"];
    assert_eq!(*resources, serde_json::json!(["nodes", "nodes/status"]));
}
