//! Invalid input: an Event names the problem and the remedy, all other objects keep reconciling, and a corrected object
//! works without a restart.

use lab::ChassisSpec;
use serde_json::{Value, json};

use crate::cluster::{Cluster, ClusterSpec, node, pod, until};
use crate::plan::ovnkube::{Outcome, run};

const POD_NETWORKS: &str = "k8s.ovn.org/pod-networks";
const NETWORK_ALLOCATED: &str = "k8s.ovn.org/NetworkAllocated";
const REQUEST: &str = "v1.multus-cni.io/default-network";
const SUBNETS: &str = "k8s.ovn.org/node-subnets";
const ID: &str = "k8s.ovn.org/node-id";
const GATEWAY: &str = "k8s.ovn.org/l3-gateway-config";
const MANAGEMENT: &str = "k8s.ovn.org/node-mgmt-port-mac-addresses";

fn with(mut object: Value, key: &str, value: &str) -> Value {
    object["metadata"]["annotations"][key] = json!(value);
    object
}

fn remove(cluster: &Cluster, kind: &str, name: &str, key: &str) {
    cluster.lab.kubectl(&["annotate", kind, name, &format!("{key}-")]).unwrap();
}

/// Waits for a node's subnet; returns its first three octets, as in `10.128.0.`, and the whole subnet.
fn subnet(cluster: &Cluster, node: &str) -> (String, String) {
    let text = until(&format!("node {node} has a subnet"), || cluster.annotation("node", node, SUBNETS));
    let value: Value = serde_json::from_str(&text).unwrap();
    let subnet = value["default"][0].as_str().unwrap().to_owned();
    let begin = subnet.rsplit_once('.').unwrap().0;
    (format!("{begin}."), subnet)
}

fn address(cluster: &Cluster, name: &str) -> String {
    cluster.network_of("default", name).address().to_string()
}

fn port_addresses(cluster: &Cluster, pod: &str) -> String {
    let port = format!("default_{pod}");
    cluster.lab.nbctl(&["lsp-get-addresses", &port]).unwrap().trim().to_owned()
}

/// A node and a pod created now get their network.
fn others_are_served(cluster: &Cluster, name: &str) {
    cluster.create(&[node(name), pod("default", name, name)]);
    cluster.network_of("default", name);
}

/// The annotation of a pod, once it is what the controller recorded in the pod's status.
fn recorded(cluster: &Cluster, name: &str) -> String {
    until(&format!("the network of pod {name} is recorded"), || {
        let pod = cluster.get(&["pod", name]);
        let text = pod["metadata"]["annotations"][POD_NETWORKS].as_str()?.to_owned();
        let conditions = pod["status"]["conditions"].as_array()?;
        let own = conditions.iter().find(|condition| condition["type"] == NETWORK_ALLOCATED)?;
        (own["status"] == "True" && own["message"] == text.as_str()).then_some(text)
    })
}

