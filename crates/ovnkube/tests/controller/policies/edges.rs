//! Special cases of policies, by packets: pods behind Services, hosts and their probes, completed pods, SCTP (by trace),
//! and ACL logging.

use std::net::{IpAddr, SocketAddr};

use lab::{Pod, PodInterface};
use serde_json::{Value, json};
use truth::random::Tuple;
use truth::{Family, Protocol, Service, TrafficEnd};

use crate::cluster::{Cluster, until};
use crate::guarded::{GuardedNamespace, remove, wait_flows, wait_policy};
use crate::pod_mesh::{PodMesh, connects, labelled_pod, policy, wait_connects};
use crate::tracer::{Packet, Tracer, disagreement};

const BOTH: [Family; 2] = [Family::V4, Family::V6];

/// A dual-stack Service for the pod web, with its EndpointSlices.
fn service(mesh: &PodMesh) -> Vec<Value> {
    let web = mesh.member("web");
    let slice = |family: Family| {
        let kind = if family == Family::V4 { "IPv4" } else { "IPv6" };
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": kind,
            "metadata": {"name": format!("web-{}", kind.to_lowercase()), "namespace": "shop",
                "labels": {"kubernetes.io/service-name": "web"}},
            "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{"addresses": [web.address(family)], "nodeName": "n1", "conditions": {"ready": true}}]})
    };
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80, "targetPort": 8080}]}});
    [service].into_iter().chain(BOTH.map(slice)).collect()
}

/// Waits until exactly the pods that may reach the endpoint reach the Service; returns how many may not.
fn wait_service_matches_api(mesh: &PodMesh, what: &str) -> usize {
    let documented = mesh.api_truth();
    let service = mesh.cluster.get(&["service", "-n", "shop", "web"]);
    let addresses = service["spec"]["clusterIPs"].as_array().unwrap().iter();
    let addresses: Vec<IpAddr> = addresses.map(|text| text.as_str().unwrap().parse().unwrap()).collect();
    let mut denied = 0;
    std::thread::scope(|scope| {
        for (member, address) in mesh.members.iter().flat_map(|member| addresses.iter().map(move |own| (member, own))) {
            let family = Family::of(*address);
            let found = documented.service(&member.place(), ("shop", "web"), Protocol::Tcp, 80, family);
            let Service::Endpoints(endpoints) = found else { panic!("{what}: {found:?}") };
            let to = &endpoints[0];
            let allowed = documented.verdict(&member.place(), &to.place, Protocol::Tcp, to.port, family).allowed;
            denied += usize::from(!allowed);
            scope.spawn(move || wait_connects(&member.pod, SocketAddr::new(*address, 80), allowed));
        }
    });
    denied
}

#[test]
fn policies_apply_to_the_endpoint_behind_a_service() {
    let mesh = PodMesh::start("behind");
    mesh.cluster.apply_all(&service(&mesh));
    assert_eq!(wait_service_matches_api(&mesh, "before"), 0);
    let from = |port: u16| {
        json!({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "red"}}}],
            "ports": [{"port": port}]}]})
    };
    // The rule's port is the pod's, not the Service's; the pod always reaches itself through the Service.
    for (port, reached) in [(8080, 4 + 2), (80, 2)] {
        mesh.cluster.apply(&policy("shop", "behind", &from(port)));
        assert_eq!(wait_service_matches_api(&mesh, "an ingress policy of the endpoint"), 12 - reached, "port {port}");
    }
    remove(&mesh.cluster, &["networkpolicy", "-n", "shop", "behind"]);
    assert_eq!(wait_service_matches_api(&mesh, "between"), 0);
    // Egress too: a rule for the Service's own address matches nothing.
    let to = |peer: &Value| json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": peer}]});
    let pods = json!([{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "web"}}}]);
    let own = json!([{"ipBlock": {"cidr": "10.96.0.0/16"}}, {"ipBlock": {"cidr": "fd96::/112"}}]);
    for (peer, denied) in [(&pods, 0), (&own, 4)] {
        mesh.cluster.apply(&policy("office", "out", &to(peer)));
        wait_policy(&mesh.cluster, "office/out", true);
        assert_eq!(wait_service_matches_api(&mesh, "an egress policy of the client"), denied, "{peer}");
    }
    remove(&mesh.cluster, &["networkpolicy", "-n", "office", "out"]);
    assert_eq!(wait_service_matches_api(&mesh, "after"), 0);
}

