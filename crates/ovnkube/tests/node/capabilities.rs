//! The agent with the capabilities of `deploy/ovnkube/daemonsets.yaml`, and without each of them.

use std::path::PathBuf;

use lab::{Family, Program};
use serde_json::{Value, json};

use crate::cluster::{TIMEOUT, until};
use crate::networks::networks;
use crate::sandbox::{addresses, request};
use crate::site::Site;

/// The binary on the node.
const AGENT: &str = "/opt/ovnkube/ovnkube";

/// Those of the manifest, in the notation of setpriv.
fn capabilities() -> Vec<String> {
    let manifest = include_str!("../../../../deploy/ovnkube/daemonsets.yaml");
    let agents = manifest.split("- name: ovnkube-node\n").nth(1).unwrap();
    let list = agents.split("capabilities: {drop: [ALL], add: [").nth(1).unwrap().split(']').next().unwrap();
    list.split(", ").map(str::to_lowercase).collect()
}

/// Runs an agent on n1 with these capabilities only, until the test stops it.
fn run(site: &Site, name: &str, capabilities: &[&String]) {
    let mut set = "-all".to_owned();
    for capability in capabilities {
        set += &format!(",+{capability}");
    }
    let southbound = site.cluster.lab.record().endpoints.southbound.unwrap();
    let program = Program::new(name, PathBuf::from("setpriv"))
        .on("n1")
        .environment("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .arguments(["--bounding-set", &set, AGENT])
        .arguments(["node", "--node", "n1", "--sb-address", &southbound, "--metrics-bind-address", "off"])
        .arguments(["--cni-shim", "/opt/ovnkube/ovn-k8s-cni-overlay", "--cni-bin-dir", "/opt/cni/bin"])
        .arguments(networks(Family::V4))
        .ready_when_logged("CNI server listening");
    site.cluster.lab.run(&program).unwrap();
}

fn stop(site: &Site, name: &str) {
    assert!(site.cluster.lab.terminate(name, TIMEOUT).unwrap().success());
}

fn contains(error: &Value, words: [&str; 2]) {
    for word in words {
        assert!(error.to_string().contains(word), "{word:?} is not in {error}");
    }
}

#[test]
fn the_agent_needs_each_of_its_capabilities_and_no_other() {
    let site = Site::start("capabilities", 1, Family::V4);
    std::fs::copy(env!("CARGO_BIN_EXE_ovnkube"), site.path(1, AGENT)).unwrap();
    let all = capabilities();
    assert_eq!(all, ["net_admin", "sys_admin", "dac_override"]);
    // With all of them, pods are connected.
    run(&site, "agent-all", &all.iter().collect::<Vec<_>>());
    let (one, two) = (site.sandbox("one", 1), site.sandbox("two", 1));
    one.add();
    one.reaches(addresses(&two.add())[0]);
    one.delete();
    two.delete();
    stop(&site, "agent-all");

    let without = |missing: &str| {
        let name = format!("agent-without-{}", missing.replace('_', "-"));
        run(&site, &name, &all.iter().filter(|capability| *capability != missing).collect::<Vec<_>>());
        name
    };
    // setns into a pod's network namespace.
    let agent = without("sys_admin");
    contains(&one.ask("ADD").unwrap_err(), ["cannot enter the network namespace", "Operation not permitted"]);
    stop(&site, &agent);
    // Links, addresses, routes and nftables rules.
    let agent = without("net_admin");
    contains(&one.ask("ADD").unwrap_err(), ["cannot", "Operation not permitted"]);
    stop(&site, &agent);
    // Sockets of an Open vSwitch that runs as another user, as in OpenShift.
    let chown = |user: &str| {
        site.machine(1)
            .run(&[
                "sh",
                "-c",
                &format!("chown {user} /run/openvswitch/db.sock && chmod 0600 /run/openvswitch/db.sock"),
            ])
            .unwrap();
    };
    chown("1234");
    let agent = without("dac_override");
    let error = until("the agent reports it", || {
        request(&site, 1, "STATUS", &json!({})).err().filter(|error| error.to_string().contains("Permission denied"))
    });
    contains(&error, ["db.sock", "Permission denied"]);
    stop(&site, &agent);
    run(&site, "agent-of-another-user", &all.iter().collect::<Vec<_>>());
    one.add();
    one.delete();
    stop(&site, "agent-of-another-user");
    chown("0");
    site.assert_empty(1);
}
