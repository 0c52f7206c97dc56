//! Nodes: a subnet of each family, and a number.

use super::*;

#[test]
fn nodes_get_a_subnet_of_each_family_and_a_number() {
    let mut allocator = allocator(&["10.128.0.0/14/23", "fd01::/48/64"]);
    settle(&mut allocator, "n1", &[]).unwrap();
    settle(&mut allocator, "n2", &[]).unwrap();
    assert_eq!(of_node(&allocator, "n1"), ["10.128.0.0/23", "fd01::/64", "2"]);
    assert_eq!(of_node(&allocator, "n2"), ["10.128.2.0/23", "fd01:0:0:1::/64", "3"]);
    assert_eq!(allocator.subnet_counts(false), (2, 512));
}

#[test]
fn what_stands_on_a_node_is_honoured_whatever_its_order() {
    let mut allocator = allocator(&["10.128.0.0/14/23", "fd01::/48/64"]);
    let said = [(SUBNETS, r#"{"default":["fd01:0:0:7::/64","10.130.0.0/23"]}"#), (ID, "9")];
    for _ in 0..2 {
        settle(&mut allocator, "n1", &said).unwrap();
        assert_eq!(of_node(&allocator, "n1"), ["10.130.0.0/23", "fd01:0:0:7::/64", "9"]);
        assert!(allocator.quarantine().is_empty(), "nothing was given back");
        allocator.settle_pod(&pod("web", &[]), None).unwrap();
    }
}

#[test]
fn what_stands_on_a_node_and_cannot_be_is_refused_by_name() {
    let mut allocator = small();
    settle(&mut allocator, "n1", &[(SUBNETS, r#"{"default":"10.128.0.0/28"}"#), (ID, "5")]).unwrap();
    let mut subnets = |value: &str, words: &[&str]| {
        let result = settle(&mut allocator, "n2", &[(SUBNETS, value)]);
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
        settle(&mut allocator, "n2", &[(ID, "5")]),
        "NodeIdRefused",
        &[ID, "5 is the number of node n1", "remove it"],
    );
    refused(settle(&mut allocator, "n2", &[(ID, "1")]), "NodeIdRefused", &[ID, "number 1 is outside the range 2 to"]);
    refused(settle(&mut allocator, "n2", &[(ID, "one")]), "NodeIdRefused", &[ID, "\"one\"", remedy]);
    // What a refused node had claimed on the way is free for others.
    assert_eq!(allocator.subnet_counts(false).0, 1);
}

#[test]
fn the_database_says_what_annotations_do_not() {
    let mut allocator = small();
    let known = KnownNode { subnets: vec!["10.128.0.32/28".parse().unwrap()], id: Some(7) };
    allocator.settle_node(&node("n1", "u", &[]), &known).unwrap();
    assert_eq!(of_node(&allocator, "n1"), ["10.128.0.32/28", "7"]);
}

#[test]
fn what_a_node_has_wins_over_what_is_written_on_it_later() {
    let mut allocator = small();
    let known = KnownNode { subnets: vec!["10.128.0.32/28".parse().unwrap()], id: Some(7) };
    let written = node("n1", "uid-n1", &[(SUBNETS, r#"{"default":"10.128.0.0/28"}"#), (ID, "8")]);
    allocator.keep_known_node(&written, &known);
    assert_eq!(of_node(&allocator, "n1"), ["10.128.0.32/28", "7"]);
    refused(
        settle(&mut allocator, "n1", &[(ID, "8")]),
        "NodeIdRefused",
        &[ID, "changed to 8", "is number 7", "set it back"],
    );
    assert_eq!(of_node(&allocator, "n1"), ["10.128.0.32/28", "7"]);
}

#[test]
fn a_subnet_can_be_changed_while_no_pod_has_an_address_of_it() {
    let mut allocator = small();
    settle(&mut allocator, "n1", &[(ID, "5")]).unwrap();
    let changed = [(SUBNETS, r#"{"default":"10.128.0.32/28"}"#), (ID, "5")];
    settle(&mut allocator, "n1", &changed).unwrap();
    assert_eq!(of_node(&allocator, "n1"), ["10.128.0.32/28", "5"]);
    assert_eq!(allocator.quarantine().len(), 1, "the former subnet rests, the number does not");

    let web = pod("web", &[]);
    allocator.settle_pod(&web, None).unwrap();
    refused(
        settle(&mut allocator, "n1", &[(SUBNETS, r#"{"default":"10.128.0.48/28"}"#)]),
        "NodeSubnetsRefused",
        &[SUBNETS, "10.128.0.48/28", "10.128.0.32/28", "drain the node first, or set it back"],
    );
    assert_eq!(of_node(&allocator, "n1"), ["10.128.0.32/28", "5"]);
}

#[test]
fn a_change_to_what_cannot_be_leaves_a_node_what_it_has() {
    let mut allocator = small();
    settle(&mut allocator, "n1", &[]).unwrap();
    settle(&mut allocator, "n2", &[]).unwrap();
    let had = of_node(&allocator, "n2");
    let stolen = [(SUBNETS, r#"{"default":"10.128.0.0/28"}"#)];
    refused(settle(&mut allocator, "n2", &stolen), "NodeSubnetsRefused", &["10.128.0.0/28 of node n1"]);
    assert_eq!(of_node(&allocator, "n2"), had);
    assert!(allocator.quarantine().is_empty());
}

#[test]
fn a_cluster_that_becomes_dual_stack_gives_what_is_missing() {
    let mut allocator = allocator(&["10.128.0.0/14/23", "fd01::/48/64"]);
    let said = [(SUBNETS, r#"{"default":["10.130.0.0/23"]}"#), (ID, "2")];
    settle(&mut allocator, "n1", &said).unwrap();
    let web = pod("web", &[]);
    allocator.settle_pod(&web, None).unwrap();
    settle(&mut allocator, "n1", &said).unwrap();
    assert_eq!(of_node(&allocator, "n1"), ["10.130.0.0/23", "fd01::/64", "2"]);
}

#[test]
fn a_node_made_again_under_its_name_takes_back_what_rests_and_nobody_else_does() {
    let mut allocator = small();
    settle(&mut allocator, "n1", &[]).unwrap();
    settle(&mut allocator, "n2", &[]).unwrap();
    let had = of_node(&allocator, "n1");
    let web = pod("web", &[]);
    allocator.settle_pod(&web, None).unwrap();

    allocator.release_node("n1");
    assert_eq!(allocator.quarantine().len(), 3, "subnet, number and the pod's address rest");
    refused(
        settle(&mut allocator, "n3", &[(SUBNETS, r#"{"default":"10.128.0.0/28"}"#)]),
        "NodeSubnetsRefused",
        &["10.128.0.0/28", "in use"],
    );
    settle(&mut allocator, "n3", &[]).unwrap();
    assert_eq!(of_node(&allocator, "n3"), ["10.128.0.32/28", "4"], "another subnet, another number");

    let again = node("n1", "another", &[]);
    let known = KnownNode { subnets: Vec::new(), id: Some(2) };
    allocator.settle_node(&again, &known).unwrap();
    assert_eq!(of_node(&allocator, "n1"), had);
    // The pod is gone with the machine; its address rests on.
    assert_eq!(of_pod(&allocator, &web), Vec::<String>::new());
    assert_eq!(allocator.quarantine().len(), 1);
    let next = pod("next", &[]);
    allocator.settle_pod(&next, None).unwrap();
    assert_eq!(of_pod(&allocator, &next)[0], "10.128.0.4");
}

#[test]
fn a_machine_that_was_replaced_gives_its_pods_addresses_back() {
    let mut allocator = small();
    settle(&mut allocator, "n1", &[]).unwrap();
    let web = pod("web", &[]);
    allocator.settle_pod(&web, None).unwrap();
    allocator.settle_node(&node("n1", "another", &[]), &KnownNode::default()).unwrap();
    assert_eq!(of_pod(&allocator, &web), Vec::<String>::new());
    // The same pod is settled again on the new machine, and finds what it had.
    assert_eq!(allocator.settle_pod(&web, None), Ok(PodState::Settled));
    assert_eq!(of_pod(&allocator, &web)[0], "10.128.0.3");
}

#[test]
fn subnets_run_out_and_come_back_after_their_rest() {
    let mut allocator = small();
    for name in ["n1", "n2", "n3", "n4"] {
        settle(&mut allocator, name, &[]).unwrap();
    }
    refused(settle(&mut allocator, "n5", &[]), "NodeSubnetsExhausted", &["IPv4", "cluster-subnets", "add a network"]);
    allocator.release_node("n2");
    refused(settle(&mut allocator, "n5", &[]), "NodeSubnetsExhausted", &[]);
    assert_eq!(forget(&mut allocator, &Owner::Node("n2".into())), ["n2"]);
    settle(&mut allocator, "n5", &[]).unwrap();
    assert_eq!(of_node(&allocator, "n5")[0], "10.128.0.16/28");
}

#[test]
fn numbers_run_out_with_the_join_network() {
    let mut settings = ClusterSettings::new(vec!["10.128.0.0/14/23".parse().unwrap()], Vec::new());
    settings.join = vec!["100.64.0.0/30".parse().unwrap()];
    let mut allocator = Allocator::new(&settings).unwrap();
    settle(&mut allocator, "n1", &[]).unwrap();
    refused(settle(&mut allocator, "n2", &[]), "NodeIdsExhausted", &["v4-join-subnet", "too small"]);
    assert_eq!(allocator.subnet_counts(false).0, 1, "the subnet that it could not use is free");
}

#[test]
fn what_rests_is_restored_from_the_database() {
    let mut allocator = small();
    for thing in ["10.128.0.0/28", "2", "10.128.0.19"] {
        allocator.restore_resting(thing.parse().unwrap(), "n1", "n1");
    }
    settle(&mut allocator, "n2", &[]).unwrap();
    assert_eq!(of_node(&allocator, "n2"), ["10.128.0.16/28", "3"]);
    let web = pod_on("n2", "web", "u", &[]);
    allocator.settle_pod(&web, None).unwrap();
    assert_eq!(of_pod(&allocator, &web)[0], "10.128.0.20", "an address rests in whatever subnet it is");
    // The nodes have not been asked since the restart.
    assert!(allocator.quarantine().must_ask());
    assert!(allocator.wake(|_, _| true).is_empty());
}

#[test]
fn a_refused_node_leaves_what_it_may_have_back_at_rest() {
    let mut allocator = small();
    settle(&mut allocator, "n1", &[(ID, "5")]).unwrap();
    settle(&mut allocator, "n2", &[(ID, "6")]).unwrap();
    allocator.release_node("n1");
    // It comes back with another node's number: its subnet is looked for, and may not become free on the way.
    refused(settle(&mut allocator, "n1", &[(ID, "6")]), "NodeIdRefused", &["6 is the number of node n2"]);
    settle(&mut allocator, "n3", &[]).unwrap();
    assert_eq!(of_node(&allocator, "n3")[0], "10.128.0.32/28");
    settle(&mut allocator, "n1", &[(ID, "5")]).unwrap();
    assert_eq!(of_node(&allocator, "n1"), ["10.128.0.0/28", "5"]);
}

/// A node was made again while nobody led, and a pod of it went: nobody had its subnet when the address was put to rest.
#[test]
fn a_freed_address_wakes_whichever_node_has_its_subnet_by_now() {
    let mut allocator = allocator(&["10.128.0.0/24/29"]);
    let gone = Owner::Pod(std::sync::Arc::new(crate::identity::PodKey::new("default", "gone")));
    allocator.rest_former(Thing::Address(address("10.128.0.3")), "uid", &gone);
    settle(&mut allocator, "n1", &[]).unwrap();
    assert!(forget(&mut allocator, &gone).contains(&"n1".to_owned()));
}

#[test]
fn a_subnet_without_room_for_router_and_host_is_refused() {
    let mut allocator = allocator(&["10.128.0.0/14/23"]);
    for (subnet, fits) in [("10.128.0.0/32", false), ("10.128.0.0/31", false), ("10.128.0.0/30", true)] {
        let text = format!("{{\"default\":\"{subnet}\"}}");
        assert_eq!(settle(&mut allocator, "n1", &[(SUBNETS, &text)]).is_ok(), fits, "{subnet}");
    }
}