/// Node 1's host, as an interface on its management port.
fn host(cluster: &Cluster) -> Pod {
    let words = cluster.value("Logical_Switch_Port", "k8s-n1", "addresses").unwrap();
    let (mac, own) = words.split_once(' ').unwrap();
    let length = |address: &IpAddr| if address.is_ipv4() { 23 } else { 64 };
    let own = own.split(' ').map(|text| text.parse::<IpAddr>().unwrap());
    let addresses: Vec<_> = own.map(|own| format!("{own}/{}", length(&own)).parse().unwrap()).collect();
    let gateways = cluster.network_of("shop", "web").gateways;
    let wiring = PodInterface {
        port: "k8s-n1",
        mac: mac.parse().unwrap(),
        addresses: &addresses,
        gateways: &gateways,
        mtu: 1400,
        version: None,
    };
    let host = Pod::create(cluster.lab.node(1).unwrap(), "mp", &wiring).unwrap();
    cluster.lab.nbctl(&["wait-until", "Logical_Switch_Port", "k8s-n1", "up=true"]).unwrap();
    host
}

#[test]
fn policies_apply_neither_to_hosts_nor_to_completed_pods() {
    let mesh = PodMesh::start("hosts");
    let cluster = &mesh.cluster;
    let host = host(cluster);
    let target = |name: &str, family| SocketAddr::new(mesh.member(name).address(family).unwrap(), 8080);
    let reaches = |from: &Pod, name: &str, can: bool| {
        for family in BOTH {
            wait_connects(from, target(name, family), can);
        }
    };
    let mut on_host = labelled_pod("shop", "on-host", "n1", &json!({"app": "on-host"}), &json!([]));
    on_host["spec"]["hostNetwork"] = json!(true);
    cluster.apply(&on_host);
    for name in ["web", "db", "robot"] {
        reaches(&host, name, true);
    }
    // All pods of the namespace are isolated in both directions. The kubelet's probes still reach pods of its own node, and
    // traffic of a host-network pod is the host's.
    cluster.apply(&policy("shop", "closed", &json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})));
    wait_policy(cluster, "shop/closed", true);
    for (name, can) in [("db", false), ("web", true), ("job", true), ("robot", true)] {
        reaches(&host, name, can);
    }
    reaches(&mesh.member("robot").pod, "web", false);
    assert_eq!(cluster.row("Logical_Switch_Port", "shop_on-host"), None);
    remove(cluster, &["networkpolicy", "-n", "shop", "closed"]);
    reaches(&host, "db", true);
    reaches(&mesh.member("robot").pod, "web", true);
    check_completed_pod(&mesh, &reaches);
}

/// A completed pod's permissions do not pass to the next pod with its addresses.
fn check_completed_pod(mesh: &PodMesh, reaches: &dyn Fn(&Pod, &str, bool)) {
    let cluster = &mesh.cluster;
    let jobs = json!([{"podSelector": {"matchLabels": {"app": "job"}}}]);
    cluster.apply(&policy(
        "shop",
        "jobs",
        &json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": jobs}]}),
    ));
    wait_policy(cluster, "shop/jobs", true);
    let job = mesh.member("job");
    reaches(&mesh.member("robot").pod, "web", false);
    reaches(&job.pod, "web", true);
    let completed = r#"{"status":{"phase":"Succeeded"}}"#;
    cluster.lab.kubectl(&["patch", "pod", "-n", "shop", "job", "--subresource=status", "-p", completed]).unwrap();
    reaches(&job.pod, "web", false);
    job.pod.remove().unwrap();
    until("its addresses leave quarantine", || cluster.quarantined().is_empty().then_some(()));
    let addresses: Vec<String> = job.network.addresses.iter().map(|own| own.address().to_string()).collect();
    let request = json!([{"name": "default", "ips": addresses}]).to_string();
    let mut next = labelled_pod("shop", "next", "n1", &json!({"app": "next"}), &json!([]));
    next["metadata"]["annotations"] = json!({"v1.multus-cni.io/default-network": request});
    cluster.apply(&next);
    let next = cluster.bind(1, "shop", "next");
    assert_eq!(cluster.network_of("shop", "next").addresses, job.network.addresses);
    reaches(&next, "db", true);
    reaches(&next, "web", false);
    remove(cluster, &["networkpolicy", "-n", "shop", "jobs"]);
    reaches(&next, "web", true);
}

/// By trace, because not every kernel has SCTP.
#[test]
fn sctp_policies_match_the_api_by_trace() {
    let mesh = PodMesh::start("sctp");
    let ports = json!([{"protocol": "SCTP", "port": 7}, {"protocol": "SCTP", "port": 9000, "endPort": 9090}]);
    let spec = json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "egress": [{"ports": [{"protocol": "SCTP"}]}],
        "ingress": [{"from": [{"podSelector": {}}, {"namespaceSelector": {"matchLabels": {"team": "red"}}}], "ports": ports}]});
    let mut tracer = Tracer::start(&mesh.cluster, "sctp");
    let mut denied = Vec::new();
    for policies in [vec![], vec![policy("shop", "sctp", &spec)], vec![]] {
        match policies.first() {
            Some(policy) => mesh.cluster.apply(policy),
            None => remove(&mesh.cluster, &["networkpolicies", "-A", "--all"]),
        }
        wait_policy(&mesh.cluster, "shop/sctp", !policies.is_empty());
        tracer.refresh();
        denied.push(trace_sctp(&mesh, &mut tracer));
    }
    assert!(denied[0] == 0 && denied[1] > 0 && denied[2] == 0, "{denied:?}");
}

