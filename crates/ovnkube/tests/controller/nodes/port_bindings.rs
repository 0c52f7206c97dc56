//! A chassis claims ports of another node, as every chassis may in OVN 25.03.

use crate::cluster::{ClusterSpec, until};

#[test]
fn a_port_that_another_chassis_claims_is_released_and_reported() {
    let cluster = ClusterSpec::new("claims").nodes(2).start();
    cluster.lead("c1");
    for number in [1, 2] {
        cluster.add_node(number);
    }
    cluster.apply_all(&[crate::cluster::pod("default", "web", "n1")]);
    let _pod = cluster.bind(1, "default", "web");
    let conflicts = || cluster.metric("ovnkube_controller_port_binding_conflicts_total");
    assert!(conflicts() < 1.0);
    let sbctl = |words: &[&str]| cluster.lab.sbctl(words).unwrap();
    let chassis = |name: &str| {
        sbctl(&["--bare", "--columns=_uuid", "find", "Chassis", &format!("name={name}")]).trim().to_owned()
    };
    let (own, thief) = (chassis("n1"), chassis("n2"));
    let claims = |column: &str| {
        let column = format!("--columns={column}");
        sbctl(&["--bare", &column, "find", "Port_Binding", "logical_port=default_web"]).trim().to_owned()
    };
    assert_eq!(claims("chassis"), own);
    let claim = |column: &str| sbctl(&["set", "Port_Binding", "default_web", &format!("{column}={thief}")]);

    // An honest ovn-controller releases the port, and the right one would claim it again at once.
    let stopped = ["n1-ovn-controller", "n2-ovn-controller"].map(|name| cluster.lab.pause(name).unwrap());
    // A second claim, in addition to the right one, copies the pod's packets.
    claim("additional_chassis");
    until("the additional claim is released", || claims("additional_chassis").is_empty().then_some(()));
    assert_eq!(claims("chassis"), own);
    until("it is counted", || (conflicts() >= 1.0).then_some(()));
    let before = conflicts();
    claim("chassis");
    until("the port is released", || claims("chassis").is_empty().then_some(()));
    let of_pod = cluster.event("web", "PortClaimedByOtherChassis", &["chassis n2 (node n2)", "belongs to node n1"]);
    assert!(of_pod.contains("default_web"), "{of_pod}");
    cluster.event("n2", "PortClaimedByOtherChassis", &["default_web of node n1", "treat this node as compromised"]);
    until("it is counted, too", || (conflicts() > before).then_some(()));
    for stopped in stopped {
        stopped.resume().unwrap();
    }
    cluster.lab.sbctl(&["wait-until", "Port_Binding", "default_web", &format!("chassis={own}"), "up=true"]).unwrap();

    // Nothing of the ordinary life of pods is a conflict: a pod of the same name on another node.
    let settled = conflicts();
    cluster.delete("pod", &["web"]);
    cluster.apply_all(&[crate::cluster::pod("default", "web", "n2")]);
    let _moved = cluster.bind(2, "default", "web");
    assert_eq!(claims("chassis"), thief);
    assert!((conflicts() - settled).abs() < 0.5, "{} conflicts", conflicts() - settled);
}
