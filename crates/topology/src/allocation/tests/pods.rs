//! Pods: an address of each of their node's subnets, and a MAC.

use super::*;

fn ready(cluster: &[&str]) -> Allocator {
    let mut allocator = allocator(cluster);
    allocate(&mut allocator, "n1", &[]).unwrap();
    allocator
}

fn v4() -> Allocator {
    ready(&["10.128.0.0/26/28"])
}

#[test]
fn pods_begin_behind_the_router_and_the_management_port() {
    let mut allocator = v4();
    let web = pod("web", &[]);
    assert_eq!(allocator.allocate_pod(&web, None), Ok(PodState::Allocated));
    assert_eq!(of_pod(&allocator, &web), ["10.128.0.3", "0a:58:0a:80:00:03"]);
    // A second allocation returns the same.
    assert_eq!(allocator.allocate_pod(&web, None), Ok(PodState::Allocated));
    assert_eq!(of_pod(&allocator, &web)[0], "10.128.0.3");
}

#[test]
fn dual_stack_pods_have_the_mac_of_their_ipv4_address() {
    let mut allocator = ready(&["10.128.0.0/14/23", "fd01::/48/64"]);
    let web = pod("web", &[]);
    allocator.allocate_pod(&web, None).unwrap();
    assert_eq!(of_pod(&allocator, &web), ["10.128.0.3", "fd01::3", "0a:58:0a:80:00:03"]);
}

#[test]
fn ipv6_pods_have_a_mac_from_the_hash_of_their_address() {
    let mut allocator = ready(&["fd01::/48/64"]);
    let web = pod("web", &[]);
    allocator.allocate_pod(&web, None).unwrap();
    // The first four bytes of the SHA-256 of "fd01::3".
    let expected = netmodel::Mac::for_address(address("fd01::3")).to_string();
    assert_eq!(of_pod(&allocator, &web), ["fd01::3", expected.as_str()]);
    assert!(expected.starts_with("0a:58:"), "{expected}");
}

#[test]
fn a_mac_of_another_pods_ipv6_address_is_refused() {
    let mut allocator = ready(&["fd01::/48/64"]);
    for whose in ["fd01::1", "fd01::9"] {
        let wanted = json!({"mac": netmodel::Mac::for_address(address(whose)).to_string()});
        let thief = pod("thief", &[(REQUEST, &request(&wanted))]);
        refused(allocator.allocate_pod(&thief, None), "StaticAddressRefused", &["may collide", "use another prefix"]);
    }
}

#[test]
fn a_pod_waits_for_its_node() {
    let mut allocator = small();
    let web = pod("web", &[]);
    assert_eq!(allocator.allocate_pod(&web, None), Ok(PodState::Waiting));
    allocate(&mut allocator, "n1", &[]).unwrap();
    assert_eq!(allocator.allocate_pod(&web, None), Ok(PodState::Allocated));
}

#[test]
fn a_pods_record_is_honoured() {
    let mut allocator = v4();
    let said = network("0a:58:0a:80:00:09", &["10.128.0.9/28"]);
    let web = pod("web", &[(NETWORK, &said)]);
    allocator.allocate_pod(&web, None).unwrap();
    assert_eq!(of_pod(&allocator, &web), ["10.128.0.9", "0a:58:0a:80:00:09"]);
}

#[test]
fn an_annotation_by_another_client_is_no_record() {
    let mut allocator = v4();
    let victim = pod("victim", &[]);
    allocator.allocate_pod(&victim, None).unwrap();
    for (name, said) in [
        ("thief", network("0a:58:0a:80:00:03", &["10.128.0.3/28"])),
        ("chooser", network("0a:58:0a:80:00:09", &["10.128.0.9/28"])),
        ("joker", "no JSON".to_owned()),
    ] {
        let forger = forger(name, &said);
        assert_eq!(allocator.allocate_pod(&forger, None), Ok(PodState::Allocated), "{name}");
        let [given, _] = of_pod(&allocator, &forger).try_into().unwrap();
        assert!(!["10.128.0.3", "10.128.0.9"].contains(&given.as_str()), "{name} got {given}");
    }
    // Nor does it override the pod's port.
    let known = KnownPort::parse("0a:58:0a:80:00:0b 10.128.0.11").unwrap();
    let running = forger("running", &network("0a:58:0a:80:00:03", &["10.128.0.3/28"]));
    assert_eq!(allocator.allocate_pod(&running, Some(&known)), Ok(PodState::Allocated));
    assert_eq!(of_pod(&allocator, &running)[0], "10.128.0.11");
}