/// Tenants may edit annotations of their pods: the controller neither trusts nor keeps what it did not write.
#[test]
fn forged_pod_networks_annotations_are_ignored_and_replaced() {
    let cluster = ClusterSpec::new("forged").start();
    cluster.lead("c1");
    cluster.create(&[node("n1"), node("n2"), pod("default", "good", "n1")]);
    let (ours, (own, _), (other, _)) = (recorded(&cluster, "good"), subnet(&cluster, "n1"), subnet(&cluster, "n2"));
    let good = address(&cluster, "good");
    let network = |address: &str| {
        json!({"default": {"ip_addresses": [format!("{address}/23")], "mac_address": "0a:58:00:00:00:77"}}).to_string()
    };
    let cases = [
        ("text", "no JSON".to_owned()),
        ("elsewhere", network(&format!("{other}9"))),
        ("taken", network(&good)),
        ("free", network(&format!("{own}99"))),
        ("router", network(&format!("{own}1"))),
        // Near the API's limit for annotations.
        ("huge", "x".repeat(250_000)),
    ];
    let pods = cases.iter().map(|(name, value)| with(pod("default", name, "n1"), POD_NETWORKS, value));
    cluster.create(&pods.collect::<Vec<_>>());
    let mut given = vec![good.clone(), format!("{own}99"), format!("{own}1")];
    for (name, _) in &cases {
        recorded(&cluster, name);
        let own = address(&cluster, name);
        assert!(!given.contains(&own), "{name} has {own}");
        assert!(port_addresses(&cluster, name).ends_with(&own), "{name}");
        given.push(own);
    }
    // A large annotation of another application is ignored.
    cluster.create(&[with(pod("default", "large", "n1"), "example.com/large", &"x".repeat(250_000))]);
    recorded(&cluster, "large");
    others_are_served(&cluster, "later");
    // An overwritten annotation changes no row and is restored.
    let words = port_addresses(&cluster, "good");
    for value in ["{}".to_owned(), network(&given[3])] {
        cluster.annotate("pod", "good", &[(POD_NETWORKS, &value)]);
        assert_eq!(recorded(&cluster, "good"), ours);
        assert_eq!(port_addresses(&cluster, "good"), words);
    }
    cluster.event("good", "PodAnnotationRestored", &[POD_NETWORKS, "it is restored"]);
    remove(&cluster, "pod", "good", POD_NETWORKS);
    assert_eq!(recorded(&cluster, "good"), ours);
    // The next controller finds an edit made while none ran, and a pod without the recorded condition.
    cluster.lab.kill("c1").unwrap();
    let older = recorded(&cluster, "large");
    let nothing = json!({"status": {"conditions": [{"type": NETWORK_ALLOCATED, "$patch": "delete"}]}}).to_string();
    let unrecord = ["patch", "pod", "large", "--subresource=status", "--type=strategic", "-p", &nothing];
    cluster.lab.kubectl(&unrecord).unwrap();
    cluster.annotate("pod", "good", &[(POD_NETWORKS, &network(&given[3]))]);
    cluster.lead("c2");
    assert_eq!((recorded(&cluster, "good"), port_addresses(&cluster, "good")), (ours, words));
    assert_eq!(recorded(&cluster, "large"), older);
    until("no object is parked", || {
        (cluster.metric("ovnkube_controller_parked_objects{kind=\"Pod\"}") == 0.0).then_some(())
    });
    check_admission_policies(&cluster);
}

/// The admission policies of `deploy/` reject tenants' edits of reserved annotations, and not administrators'.
fn check_admission_policies(cluster: &Cluster) {
    for manifest in ["ovnkube/namespace.yaml", "controller/rbac.yaml", "ovnkube/rbac.yaml", "ovnkube/admission.yaml"] {
        let path = format!("{}/../../deploy/{manifest}", env!("CARGO_MANIFEST_DIR"));
        cluster.lab.apply(&std::fs::read_to_string(path).unwrap()).unwrap();
    }
    let kubectl = |words: &[&str]| cluster.lab.kubectl(words);
    kubectl(&["create", "rolebinding", "tenant", "--clusterrole=edit", "--user=tenant"]).unwrap();
    kubectl(&["create", "clusterrole", "labeller", "--verb=get,list,patch,update", "--resource=nodes"]).unwrap();
    kubectl(&["create", "clusterrolebinding", "labeller", "--clusterrole=labeller", "--user=labeller"]).unwrap();
    let refused = |words: &[&str], said: &str| {
        until(&format!("{words:?} is refused"), || {
            let why = kubectl(words).err()?.to_string();
            (why.contains(said) && why.contains("ovnkube")).then_some(())
        });
    };
    let annotate = |who, kind, name, what| ["annotate", "--overwrite", who, kind, name, what];
    // The API server applies a policy some time after it accepted it. A dry run that succeeds before leaves nothing behind; a
    // repetition of a value that was stored then would be allowed.
    let forge = |who, kind, name, what| ["annotate", "--overwrite", "--dry-run=server", who, kind, name, what];
    let (pods, nodes) = ("k8s.ovn.org/pod-networks is reserved", "annotations (k8s.ovn.org/node-subnets");
    refused(&forge("--as=tenant", "pod", "good", "k8s.ovn.org/pod-networks={}"), pods);
    refused(&forge("--as=labeller", "node", "n1", "k8s.ovn.org/node-subnets={}"), nodes);
    let preset = with(pod("default", "preset", "n1"), POD_NETWORKS, "{}").to_string();
    let control = cluster.lab.machine("control").unwrap();
    let why = control.run_with_input(&["kubectl", "--as=tenant", "create", "-f", "-"], &preset).unwrap_err();
    assert!(why.to_string().contains(pods), "{why}");
    // Tenants may write other annotations, and may remove the reserved one.
    for what in ["example.com/mine=1", "v1.multus-cni.io/default-network=x", "k8s.ovn.org/pod-networks-"] {
        until(what, || kubectl(&annotate("--as=tenant", "pod", "good", what)).ok());
    }
    kubectl(&annotate("--as=labeller", "node", "n1", "example.com/mine=1")).unwrap();
    recorded(cluster, "good");
    // Administrators and the controller may write it.
    cluster.annotate("pod", "good", &[(POD_NETWORKS, "{}")]);
    recorded(cluster, "good");
    for (account, kind, allowed) in [
        ("ovnkube-master", "pods", true),
        ("ovnkube-master", "nodes", true),
        ("ovnkube-node", "nodes", true),
        ("ovnkube-node", "pods", false),
    ] {
        // `kubectl auth can-i` accepts existing resources only.
        let right = json!({"group": "k8s.ovn.org", "resource": kind, "verb": "annotate"});
        let user = format!("system:serviceaccount:ovn-kubernetes:{account}");
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": right}});
        let words = ["kubectl", "create", "-o", "json", "-f", "-"];
        let review = control.run_with_input(&words, &review.to_string()).unwrap();
        let review: Value = serde_json::from_str(&review).unwrap();
        assert_eq!(review["status"]["allowed"], allowed, "{account} {kind}: {review}");
    }
}

