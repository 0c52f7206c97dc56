//! A control-plane node leaves for good, another one comes, and the first returns with its old file.

use serde_json::json;

use crate::site::{Member, Site, endpoint, until};

const SERVICE: &str = "members";
/// The least that `--remove-after` accepts.
const REMOVE_AFTER: &str = "10";

/// Makes these members the endpoints of the Service, as the DaemonSet's pods are.
fn publish(site: &Site, numbers: &[u32]) {
    let addresses = |number: &u32| json!({"addresses": [endpoint(*number)], "conditions": {"ready": true}});
    let endpoints: Vec<_> = numbers.iter().map(addresses).collect();
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": SERVICE, "namespace": "nodes", "labels": {"kubernetes.io/service-name": SERVICE}},
        "endpoints": endpoints, "ports": []});
    site.lab.apply(&slice.to_string()).unwrap();
}

/// The raft addresses in the configuration of the cluster, as a member sees it.
fn servers(site: &Site, member: &Member) -> Vec<u32> {
    let text = site.appctl(member, &["cluster/status", member.schema()]).unwrap_or_default();
    let listed = text.lines().skip_while(|line| !line.starts_with("Servers:")).collect::<String>();
    (1..=4).filter(|number| listed.contains(&format!("tcp:{}:6643", endpoint(*number)))).collect()
}

#[test]
fn the_server_of_a_node_that_left_is_removed_and_the_node_may_return() {
    let site = Site::start("departed");
    site.namespace("nodes");
    let member = |number| {
        let own = site.endpoint(number);
        let own = ["--host", &own, "--listen", &own, "--peers-service", SERVICE, "--remove-after", REMOVE_AFTER];
        Member::new(number, "nb", "nodes", &[]).with(&own)
    };
    publish(&site, &[1, 2, 3]);
    let members = [1, 2, 3].map(member);
    members.iter().for_each(|member| site.serve(member));
    members.iter().for_each(|member| site.await_member(member));
    let cluster = site.raft(&members[0], "Cluster ID");
    let former = site.raft(&members[2], "Server ID");
    let short = former[..4].to_owned();

    // The node is deleted: its pod ends, and is no endpoint any more.
    site.stop(&members[2]);
    publish(&site, &[1, 2]);
    until("the leader removes the server of the node that left", || {
        members[..2].iter().all(|member| servers(&site, member) == [1, 2]).then_some(())
    });
    let record = site.record("nodes", "nb");
    assert!(record.contains("removed") && record.contains(&short), "{record}");
    let logs = members[..2].iter().map(|member| site.lab.log(&member.component()).unwrap()).collect::<String>();
    assert!(logs.contains("no member has its address"), "the log does not say why");

    // Another node takes its place.
    publish(&site, &[1, 2, 4]);
    let fourth = member(4);
    site.serve(&fourth);
    site.await_member(&fourth);
    until("the new node is a member", || (servers(&site, &members[0]) == [1, 2, 4]).then_some(()));

    // The first one returns with its old file: it must not disturb the others as a removed server, and joins as a new one.
    publish(&site, &[1, 2, 3, 4]);
    site.serve(&members[2]);
    site.await_member(&members[2]);
    assert_eq!(site.raft(&members[2], "Cluster ID"), cluster);
    assert_ne!(site.raft(&members[2], "Server ID"), former);
    until("all four are members", || (servers(&site, &members[0]) == [1, 2, 3, 4]).then_some(()));
    let aside = site.machine().run(&["ls", &members[2].data()]).unwrap();
    assert!(aside.lines().any(|name| name.starts_with(&format!("ovnnb_db.db.{short}"))), "not put aside: {aside}");
}
