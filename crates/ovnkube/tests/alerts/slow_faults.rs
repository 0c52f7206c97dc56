//! Faults that last a minute or longer: their alerts compare with seconds of the real clock, which is not compressed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::coverage::SLOW;
use crate::testbed::{Testbed, WORKER};

const MASTERS: [&str; 3] = ["n1", "n2", "n3"];

/// Its name, and what creates it, waits for its alerts and ends it.
type Fault = (&'static str, fn(&Testbed));

#[test]
#[ignore = "takes about ten minutes: make test-alerts"]
fn alerts_of_slow_faults_fire_and_resolve() {
    let bed = Testbed::start("slow-alerts");
    let faults: [Fault; 8] = [
        ("hung ovn-controller", hung_ovn_controller),
        ("slow northbound database", slow_northbound_database),
        ("forbidden writes", forbidden_writes),
        ("hung ovn-northd", hung_northd),
        ("full disk", full_disk),
        ("exhausted subnets", exhausted_subnets),
        ("forbidden requests of certificates", forbidden_certificates),
        // The last one: the others need the API server.
        ("hung API server", hung_api_server),
    ];
    // A fault whose alert fails must not hide the others: this takes too long to be repeated for each.
    let failed = |(_, fault): &&Fault| catch_unwind(AssertUnwindSafe(|| fault(&bed))).is_err();
    let failed: Vec<&str> = faults.iter().filter(failed).map(|(name, _)| *name).collect();
    assert_eq!(failed, Vec::<&str>::new(), "see the messages above");
    bed.assert_complete(SLOW);
}

fn signal_ovn_controller(bed: &Testbed, signal: &str) {
    bed.on(WORKER, &format!("kill -{signal} $(cat /run/ovn/ovn-controller.pid)"));
}

/// A pod that is created meanwhile waits for its flows, and its node acknowledges the change late.
fn hung_ovn_controller(bed: &Testbed) {
    let alerts = ["OvnkubePodsAreWiredSlowly", "OvnkubeSlowPropagation", "OvnkubeSlowPropagationLasting"];
    signal_ovn_controller(bed, "STOP");
    bed.create_pod("late", WORKER);
    bed.fires(&["OvnkubeNodeNetworkNotReady"]);
    signal_ovn_controller(bed, "CONT");
    bed.fires(&alerts);
    bed.resolves(&["OvnkubeNodeNetworkNotReady"]);
    bed.resolves(&alerts);
    bed.delete_pods();
}

/// All servers of the northbound database stop for longer than a pod should wait for its address.
fn slow_northbound_database(bed: &Testbed) {
    let alerts = ["OvnkubeSlowPodCreation"];
    let signal = |signal: &str| {
        format!(
            "for it in $(pgrep -x ovsdb-server); do if grep -q ovnnb_db /proc/$it/cmdline; then kill -{signal} $it; fi; done"
        )
    };
    let pause = format!("{}; sleep 8; {}", signal("STOP"), signal("CONT"));
    for number in 0..3 {
        let machines = MASTERS.map(|node| bed.lab.machine(node).unwrap());
        std::thread::scope(|scope| {
            for machine in &machines {
                scope.spawn(|| machine.run(&["sh", "-c", &pause]).unwrap());
            }
            bed.create_pod(&format!("slow-{number}"), WORKER);
        });
    }
    bed.fires(&alerts);
    bed.delete_pods();
    bed.resolves(&alerts);
}

/// The controller may not write annotations any more, so pods get no addresses; with a short time limit, the runtime's requests
/// fail within seconds.
fn forbidden_writes(bed: &Testbed) {
    let alerts = ["OvnkubeApiWritesFail", "OvnkubePodsAreNotWired"];
    let limit = |change: &str| {
        let set = ["-n", "ovn-kubernetes", "set", "env", "daemonset/ovnkube", "-c", "ovnkube-node", change];
        bed.lab.kubectl(&set).unwrap();
        rollout(bed, "daemonset/ovnkube");
    };
    limit("OVNKUBE_CNI_ADD_TIMEOUT=1");
    let role = include_str!("../../../../deploy/controller/rbac.yaml");
    let narrowed = role.replace("[nodes/status, pods/status]", "[nodes/status]");
    assert_ne!(role, narrowed);
    bed.lab.apply(&narrowed).unwrap();
    for number in 0..8 {
        bed.create_pod(&format!("unwritten-{number}"), WORKER);
    }
    bed.fires(&alerts);
    bed.lab.apply(role).unwrap();
    bed.delete_pods();
    bed.resolves(&alerts);
    limit("OVNKUBE_CNI_ADD_TIMEOUT-");
}

/// ovn-northd hangs, and so does each that its controller starts instead: nothing reaches the nodes, and released addresses
/// stay quarantined.
fn hung_northd(bed: &Testbed) {
    let alerts = ["OvnkubeNorthdStuck", "OvnkubeNodeDoesNotAnswer", "OvnkubeQuarantineStuck"];
    for number in 0..4 {
        bed.create_pod(&format!("released-{number}"), WORKER);
    }
    let wait = ["-n", "shop", "wait", "--for=condition=Ready", "pods", "-l", "app=extra", "--timeout=100s"];
    bed.lab.kubectl(&wait).unwrap();
    let stop = "while [ ! -e /run/test-over ]; do for it in $(pgrep -x ovn-northd); do kill -STOP $it; done; sleep 0.2; done; \
                for it in $(pgrep -x ovn-northd); do kill -CONT $it; done";
    for node in MASTERS {
        bed.on(node, &format!("rm -f /run/test-over; ({stop}) >/dev/null 2>&1 &"));
    }
    bed.delete_pods();
    bed.fires(&alerts);
    for node in MASTERS {
        bed.on(node, "touch /run/test-over");
    }
    bed.resolves(&alerts);
}

/// Its clients were allowed before, so the metrics can still be read.
fn hung_api_server(bed: &Testbed) {
    let paused = bed.lab.pause("kube-apiserver").unwrap();
    bed.fires(&["OvnkubeLeaseNotRenewed"]);
    paused.resume().unwrap();
    bed.resolves(&["OvnkubeLeaseNotRenewed"]);
}

/// A member gets a small, empty volume, joins again as a new server, and other files fill the volume.
fn full_disk(bed: &Testbed) {
    let pod = bed.pod("ovn-kubernetes", "ovnkube-db", "n3");
    let disk = bed.lab.small_disk("n3", "/var/lib/ovn", 300).unwrap();
    // Not the copies: a server must not continue with an old state of its log.
    bed.on("n3", "rm -f /var/lib/ovn/*.db /var/lib/ovn/.*.lock");
    bed.lab.kubectl(&["-n", "ovn-kubernetes", "delete", &pod]).unwrap();
    rollout(bed, "daemonset/ovnkube-db");
    bed.on("n3", "fallocate -l 270M /var/lib/ovn/other-files");
    bed.fires(&["OvnkubeDatabaseDiskAlmostFull"]);
    bed.on("n3", "rm /var/lib/ovn/other-files");
    assert!(disk.free().unwrap() > 0);
    bed.resolves(&["OvnkubeDatabaseDiskAlmostFull"]);
}

/// Networks with a subnet for each of the four nodes and no more.
fn exhausted_subnets(bed: &Testbed) {
    let set = ["-n", "ovn-kubernetes", "set", "env", "daemonset/ovnkube-master", "-c", "ovnkube-controller"];
    bed.lab.kubectl(&[&set[..], &["OVNKUBE_DEFAULT_CLUSTER_SUBNETS=10.128.0.0/21/23"]].concat()).unwrap();
    rollout(bed, "daemonset/ovnkube-master");
    bed.fires(&["OvnkubeSubnetsNearlyExhausted"]);
    bed.lab.kubectl(&[&set[..], &["OVNKUBE_DEFAULT_CLUSTER_SUBNETS=10.128.0.0/14/23"]].concat()).unwrap();
    rollout(bed, "daemonset/ovnkube-master");
    bed.resolves(&["OvnkubeSubnetsNearlyExhausted"]);
}

/// The worker has a certificate of four minutes, and may not request another one. The node has no fault then: it gets a usual
/// certificate again.
fn forbidden_certificates(bed: &Testbed) {
    let alerts = ["OvnkubeNodeCertificateFailing", "OvnkubeNodeCertificateNotRenewed"];
    let lifetimes = |data: serde_json::Value| {
        let patch = serde_json::json!({ "data": data }).to_string();
        bed.lab
            .kubectl(&["-n", "ovn-kubernetes", "patch", "configmap", "ovn-config", "--type=merge", "-p", &patch])
            .unwrap();
        bed.lab.kubectl(&["-n", "ovn-kubernetes", "rollout", "restart", "daemonset/ovnkube-pki"]).unwrap();
        rollout(bed, "daemonset/ovnkube-pki");
    };
    let renew = || bed.on(WORKER, "rm /var/lib/ovn-kubernetes/pki/current");
    let left = "min(ovnkube_node_certificate_expiry_timestamp_seconds > 0) - time()";
    lifetimes(
        serde_json::json!({"pki_leaf_lifetime": "4m", "pki_leaf_renew_after": "2m", "pki_distribution_delay": "10s"}),
    );
    renew();
    bed.until("the certificate is a short one", || bed.query(left).is_some_and(|left| left < 300.0));
    let role = include_str!("../../../../deploy/ovnkube/rbac.yaml");
    let right = "resources: [certificatesigningrequests]\n    verbs: ";
    let narrowed = role.replace(&format!("{right}[create, get]"), &format!("{right}[get]"));
    assert_ne!(role, narrowed);
    bed.lab.apply(&narrowed).unwrap();
    bed.fires(&alerts);
    bed.lab.apply(role).unwrap();
    bed.resolves(&alerts);
    lifetimes(
        serde_json::json!({"pki_leaf_lifetime": null, "pki_leaf_renew_after": null, "pki_distribution_delay": null}),
    );
    renew();
    bed.until("the certificate is a usual one", || bed.query(left).is_some_and(|left| left > 86400.0));
}

fn rollout(bed: &Testbed, workload: &str) {
    let status = ["kubectl", "-n", "ovn-kubernetes", "rollout", "status", workload, "--timeout=280s"];
    bed.lab.machine("control").unwrap().run_within(Duration::from_secs(290), &status).unwrap();
}