#[test]
fn a_running_pod_of_an_older_controller_keeps_its_address_without_a_database() {
    let mut allocator = v4();
    let said = network("0a:58:0a:80:00:09", &["10.128.0.9/28"]);
    let running = |address: &str| {
        let object = json!({"metadata": {"name": "web", "namespace": "ns", "uid": "u", "annotations": {NETWORK: said}},
            "spec": {"nodeName": "n1"}, "status": {"phase": "Running", "podIPs": [{"ip": address}]}});
        PodFacts::parse(&object.to_string()).unwrap()
    };
    allocator.allocate_pod(&running("10.128.0.9"), None).unwrap();
    assert_eq!(of_pod(&allocator, &running("10.128.0.9"))[0], "10.128.0.9");
    // Kubelet reports another address: the annotation was edited.
    let mut allocator = v4();
    allocator.allocate_pod(&running("10.128.0.4"), None).unwrap();
    assert_eq!(of_pod(&allocator, &running("10.128.0.4"))[0], "10.128.0.3");
}

#[test]
fn an_impossible_record_is_refused_with_the_holder() {
    let mut allocator = v4();
    allocator.allocate_pod(&pod("first", &[]), None).unwrap();
    let mut network_refused = |value: &str, words: &[&str]| {
        let web = pod("web", &[(NETWORK, value)]);
        refused(allocator.allocate_pod(&web, None), "PodNetworkRefused", words);
        assert_eq!(of_pod(&allocator, &web), Vec::<String>::new());
    };
    let mac = "0a:58:0a:80:00:03";
    let remedy = "delete the pod to get new addresses";
    let taken = [NETWORK_ALLOCATED, "10.128.0.3 is the address of pod ns/first", remedy];
    network_refused(&network(mac, &["10.128.0.3/28"]), &taken);
    // The holder's name in another namespace is for administrators only.
    let mut stranger = pod("web", &[(NETWORK, &network(mac, &["10.128.0.3/28"]))]);
    stranger.key = std::sync::Arc::new(objects::PodKey::new("elsewhere", "web"));
    let refusal = allocator.allocate_pod(&stranger, None).unwrap_err();
    assert!(refusal.message.contains("10.128.0.3 is the address of a pod of another namespace"), "{refusal}");
    assert_eq!(refusal.detail.as_deref(), Some("it is pod ns/first"));
    let mut network_refused = |value: &str, words: &[&str]| {
        let web = pod("web", &[(NETWORK, value)]);
        refused(allocator.allocate_pod(&web, None), "PodNetworkRefused", words);
        assert_eq!(of_pod(&allocator, &web), Vec::<String>::new());
    };
    network_refused(&network(mac, &["10.9.0.3/28"]), &[NETWORK_ALLOCATED, "10.9.0.3 is not in", remedy]);
    network_refused(&network(mac, &["10.128.0.1/28"]), &[NETWORK_ALLOCATED, "10.128.0.1 is the gateway", remedy]);
    network_refused(
        &network(mac, &["10.128.0.5/28", "10.128.0.6/28"]),
        &["10.128.0.6 is a second address of one family"],
    );
    // No claim was kept.
    let next = pod("next", &[(REQUEST, &request(&json!({"ips": ["10.128.0.5"]})))]);
    assert_eq!(allocator.allocate_pod(&next, None), Ok(PodState::Allocated));
}

#[test]
fn a_pods_port_wins_over_its_record() {
    let mut allocator = v4();
    let known = KnownPort::parse("0a:58:0a:80:00:07 10.128.0.7").unwrap();
    let web = pod("web", &[(NETWORK, &network("0a:58:0a:80:00:08", &["10.128.0.8/28"]))]);
    let words = [NETWORK_ALLOCATED, "records 10.128.0.8 (0a:58:0a:80:00:08)", "has 10.128.0.7", "delete the pod"];
    refused(allocator.allocate_pod(&web, Some(&known)), "PodNetworkRefused", &words);
    assert_eq!(of_pod(&allocator, &web)[0], "10.128.0.7");
    assert_eq!(allocator.allocate_pod(&pod("web", &[(NETWORK, "no JSON")]), None), Ok(PodState::Allocated));
    assert_eq!(of_pod(&allocator, &web)[0], "10.128.0.7");
    // A port that cannot be honoured is ignored.
    let other = pod("other", &[]);
    assert_eq!(allocator.allocate_pod(&other, Some(&known)), Ok(PodState::Allocated));
    assert_eq!(of_pod(&allocator, &other)[0], "10.128.0.3");
    assert_eq!(KnownPort::parse("unknown"), None);
    assert_eq!(KnownPort::parse("0a:58:0a:80:00:07"), None);
}

