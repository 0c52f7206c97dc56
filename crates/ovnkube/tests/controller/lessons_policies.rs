//! What has broken policies of systems like this one: rules kept waiting by something slow, lost by a wrong update, gone
//! before the pods that they were about, and emptied by a restart. A prober watches.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::api_door::{ApiDoor, Etcd};
use crate::cluster::{Cluster, PATIENCE, Wish, node, until};
use crate::crowd::{DUAL_STACK, labelled_pod, policy, two_nodes};
use crate::guarded::{Watch, guard, remove, stands};
use crate::rows::text;
use crate::states::{Observer, dangling, mark, outside_their_groups, rows, sequence};
use crate::webhook::Webhook;

/// Replaces the specification of a policy behind the API server's back.
pub(crate) fn put_unchecked(cluster: &Cluster, namespace: &str, name: &str, spec: &Value) {
    let mut object = cluster.get(&["networkpolicy", "-n", namespace, name]);
    object["spec"] = spec.clone();
    object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    Etcd::of(cluster).put(&format!("/registry/networkpolicies/{namespace}/{name}"), &object);
}

/// How many ports are in the group of a selector, once it is there.
fn ports_of(cluster: &Cluster, words: &str) -> usize {
    let ports = cluster.value("Port_Group", &topology::selector::group_name(words), "ports").unwrap_or_default();
    ports.split_whitespace().count()
}

/// Policies of all shapes about a namespace; others in every round.
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

