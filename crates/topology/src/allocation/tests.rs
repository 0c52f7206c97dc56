use super::*;
use crate::objects::NodeFacts;

fn node(uid: &str) -> NodeFacts {
    NodeFacts::parse(&format!(r#"{{"metadata":{{"name":"n1","uid":"{uid}"}}}}"#)).unwrap()
}

/// A node was made again while nobody led, and a pod of it went: nobody had its subnet when the address was put to rest.
#[test]
fn a_freed_address_wakes_whichever_node_has_its_subnet_by_now() {
    let settings = ClusterSettings::new(vec!["10.128.0.0/24/29".parse().unwrap()], Vec::new());
    let mut allocator = Allocator::new(&settings).unwrap();
    let gone = Owner::Pod(Arc::new(PodKey::new("default", "gone")));
    allocator.rest_former(Thing::Address("10.128.0.3".parse().unwrap()), "uid", &gone);
    allocator.settle_node(&node("new"), &KnownNode::default()).unwrap();
    allocator.quarantine_mut().committed(&gone);
    allocator.quarantine_mut().asked(1);
    assert!(allocator.wake(|_, _| true).iter().any(|name| &**name == "n1"));
}

#[test]
fn a_subnet_without_room_for_router_and_host_is_refused() {
    let settings = ClusterSettings::new(vec!["10.128.0.0/14/23".parse().unwrap()], Vec::new());
    let mut allocator = Allocator::new(&settings).unwrap();
    for (subnet, fits) in [("10.128.0.0/32", false), ("10.128.0.0/31", false), ("10.128.0.0/30", true)] {
        let facts = NodeFacts { subnets: crate::objects::Annotated::Valid(vec![subnet.parse().unwrap()]), ..node("u") };
        assert_eq!(allocator.settle_node(&facts, &KnownNode::default()).is_ok(), fits, "{subnet}");
    }
}