#[test]
fn static_address_requests_are_granted_or_refused() {
    let cluster = ClusterSpec::new("requests").start();
    cluster.lead("c1");
    cluster.create(&[node("n1"), node("n2")]);
    let ((own, _), (other, _)) = (subnet(&cluster, "n1"), subnet(&cluster, "n2"));
    let request = |ip: &str, mac: &str| json!([{"name": "default", "ips": [ip], "mac": mac}]).to_string();
    let (free, mac) = (format!("{own}50"), "02:00:00:00:00:01");
    cluster.create(&[with(pod("default", "first", "n1"), REQUEST, &request(&format!("{free}/23"), mac))]);
    let network = cluster.network_of("default", "first");
    assert_eq!((network.address().to_string(), network.mac.to_string()), (free.clone(), mac.to_owned()));
    assert_eq!(port_addresses(&cluster, "first"), format!("{mac} {free}"));

    let cases = [
        ("taken", request(&free, ""), ["is the address of pod default/first", "request another one"]),
        ("same-mac", request(&format!("{own}60"), mac), ["is the MAC of pod default/first", "request another one"]),
        ("outside", request(&format!("{other}50"), ""), ["of node n1", "request another one"]),
        ("reserved", request(&format!("{own}1"), ""), [".1", "request another one"]),
        ("address", request("10.128.0", ""), ["ips: ", "recreate the pod"]),
        ("mac", request(&free, "zz"), ["mac: ", "recreate the pod"]),
        ("list", "[{".to_owned(), ["is not a list of network attachments", "recreate the pod"]),
    ];
    let pods = cases.iter().map(|(name, value, _)| with(pod("default", name, "n1"), REQUEST, value));
    cluster.create(&pods.collect::<Vec<_>>());
    for (name, _, words) in &cases {
        let message = cluster.event(name, "StaticAddressRefused", words);
        assert!(message.contains(REQUEST), "{name}: {message}");
        assert_eq!(cluster.annotation("pod", name, POD_NETWORKS), None);
    }
    others_are_served(&cluster, "later");
    for (name, _, _) in &cases[2..] {
        cluster.delete("pod", &[name]);
        cluster.create(&[with(pod("default", name, "n1"), REQUEST, "default/ovn")]);
        cluster.network_of("default", name);
    }
    // A refused request is granted when the holder is deleted.
    cluster.delete("pod", &["first"]);
    assert_eq!(address(&cluster, "taken"), free);
    assert_eq!(cluster.network_of("default", "same-mac").mac.to_string(), mac);
}