#[test]
fn addresses_and_macs_can_be_requested() {
    let mut allocator = ready(&["10.128.0.0/14/23", "fd01::/48/64"]);
    let wanted = json!({"name": "default", "ips": ["10.128.0.9/23"], "mac": "02:00:00:00:00:01"});
    let web = pod("web", &[(REQUEST, &request(&wanted))]);
    allocator.allocate_pod(&web, None).unwrap();
    assert_eq!(
        of_pod(&allocator, &web),
        ["10.128.0.9", "fd01::3", "02:00:00:00:00:01"],
        "the other family is allocated"
    );
    let mut request_refused = |wanted: serde_json::Value, words: &[&str]| {
        let other = pod("other", &[(REQUEST, &request(&wanted))]);
        refused(allocator.allocate_pod(&other, None), "StaticAddressRefused", words);
    };
    let remedy = "request another one, or none";
    request_refused(json!({"ips": ["10.128.0.9"]}), &[REQUEST, "10.128.0.9 is the address of pod ns/web", remedy]);
    request_refused(json!({"ips": ["10.129.0.9"]}), &[REQUEST, "10.129.0.9 is not in 10.128.0.0/23", "n1", remedy]);
    request_refused(json!({"ips": ["10.128.0.2"]}), &[REQUEST, "10.128.0.2 is the management port", remedy]);
    request_refused(json!({"ips": ["10.128.0.7", "10.128.0.8"]}), &[REQUEST, "10.128.0.8 is a second", remedy]);
    request_refused(
        json!({"mac": "02:00:00:00:00:01"}),
        &[REQUEST, "02:00:00:00:00:01 is the MAC of pod ns/web", remedy],
    );
    request_refused(json!({"ips": ["ten"]}), &[REQUEST, "\"ten\"", "recreate the pod"]);
    // MACs are unique per node.
    allocate(&mut allocator, "n2", &[]).unwrap();
    let far = pod_on("n2", "far", "u", &[(REQUEST, &request(&json!({"mac": "02:00:00:00:00:01"})))]);
    assert_eq!(allocator.allocate_pod(&far, None), Ok(PodState::Allocated));
    // A MAC is free again with its pod.
    allocator.release_pod(&web.key);
    let next = pod("next", &[(REQUEST, &request(&json!({"mac": "02:00:00:00:00:01"})))]);
    assert_eq!(allocator.allocate_pod(&next, None), Ok(PodState::Allocated));
}

#[test]
fn a_mac_derived_from_another_address_is_refused() {
    let mut allocator = v4();
    // Of the router, of the management port, of an existing pod, and of an address that is free.
    for last in [1, 2, 3, 9] {
        let mac = format!("0a:58:0a:80:00:0{last}");
        allocator.allocate_pod(&pod("first", &[]), None).unwrap();
        let web = pod("web", &[(REQUEST, &request(&json!({"ips": ["10.128.0.7"], "mac": mac})))]);
        let holder = format!("{mac} is derived from 10.128.0.{last}");
        refused(allocator.allocate_pod(&web, None), "StaticAddressRefused", &[REQUEST, &holder]);
    }
    let own = pod("own", &[(REQUEST, &request(&json!({"ips": ["10.128.0.7"], "mac": "0a:58:0a:80:00:07"})))]);
    assert_eq!(allocator.allocate_pod(&own, None), Ok(PodState::Allocated));
}

#[test]
fn addresses_run_out_and_are_free_after_quarantine() {
    let mut allocator = v4();
    let pods: Vec<PodFacts> = (0..12).map(|number| pod(&format!("p{number}"), &[])).collect();
    for pod in &pods {
        allocator.allocate_pod(pod, None).unwrap();
    }
    let late = pod("late", &[]);
    let words = ["no address is left in 10.128.0.0/28 of node n1", "delete pods there, or use other nodes"];
    refused(allocator.allocate_pod(&late, None), "PodAddressesExhausted", &words);
    allocator.release_pod(&pods[4].key);
    refused(allocator.allocate_pod(&late, None), "PodAddressesExhausted", &words);
    assert_eq!(acknowledge_removal(&mut allocator, &Owner::Pod(pods[4].key.clone())), ["n1"]);
    assert_eq!(allocator.allocate_pod(&late, None), Ok(PodState::Allocated));
    assert_eq!(of_pod(&allocator, &late)[0], "10.128.0.7");
}

