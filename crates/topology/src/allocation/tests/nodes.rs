//! Nodes: a subnet of each family, and a node ID.

use netmodel::Family;

use super::*;

#[test]
fn nodes_get_a_subnet_of_each_family_and_a_node_id() {
    let mut allocator = allocator(&["10.128.0.0/14/23", "fd01::/48/64"]);
    allocate(&mut allocator, "n1", &[]).unwrap();
    allocate(&mut allocator, "n2", &[]).unwrap();
    assert_eq!(of_node(&allocator, "n1"), ["10.128.0.0/23", "fd01::/64", "2"]);
    assert_eq!(of_node(&allocator, "n2"), ["10.128.2.0/23", "fd01:0:0:1::/64", "3"]);
    assert_eq!(allocator.subnet_counts(Family::V4), (2, 512));
}

#[test]
fn annotations_of_a_node_are_honoured_in_any_order() {
    let mut allocator = allocator(&["10.128.0.0/14/23", "fd01::/48/64"]);
    let said = [(SUBNETS, r#"{"default":["fd01:0:0:7::/64","10.130.0.0/23"]}"#), (ID, "9")];
    for _ in 0..2 {
        allocate(&mut allocator, "n1", &said).unwrap();
        assert_eq!(of_node(&allocator, "n1"), ["10.130.0.0/23", "fd01:0:0:7::/64", "9"]);
        assert!(allocator.quarantine().is_empty(), "nothing was released");
        allocator.allocate_pod(&pod("web", &[]), None).unwrap();
    }
}

#[test]
fn impossible_annotations_of_a_node_are_refused_with_the_holder() {
    let mut allocator = small();
    allocate(&mut allocator, "n1", &[(SUBNETS, r#"{"default":"10.128.0.0/28"}"#), (ID, "5")]).unwrap();
    let mut subnets = |value: &str, words: &[&str]| {
        let result = allocate(&mut allocator, "n2", &[(SUBNETS, value)]);
        refused(result, "NodeSubnetsRefused", words);
        assert_eq!(of_node(&allocator, "n2"), Vec::<String>::new());
    };
    let remedy = "correct the annotation, or remove it";
    subnets(r#"{"default":["10.128.0.0/28"]}"#, &[SUBNETS, "10.128.0.0/28 of node n1", remedy]);
    subnets(r#"{"default":["10.129.0.0/28"]}"#, &[SUBNETS, "10.129.0.0/28", "outside the cluster's networks", remedy]);
    subnets(r#"{"default":["fd01::/64"]}"#, &[SUBNETS, "fd01::/64", "address family", remedy]);
    subnets(r#"{"default":["10.128.0.16/28","10.128.0.32/28"]}"#, &["10.128.0.32/28", "second subnet", remedy]);
    subnets("ten", &[SUBNETS, "\"ten\"", remedy]);
    refused(
        allocate(&mut allocator, "n2", &[(ID, "5")]),
        "NodeIdRefused",
        &[ID, "5 is the node ID of node n1", "remove it"],
    );
    refused(allocate(&mut allocator, "n2", &[(ID, "1")]), "NodeIdRefused", &[ID, "ID 1 is outside the range 2 to"]);
    refused(allocate(&mut allocator, "n2", &[(ID, "one")]), "NodeIdRefused", &[ID, "\"one\"", remedy]);
    // The claims of a refused node are free for others.
    assert_eq!(allocator.subnet_counts(Family::V4).0, 1);
}

#[test]
fn rows_complete_missing_annotations() {
    let mut allocator = small();
    let known = KnownNode { subnets: vec!["10.128.0.32/28".parse().unwrap()], id: Some(7) };
    allocator.allocate_node(&node("n1", "u", &[]), &known).unwrap();
    assert_eq!(of_node(&allocator, "n1"), ["10.128.0.32/28", "7"]);
}

#[test]
fn an_allocation_wins_over_later_annotations() {
    let mut allocator = small();
    let known = KnownNode { subnets: vec!["10.128.0.32/28".parse().unwrap()], id: Some(7) };
    let written = node("n1", "uid-n1", &[(SUBNETS, r#"{"default":"10.128.0.0/28"}"#), (ID, "8")]);
    allocator.restore_node(&written, &known);
    assert_eq!(of_node(&allocator, "n1"), ["10.128.0.32/28", "7"]);
    refused(
        allocate(&mut allocator, "n1", &[(ID, "8")]),
        "NodeIdRefused",
        &[ID, "changed to 8", "node ID is 7", "revert the annotation"],
    );
    assert_eq!(of_node(&allocator, "n1"), ["10.128.0.32/28", "7"]);
}

#[test]
fn a_subnet_can_be_changed_while_no_pod_has_an_address_of_it() {
    let mut allocator = small();
    allocate(&mut allocator, "n1", &[(ID, "5")]).unwrap();
    let changed = [(SUBNETS, r#"{"default":"10.128.0.32/28"}"#), (ID, "5")];
    allocate(&mut allocator, "n1", &changed).unwrap();
    assert_eq!(of_node(&allocator, "n1"), ["10.128.0.32/28", "5"]);
    assert_eq!(allocator.quarantine().len(), 1, "the former subnet is quarantined, the node ID is not");

    let web = pod("web", &[]);
    allocator.allocate_pod(&web, None).unwrap();
    refused(
        allocate(&mut allocator, "n1", &[(SUBNETS, r#"{"default":"10.128.0.48/28"}"#)]),
        "NodeSubnetsRefused",
        &[SUBNETS, "10.128.0.48/28", "10.128.0.32/28", "drain the node first, or revert the annotation"],
    );
    assert_eq!(of_node(&allocator, "n1"), ["10.128.0.32/28", "5"]);
}

#[test]
fn an_impossible_change_keeps_the_allocation() {
    let mut allocator = small();
    allocate(&mut allocator, "n1", &[]).unwrap();
    allocate(&mut allocator, "n2", &[]).unwrap();
    let had = of_node(&allocator, "n2");
    let stolen = [(SUBNETS, r#"{"default":"10.128.0.0/28"}"#)];
    refused(allocate(&mut allocator, "n2", &stolen), "NodeSubnetsRefused", &["10.128.0.0/28 of node n1"]);
    assert_eq!(of_node(&allocator, "n2"), had);
    assert!(allocator.quarantine().is_empty());
}

#[test]
fn a_cluster_that_becomes_dual_stack_adds_the_missing_family() {
    let mut allocator = allocator(&["10.128.0.0/14/23", "fd01::/48/64"]);
    let said = [(SUBNETS, r#"{"default":["10.130.0.0/23"]}"#), (ID, "2")];
    allocate(&mut allocator, "n1", &said).unwrap();
    let web = pod("web", &[]);
    allocator.allocate_pod(&web, None).unwrap();
    allocate(&mut allocator, "n1", &said).unwrap();
    assert_eq!(of_node(&allocator, "n1"), ["10.130.0.0/23", "fd01::/64", "2"]);
}

#[test]
fn only_a_recreated_node_reclaims_its_quarantined_items() {
    let mut allocator = small();
    allocate(&mut allocator, "n1", &[]).unwrap();
    allocate(&mut allocator, "n2", &[]).unwrap();
    let had = of_node(&allocator, "n1");
    let web = pod("web", &[]);
    allocator.allocate_pod(&web, None).unwrap();

    allocator.release_node("n1");
    assert_eq!(allocator.quarantine().len(), 3, "subnet, node ID and the pod's address are quarantined");
    refused(
        allocate(&mut allocator, "n3", &[(SUBNETS, r#"{"default":"10.128.0.0/28"}"#)]),
        "NodeSubnetsRefused",
        &["10.128.0.0/28", "in use"],
    );
    allocate(&mut allocator, "n3", &[]).unwrap();
    assert_eq!(of_node(&allocator, "n3"), ["10.128.0.32/28", "4"], "another subnet, another node ID");

    let again = node("n1", "another", &[]);
    let known = KnownNode { subnets: Vec::new(), id: Some(2) };
    allocator.allocate_node(&again, &known).unwrap();
    assert_eq!(of_node(&allocator, "n1"), had);
    // The pod is gone with the machine; its address stays quarantined.
    assert_eq!(of_pod(&allocator, &web), Vec::<String>::new());
    assert_eq!(allocator.quarantine().len(), 1);
    let next = pod("next", &[]);
    allocator.allocate_pod(&next, None).unwrap();
    assert_eq!(of_pod(&allocator, &next)[0], "10.128.0.4");
}

#[test]
fn replacing_a_machine_releases_its_pods_addresses() {
    let mut allocator = small();
    allocate(&mut allocator, "n1", &[]).unwrap();
    let web = pod("web", &[]);
    allocator.allocate_pod(&web, None).unwrap();
    allocator.allocate_node(&node("n1", "another", &[]), &KnownNode::default()).unwrap();
    assert_eq!(of_pod(&allocator, &web), Vec::<String>::new());
    // The same pod is allocated on the new machine, with its former address.
    assert_eq!(allocator.allocate_pod(&web, None), Ok(PodState::Allocated));
    assert_eq!(of_pod(&allocator, &web)[0], "10.128.0.3");
}

#[test]
fn subnets_run_out_and_are_free_after_quarantine() {
    let mut allocator = small();
    for name in ["n1", "n2", "n3", "n4"] {
        allocate(&mut allocator, name, &[]).unwrap();
    }
    refused(allocate(&mut allocator, "n5", &[]), "NodeSubnetsExhausted", &["IPv4", "cluster-subnets", "add a network"]);
    allocator.release_node("n2");
    refused(allocate(&mut allocator, "n5", &[]), "NodeSubnetsExhausted", &[]);
    assert_eq!(acknowledge_removal(&mut allocator, &Owner::Node("n2".into())), ["n2"]);
    allocate(&mut allocator, "n5", &[]).unwrap();
    assert_eq!(of_node(&allocator, "n5")[0], "10.128.0.16/28");
}

#[test]
fn node_ids_run_out_with_the_join_network() {
    let mut settings = ClusterSettings::new(vec!["10.128.0.0/14/23".parse().unwrap()], Vec::new());
    settings.join = vec!["100.64.0.0/30".parse().unwrap()];
    let mut allocator = Allocator::new(&settings).unwrap();
    allocate(&mut allocator, "n1", &[]).unwrap();
    refused(allocate(&mut allocator, "n2", &[]), "NodeIdsExhausted", &["v4-join-subnet", "too small"]);
    assert_eq!(allocator.subnet_counts(Family::V4).0, 1, "the subnet that it could not use is free");
}

#[test]
fn the_quarantine_is_restored_from_the_database() {
    let mut allocator = small();
    for item in ["10.128.0.0/28", "2", "10.128.0.19"] {
        allocator.restore_quarantined(item.parse().unwrap(), "n1", "n1");
    }
    allocate(&mut allocator, "n2", &[]).unwrap();
    assert_eq!(of_node(&allocator, "n2"), ["10.128.0.16/28", "3"]);
    let web = pod_on("n2", "web", "u", &[]);
    allocator.allocate_pod(&web, None).unwrap();
    assert_eq!(of_pod(&allocator, &web)[0], "10.128.0.20", "an address is quarantined in any subnet");
    // nb_cfg was not raised since the restart.
    assert!(allocator.quarantine().must_raise());
    assert!(allocator.release_acknowledged(|_, _| true).is_empty());
}

#[test]
fn a_refused_node_leaves_its_claims_quarantined() {
    let mut allocator = small();
    allocate(&mut allocator, "n1", &[(ID, "5")]).unwrap();
    allocate(&mut allocator, "n2", &[(ID, "6")]).unwrap();
    allocator.release_node("n1");
    // It comes back with another node's ID: its subnet is claimed, and must not become free when it is refused.
    refused(allocate(&mut allocator, "n1", &[(ID, "6")]), "NodeIdRefused", &["6 is the node ID of node n2"]);
    allocate(&mut allocator, "n3", &[]).unwrap();
    assert_eq!(of_node(&allocator, "n3")[0], "10.128.0.32/28");
    allocate(&mut allocator, "n1", &[(ID, "5")]).unwrap();
    assert_eq!(of_node(&allocator, "n1"), ["10.128.0.0/28", "5"]);
}

/// A node was recreated without a leader, and a pod of it was deleted: its subnet was unallocated when the address was
/// quarantined.
#[test]
fn a_freed_address_notifies_the_node_that_has_its_subnet_now() {
    let mut allocator = allocator(&["10.128.0.0/24/29"]);
    let gone = Owner::Pod(std::sync::Arc::new(objects::PodKey::new("default", "gone")));
    allocator.quarantine_former(Allocatable::Address(address("10.128.0.3")), "uid", &gone);
    allocate(&mut allocator, "n1", &[]).unwrap();
    assert!(acknowledge_removal(&mut allocator, &gone).contains(&"n1".to_owned()));
}

#[test]
fn a_subnet_without_room_for_router_and_host_is_refused() {
    let mut allocator = allocator(&["10.128.0.0/14/23"]);
    for (subnet, fits) in [("10.128.0.0/32", false), ("10.128.0.0/31", false), ("10.128.0.0/30", true)] {
        let text = format!("{{\"default\":\"{subnet}\"}}");
        assert_eq!(allocate(&mut allocator, "n1", &[(SUBNETS, &text)]).is_ok(), fits, "{subnet}");
    }
}
