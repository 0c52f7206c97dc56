//! Policies stay in effect: despite slow writes, invalid updates, terminating namespaces and restarts. A prober measures.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::api_proxy::{ApiProxy, Etcd};
use crate::cluster::{Cluster, ClusterSpec, TIMEOUT, node, until};
use crate::guarded::{GuardedNamespace, guard, remove, wait_policy};
use crate::nb_states::{Observer, dangling, mark, outside_their_groups, rows, sequence};
use crate::pod_mesh::{DUAL_STACK, labelled_pod, policy, two_nodes};
use crate::rows::text;
use crate::webhook::Webhook;

/// Replaces a policy's spec in etcd, without the API server's validation.
pub(crate) fn put_unchecked(cluster: &Cluster, namespace: &str, name: &str, spec: &Value) {
    let mut object = cluster.get(&["networkpolicy", "-n", namespace, name]);
    object["spec"] = spec.clone();
    object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    Etcd::of(cluster).put(&format!("/registry/networkpolicies/{namespace}/{name}"), &object);
}

/// How many ports the group of a selector has; 0 without a group.
fn ports_of(cluster: &Cluster, words: &str) -> usize {
    let ports = cluster.value("Port_Group", &topology::selector::group_name(words), "ports").unwrap_or_default();
    ports.split_whitespace().count()
}

/// Policies of different shapes for a namespace; they differ in every round.
fn shapes(namespace: &str, round: usize) -> Vec<Value> {
    let peer = |label: &str| json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": label}}});
    let app = |app: usize| json!({"podSelector": {"matchLabels": {"app": format!("app-{}", app % 3)}}});
    let specs = [
        json!({"podSelector": {}}),
        json!({"podSelector": {}, "ingress": [{"from": [app(round), peer("blue")], "ports": [{"port": "http"}]}]}),
        json!({"podSelector": {"matchLabels": {"app": format!("app-{}", round % 3)}}, "policyTypes": ["Egress"],
            "egress": [{"to": [app(round + 1), peer("red")]}, {"ports": [{"port": "http"}]}]}),
    ];
    let name = |number| format!("shape-{number}");
    specs.iter().enumerate().map(|(number, spec)| policy(namespace, &name(number), spec)).collect()
}

/// Lesson 1 (hypershift#8662): after a rollout of the API server, ACLs were written before the groups that they name.
///
/// Every committed state is checked while policies, pods and namespaces change: no ACL names a missing set or group, and
/// no pod's port is missing from the group that isolates its namespace.
///
/// Shown to fail with one object per transaction and ACLs before the address sets that they name:
/// "ACL … names $a…, which is not there".
#[test]
fn no_acl_ever_names_a_missing_set_or_group() {
    let cluster = ClusterSpec::new("named").start();
    let observer = Observer::start(&cluster);
    cluster.lead("c1");
    for node in 1..=2 {
        cluster.add_node(node);
    }
    for round in 0..4 {
        cluster.apply_all(&[
            crate::pod_mesh::namespace("blue", &json!({})),
            crate::pod_mesh::namespace("red", &json!({})),
        ]);
        let pods = |namespace: &'static str| {
            (0..6).map(move |number| {
                let port = 8080 + (round + number) % 3;
                let (name, app) = (format!("{namespace}-{number}"), format!("app-{}", number % 3));
                let ports = json!([{"name": "http", "containerPort": port}]);
                labelled_pod(namespace, &name, &format!("n{}", number % 2 + 1), &json!({"app": app}), &ports)
            })
        };
        let policies = [shapes("blue", round), shapes("red", round + 1)].concat();
        // Pods before policies and policies before pods, alternately.
        let pods: Vec<Value> = pods("blue").chain(pods("red")).collect();
        let all = if round % 2 == 0 { [pods, policies].concat() } else { [policies, pods].concat() };
        cluster.apply_all(&all);
        cluster.interrupt(if matches!(round, 0 | 2) { "kube-apiserver" } else { "c1" });
        cluster.apply_all(&[shapes("blue", round + 2), shapes("red", round + 3)].concat());
        wait_acls(&cluster, "blue/shape-2");
        wait_acls(&cluster, "red/shape-2");
        cluster.lab.kubectl(&["delete", "pods", "-n", "red", "--all", "--wait=false"]).unwrap();
        cluster.lab.kubectl(&["delete", "namespace", "blue", "--wait=false"]).unwrap();
        cluster.lab.kubectl(&["delete", "networkpolicies", "-n", "red", "--all"]).unwrap();
        is_gone(&cluster, &["namespace", "blue"]);
    }
    until("no ACL of the policies is left", || {
        let left = cluster.raw("ACL").iter().any(|row| text(&row["external_ids"]).contains("shape-"));
        (!left).then_some(())
    });
    let (mut most, mut commits) = (0, BTreeSet::new());
    let seen = observer.take();
    for changes in &seen {
        let wrong = [dangling(&changes.snapshot), outside_their_groups(&changes.snapshot)].concat();
        assert!(wrong.is_empty(), "after {:?}: {wrong:#?}", sequence(&changes.snapshot));
        let rules = rows(&changes.snapshot, "ACL").filter(|row| mark(*row, "field").is_some());
        most = most.max(rules.count());
        commits.extend(sequence(&changes.snapshot));
    }
    println!("{} states, {} commits, up to {most} ACLs of policies", seen.len(), commits.len());
    assert!(most > 10 && commits.len() > 40, "{} commits, up to {most} ACLs", commits.len());
}