#[test]
fn an_address_is_quarantined_until_the_nodes_acknowledge() {
    let mut allocator = v4();
    let web = pod("web", &[]);
    allocator.allocate_pod(&web, None).unwrap();
    allocator.release_pod(&web.key);
    let owner = Owner::Pod(web.key.clone());
    assert!(allocator.quarantine().leaves_with(&owner));
    // A pod that claims it waits; another pod of the same name gets another one; the former pod reclaims it.
    let said = network("0a:58:0a:80:00:03", &["10.128.0.3/28"]);
    assert_eq!(allocator.allocate_pod(&pod("thief", &[(NETWORK, &said)]), None), Ok(PodState::Waiting));
    let again = pod_on("n1", "web", "another", &[]);
    allocator.allocate_pod(&again, None).unwrap();
    assert_eq!(of_pod(&allocator, &again)[0], "10.128.0.4");
    allocator.release_pod(&again.key);
    allocator.allocate_pod(&web, None).unwrap();
    assert_eq!(of_pod(&allocator, &web)[0], "10.128.0.3");
    assert_eq!(allocator.quarantine().freed().count(), 1, "the database no longer lists it");
}

#[test]
fn a_freed_address_notifies_the_waiting_pods_node() {
    let mut allocator = small();
    // Quarantined before its subnet was allocated: no node is known for it.
    allocator.restore_quarantined(Allocatable::Address(address("10.128.0.3")), "gone", "");
    allocate(&mut allocator, "n1", &[]).unwrap();
    let web = pod("web", &[(NETWORK, &network("0a:58:0a:80:00:03", &["10.128.0.3/28"]))]);
    assert_eq!(allocator.allocate_pod(&web, None), Ok(PodState::Waiting));
    allocator.quarantine_mut().raised(1);
    assert!(allocator.release_acknowledged(|_, _| true).iter().any(|node| &**node == "n1"));
    assert_eq!(allocator.allocate_pod(&web, None), Ok(PodState::Allocated));
}

#[test]
fn a_completed_pod_releases_once() {
    let mut allocator = v4();
    let job = pod("job", &[]);
    allocator.allocate_pod(&job, None).unwrap();
    assert_eq!(allocator.allocate_pod(&finished(&job), None), Ok(PodState::NoPort));
    acknowledge_removal(&mut allocator, &Owner::Pod(job.key.clone()));
    let next = pod("next", &[(REQUEST, &request(&json!({"ips": ["10.128.0.3"]})))]);
    allocator.allocate_pod(&next, None).unwrap();
    // Its deletion comes later, and does not release the address of its new holder.
    allocator.allocate_pod(&finished(&job), None).unwrap();
    allocator.release_pod(&job.key);
    assert_eq!(of_pod(&allocator, &next)[0], "10.128.0.3");
    assert!(allocator.quarantine().is_empty());
}

#[test]
fn a_pod_that_moved_has_an_address_of_its_new_node() {
    let mut allocator = v4();
    allocate(&mut allocator, "n2", &[]).unwrap();
    let web = pod("web", &[]);
    allocator.allocate_pod(&web, None).unwrap();
    let moved = pod_on("n2", "web", "uid-web", &[]);
    allocator.allocate_pod(&moved, None).unwrap();
    assert_eq!(of_pod(&allocator, &moved)[0], "10.128.0.19");
    assert_eq!(allocator.quarantine().len(), 1);
}

#[test]
fn a_refused_pod_leaves_its_claims_quarantined() {
    let mut allocator = ready(&["10.128.0.0/26/28", "fd01::/60/64"]);
    let web = pod("web", &[]);
    allocator.allocate_pod(&web, None).unwrap();
    allocator.release_pod(&web.key);
    // It comes back with an address that cannot be a pod's: its other one is claimed, and must not become free when it is
    // refused.
    let wanted = json!({"ips": ["10.128.0.3", "fd01::1"]});
    let spoilt = pod_on("n1", "web", "uid-web", &[(REQUEST, &request(&wanted))]);
    refused(allocator.allocate_pod(&spoilt, None), "StaticAddressRefused", &["fd01::1"]);
    let thief = pod("thief", &[(NETWORK, &network("0a:58:0a:80:00:03", &["10.128.0.3/28"]))]);
    assert_eq!(allocator.allocate_pod(&thief, None), Ok(PodState::Waiting));
    assert_eq!(allocator.allocate_pod(&web, None), Ok(PodState::Allocated));
    assert_eq!(of_pod(&allocator, &web)[..2], ["10.128.0.3", "fd01::3"]);
}
