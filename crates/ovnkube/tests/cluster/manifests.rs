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
    let ours: Vec<Value> = ["ovnkube", "relay", "hosted"].into_iter().flat_map(objects).collect();
    let (active_backup, examples, names) = (objects("active-backup"), objects("examples"), objects_in("lab/coredns"));
    assert!(pods(&ours).len() >= 2 && !pods(&examples).is_empty() && !pods(&names).is_empty());
    for (name, pod) in pods(&ours).into_iter().chain(pods(&active_backup)).chain(pods(&examples)).chain(pods(&names)) {
        for list in ["containers", "initContainers"] {
            for container in pod[list].as_array().into_iter().flatten() {
                let own = &container["securityContext"]["seccompProfile"]["type"];
                let profile = if own.is_null() { &pod["securityContext"]["seccompProfile"]["type"] } else { own };
                assert_eq!(profile, "RuntimeDefault", "{name}/{}", container["name"]);
            }
        }
    }
    for (name, pod) in pods(&ours).into_iter().chain(pods(&active_backup)) {
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
    for key in ["OvnNorth", "OvnSouth", "OvnSouthControl"] {
        for remote in config["data"][key].as_str().unwrap().split(',') {
            assert!(remote.starts_with("ssl:"), "{key}: {remote}");
        }
    }
    for key in ["ovn_private_key", "ovn_certificate", "ovn_authorities", "ovn_node_private_key", "ovn_node_certificate"]
    {
        assert!(config["data"][key].as_str().is_some_and(|path| path.starts_with('/')), "{key}");
    }
}

/// Whoever reads Secret `ovn-ca` can be any node and any database.
#[test]
fn only_the_signer_may_use_secrets_and_others_wait_for_its_certificate() {
    let ours: Vec<Value> = ["ovnkube", "controller"].into_iter().flat_map(objects).collect();
    let roles = named(&ours, "Role").chain(named(&ours, "ClusterRole"));
    for role in roles {
        for rule in role["rules"].as_array().unwrap() {
            let resources: Vec<_> = rule["resources"].as_array().into_iter().flatten().collect();
            if resources.iter().any(|resource| *resource == "secrets" || *resource == "*") {
                assert_eq!(role["metadata"]["name"], "ovnkube-pki", "{rule}");
                let only_create =
                    rule["verbs"].as_array().is_some_and(|verbs| verbs.iter().all(|verb| verb == "create"));
                assert!(only_create || rule["resourceNames"].is_array(), "{rule}");
            }
        }
    }
    let mut waiting = 0;
    for (name, pod) in pods(&ours) {
        for volume in pod["volumes"].as_array().unwrap() {
            if ["ovn-cert", "ovn-ca"].iter().any(|object| volume["name"] == *object) {
                let optional = volume["secret"]["optional"] == true || volume["configMap"]["optional"] == true;
                assert_eq!(optional, name == "ovnkube-pki", "{name}: {volume}");
                waiting += 1;
            }
        }
    }
    assert_eq!(waiting, 2 * 2 + 1 + 1);
    // The certificate of the control plane is on no worker: each node has its own.
    let (_, agents) = pods(&ours).into_iter().find(|(name, _)| *name == "ovnkube").unwrap();
    for volume in agents["volumes"].as_array().unwrap() {
        assert_ne!(volume["secret"]["secretName"], "ovn-cert", "{volume}");
    }
}