/// Traces SCTP between all pods and compares with the API; returns how many are denied.
fn trace_sctp(mesh: &PodMesh, tracer: &mut Tracer) -> usize {
    let documented = mesh.api_truth();
    let mut denied = 0;
    for question in mesh.tuples().into_iter().filter(|question| question.protocol == Protocol::Tcp) {
        let question =
            Tuple { protocol: Protocol::Sctp, port: if question.port == 8080 { 7 } else { question.port }, ..question };
        let at = |place: &TrafficEnd| mesh.members.iter().find(|member| member.place() == *place).unwrap();
        let (from, to) = (at(&question.from), at(&question.to));
        let port = |member: &crate::pod_mesh::Member| format!("{}_{}", member.namespace, member.name);
        let router = netmodel::Mac::for_address(from.network.gateways[0]);
        let packet = Packet {
            inport: &port(from),
            source: (from.network.mac, from.address(question.family).unwrap()),
            next: if from.node == to.node { to.network.mac } else { router },
            destination: to.address(question.family).unwrap(),
            protocol: question.protocol,
            port: question.port,
        };
        let node = format!("n{}", from.node);
        assert_eq!(disagreement(tracer, &documented, &question, &node, &packet, &port(to)), None);
        denied += usize::from(!question.verdict(&documented).allowed);
    }
    denied
}

/// The number of ACL log lines of n1 that contain all these words.
fn logged(cluster: &Cluster, words: &[&str]) -> usize {
    let log = cluster.lab.log("n1-ovn-controller").unwrap();
    log.lines().filter(|line| line.contains("acl_log") && words.iter().all(|word| line.contains(word))).count()
}

/// Drops and allows are logged as the namespace's annotation requests, and limited by the meter.
#[test]
fn acl_logging_follows_the_namespace_annotation() {
    let guarded = GuardedNamespace::on(crate::pod_mesh::two_nodes("logging"));
    let cluster = &guarded.cluster;
    assert_eq!(logged(cluster, &[]), 0);
    let set_logging = |annotation: &str| {
        cluster.annotate("namespace", "shop", &[("k8s.ovn.org/acl-logging", annotation)]);
    };
    let drops = ["name=\"NP:shop:guard:Ingress\"", "verdict=drop"];
    set_logging(r#"{"deny":"alert"}"#);
    let first = guarded.prober.now();
    let word = |severity: &'static str| [drops[0], drops[1], severity];
    until("drops are logged", || (logged(cluster, &word("severity=alert")) >= 30).then_some(()));
    let sent: u64 = guarded.forbidden.iter().map(|path| guarded.prober.sent(*path, &first)).sum();
    let lines = logged(cluster, &[]) as u64;
    assert!(lines * 4 < sent, "the meter does not limit: {lines} lines for {sent} datagrams");
    assert_eq!(logged(cluster, &["verdict=allow"]), 0);

    set_logging(r#"{"deny":"warning","allow":"notice"}"#);
    until("drops are logged with the new severity", || (logged(cluster, &word("severity=warning")) > 0).then_some(()));
    wait_flows(cluster);
    // Only the first packet of an allowed connection is logged.
    let allowed = ["name=\"NP:shop:guard:Ingress\"", "verdict=allow", "severity=notice"];
    let web = cluster.network_of("shop", "web").address();
    let friend = &guarded.friend;
    until("an allowed connection is logged", || {
        connects(friend, SocketAddr::new(web, 80));
        (logged(cluster, &allowed) > 0).then_some(())
    });

    set_logging("{}");
    until("the meter is gone", || cluster.row("Meter", "acl-logging").is_none().then_some(()));
    wait_flows(cluster);
    // Lines that were already on their way may still arrive.
    let since = guarded.prober.wait_closed(&guarded.forbidden);
    until("nothing is logged any more", || {
        let (lines, begin) = (logged(cluster, &[]), guarded.prober.now());
        until("many datagrams are dropped", || {
            (guarded.prober.sent(guarded.forbidden[0], &begin) > 1000).then_some(())
        });
        (logged(cluster, &[]) == lines).then_some(())
    });
    guarded.prober.assert_nothing_passed("nothing is logged", &guarded.forbidden, &since);
}
