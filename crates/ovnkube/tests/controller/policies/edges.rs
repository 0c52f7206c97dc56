//! Policies at the edges, by packets: pods behind Services, hosts and their probes, pods that have ended, SCTP, and what
//! is logged.

use std::net::{IpAddr, SocketAddr};

use lab::{Pod, PodInterface};
use serde_json::{Value, json};
use truth::random::Tuple;
use truth::{Family, Place, Protocol, Service};

use crate::cluster::{Cluster, until};
use crate::crowd::{Crowd, connects, connects_or_not, labelled_pod, policy};
use crate::guarded::{Watch, remove, settled, stands};
use crate::tracer::{Packet, Tracer, disagreement};

const BOTH: [Family; 2] = [Family::V4, Family::V6];

/// A Service of both families for the pod web, with its slices.
fn service(crowd: &Crowd) -> Vec<Value> {
    let web = crowd.member("web");
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

/// Waits until everybody reaches the Service who may reach what is behind it, and nobody else; tells how many may not.
fn service_agrees(crowd: &Crowd, what: &str) -> usize {
    let documented = crowd.documented();
    let service = crowd.cluster.get(&["service", "-n", "shop", "web"]);
    let addresses = service["spec"]["clusterIPs"].as_array().unwrap().iter();
    let addresses: Vec<IpAddr> = addresses.map(|text| text.as_str().unwrap().parse().unwrap()).collect();
    let mut denied = 0;
    std::thread::scope(|scope| {
        for (member, address) in crowd.members.iter().flat_map(|member| addresses.iter().map(move |own| (member, own)))
        {
            let family = Family::of(*address);
            let found = documented.service(&member.place(), ("shop", "web"), Protocol::Tcp, 80, family);
            let Service::Endpoints(endpoints) = found else { panic!("{what}: {found:?}") };
            let to = &endpoints[0];
            let allowed = documented.verdict(&member.place(), &to.place, Protocol::Tcp, to.port, family).allowed;
            denied += usize::from(!allowed);
            scope.spawn(move || connects_or_not(&member.pod, SocketAddr::new(*address, 80), allowed));
        }
    });
    denied
}

#[test]
fn policies_see_the_pod_behind_a_service() {
    let crowd = Crowd::gather("behind");
    crowd.cluster.apply_all(&service(&crowd));
    assert_eq!(service_agrees(&crowd, "before"), 0);
    let from = |port: u16| {
        json!({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "red"}}}],
            "ports": [{"port": port}]}]})
    };
    // The port is that of the pod, not that of the Service; and the pod reaches itself by the Service in any case.
    for (port, reached) in [(8080, 4 + 2), (80, 2)] {
        crowd.cluster.apply(&policy("shop", "behind", &from(port)));
        assert_eq!(service_agrees(&crowd, "a policy for what is behind it"), 12 - reached, "port {port}");
    }
    remove(&crowd.cluster, &["networkpolicy", "-n", "shop", "behind"]);
    assert_eq!(service_agrees(&crowd, "between"), 0);
    // So it is with what goes out: the address of the Service itself is nobody's.
    let to = |peer: &Value| json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": peer}]});
    let pods = json!([{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "web"}}}]);
    let own = json!([{"ipBlock": {"cidr": "10.96.0.0/16"}}, {"ipBlock": {"cidr": "fd96::/112"}}]);
    for (peer, denied) in [(&pods, 0), (&own, 4)] {
        crowd.cluster.apply(&policy("office", "out", &to(peer)));
        stands(&crowd.cluster, "office/out", true);
        assert_eq!(service_agrees(&crowd, "a policy for what goes to it"), denied, "{peer}");
    }
    remove(&crowd.cluster, &["networkpolicy", "-n", "office", "out"]);
    assert_eq!(service_agrees(&crowd, "after"), 0);
}

/// The host of node 1 as the network sees it: what is on its management port.
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
fn hosts_and_pods_on_them_are_no_concern_of_policies_and_neither_are_pods_that_have_ended() {
    let crowd = Crowd::gather("hosts");
    let cluster = &crowd.cluster;
    let host = host(cluster);
    let target = |name: &str, family| SocketAddr::new(crowd.member(name).address(family).unwrap(), 8080);
    let reaches = |from: &Pod, name: &str, can: bool| {
        for family in BOTH {
            connects_or_not(from, target(name, family), can);
        }
    };
    let mut on_host = labelled_pod("shop", "on-host", "n1", &json!({"app": "on-host"}), &json!([]));
    on_host["spec"]["hostNetwork"] = json!(true);
    cluster.apply(&on_host);
    for name in ["web", "db", "robot"] {
        reaches(&host, name, true);
    }
    // Closed both ways, for all pods of the namespace: the kubelet's probes come through on the pod's own node, and what
    // a pod on the host sends is the host's.
    cluster.apply(&policy("shop", "closed", &json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})));
    stands(cluster, "shop/closed", true);
    for (name, can) in [("db", false), ("web", true), ("job", true), ("robot", true)] {
        reaches(&host, name, can);
    }
    reaches(&crowd.member("robot").pod, "web", false);
    assert_eq!(cluster.row("Logical_Switch_Port", "shop_on-host"), None);
    remove(cluster, &["networkpolicy", "-n", "shop", "closed"]);
    reaches(&host, "db", true);
    reaches(&crowd.member("robot").pod, "web", true);
    ended(&crowd, &reaches);
}