#[test]
fn every_service_account_is_used_and_every_binding_has_one() {
    let objects: Vec<Value> = ["ovnkube", "controller", "relay"].into_iter().flat_map(objects).collect();
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

/// Ports of the TLS listeners of a workload's containers, from `OVNKUBE_METRICS_TLS_BIND_ADDRESS` or the flag, which wins.
fn scraped_ports(pod: &Value) -> BTreeSet<u64> {
    let port = |address: &str| address.rsplit_once("]:").unwrap().1.parse().unwrap();
    let of_container = |container: &Value| {
        let args = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let by_flag = args.skip_while(|argument| *argument != "--metrics-tls-bind-address").nth(1);
        let mut environment = container["env"].as_array().into_iter().flatten();
        let by_variable = environment.find(|one| one["name"] == "OVNKUBE_METRICS_TLS_BIND_ADDRESS");
        by_flag.or_else(|| by_variable?["value"].as_str()).map(port)
    };
    pod["containers"].as_array().unwrap().iter().filter_map(of_container).collect()
}

/// Asserts that a Service lists each TLS listener of the workloads, and that the ServiceMonitor has each port of the Services.
fn assert_scraped(workloads: &[Value], monitoring: &[Value]) {
    let monitored = |object: &&Value| object["metadata"]["labels"]["app.kubernetes.io/component"] == "metrics";
    let services: Vec<&Value> = named(monitoring, "Service").filter(monitored).collect();
    for (name, pod) in pods(workloads) {
        let service = services.iter().find(|service| service["spec"]["selector"]["app"] == name).unwrap();
        let ports = service["spec"]["ports"].as_array().unwrap();
        let ports: BTreeSet<u64> = ports.iter().map(|port| port["port"].as_u64().unwrap()).collect();
        assert_eq!(scraped_ports(pod), ports, "{name}");
        assert_eq!(service["spec"]["publishNotReadyAddresses"], true, "{name}");
    }
    // Each port is scraped, with TLS.
    let monitor = named(monitoring, "ServiceMonitor").next().unwrap();
    let scraped: BTreeSet<&str> = monitor["spec"]["endpoints"]
        .as_array()
        .unwrap()
        .iter()
        .inspect(|endpoint| assert_eq!(endpoint["scheme"], "https", "{endpoint}"))
        .map(|endpoint| endpoint["port"].as_str().unwrap())
        .collect();
    let names = services.iter().flat_map(|service| service["spec"]["ports"].as_array().unwrap());
    assert_eq!(scraped, names.map(|port| port["name"].as_str().unwrap()).collect());
}

#[test]
fn services_for_prometheus_have_the_ports_of_the_listeners() {
    let ours: Vec<Value> = ["ovnkube", "relay"].into_iter().flat_map(objects).collect();
    assert_scraped(&ours, &objects("monitoring"));
}

#[test]
fn hosted_metrics_are_scraped_and_their_readers_can_be_reviewed() {
    let objects = objects("hosted");
    assert_scraped(&objects, &objects);
    let (_, pod) = pods(&objects)[0];
    let ports = scraped_ports(pod);
    assert_eq!(ports, BTreeSet::from([9104, 9105]));
    // The NetworkPolicy admits Prometheus to these ports, from anywhere, and to no port of raft.
    let policy = named(&objects, "NetworkPolicy").next().unwrap();
    let open = policy["spec"]["ingress"].as_array().unwrap().iter().filter(|rule| rule["from"].is_null());
    let open = open.flat_map(|rule| rule["ports"].as_array().unwrap());
    let open: BTreeSet<u64> = open.map(|port| port["port"].as_u64().unwrap()).collect();
    assert_eq!(open, ports.iter().copied().chain([9641, 9642]).collect());
    // The members may review tokens, and have no other right outside their namespace.
    let bindings: Vec<&Value> = named(&objects, "ClusterRoleBinding").collect();
    assert_eq!(bindings.len(), 1, "{bindings:?}");
    assert_eq!(bindings[0]["roleRef"]["name"], "system:auth-delegator");
    assert_eq!(bindings[0]["subjects"][0]["name"], pod["serviceAccountName"]);
    // Two control planes on one management cluster must not share it.
    assert!(bindings[0]["metadata"]["name"].as_str().unwrap().ends_with("-clusters-example"));
    // The role of readers is that of an installation without hosted control planes.
    let reader = |objects: &[Value]| {
        named(objects, "ClusterRole").find(|role| role["metadata"]["name"] == "ovnkube-metrics-reader").cloned()
    };
    assert_eq!(reader(&objects), reader(&self::objects("ovnkube")));
    let monitor = named(&objects, "ServiceMonitor").next().unwrap();
    for endpoint in monitor["spec"]["endpoints"].as_array().unwrap() {
        assert_eq!(endpoint["tlsConfig"]["ca"]["configMap"]["name"], "ovn-ca", "{endpoint}");
        let internal = named(&objects, "StatefulSet").next().unwrap()["spec"]["serviceName"].as_str().unwrap();
        let name = format!("{internal}.clusters-example.svc.cluster.local");
        assert_eq!(endpoint["tlsConfig"]["serverName"], name.as_str());
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

/// The strings of a list in a policy's variable.
fn listed(objects: &[Value], policy: &str, variable: &str) -> BTreeSet<String> {
    let mut policies = named(objects, "ValidatingAdmissionPolicy");
    let policy = policies.find(|object| object["metadata"]["name"] == policy).unwrap();
    let variables = policy["spec"]["variables"].as_array().unwrap();
    let list = variables.iter().find(|one| one["name"] == variable).unwrap()["expression"].as_str().unwrap();
    list.split('\'').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The policies allow agents and controllers exactly what their code writes, and no two writers the same annotation.
#[test]
fn every_annotation_of_a_node_has_one_writer() {
    let objects = objects("ovnkube");
    let agents = listed(&objects, "ovnkube-agent-own-node", "annotations");
    let gateway = include_str!("../../../node/src/gateway/bridge.rs");
    let written = gateway.split('"').filter(|text| text.starts_with("k8s.ovn.org/")).chain([pki::CHASSIS_ANNOTATION]);
    assert_eq!(agents, written.map(str::to_owned).collect());
    let controllers = listed(&objects, "ovnkube-controller-nodes", "annotations");
    assert_eq!(
        controllers,
        [objects::NODE_SUBNETS, objects::NODE_ID, objects::EXPECTED_NB_CFG].map(str::to_owned).into()
    );
    assert!(agents.is_disjoint(&controllers));
    let reserved = listed(&objects, "ovnkube-node-annotations", "reserved");
    assert!(reserved.is_superset(&agents) && reserved.is_superset(&controllers), "{reserved:?}");
    assert_eq!(listed(&objects, "ovnkube-agent-own-node", "conditions"), [objects::NETWORK_READY.to_owned()].into());
    let pods = listed(&objects, "ovnkube-controller-pods", "annotations");
    assert_eq!(pods, [objects::POD_NETWORKS.to_owned()].into());
}

/// Agents run everywhere with one account, and controllers with another one, without access to the host.
#[test]
fn controllers_and_agents_share_no_pod() {
    let objects = objects("ovnkube");
    for (name, containers, account, host_pid) in [
        ("ovnkube-master", &["ovnkube-controller"][..], "ovnkube-master", false),
        ("ovnkube", &["ovnkube-node", "ovn-controller"], "ovnkube-node", true),
    ] {
        let (_, pod) = pods(&objects).into_iter().find(|(found, _)| *found == name).unwrap();
        let names: Vec<&str> =
            pod["containers"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!((names.as_slice(), pod["serviceAccountName"].as_str()), (containers, Some(account)), "{name}");
        assert_eq!(pod["hostPID"].as_bool().unwrap_or(false), host_pid, "{name}");
        let mounted = pod["volumes"].as_array().unwrap().iter().any(|volume| volume["hostPath"].is_object());
        assert_eq!(mounted, host_pid, "{name}: host directories");
        assert_eq!(pod["affinity"].is_null(), name == "ovnkube", "{name}: agents run on every node");
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

/// The agent stores its certificate where ovn-controller and its metrics look for it, in a directory of the host.
#[test]
fn the_nodes_certificate_is_where_it_is_looked_for() {
    let objects = objects("ovnkube");
    let config = named(&objects, "ConfigMap").find(|object| object["metadata"]["name"] == "ovn-config").unwrap();
    let value = |key: &str| config["data"][key].as_str().unwrap().to_owned();
    let directory = value("ovn_node_certificate_dir");
    let expected = [node::CertificateOptions::private_key, node::CertificateOptions::certificate]
        .map(|path| path(Path::new(&directory)).display().to_string());
    assert_eq!([value("ovn_node_private_key"), value("ovn_node_certificate")], expected);
    let (_, agents) = pods(&objects).into_iter().find(|(name, _)| *name == "ovnkube").unwrap();
    for (container, read_only) in [("ovnkube-node", false), ("ovn-controller", true)] {
        let containers = agents["containers"].as_array().unwrap();
        let mounts = &containers.iter().find(|one| one["name"] == container).unwrap()["volumeMounts"];
        let mount = mounts.as_array().unwrap().iter().find(|mount| mount["mountPath"] == directory.as_str()).unwrap();
        assert_eq!(mount["readOnly"].as_bool().unwrap_or(false), read_only, "{container}");
        let volumes = agents["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        assert_eq!(volume["hostPath"]["path"], directory.as_str(), "{container}");
    }
}

/// The policy names what the agent requests.
#[test]
fn agents_may_request_what_they_request() {
    let objects = objects("ovnkube");
    let usages = listed(&objects, "ovnkube-agent-certificates", "usages");
    assert_eq!(usages, pki::CHASSIS_USAGES.map(str::to_owned).into());
    let mut policies = named(&objects, "ValidatingAdmissionPolicy");
    let policy = policies.find(|policy| policy["metadata"]["name"] == "ovnkube-agent-certificates").unwrap();
    assert!(policy.to_string().contains(&format!("== '{}'", pki::CHASSIS_SIGNER)), "{policy}");
}

#[test]
fn hosted_databases_are_unprivileged_and_keep_a_quorum() {
    let objects = objects("hosted");
    let set = named(&objects, "StatefulSet").next().unwrap();
    let spec = &set["spec"];
    let pod = &spec["template"]["spec"];
    assert!(pod["hostNetwork"].is_null() && pod["hostPID"].is_null());
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(spec["podManagementPolicy"], "Parallel");
    let replicas = spec["replicas"].as_u64().unwrap();
    for container in pod["containers"].as_array().unwrap() {
        let name = &container["name"];
        let context = &container["securityContext"];
        assert_eq!(context["capabilities"], serde_json::json!({ "drop": ["ALL"] }), "{name}");
        assert_eq!(
            (&context["readOnlyRootFilesystem"], &context["allowPrivilegeEscalation"]),
            (&true.into(), &false.into())
        );
        let variable = |variable: &str| {
            let entries = container["env"].as_array().unwrap();
            entries.iter().find(|entry| entry["name"] == variable).unwrap()["value"].as_str().unwrap()
        };
        assert_eq!(variable("OVNKUBE_DB_REPLICAS"), replicas.to_string(), "{name}");
        assert_eq!(variable("OVNKUBE_DB_SERVICE"), spec["serviceName"].as_str().unwrap(), "{name}");
        for addresses in ["OVNKUBE_OVNNORTH_ADDRESS", "OVNKUBE_OVNSOUTH_ADDRESS"] {
            assert_eq!(variable(addresses).split(',').filter(|one| one.starts_with("ssl:")).count() as u64, replicas);
        }
    }
    let budget = named(&objects, "PodDisruptionBudget").next().unwrap();
    assert_eq!(budget["spec"]["minAvailable"].as_u64().unwrap(), replicas / 2 + 1);
    let zone = &pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(zone["topologyKey"], "topology.kubernetes.io/zone");
    let of_the_cluster = |object: &&Value| object["kind"].as_str().unwrap().starts_with("Cluster");
    for object in objects.iter().filter(|object| !of_the_cluster(object)) {
        assert_eq!(object["metadata"]["namespace"], "clusters-example", "{}", object["metadata"]["name"]);
    }
}