#[test]
fn invalid_node_annotations_park_the_node() {
    let cluster = ClusterSpec::new("bad-nodes").start();
    let _chassis = cluster.lab.light_chassis(&ChassisSpec::numbered("n", 2)).unwrap();
    cluster.lead("c1");
    cluster.light_node("good", 1, &[]);
    let (_, good) = subnet(&cluster, "good");
    let id = until("the node has an ID", || cluster.annotation("node", "good", ID));
    let subnets = |subnet: &str| json!({ "default": [subnet] }).to_string();
    let gateway = |mode: &str, mac: &str| {
        json!({"default": {"mode": mode, "interface-id": "br-ex", "mac-address": mac, "ip-addresses": ["10.99.0.9/24"]}})
            .to_string()
    };
    let cases = [
        ("overlapping", SUBNETS, subnets(&good), ["NodeSubnetsRefused", "of node good"]),
        ("outside", SUBNETS, subnets("192.168.0.0/23"), ["NodeSubnetsRefused", "192.168.0.0/23"]),
        ("length", SUBNETS, subnets("10.129.0.0/31"), ["NodeSubnetsRefused", "10.129.0.0/31"]),
        ("family", SUBNETS, subnets("fd01::/64"), ["NodeSubnetsRefused", "no network of that address family"]),
        ("text", SUBNETS, "10.128.6.0/23".to_owned(), ["NodeAnnotationRefused", "is not JSON"]),
        ("duplicate", ID, id.clone(), ["NodeIdRefused", "is the node ID of node good"]),
        ("word", ID, "seven".to_owned(), ["NodeAnnotationRefused", "is not a whole number"]),
        ("too-small", ID, "1".to_owned(), ["NodeIdRefused", "1"]),
        ("too-large", ID, "70000".to_owned(), ["NodeIdRefused", "70000"]),
        ("gateway", GATEWAY, "shared".to_owned(), ["NodeAnnotationRefused", "is not JSON"]),
        (
            "mode",
            GATEWAY,
            gateway("upward", "0a:58:00:00:00:01"),
            ["NodeAnnotationRefused", "not one of shared, local"],
        ),
        ("mac", GATEWAY, gateway("shared", "0a:58"), ["NodeAnnotationRefused", "mac-address"]),
        (
            "chassis",
            GATEWAY,
            gateway("shared", "0a:58:00:00:00:01"),
            ["NodeAnnotationRefused", "k8s.ovn.org/node-chassis-id"],
        ),
        ("huge", GATEWAY, "{".repeat(250_000), ["NodeAnnotationRefused", "is not JSON"]),
    ];
    let mut objects: Vec<Value> = cases.iter().map(|(name, key, value, _)| with(node(name), key, value)).collect();
    objects.extend(cases.iter().map(|(name, ..)| pod("default", name, name)));
    objects.extend([node("join"), pod("default", "join", "join")]);
    cluster.create(&objects);
    for (name, key, _, [reason, word]) in &cases {
        let message = cluster.event(name, reason, &[key, word, ": "]);
        assert!(
            ["remove it", "another node ID is allocated", "needs a chassis"]
                .iter()
                .any(|remedy| message.contains(remedy)),
            "{message}"
        );
        cluster.event(name, "NodeWithoutNetwork", &[&format!("node {name}"), "see its Events"]);
    }
    cluster.event("join", "NodeNameRefused", &["named join", "under another name"]);
    // The Event and the condition are two requests.
    until("the condition is set", || (cluster.network_unavailable("join").as_deref() == Some("True")).then_some(()));
    others_are_served(&cluster, "later");
    let parked = || cluster.metric("ovnkube_controller_parked_objects{kind=\"Node\"}");
    until("parked nodes are counted", || (parked() == 15.0).then_some(()));
    for (name, key, ..) in &cases {
        remove(&cluster, "node", name, key);
        cluster.network_of("default", name);
    }
    until("only node join is parked", || (parked() == 1.0).then_some(()));
    // An invalid annotation on a working node changes no row.
    cluster.create(&[pod("default", "on-good", "good")]);
    cluster.network_of("default", "on-good");
    let rows = cluster.rows();
    for (key, value, words) in [
        (ID, "40", ["but the node ID is", "revert the annotation"]),
        (ID, "many", ["is not a whole number", "remove it"]),
        (SUBNETS, r#"{"default":["10.131.0.0/23"]}"#, ["pods have addresses of", "drain the node"]),
        (GATEWAY, "{}", ["is not JSON", "remove it"]),
    ] {
        let before = cluster.annotation("node", "good", key).unwrap();
        cluster.annotate("node", "good", &[(key, value)]);
        let reason = match key {
            ID => "NodeIdRefused",
            SUBNETS => "NodeSubnetsRefused",
            _ => "NodeAnnotationRefused",
        };
        cluster.event("good", reason, &[key, words[0], words[1]]);
        assert_eq!(cluster.rows(), rows, "{key} {value}");
        cluster.annotate("node", "good", &[(key, &before)]);
        until("only node join is parked", || (parked() == 1.0).then_some(()));
    }
    assert_eq!(subnet(&cluster, "good").1, good);
    // The management port must not have the router's MAC.
    let router = cluster.value("Logical_Router_Port", "rtos-good", "mac").unwrap();
    cluster.annotate("node", "good", &[(MANAGEMENT, &json!({ "default": router }).to_string())]);
    cluster.event("good", "NodeAnnotationRefused", &[MANAGEMENT, &router, "rtos-good", "remove it"]);
    assert_eq!(cluster.rows(), rows);
    remove(&cluster, "node", "good", MANAGEMENT);
    until("only node join is parked", || (parked() == 1.0).then_some(()));
    until("the resolved warning is logged", || {
        let log = cluster.lab.log("c1").unwrap();
        let resolved = log.lines().filter(|line| line.contains("warning resolved"));
        (resolved.filter(|line| line.contains("\"good\"") && line.contains("NodeAnnotationRefused")).count() > 0)
            .then_some(())
    });

    // The longest name that the API accepts.
    let long = "a".repeat(253);
    cluster.light_node(&long, 2, &[]);
    cluster.create(&[pod("default", "long", &long)]);
    cluster.network_of("default", "long");
    cluster.lab.nbctl(&["wait-until", "Logical_Switch_Port", "default_long", "up=true"]).unwrap();
    let switches = cluster.column("Logical_Switch", "name");
    assert!(switches.contains(&long) && switches.contains(&format!("ext_{long}")));
    assert!(cluster.column("Logical_Router", "name").contains(&format!("GR_{long}")));
    cluster.delete("node", &[&long]);
    until("no row of the node is left", || (!cluster.rows().iter().any(|row| row.contains(&long))).then_some(()));
}

#[test]
fn exhausted_cluster_subnets_are_reported() {
    let cluster = ClusterSpec::new("exhausted").arguments(&["--cluster-subnets", "10.128.0.0/28/29"]).start();
    let _chassis = cluster.lab.light_chassis(&ChassisSpec::numbered("n", 3)).unwrap();
    cluster.lead("c1");
    for number in 1..=3 {
        let name = format!("n{number}");
        cluster.light_node(&name, number, &[]);
        cluster.create(&[pod("default", &format!("p{number}"), &name)]);
        if number < 3 {
            cluster.network_of("default", &format!("p{number}"));
        }
    }
    cluster.event("n3", "NodeSubnetsExhausted", &["no IPv4 subnet is left in cluster-subnets", "or remove nodes"]);
    until("the condition is set", || (cluster.network_unavailable("n3").as_deref() == Some("True")).then_some(()));
    cluster.event("p3", "NodeWithoutNetwork", &["node n3", "see its Events"]);
    cluster.create(&[pod("default", "another", "n1")]);
    cluster.network_of("default", "another");
    assert_eq!(cluster.network_unavailable("n1"), None);
    cluster.delete("node", &["n2"]);
    cluster.network_of("default", "p3");
    until("the condition is set", || (cluster.network_unavailable("n3").as_deref() == Some("False")).then_some(()));
}

#[test]
fn conflicting_settings_are_rejected_at_start() {
    for (arguments, words) in [
        (
            vec!["--k8s-service-cidrs", "10.130.0.0/16"],
            ["cluster-subnets 10.128.0.0/14", "service-cidrs 10.130.0.0/16"],
        ),
        (
            vec!["--gateway-v4-join-subnet", "10.128.0.0/16"],
            ["cluster-subnets 10.128.0.0/14", "v4-join-subnet 10.128.0.0/16"],
        ),
        (vec!["--gateway-v4-masquerade-subnet", "100.64.0.0/29"], ["v4-join-subnet", "v4-masquerade-subnet"]),
        (
            vec!["--cluster-subnets", "10.0.0.0/14/23,10.1.0.0/16/24"],
            ["cluster-subnets 10.0.0.0/14", "cluster-subnets 10.1.0.0/16"],
        ),
        (vec!["--gateway-v4-join-subnet", "100.64.0.0/31"], ["v4-join-subnet 100.64.0.0/31", "too small"]),
        (vec!["--cluster-subnets", "10.128.0.0/14/8"], ["--cluster-subnets", "from 14 to 29"]),
        (vec!["--mtu", "9"], ["--mtu", "from 576 to 65535"]),
        (vec!["--cluster-subnet", "10.128.0.0/14/23"], ["'--cluster-subnet'", "'--cluster-subnets'"]),
        (vec!["--ha-election-renew-deadline", "20"], ["renew deadline (20s)", "duration (5s)"]),
    ] {
        let Outcome { status, stderr: said, .. } = run(&[&["controller"], &arguments[..]].concat(), &[]);
        assert_eq!(status, Some(2), "{arguments:?}: {said}");
        assert!(said.lines().count() == 1 && words.iter().all(|word| said.contains(word)), "{arguments:?}: {said}");
    }
}

#[test]
fn an_edited_or_deleted_lease_is_recovered() {
    let cluster = ClusterSpec::new("bad-lease").start();
    cluster.create(&[node("n1")]);
    let lease = |spec: Value| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "ovn-kubernetes-master", "namespace": "kube-system"}, "spec": spec})
    };
    // Before any controller leads: a Lease that is held far into the future.
    cluster.create(&[lease(json!({"holderIdentity": "ghost", "leaseDurationSeconds": 3,
        "renewTime": "9999-01-01T00:00:00.000000Z", "leaseTransitions": i32::MAX}))]);
    cluster.lead("c1");
    for (number, spec) in [
        json!({"holderIdentity": "ghost", "leaseDurationSeconds": 2, "renewTime": "1970-01-01T00:00:00.000000Z"}),
        json!({"holderIdentity": "c1", "renewTime": "9999-01-01T00:00:00.000000Z", "leaseTransitions": i32::MAX}),
        json!({"holderIdentity": null, "leaseDurationSeconds": null, "renewTime": null, "acquireTime": null}),
    ]
    .into_iter()
    .enumerate()
    {
        let patch = json!({ "spec": spec }).to_string();
        let words = ["patch", "lease", "-n", "kube-system", "ovn-kubernetes-master", "--type=merge", "-p", &patch];
        cluster.lab.kubectl(&words).unwrap();
        let name = format!("after-{number}");
        cluster.create(&[pod("default", &name, "n1")]);
        cluster.network_of("default", &name);
    }
    cluster.lab.kubectl(&["delete", "lease", "-n", "kube-system", "ovn-kubernetes-master"]).unwrap();
    cluster.create(&[pod("default", "after-all", "n1")]);
    cluster.network_of("default", "after-all");
    until("the Lease is recreated", || {
        let lease = cluster.lab.kubectl(&["get", "lease", "-n", "kube-system", "ovn-kubernetes-master", "-o", "json"]);
        let lease: Value = serde_json::from_str(&lease.ok()?).unwrap();
        (lease["spec"]["holderIdentity"] == "c1").then_some(())
    });
    cluster.stop("c1");
}