/// Lesson 1 (hypershift#8662: after a rollout of the API server, rules were written before the groups that they name).
///
/// Every state of the database is looked at while policies, pods and namespaces come, change and go: no rule names what is
/// not there, and no port of a pod is there outside the group that closes its namespace.
///
/// Seen to fail with one object a transaction, sets of addresses behind the rules that name them, and rules that do not
/// wait for them: "ACL … names $a…, which is not there".
#[test]
fn lesson_1_no_rule_ever_names_what_is_not_there() {
    let cluster = Wish::new("named").start();
    let observer = Observer::start(&cluster);
    cluster.lead("c1");
    for node in 1..=2 {
        cluster.add_node(node);
    }
    for round in 0..4 {
        cluster.apply_all(&[crate::crowd::namespace("blue", &json!({})), crate::crowd::namespace("red", &json!({}))]);
        let pods = |namespace: &'static str| {
            (0..6).map(move |number| {
                let port = 8080 + (round + number) % 3;
                let (name, app) = (format!("{namespace}-{number}"), format!("app-{}", number % 3));
                let ports = json!([{"name": "http", "containerPort": port}]);
                labelled_pod(namespace, &name, &format!("n{}", number % 2 + 1), &json!({"app": app}), &ports)
            })
        };
        let policies = [shapes("blue", round), shapes("red", round + 1)].concat();
        // Who comes first, those whom a rule is about or the rule, is another one in every round.
        let pods: Vec<Value> = pods("blue").chain(pods("red")).collect();
        let all = if round % 2 == 0 { [pods, policies].concat() } else { [policies, pods].concat() };
        cluster.apply_all(&all);
        cluster.interrupt(if matches!(round, 0 | 2) { "kube-apiserver" } else { "c1" });
        cluster.apply_all(&[shapes("blue", round + 2), shapes("red", round + 3)].concat());
        stands_in_the_database(&cluster, "blue/shape-2");
        stands_in_the_database(&cluster, "red/shape-2");
        cluster.lab.kubectl(&["delete", "pods", "-n", "red", "--all", "--wait=false"]).unwrap();
        cluster.lab.kubectl(&["delete", "namespace", "blue", "--wait=false"]).unwrap();
        cluster.lab.kubectl(&["delete", "networkpolicies", "-n", "red", "--all"]).unwrap();
        is_gone(&cluster, &["namespace", "blue"]);
    }
    until("nothing is left of the policies", || {
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
    println!("{} states, {} commits, up to {most} rules of policies", seen.len(), commits.len());
    assert!(most > 10 && commits.len() > 40, "{} commits, up to {most} rules", commits.len());
}

/// Lesson 16 (ovnk#3431): a slow webhook, called under a mutex, blocked the policies of everybody.
///
/// Seen to fail with transactions that wait for the patches that are under way: the slow ones were given up first.
#[test]
fn lesson_16_a_slow_webhook_delays_no_policy() {
    let cluster = Wish::new("slow-policy").start();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(cluster.lab.name());
    let webhook = Webhook::start(&cluster, &folder);
    cluster.lead("c1");
    cluster.create(&[node("n1")]);
    let pods = |prefix: &str, slow: &str, node: &str| -> Vec<Value> {
        let pod = |number| format!("{prefix}-{number}");
        let labels = json!({"app": prefix, "slow": slow});
        (1..=40).map(|number| labelled_pod("default", &pod(number), node, &labels, &json!([]))).collect()
    };
    // The quick ones are there before, for a node that is not: a call that hangs is given up after 15 seconds, and until then
    // there is little to be done.
    cluster.create(&pods("quick", "false", "n2"));
    cluster.create(&pods("slow", "true", "n1"));
    until("calls hang at the webhook", || (webhook.waiting() >= 32).then_some(()));
    // Policies about those who hang, about others, and about who comes later.
    let of = |app: &str| json!({"podSelector": {"matchLabels": {"app": app}}, "ingress": [{"ports": [{"port": 80}]}]});
    cluster.apply_all(&[policy("default", "slow", &of("slow")), policy("default", "quick", &of("quick"))]);
    cluster.create(&[node("n2")]);
    for app in ["slow", "quick"] {
        stands_in_the_database(&cluster, &format!("default/{app}"));
        let words = format!("ports in namespace default; pods app={app}");
        until(&format!("all of {app} are closed"), || (ports_of(&cluster, &words) == 40).then_some(()));
    }
    cluster.apply(&policy("default", "slow", &json!({"podSelector": {"matchLabels": {"app": "slow"}}})));
    until("a change of a policy comes", || {
        (cluster.raw("ACL").iter().filter(|row| of_policy(row, "default/slow")).count() == 2).then_some(())
    });
    assert_eq!(webhook.answered(), 0, "the webhook let a slow one go before the policies were there");
    let log = cluster.lab.log("c1").unwrap();
    assert!(!log.contains("could not be written"), "a slow one was given up before the policies were there");
    webhook.open();
    std::fs::remove_dir_all(folder).unwrap();
}

/// Whether a rule is a policy's.
pub(crate) fn of_policy(row: &serde_json::Map<String, Value>, name: &str) -> bool {
    text(&row["external_ids"]).split(' ').any(|mark| mark == format!("k8s.ovn.org/name={name}"))
}

fn stands_in_the_database(cluster: &Cluster, name: &str) {
    until(&format!("{name} has rules"), || cluster.raw("ACL").iter().any(|row| of_policy(row, name)).then_some(()));
}

/// Lesson 22 (openshift/ovn-kubernetes#3144): an invalid update deleted the old rules first.
///
/// The API server refuses such updates, so they are put into etcd behind its back. Seen to fail with a policy that keeps
/// nothing of what it said before: friends did not come in any more.
#[test]
fn lesson_22_an_invalid_update_keeps_the_last_good_rules() {
    let mut watch = Watch::on(two_nodes("invalid"));
    let good = watch.cluster.whole();
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
        watch.over(what, |cluster| {
            put_unchecked(cluster, "shop", "guard", &spec);
            cluster.event_in("shop", "guard", "InvalidPolicy", &[field, "stays in force"]);
        });
        assert_eq!(watch.cluster.whole(), good, "{what}");
    }
    // The database is where the last good state lives, also for one who starts now.
    watch.over("a restart over an invalid policy", |cluster| {
        cluster.stop("c1");
        cluster.lab.restart("c1").unwrap();
        let later = json!({"podSelector": {"matchLabels": {"app": "nobody"}}});
        cluster.apply(&policy("yard", "later", &later));
        stands(cluster, "yard/later", true);
        remove(cluster, &["networkpolicy", "-n", "yard", "later"]);
        stands(cluster, "yard/later", false);
    });
    assert_eq!(watch.cluster.whole(), good, "a restart over an invalid policy");
    // When it is good again, it is in force again.
    watch.cluster.apply(&policy("shop", "guard", &json!({"podSelector": {}, "ingress": [{}], "egress": [{}]})));
    watch.prober.open(&watch.forbidden);
}

/// A pod that stays until it is let go, as one that takes its time to end.
fn hold(cluster: &Cluster, name: &str) {
    let finalizers = r#"{"metadata":{"finalizers":["ovnkube.test/hold"]}}"#;
    cluster.lab.kubectl(&["patch", "pod", "-n", "shop", name, "-p", finalizers]).unwrap();
}

fn let_go(cluster: &Cluster, name: &str) {
    let nothing = r#"{"metadata":{"finalizers":null}}"#;
    cluster.lab.kubectl(&["patch", "pod", "-n", "shop", name, "--type=merge", "-p", nothing]).unwrap();
}

fn is_gone(cluster: &Cluster, what: &[&str]) {
    until(&format!("{what:?} is gone"), || {
        let found = cluster.lab.kubectl(&[&["get", "--ignore-not-found", "-o", "name"], what].concat()).ok()?;
        found.is_empty().then_some(())
    });
}

/// The policies' deletion has been seen: another one, made later, has its rules.
fn policies_are_seen(cluster: &Cluster, name: &str) {
    cluster.apply(&policy("yard", name, &json!({"podSelector": {"matchLabels": {"app": "nobody"}}})));
    stands(cluster, &format!("yard/{name}"), true);
}