/// Lesson 16 (ovnk#3431): a slow webhook, called under a mutex, blocked all policies.
///
/// Shown to fail with transactions that wait for patches in flight: the slow patches timed out first.
#[test]
fn a_slow_webhook_delays_no_policy() {
    let cluster = ClusterSpec::new("slow-policy").start();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(cluster.lab.name());
    let webhook = Webhook::start(&cluster, &folder);
    cluster.lead("c1");
    cluster.create(&[node("n1")]);
    let pods = |prefix: &str, slow: &str, node: &str| -> Vec<Value> {
        let pod = |number| format!("{prefix}-{number}");
        let labels = json!({"app": prefix, "slow": slow});
        (1..=40).map(|number| labelled_pod("default", &pod(number), node, &labels, &json!([]))).collect()
    };
    // The quick pods wait for a node that does not exist yet: a hanging call times out after 15 s, so little must happen
    // until then.
    cluster.create(&pods("quick", "false", "n2"));
    cluster.create(&pods("slow", "true", "n1"));
    until("calls hang at the webhook", || (webhook.waiting() >= 32).then_some(()));
    // Policies for pods whose patches hang, and for others.
    let of = |app: &str| json!({"podSelector": {"matchLabels": {"app": app}}, "ingress": [{"ports": [{"port": 80}]}]});
    cluster.apply_all(&[policy("default", "slow", &of("slow")), policy("default", "quick", &of("quick"))]);
    cluster.create(&[node("n2")]);
    for app in ["slow", "quick"] {
        wait_acls(&cluster, &format!("default/{app}"));
        let words = format!("ports in namespace default; pods app={app}");
        until(&format!("all pods of {app} are isolated"), || (ports_of(&cluster, &words) == 40).then_some(()));
    }
    cluster.apply(&policy("default", "slow", &json!({"podSelector": {"matchLabels": {"app": "slow"}}})));
    until("a policy change is written", || {
        (cluster.raw("ACL").iter().filter(|row| of_policy(row, "default/slow")).count() == 2).then_some(())
    });
    assert_eq!(webhook.answered(), 0, "the webhook answered before the policies were written");
    let log = cluster.lab.log("c1").unwrap();
    assert!(
        !log.contains(controller::messages::API_WRITE_FAILED),
        "a slow patch timed out before the policies were written"
    );
    webhook.open();
    std::fs::remove_dir_all(folder).unwrap();
}

/// Whether an ACL belongs to a policy.
pub(crate) fn of_policy(row: &serde_json::Map<String, Value>, name: &str) -> bool {
    text(&row["external_ids"]).split(' ').any(|mark| mark == format!("k8s.ovn.org/name={name}"))
}

fn wait_acls(cluster: &Cluster, name: &str) {
    until(&format!("{name} has rules"), || cluster.raw("ACL").iter().any(|row| of_policy(row, name)).then_some(()));
}

