//! A Node's annotation with its subnets is forged, on a cluster without the admission policies: the agent does not obey.

use lab::Family;
use serde_json::json;

use crate::cluster::until;
use crate::sandbox::addresses;
use crate::site::Site;

const SUBNETS: &str = "k8s.ovn.org/node-subnets";

/// Addresses of the management port.
fn management(site: &Site) -> String {
    site.machine(1).run(&["ip", "-o", "-4", "address", "show", "dev", "ovn-k8s-mp0"]).unwrap()
}

#[test]
fn forged_subnets_are_ignored_while_pods_use_the_others() {
    let site = Site::start("forged-subnets", 2, Family::V4);
    site.agents(&[]);
    let (one, far) = (site.sandbox("one", 1), site.sandbox("far", 2));
    let (own, other) = (addresses(&one.add())[0], addresses(&far.add())[0]);
    one.talks_to(&far, other);
    let host_reaches = || {
        let (host, to) = (site.machine(1), own.to_string());
        until("the host reaches its pod", || host.run(&["ping", "-c1", "-W1", &to]).ok());
    };
    until("the management port has its address", || management(&site).contains("10.128.").then_some(()));
    host_reaches();
    let (allocated, before) = (site.cluster.annotation("node", "n1", SUBNETS).unwrap(), management(&site));

    for (forged, why) in [
        ("10.131.0.0/23", "10.131.0.0/23, but 1 pods of this node have addresses of 10.128.0.0/23"),
        ("192.168.0.0/24", "192.168.0.0/24 is not in cluster-subnets"),
    ] {
        site.cluster.annotate("node", "n1", &[(SUBNETS, &json!({"default": [forged]}).to_string())]);
        let message = site.cluster.event("n1", "NodeSubnetsIgnored", &[why]);
        assert!(message.contains("10.128.0.0/23 stays in effect"), "{message}");
        assert_eq!(management(&site), before);
        host_reaches();
        one.talks_to(&far, other);
    }
    // A restarted agent knows no better than the annotation and the host.
    site.cluster.lab.kill("agent-n1").unwrap();
    site.cluster.lab.restart("agent-n1").unwrap();
    until("the new agent ignores it, too", || {
        let log = site.cluster.lab.log("agent-n1").unwrap();
        (log.matches("ignoring the node's annotated subnets").count() >= 3).then_some(())
    });
    assert_eq!(management(&site), before);
    host_reaches();

    site.cluster.annotate("node", "n1", &[(SUBNETS, &allocated)]);
    until("the annotation is obeyed again", || {
        site.cluster.lab.log("agent-n1").unwrap().contains("annotated subnets are in effect again").then_some(())
    });
    // Without pods, an administrator may give the node another subnet; controller and agent obey both.
    one.delete();
    site.delete_pod("one");
    let moved = json!({"default": ["10.131.0.0/23"]}).to_string();
    site.cluster.annotate("node", "n1", &[(SUBNETS, &moved)]);
    until("the management port moves", || management(&site).contains("10.131.0.2/23").then_some(()));
}
