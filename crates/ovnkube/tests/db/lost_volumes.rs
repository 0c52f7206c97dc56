//! The volumes of all members are lost at once, as those of a hosted control plane with its zone: nothing starts a second cluster by
//! itself, and after `ovnkube db rebuild` the database has every pod with its former address.

use std::collections::BTreeMap;

use lab::Program;
use serde_json::json;

use crate::site::{LIMIT, Member, Site, host, until};

const PODS: [&str; 4] = ["a-1", "b-1", "a-2", "b-2"];

/// Starts a controller on these servers, two nodes and their pods.
fn start_pods(site: &Site, northbound: &str) {
    let controller = Program::new("controller", env!("CARGO_BIN_EXE_ovnkube"))
        .environment("OVNKUBE_METRICS_BIND_ADDRESS", "off")
        .environment("OVNKUBE_KUBERNETES_SERVICE_CIDRS", "10.96.0.0/16")
        .arguments(["controller", "--identity", "controller", "--leader-election-namespace", "hosted"])
        .arguments(["--nb-address", northbound, "--sb-address", &format!("tcp:{}:6642", host(1))]);
    site.lab.run(&controller).unwrap();
    for node in ["n1", "n2"] {
        site.lab.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}).to_string()).unwrap();
    }
    for name in PODS {
        let node = name.replace(|sign: char| !sign.is_ascii_digit(), "");
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "hosted"},
            "spec": {"nodeName": format!("n{node}"), "containers": [{"name": "c", "image": "none"}],
                "tolerations": [{"operator": "Exists"}]}});
        until("the pod is accepted", || site.lab.apply(&pod.to_string()).ok());
    }
}

/// The addresses of all ports of pods, by name, as any of the members has them.
fn ports(site: &Site, northbound: &str) -> BTreeMap<String, String> {
    let database = format!("--db={northbound}");
    let words =
        ["--format=csv", "--data=bare", "--no-headings", "--columns=name,addresses", "list", "Logical_Switch_Port"];
    let command = [&["ovn-nbctl", "--timeout=10", &database], &words[..]].concat();
    let text = site.machine().run(&command).unwrap_or_default();
    let ports = text.lines().filter_map(|line| line.split_once(','));
    ports.filter(|(name, _)| name.starts_with("hosted_")).map(|(name, address)| (name.into(), address.into())).collect()
}

#[test]
fn all_volumes_are_lost_at_once_and_every_pod_keeps_its_address() {
    let site = Site::start("all-volumes");
    site.namespace("hosted");
    let members = [1, 2, 3].map(|number| Member::new(number, "nb", "hosted", &[1, 2, 3]));
    let south = Member::new(1, "sb", "hosted", &[1]);
    let all = || members.iter().chain([&south]);
    all().for_each(|member| site.serve(member));
    all().for_each(|member| site.await_member(member));
    let northbound = (1..=3).map(|number| format!("tcp:{}:6641", host(number))).collect::<Vec<_>>().join(",");
    start_pods(&site, &northbound);
    let before =
        until("every pod has a port", || Some(ports(&site, &northbound)).filter(|ports| ports.len() == PODS.len()));
    let record = site.record("hosted", "nb");

    all().for_each(|member| site.stop(member));
    for member in &members {
        site.shell(&format!("rm -r {0} && mkdir {0}", member.data()));
    }
    all().for_each(|member| site.serve(member));
    for member in &members {
        let message = site.await_finding(member, "NoQuorum");
        assert!(message.contains("rebuild"), "{message}");
    }
    assert_eq!(site.record("hosted", "nb"), record, "somebody started another cluster");

    let (data, run) = (members[0].data(), members[0].run());
    let rebuild = Program::new("rebuild", env!("CARGO_BIN_EXE_ovnkube"))
        .environment("OVNKUBE_OVNNORTH_ADDRESS", &northbound)
        .environment("POD_NAME", "member-1")
        .arguments(["db", "rebuild", "nb", "--host", &host(1), "--namespace", "hosted"])
        .arguments(["--data-dir", &data, "--run-dir", &run]);
    site.lab.run(&rebuild).unwrap();
    let status = site.lab.wait_end("rebuild", LIMIT).unwrap();
    assert!(status.success(), "{}", site.lab.log("rebuild").unwrap());
    members.iter().for_each(|member| site.await_member(member));
    let cluster = site.raft(&members[0], "Cluster ID");
    for member in &members {
        assert_eq!(site.raft(member, "Cluster ID"), cluster);
        assert_eq!(site.raft(member, "Status"), "cluster member");
    }
    until("every pod has its port again", || (ports(&site, &northbound).len() == PODS.len()).then_some(()));
    assert_eq!(ports(&site, &northbound), before);
}