/// The last pod goes: until its port is gone it is closed, and then the rules go too.
///
/// A pod of a real node has lost its interface by then. This one keeps it, and for the few milliseconds in which Open vSwitch
/// looks at its cached flows one by one, the second half of a way may be new while the first is old. So what was sent before
/// the port was gone counts, and that it ends closed.
fn ends_closed(watch: &Watch) {
    let begin = watch.prober.now();
    let_go(&watch.cluster, "web");
    let mut end = begin.clone();
    until("the port is gone", || {
        let moment = watch.prober.now();
        let port =
            watch.cluster.lab.nbctl(&["--bare", "--columns=name", "find", "Logical_Switch_Port", "name=shop_web"]);
        if port.ok()?.trim().is_empty() {
            return Some(());
        }
        end = moment;
        None
    });
    watch.prober.nothing_passed_before("the last pod goes", &watch.forbidden, &begin, &end);
    is_gone(&watch.cluster, &["namespace", "shop"]);
    stands(&watch.cluster, "shop/guard", false);
    watch.prober.closed(&watch.forbidden);
}

/// Lesson 23 (CVE-2024-7598): policies were removed before pods when their namespace was deleted.
///
/// Kubernetes itself deletes pods first since 1.33; what older ones did is done by hand. Seen to fail with rules that go
/// when their policy does: 266 of 3,848 datagrams of a stranger passed.
#[test]
fn lesson_23_isolation_stays_until_the_last_port_is_gone() {
    let watch = Watch::on(two_nodes("ending"));
    let cluster = &watch.cluster;
    let load = |number| labelled_pod("shop", &format!("load-{number}"), "n2", &json!({}), &json!([]));
    cluster.apply_all(&(1..=60).map(load).collect::<Vec<_>>());
    hold(cluster, "web");
    cluster.lab.kubectl(&["delete", "namespace", "shop", "--wait=false"]).unwrap();
    remove(cluster, &["networkpolicy", "-n", "shop", "guard"]);
    policies_are_seen(cluster, "later");
    watch.prober.nothing_passed("its policy is deleted", &watch.forbidden, &watch.since);
    is_gone(cluster, &["pods", "-n", "shop", "-l", "app!=web"]);
    cluster.stop("c1");
    cluster.lab.restart("c1").unwrap();
    policies_are_seen(cluster, "after");
    watch.prober.nothing_passed("a restart between", &watch.forbidden, &watch.since);
    ends_closed(&watch);
}

/// The same, with a controller that sees the policy go before it sees that the namespace ends.
///
/// Seen to fail without the question to the API whether the namespace lives: 377 of 1,557 datagrams passed.
#[test]
fn lesson_23_isolation_stays_also_when_the_policy_is_seen_to_go_first() {
    let mut wish = Wish::new("order").nodes(2);
    wish.family = lab::Family::Dual;
    let cluster = wish.arguments(&DUAL_STACK).start();
    let door = ApiDoor::open(&cluster, "/api/v1/namespaces?watch=1");
    cluster.controller_with("c1", &["--kubeconfig", door.kubeconfig.to_str().unwrap()]);
    cluster.wait_leader("c1");
    for node in 1..=2 {
        cluster.add_node(node);
    }
    let watch = Watch::on(cluster);
    let cluster = &watch.cluster;
    hold(cluster, "web");
    door.hold();
    cluster.lab.kubectl(&["delete", "namespace", "shop", "--wait=false"]).unwrap();
    remove(cluster, &["networkpolicy", "-n", "shop", "guard"]);
    policies_are_seen(cluster, "later");
    watch.prober.nothing_passed("its policy is deleted", &watch.forbidden, &watch.since);
    door.release();
    watch.prober.nothing_passed("its namespace is seen to end", &watch.forbidden, &watch.since);
    ends_closed(&watch);
}

/// Lesson 26: a restart over an unchanged cluster emptied the groups of closed pods before it filled them again.
///
/// Seen to fail with a restart that does so, one object a transaction: 150 of 4,085 datagrams passed.
#[test]
fn lesson_26_a_restart_writes_nothing_and_nothing_passes() {
    let mut watch = Watch::on(two_nodes("restart"));
    watch.cluster.apply(&guard("second", &json!([{"namespaceSelector": {"matchLabels": {"team": "green"}}}])));
    stands(&watch.cluster, "shop/second", true);
    let before = watch.cluster.whole();
    let observer = Observer::start(&watch.cluster);
    observer.take();
    for round in 1..=3 {
        watch.over("a restart", |cluster| {
            let led = cluster.lab.log("c1").unwrap().matches("\"leading\"").count();
            if round == 2 {
                cluster.lab.kill("c1").unwrap();
            } else {
                assert!(cluster.lab.terminate("c1", PATIENCE).unwrap().success());
            }
            cluster.lab.restart("c1").unwrap();
            until("it leads again", || {
                (cluster.lab.log("c1").unwrap().matches("\"leading\"").count() > led).then_some(())
            });
            until("it has looked at everything", || {
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
    assert_eq!(watch.cluster.whole(), before);
}