/// Lesson 22 (openshift/ovn-kubernetes#3144): an invalid update deleted the old rules first: it failed open.
///
/// The API server rejects such updates, so they are written to etcd directly. Shown to fail with a policy that keeps
/// nothing of its last valid version: friends were denied.
#[test]
fn an_invalid_update_keeps_the_last_valid_acls() {
    let mut guarded = GuardedNamespace::on(two_nodes("invalid"));
    let good = guarded.cluster.all_rows();
    let everybody = |ports: &Value| json!({"podSelector": {}, "ingress": [{"ports": ports}], "egress": [{}]});
    for (what, spec, field) in [
        ("a port", everybody(&json!([{"port": 80000}])), "spec.ingress[0].ports[0].port: 80000"),
        (
            "an exception",
            json!({"podSelector": {}, "ingress": [{"from": [
                {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/8"]}}]}], "egress": [{}]}),
            "spec.ingress[0].from[0].ipBlock.except[0]",
        ),
    ] {
        guarded.during(what, |GuardedNamespace { cluster, .. }| {
            put_unchecked(cluster, "shop", "guard", &spec);
            cluster.event_in("shop", "guard", "InvalidPolicy", &[field, "stays in effect"]);
        });
        assert_eq!(guarded.cluster.all_rows(), good, "{what}");
    }
    // The last valid version is in the database, so a restarted controller finds it.
    guarded.during("a restart over an invalid policy", |GuardedNamespace { cluster, .. }| {
        cluster.stop("c1");
        cluster.lab.restart("c1").unwrap();
        let later = json!({"podSelector": {"matchLabels": {"app": "nobody"}}});
        cluster.apply(&policy("yard", "later", &later));
        wait_policy(cluster, "yard/later", true);
        remove(cluster, &["networkpolicy", "-n", "yard", "later"]);
        wait_policy(cluster, "yard/later", false);
    });
    assert_eq!(guarded.cluster.all_rows(), good, "a restart over an invalid policy");
    // A valid update takes effect.
    guarded.cluster.apply(&policy("shop", "guard", &json!({"podSelector": {}, "ingress": [{}], "egress": [{}]})));
    guarded.prober.wait_open(&guarded.forbidden);
}

/// Keeps a pod in termination with a finalizer.
fn add_finalizer(cluster: &Cluster, name: &str) {
    let finalizers = r#"{"metadata":{"finalizers":["ovnkube.test/hold"]}}"#;
    cluster.lab.kubectl(&["patch", "pod", "-n", "shop", name, "-p", finalizers]).unwrap();
}

fn remove_finalizer(cluster: &Cluster, name: &str) {
    let nothing = r#"{"metadata":{"finalizers":null}}"#;
    cluster.lab.kubectl(&["patch", "pod", "-n", "shop", name, "--type=merge", "-p", nothing]).unwrap();
}

fn is_gone(cluster: &Cluster, what: &[&str]) {
    until(&format!("{what:?} is gone"), || {
        let found = cluster.lab.kubectl(&[&["get", "--ignore-not-found", "-o", "name"], what].concat()).ok()?;
        found.is_empty().then_some(())
    });
}

/// Waits until the controller has seen the policies' deletion: a policy created later has ACLs.
fn wait_policies_seen(cluster: &Cluster, name: &str) {
    cluster.apply(&policy("yard", name, &json!({"podSelector": {"matchLabels": {"app": "nobody"}}})));
    wait_policy(cluster, &format!("yard/{name}"), true);
}

/// The last pod is deleted: it stays isolated until its port is gone, then the ACLs are removed.
///
/// On a real node the pod has no interface by then. Here it keeps one, and while Open vSwitch revalidates its cached flows
/// one by one, half of a path may be new while the other half is old. So only datagrams sent before the port was gone
/// count, and the final state.
fn check_last_pod(guarded: &GuardedNamespace) {
    let begin = guarded.prober.now();
    remove_finalizer(&guarded.cluster, "web");
    let mut end = begin.clone();
    until("the port is gone", || {
        let moment = guarded.prober.now();
        let port =
            guarded.cluster.lab.nbctl(&["--bare", "--columns=name", "find", "Logical_Switch_Port", "name=shop_web"]);
        if port.ok()?.trim().is_empty() {
            return Some(());
        }
        end = moment;
        None
    });
    guarded.prober.assert_nothing_passed_before("the last pod is deleted", &guarded.forbidden, &begin, &end);
    is_gone(&guarded.cluster, &["namespace", "shop"]);
    wait_policy(&guarded.cluster, "shop/guard", false);
    guarded.prober.wait_closed(&guarded.forbidden);
}

/// Lesson 23 (CVE-2024-7598): policies were removed before pods when their namespace was deleted.
///
/// Kubernetes deletes pods first since 1.33; the test deletes in the old order. Shown to fail with ACLs that are removed
/// with their policy: 266 of 3,848 datagrams of a stranger passed.
#[test]
fn policies_of_a_terminating_namespace_stay_until_its_last_port_is_gone() {
    let guarded = GuardedNamespace::on(two_nodes("ending"));
    let cluster = &guarded.cluster;
    let load = |number| labelled_pod("shop", &format!("load-{number}"), "n2", &json!({}), &json!([]));
    cluster.apply_all(&(1..=60).map(load).collect::<Vec<_>>());
    add_finalizer(cluster, "web");
    cluster.lab.kubectl(&["delete", "namespace", "shop", "--wait=false"]).unwrap();
    remove(cluster, &["networkpolicy", "-n", "shop", "guard"]);
    wait_policies_seen(cluster, "later");
    guarded.prober.assert_nothing_passed("its policy is deleted", &guarded.forbidden, &guarded.since);
    is_gone(cluster, &["pods", "-n", "shop", "-l", "app!=web"]);
    cluster.stop("c1");
    cluster.lab.restart("c1").unwrap();
    wait_policies_seen(cluster, "after");
    guarded.prober.assert_nothing_passed("the controller restarts", &guarded.forbidden, &guarded.since);
    check_last_pod(&guarded);
}

/// The controller sees the policy's deletion before the namespace's.
///
/// Shown to fail without the namespace check: 377 of 1,557 datagrams passed.
#[test]
fn policies_stay_if_their_deletion_is_seen_before_the_namespaces() {
    let mut spec = ClusterSpec::new("order").nodes(2);
    spec.family = lab::Family::Dual;
    let cluster = spec.arguments(&DUAL_STACK).start();
    let proxy = ApiProxy::start(&cluster, "/api/v1/namespaces?watch=1");
    cluster.controller_with("c1", &["--kubeconfig", proxy.kubeconfig.to_str().unwrap()]);
    cluster.wait_leader("c1");
    for node in 1..=2 {
        cluster.add_node(node);
    }
    let guarded = GuardedNamespace::on(cluster);
    let cluster = &guarded.cluster;
    add_finalizer(cluster, "web");
    proxy.hold();
    cluster.lab.kubectl(&["delete", "namespace", "shop", "--wait=false"]).unwrap();
    remove(cluster, &["networkpolicy", "-n", "shop", "guard"]);
    wait_policies_seen(cluster, "later");
    guarded.prober.assert_nothing_passed("its policy is deleted", &guarded.forbidden, &guarded.since);
    proxy.release();
    guarded.prober.assert_nothing_passed("the namespace's deletion is seen", &guarded.forbidden, &guarded.since);
    check_last_pod(&guarded);
}

/// Lesson 26: a restart over an unchanged cluster emptied the default-deny groups before it filled them again.
///
/// Shown to fail with such a restart, one object per transaction: 150 of 4,085 datagrams passed.
#[test]
fn a_restart_writes_only_its_sequence_value_and_leaks_nothing() {
    let mut guarded = GuardedNamespace::on(two_nodes("restart"));
    guarded.cluster.apply(&guard("second", &json!([{"namespaceSelector": {"matchLabels": {"team": "green"}}}])));
    wait_policy(&guarded.cluster, "shop/second", true);
    let before = guarded.cluster.all_rows();
    let observer = Observer::start(&guarded.cluster);
    observer.take();
    for round in 1..=3 {
        guarded.during("a restart", |GuardedNamespace { cluster, .. }| {
            let led = cluster.lab.log("c1").unwrap().matches("\"started leading\"").count();
            if round == 2 {
                cluster.lab.kill("c1").unwrap();
            } else {
                assert!(cluster.lab.terminate("c1", TIMEOUT).unwrap().success());
            }
            cluster.lab.restart("c1").unwrap();
            until("it leads again", || {
                (cluster.lab.log("c1").unwrap().matches("\"started leading\"").count() > led).then_some(())
            });
            until("the resync is complete", || {
                (cluster.metric("ovnkube_controller_sync_duration_seconds_count") >= 1.0).then_some(())
            });
        });
    }
    for changes in observer.take() {
        for change in &changes.changes {
            let table = &changes.snapshot.table_at(change.table).unwrap().schema().name;
            assert_eq!(table, "NB_Global", "{change:?}");
        }
    }
    assert_eq!(guarded.cluster.all_rows(), before);
}