/// A pod ends: what was allowed to it is not allowed to the next one that has its addresses.
fn ended(crowd: &Crowd, reaches: &dyn Fn(&Pod, &str, bool)) {
    let cluster = &crowd.cluster;
    let jobs = json!([{"podSelector": {"matchLabels": {"app": "job"}}}]);
    cluster.apply(&policy(
        "shop",
        "jobs",
        &json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": jobs}]}),
    ));
    stands(cluster, "shop/jobs", true);
    let job = crowd.member("job");
    reaches(&crowd.member("robot").pod, "web", false);
    reaches(&job.pod, "web", true);
    let completed = r#"{"status":{"phase":"Succeeded"}}"#;
    cluster.lab.kubectl(&["patch", "pod", "-n", "shop", "job", "--subresource=status", "-p", completed]).unwrap();
    reaches(&job.pod, "web", false);
    job.pod.remove().unwrap();
    until("its addresses are free", || cluster.resting().is_empty().then_some(()));
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

/// Not every kernel has SCTP, so it is asked by trace.
#[test]
fn policies_for_sctp_by_trace() {
    let crowd = Crowd::gather("sctp");
    let ports = json!([{"protocol": "SCTP", "port": 7}, {"protocol": "SCTP", "port": 9000, "endPort": 9090}]);
    let spec = json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "egress": [{"ports": [{"protocol": "SCTP"}]}],
        "ingress": [{"from": [{"podSelector": {}}, {"namespaceSelector": {"matchLabels": {"team": "red"}}}], "ports": ports}]});
    let mut tracer = Tracer::start(&crowd.cluster, "sctp");
    let mut denied = Vec::new();
    for policies in [vec![], vec![policy("shop", "sctp", &spec)], vec![]] {
        match policies.first() {
            Some(policy) => crowd.cluster.apply(policy),
            None => remove(&crowd.cluster, &["networkpolicies", "-A", "--all"]),
        }
        stands(&crowd.cluster, "shop/sctp", !policies.is_empty());
        tracer.refresh();
        denied.push(traced(&crowd, &mut tracer));
    }
    assert!(denied[0] == 0 && denied[1] > 0 && denied[2] == 0, "{denied:?}");
}

/// Traces SCTP from everybody to everybody and holds it against the objects; tells how many are denied.
fn traced(crowd: &Crowd, tracer: &mut Tracer) -> usize {
    let documented = crowd.documented();
    let mut denied = 0;
    for question in crowd.questions().into_iter().filter(|question| question.protocol == Protocol::Tcp) {
        let question =
            Tuple { protocol: Protocol::Sctp, port: if question.port == 8080 { 7 } else { question.port }, ..question };
        let at = |place: &Place| crowd.members.iter().find(|member| member.place() == *place).unwrap();
        let (from, to) = (at(&question.from), at(&question.to));
        let port = |member: &crate::crowd::Member| format!("{}_{}", member.namespace, member.name);
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

/// The lines of a node's log about rules, by what they say.
fn logged(cluster: &Cluster, words: &[&str]) -> usize {
    let log = cluster.lab.log("n1-ovn-controller").unwrap();
    log.lines().filter(|line| line.contains("acl_log") && words.iter().all(|word| line.contains(word))).count()
}

/// What is dropped and allowed is logged by the node as the namespace says, and not more often than the meter lets it.
#[test]
fn what_policies_drop_and_allow_is_logged_as_the_namespace_says() {
    let watch = Watch::on(crate::crowd::two_nodes("logging"));
    let cluster = &watch.cluster;
    assert_eq!(logged(cluster, &[]), 0);
    let says = |annotation: &str| {
        cluster.annotate("namespace", "shop", &[("k8s.ovn.org/acl-logging", annotation)]);
    };
    let drops = ["name=\"NP:shop:guard:Ingress\"", "verdict=drop"];
    says(r#"{"deny":"alert"}"#);
    let first = watch.prober.now();
    let word = |severity: &'static str| [drops[0], drops[1], severity];
    until("drops are logged", || (logged(cluster, &word("severity=alert")) >= 30).then_some(()));
    let sent: u64 = watch.forbidden.iter().map(|way| watch.prober.sent(*way, &first)).sum();
    let lines = logged(cluster, &[]) as u64;
    assert!(lines * 4 < sent, "the meter lets all through: {lines} lines for {sent} datagrams");
    assert_eq!(logged(cluster, &["verdict=allow"]), 0);

    says(r#"{"deny":"warning","allow":"notice"}"#);
    until("drops are logged otherwise", || (logged(cluster, &word("severity=warning")) > 0).then_some(()));
    settled(cluster);
    // What an allowed connection sends after its first packet is not judged again.
    let allowed = ["name=\"NP:shop:guard:Ingress\"", "verdict=allow", "severity=notice"];
    let web = cluster.network_of("shop", "web").address();
    let friend = &watch.friend;
    until("an allowed connection is logged", || {
        connects(friend, SocketAddr::new(web, 80));
        (logged(cluster, &allowed) > 0).then_some(())
    });

    says("{}");
    until("there is no meter", || cluster.row("Meter", "acl-logging").is_none().then_some(()));
    settled(cluster);
    // What was on its way to the log may still come; then there is silence.
    let since = watch.prober.closed(&watch.forbidden);
    until("nothing is logged any more", || {
        let (lines, begin) = (logged(cluster, &[]), watch.prober.now());
        until("much is dropped", || (watch.prober.sent(watch.forbidden[0], &begin) > 1000).then_some(()));
        (logged(cluster, &[]) == lines).then_some(())
    });
    watch.prober.nothing_passed("nothing is logged", &watch.forbidden, &since);
}
