//! `ovnkube plan` with small manifests, a fake API server and a real northbound database.

#![allow(clippy::unwrap_used, clippy::panic)]

mod ovnkube;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use lab::{Databases, Lab, LabSpec, Ovn};
use ovnkube::{Outcome, file, run};
use serde_json::{Value, json};

fn manifest(name: &str) -> String {
    format!("{}/tests/plan/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn plan(arguments: &[&str]) -> Outcome {
    run(&[&["plan"], arguments].concat(), &[])
}

/// The plan as JSON, and its exit status.
fn planned(arguments: &[&str]) -> (Value, Option<i32>) {
    let outcome = plan(&[arguments, &["-o", "json"]].concat());
    let json = serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
    (json, outcome.status)
}

/// `change table name` of every row.
fn rows(plan: &Value) -> Vec<String> {
    let objects = plan["objects"].as_array().unwrap().iter();
    let rows = objects.flat_map(|object| object["rows"].as_array().unwrap());
    let text = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
    rows.map(|row| format!("{} {} {}", text(row, "change"), text(row, "table"), text(row, "name"))).collect()
}

/// Compares the output with a golden file.
fn assert_golden(name: &str, printed: &str) {
    let golden = manifest(name);
    if std::env::var_os("PLAN_WRITE_GOLDEN").is_some() {
        std::fs::write(&golden, printed).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap();
    assert_eq!(printed, expected, "if intended, run the test with PLAN_WRITE_GOLDEN=1 and review the diff");
}

#[test]
fn the_smallest_cluster_matches_its_golden_file() {
    let outcome = plan(&["-f", &manifest("smallest.yaml")]);
    assert_eq!((outcome.status, outcome.stderr.as_str()), (Some(3), ""), "{outcome:?}");
    assert_golden("smallest.txt", &outcome.stdout);
}

#[test]
fn can_and_matrix_name_the_deciding_policy_or_service() {
    let file = manifest("guarded.yaml");
    let mut printed = String::new();
    for (from, to, status) in [
        ("shop/web", "shop/db:5432", 0),
        ("shop/cache", "shop/db:5432", 3),
        ("shop/web", "shop/db", 3),
        ("n2", "shop/db:22", 0),
        ("shop/web", "shop/sql:5432", 0),
        ("shop/cache", "172.30.0.7:5432", 3),
        ("198.51.100.7", "n1:30432", 3),
        ("shop/web", "198.51.100.0/24", 0),
    ] {
        let outcome = plan(&["-f", &file, "--can", &format!("from={from}"), &format!("to={to}")]);
        assert_eq!((outcome.status, outcome.stderr.as_str()), (Some(status), ""), "{from} {to}: {outcome:?}");
        printed.push_str(&format!("$ ovnkube plan -f guarded.yaml --can from={from} to={to}\n{}\n", outcome.stdout));
    }
    for namespace in ["shop:5432", "shop"] {
        let outcome = plan(&["-f", &file, "--matrix", namespace]);
        assert_eq!((outcome.status, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
        printed.push_str(&format!("$ ovnkube plan -f guarded.yaml --matrix {namespace}\n{}\n", outcome.stdout));
    }
    assert_golden("guarded.txt", &printed);

    let json = |arguments: &[&str]| -> Value {
        let outcome = plan(&[&["-f", &file, "-o", "json"], arguments].concat());
        serde_json::from_str(&outcome.stdout).unwrap()
    };
    let some = json(&["--can", "from=shop/web", "to=shop/db"]);
    assert_eq!((&some["can"], some["cases"].as_array().unwrap().len()), (&Value::Null, 2), "{some}");
    assert_eq!(some["cases"][0]["what"], "ports 5432/tcp");
    let matrix = json(&["--matrix", "shop:5432"]);
    let pair = |from: &str, to: &str| {
        let pairs = matrix["pairs"].as_array().unwrap();
        pairs.iter().find(|pair| pair["from"] == from && pair["to"] == to).unwrap().clone()
    };
    assert_eq!(pair("web", "db")["can"], json!(true));
    assert_eq!(pair("cache", "db")["can"], json!(false));
    assert!(pair("cache", "db")["why"].as_str().unwrap().starts_with("NetworkPolicy shop/db spec.ingress"), "{matrix}");
}

#[test]
fn json_output_has_objects_counts_and_named_references() {
    let (plan, status) = planned(&["-f", &manifest("smallest.yaml")]);
    assert_eq!((status, &plan["changes"]), (Some(3), &json!(true)));
    assert_eq!(plan["counts"]["Logical_Switch_Port"], json!({"added": 4, "changed": 0, "removed": 0}));
    let object = |kind: &str| plan["objects"].as_array().unwrap().iter().find(|object| object["kind"] == kind).unwrap();
    assert_eq!(object("Pod")["name"], "shop/web");
    let switch =
        object("Node")["rows"].as_array().unwrap().iter().find(|row| row["table"] == "Logical_Switch").unwrap();
    assert_eq!(switch["columns"]["ports"], json!({"old": [], "new": ["k8s-n1", "shop_web", "stor-n1"]}));
    let summary = planned(&["-f", &manifest("smallest.yaml"), "--summary"]).0;
    assert_eq!((&summary["objects"], &summary["counts"]), (&Value::Null, &plan["counts"]));
}

#[test]
fn directories_lists_json_and_stdin_are_read() {
    let (plan, _) = planned(&["-f", &manifest("shop"), "--sample-nodes", "2"]);
    let rows = rows(&plan);
    for row in
        ["added Logical_Switch_Port shop_web", "added Logical_Switch_Port shop_db", "added Logical_Router GR_sample-2"]
    {
        assert!(rows.iter().any(|known| known == row), "{row} is not in {rows:?}");
    }
    assert_eq!(plan["not_part_of_the_network"], json!({"Deployment": 1}));
    let hints = plan["hints"].to_string();
    assert!(hints.contains("Service shop/web has no EndpointSlice") && hints.contains("Deployment"), "{hints}");

    let mut child = Command::new(env!("CARGO_BIN_EXE_ovnkube"))
        .args(["plan", "-f", "-", "--summary"])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let text = std::fs::read(manifest("smallest.yaml")).unwrap();
    child.stdin.take().unwrap().write_all(&text).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8(output.stdout).unwrap().contains("Logical_Switch_Port  4"));
}

/// The expectations were checked with `kubectl patch --local`.
#[test]
fn yaml_indentation_is_parsed_as_kubectl_does() {
    let pod = |name: &str, rest: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: shop\n{rest}\nspec:\n  nodeName: n1\n"
        )
    };
    let documents = [
        pod("quoted", "  annotations:\n    note: \"one\n  two\"\n    other: 'one\ntwo\n'"),
        pod("tabs", "  annotations: {\n\tnote: \"x\",\n\t\tother: \"y\"}"),
        pod("sequence", "").replace("spec:", "spec:\n  tolerations: [\n\t{key: a},\n\t{key: b}\n  ]"),
    ];
    let lax = file("plan-lax.yaml", documents.join("---\n").as_bytes());
    let (plan, status) = planned(&["-f", &manifest("smallest.yaml"), &lax]);
    assert_eq!((status, &plan["errors"]), (Some(3), &json!([])), "{plan}");
    let rows = rows(&plan);
    for name in ["quoted", "tabs", "sequence"] {
        assert!(rows.contains(&format!("added Logical_Switch_Port shop_{name}")), "{rows:?}");
    }
    let bad = file("plan-tab.yaml", b"apiVersion: v1\nkind: Pod\nmetadata:\n\tname: a\n");
    assert_eq!(run(&["plan", "-f", &bad], &[]).status, Some(1), "kubectl rejects it as well");
}

#[test]
fn pods_without_a_node_get_a_hint_and_the_node_flag_assigns_one() {
    let shop = manifest("shop");
    let outcome = plan(&["-f", &shop, "--summary"]);
    assert!(outcome.stdout.contains("2 pods (shop/db, …) have no spec.nodeName"), "{outcome:?}");
    assert!(outcome.stdout.contains("--sample-nodes 1"), "{outcome:?}");
    let (plan, _) = planned(&["-f", &shop, &manifest("smallest.yaml"), "--node", "n1"]);
    assert!(rows(&plan).contains(&"added Logical_Switch_Port shop_db".to_owned()));
    // One pod is in both files.
    assert_eq!(plan["errors"].as_array().unwrap().len(), 2, "{}", plan["errors"]);
}

#[test]
fn errors_name_file_line_and_object_and_the_rest_is_planned() {
    let (bad, gone) = (manifest("mistakes.yaml"), manifest("nowhere.yaml"));
    let outcome = plan(&["-f", &bad, &gone, &manifest("smallest.yaml"), "--summary"]);
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    assert!(outcome.stdout.contains("Logical_Switch_Port  4"), "{outcome:?}");
    let lines: Vec<&str> = outcome.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    for part in [
        format!("error: {bad}:9: is not YAML: "),
        format!("error: {bad}:11: Pdo web: unknown kind \"Pdo\" in v1; hint: did you mean Pod?"),
        format!("error: {bad}:16: Pod: has no metadata.name"),
        format!("error: {bad}:21: Namespace shop: already defined in {bad}:1"),
        format!("error: {bad}:26: Pod default/odd: invalid: "),
        format!("error: {gone}: cannot be read: "),
    ] {
        assert!(lines.iter().any(|line| line.starts_with(&part)), "{part} is not in {lines:#?}");
    }
    // Includes the duplicate namespace of the smallest cluster.
    assert_eq!(lines.len(), 7, "{lines:#?}");
}

#[test]
fn refused_objects_are_listed_with_their_reason() {
    let (plan, status) = planned(&["-f", &manifest("smallest.yaml"), &manifest("refused.yaml")]);
    assert_eq!(status, Some(3));
    let refused = &plan["refused"][0];
    assert_eq!((&refused["kind"], &refused["name"]), (&json!("Pod"), &json!("shop/stubborn")));
    assert_eq!(refused["reason"], "StaticAddressRefused");
    assert!(refused["message"].as_str().unwrap().contains("192.0.2.7 is not in"), "{refused}");
}

#[test]
fn admin_policies_are_planned_in_their_tiers_or_refused() {
    let (plan, status) = planned(&["-f", &manifest("smallest.yaml"), &manifest("admin.yaml")]);
    assert_eq!(status, Some(3));
    let rows_of = |kind: &str| -> Vec<(String, Value)> {
        let objects = plan["objects"].as_array().unwrap();
        let object = objects.iter().find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("{plan}"));
        let rows = object["rows"].as_array().unwrap().iter().filter(|row| row["table"] == "ACL");
        rows.map(|row| (row["name"].as_str().unwrap().to_owned(), row["columns"]["tier"]["new"].clone())).collect()
    };
    for (kind, expected) in [
        ("AdminNetworkPolicy", &[("to-lport 31871 allow-related ", 1)][..]),
        // The first ACL passes cut connections to the tier of the rule.
        ("BaselineAdminNetworkPolicy", &[("to-lport 0 pass ", 2), ("to-lport 32767 drop ", 3)]),
    ] {
        let rows = rows_of(kind);
        let is =
            |(row, (words, tier)): (&(String, Value), &(&str, i64))| row.0.starts_with(words) && row.1 == json!(tier);
        assert!(rows.len() == expected.len() && rows.iter().zip(expected).all(is), "{rows:?}");
    }
    let refused = &plan["refused"][0];
    assert_eq!((&refused["kind"], &refused["name"]), (&json!("AdminNetworkPolicy"), &json!("out-of-range")));
    assert!(
        refused["message"].as_str().unwrap().starts_with("invalid policy: spec.priority: 2000 is not a priority"),
        "{refused}"
    );
}

#[test]
fn can_answers_with_the_deciding_chain() {
    let asked = ["-f", &manifest("shop"), "--sample-nodes", "2"];
    let yes = plan(&[&asked[..], &["--can", "from=shop/web", "to=shop/db:5432"]].concat());
    assert_eq!(yes.status, Some(0), "{yes:?}");
    assert!(yes.stdout.starts_with("yes: Pod shop/web to Pod shop/db port 5432/tcp\n"), "{}", yes.stdout);
    assert!(yes.stdout.contains("ovn_cluster_router"), "{}", yes.stdout);
    let no = plan(&["-f", &manifest("shop"), "--can", "to=shop/db", "from=shop/web", "-o", "json"]);
    let json: Value = serde_json::from_str(&no.stdout).unwrap();
    assert_eq!((no.status, &json["can"]), (Some(3), &json!(false)));
    assert_eq!(json["chain"][0]["field"], "spec.nodeName");
    for (words, says) in [
        (["from=shop/web", "to=shop/wbe"], "no pod or Service shop/wbe"),
        (["from=shop/web", "shop/db"], "--can needs a source and a destination"),
        (["from=shop/web", "to=shop/db:http"], "is not a port"),
    ] {
        let outcome = plan(&[&asked[..], &["--can"], &words[..]].concat());
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains(says) && outcome.stderr.contains("hint: "), "{outcome:?}");
    }
    let matrix = plan(&[&asked[..], &["--matrix", "shop:80"]].concat());
    assert_eq!(matrix.status, Some(0), "{matrix:?}");
    assert_eq!(matrix.stdout, "FROM \\ TO\n           db  web\ndb         ✓   ✓\nweb        ✓   ✓\n");
    assert_eq!(plan(&[&asked[..], &["--matrix", "nobody"]].concat()).status, Some(1));
}

#[test]
fn plan_uses_the_controllers_settings() {
    let shop = manifest("shop");
    let asked = ["-f", &shop, "--sample-nodes", "1", "--cluster-subnets", "10.0.0.0/16/24,fd01::/48/64"];
    let (plan, _) = planned(&asked);
    assert_eq!((&plan["refused"], &plan["warnings"]), (&json!([]), &json!([])), "{plan}");
    let text = plan.to_string();
    assert!(text.contains("10.0.0.3 fd01::3") && text.contains("2001:db8::ffff"), "{text}");
    let yes = run(&[&["plan"], &asked[..], &["--can", "from=shop/web", "to=[2001:db8:1::7]:443"]].concat(), &[]);
    assert_eq!(yes.status, Some(0), "{yes:?}");
    let wrong = run(&["plan", "-f", &shop, "--cluster-subnets", "10.0.0.0/16/24,172.30.0.0/16/24"], &[]);
    assert_eq!(wrong.status, Some(2), "{wrong:?}");
}

#[test]
fn plan_without_input_is_a_usage_error() {
    let outcome = plan(&[]);
    assert_eq!(outcome.status, Some(2));
    assert!(outcome.stderr.contains("hint: give -f"), "{outcome:?}");
}

/// Starts a fake API server with these objects, by plural or by path; returns its kubeconfig.
fn api(objects: Value) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while let Some(Ok(request)) = lines.next() {
                while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
                let path = request.split([' ', '?']).nth(1).unwrap_or_default().to_owned();
                let plural = path.rsplit('/').next().unwrap_or_default().to_owned();
                let named = ["configmaps/", "policy.networking.k8s.io"].iter().any(|part| path.contains(part));
                let (status, body) = if let Some(object) = objects.get(&path) {
                    ("200 OK", object.clone())
                } else if named {
                    ("404 Not Found", json!({"kind": "Status", "code": 404, "message": "there is none"}))
                } else {
                    let items = objects.get(&plural).cloned().unwrap_or_else(|| json!([]));
                    ("200 OK", json!({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}))
                };
                let body = body.to_string();
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                if stream.write_all((head + &body).as_bytes()).is_err() {
                    break;
                }
            }
        }
    });
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}]});
    file(&format!("plan-kubeconfig-{}", address.port()), kubeconfig.to_string().as_bytes())
}

fn cluster() -> Value {
    json!({
        "nodes": [{"metadata": {"name": "n1", "uid": "node-1"}}],
        "namespaces": [{"metadata": {"name": "shop", "uid": "namespace-1"}}],
        "pods": [{"metadata": {"name": "db", "namespace": "shop", "uid": "pod-1"}, "spec": {"nodeName": "n1"}}],
    })
}

#[test]
fn manifests_are_merged_over_the_cluster() {
    let kubeconfig = api(cluster());
    // Node and namespace exist: only the pod is new.
    let (plan, status) = planned(&["-f", &manifest("smallest.yaml"), "--kubeconfig", &kubeconfig]);
    assert_eq!(status, Some(3), "{plan}");
    let rows = rows(&plan);
    assert_eq!(
        rows.iter().filter(|row| row.starts_with("added ")).collect::<Vec<_>>(),
        ["added Logical_Switch_Port shop_web"]
    );
    assert!(rows.contains(&"changed Logical_Switch n1".to_owned()), "{rows:?}");
    // An existing object changes nothing.
    let same = file("plan-same.yaml", b"{apiVersion: v1, kind: Node, metadata: {name: n1}}\n");
    let (plan, status) = planned(&["-f", &same, "--kubeconfig", &kubeconfig]);
    assert_eq!((status, &plan["changes"]), (Some(0), &json!(false)), "{plan}");
    let nothing = run(&["plan", "--kubeconfig", &kubeconfig], &[]);
    assert_eq!((nothing.status, nothing.stdout.as_str()), (Some(0), "Nothing would change.\n"), "{nothing:?}");
}

/// A cluster with non-default networks: its only Service is refused with other settings.
fn cluster_with_other_networks(path: &str, data: &Value) -> Value {
    let mut cluster = cluster();
    cluster["services"] = json!([{"metadata": {"name": "web", "namespace": "shop", "uid": "service-1"},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"], "ports": [{"port": 80}]}}]);
    let (namespace, name) = ("ovn-kubernetes", "ovn-config");
    let map = json!({"metadata": {"name": name, "namespace": namespace}, "data": data});
    cluster[path] = if path == "configmaps" { json!([map]) } else { map };
    cluster
}

const CONFIG_MAP: &str = "/api/v1/namespaces/ovn-kubernetes/configmaps/ovn-config";

#[test]
fn networks_are_read_from_the_clusters_config_map() {
    let data =
        json!({"net_cidr": "10.244.0.0/16/24", "svc_cidr": "10.96.0.0/16", "ovn_k8s.conf": "[default]\nmtu=1300\n"});
    // In the usual namespace, and found by a list.
    for path in [CONFIG_MAP, "configmaps"] {
        let kubeconfig = api(cluster_with_other_networks(path, &data));
        let asked = ["-f", &manifest("smallest.yaml"), "--kubeconfig", &kubeconfig];
        let (plan, status) = planned(&asked);
        assert_eq!((status, &plan["refused"]), (Some(3), &json!([])), "{plan}");
        assert!(plan.to_string().contains(" 10.244.0.4\""), "{plan}");
        let used = "cluster-subnets=10.244.0.0/16/24 mtu=1300 service-cidrs=10.96.0.0/16 from the cluster's ConfigMap \
            ovn-kubernetes/ovn-config";
        assert_eq!(plan["notes"], json!([used]), "{plan}");
    }
    let kubeconfig = api(cluster_with_other_networks(CONFIG_MAP, &data));
    let table = plan(&["--kubeconfig", &kubeconfig]);
    assert_eq!((table.status, table.stdout.as_str()), (Some(0), "Nothing would change.\n"), "{table:?}");
    assert!(table.stderr.starts_with("note: cluster-subnets=10.244.0.0/16/24 "), "{table:?}");

    // Flags take precedence, and the difference is noted.
    let (plan, _) = planned(&["--kubeconfig", &kubeconfig, "--k8s-service-cidrs", "10.97.0.0/16"]);
    assert_eq!(plan["refused"][0]["name"], "shop/web", "{plan}");
    let note = "service-cidrs=10.97.0.0/16 from --k8s-service-cidrs, although svc_cidr of the cluster's ConfigMap \
        ovn-kubernetes/ovn-config is 10.96.0.0/16";
    assert_eq!(plan["notes"][1], note, "{plan}");
    let nowhere = run(&["plan", "--kubeconfig", &kubeconfig, "--config-namespace", "elsewhere"], &[]);
    assert_eq!(nowhere.status, Some(1), "{nowhere:?}");
    assert!(nowhere.stderr.contains("ConfigMap elsewhere/ovn-config not found"), "{nowhere:?}");

    let broken = api(cluster_with_other_networks(CONFIG_MAP, &json!({"net_cidr": "everything"})));
    let outcome = run(&["plan", "--kubeconfig", &broken], &[]);
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("ConfigMap ovn-kubernetes/ovn-config: net_cidr: \"everything\""), "{outcome:?}");
}

#[test]
fn default_networks_are_noted_as_assumed() {
    let kubeconfig = api(cluster());
    let (plan, _) = planned(&["--kubeconfig", &kubeconfig]);
    let note = "no namespace has a ConfigMap ovn-config: assuming the default cluster-subnets=10.128.0.0/14/23 \
        service-cidrs=172.30.0.0/16; give --cluster-subnets and --k8s-service-cidrs if the cluster has others";
    assert_eq!(plan["notes"], json!([note]), "{plan}");
}

#[test]
fn a_missing_namespace_is_assumed_with_its_name_label() {
    let text = std::fs::read_to_string(manifest("guarded.yaml")).unwrap();
    let documents: Vec<&str> = text.split("\n---\n").filter(|document| !document.contains("kind: Namespace")).collect();
    let policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: same, namespace: shop}\n\
        spec:\n  podSelector: {matchLabels: {app: db}}\n  ingress:\n  - from:\n    \
        - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}\n";
    let file = file("plan-no-namespace.yaml", [&documents[..], &[policy]].concat().join("\n---\n").as_bytes());
    let asked = ["-f", &file, "--can", "from=shop/cache", "to=shop/db:22"];
    let yes = plan(&asked);
    assert_eq!(yes.status, Some(0), "{yes:?}");
    let note = "Namespace shop is not among the objects: assumed, with no label but kubernetes.io/metadata.name";
    assert!(yes.stderr.contains(&format!("note: {note}\n")), "{yes:?}");
    let (json, _) = planned(&asked);
    assert_eq!((&json["can"], &json["notes"]), (&json!(true), &json!([note])), "{json}");
    assert_eq!(planned(&["-f", &file]).0["notes"], json!([note]));
    assert_eq!(planned(&["-f", &file, "--matrix", "shop"]).0["notes"], json!([note]));
}

#[test]
fn several_can_questions_are_all_answered() {
    let file = manifest("guarded.yaml");
    let yes = ["--can", "from=shop/web", "to=shop/db:5432"];
    let no = ["--can", "to=shop/db:5432", "from=shop/cache"];
    let unknown = ["--can", "from=198.51.100.7", "to=n1:22"];
    let ask = |questions: &[[&str; 3]], more: &[&str]| plan(&[&["-f", &file], more, &questions.concat()].concat());
    let both = ask(&[yes, no], &[]);
    assert_eq!(both.status, Some(3), "{both:?}");
    let first = both.stdout.find("yes: Pod shop/web to Pod shop/db port 5432/tcp\n").unwrap();
    assert!(both.stdout[first..].contains("\n\nno: Pod shop/cache to Pod shop/db port 5432/tcp\n"), "{both:?}");
    assert_eq!(ask(&[yes, yes], &[]).status, Some(0));
    let json = |outcome: &Outcome| -> Value { serde_json::from_str(&outcome.stdout).unwrap() };
    let answers = json(&ask(&[yes, no], &["-o", "json"]))["answers"].clone();
    assert_eq!((&answers[0]["can"], &answers[1]["can"]), (&json!(true), &json!(false)), "{answers}");
    assert_eq!(json(&ask(&[yes], &["-o", "json"]))["can"], json!(true), "a single answer is not wrapped in a list");

    // An undecidable question fails the command; the others are answered.
    let mixed = ask(&[unknown, yes], &["-o", "json"]);
    assert_eq!(mixed.status, Some(1), "{mixed:?}");
    let answers = json(&mixed)["answers"].clone();
    assert!(
        answers[0]["can"].is_null() && answers[0]["error"].as_str().unwrap().contains("does not pass"),
        "{answers}"
    );
    assert_eq!(answers[1]["can"], json!(true), "{answers}");
    assert!(mixed.stderr.contains("error: 198.51.100.7 to Node n1 port 22/tcp: "), "{mixed:?}");
    let wrong = ask(&[yes, ["--can", "from=shop/nobody", "to=shop/db"]], &[]);
    assert_eq!((wrong.status, wrong.stdout.as_str()), (Some(2), ""), "{wrong:?}");
}

#[test]
fn missing_nodes_are_assumed_with_sample_nodes() {
    let shop = std::fs::read_to_string(manifest("shop/pods.yaml")).unwrap();
    let shop = shop.replacen("spec: {", "spec: {nodeName: worker-7, ", 1);
    let file = file("plan-no-node.yaml", shop.as_bytes());
    let asked = ["-f", &file, "--can", "from=shop/db", "to=shop/web:80"];
    let no = plan(&asked);
    assert_eq!(no.status, Some(3), "{no:?}");
    assert!(no.stderr.contains("hint: Node worker-7, which pods or --node name, is not among the objects"), "{no:?}");
    let yes = plan(&[&asked[..], &["--sample-nodes", "1"]].concat());
    assert_eq!(yes.status, Some(0), "{yes:?}");
    assert!(yes.stdout.contains("on node worker-7") && yes.stdout.contains("on node sample-1"), "{yes:?}");
    assert!(yes.stderr.contains("note: Node worker-7 is not among the objects: assumed"), "{yes:?}");
    // Beside an existing Node.
    let guarded = manifest("guarded.yaml");
    let mixed = plan(&[&asked[..], &["--sample-nodes", "1", "--node", "n1", "-f", &guarded]].concat());
    assert!(mixed.stdout.contains("on node worker-7"), "{mixed:?}");
}

#[test]
fn plan_reads_a_real_database_and_writes_nothing() {
    // Without northd, which writes there as well.
    let ovn = Ovn { databases: Databases::Standalone, northds: 0, ..Ovn::default() };
    let lab = Lab::start(LabSpec::for_test("plan-cli").unwrap().ovn(ovn)).unwrap();
    let remote = lab.record().endpoints.northbound.clone().unwrap();
    lab.nbctl(&["ls-add", "foreign", "--", "lsp-add", "foreign", "port", "--", "ls-add", "n1"]).unwrap();
    let dump = || run(&["ovsdb", "dump", &remote, "OVN_Northbound", "-o", "json"], &[]).stdout;
    let before = dump();
    let (plan, status) = planned(&["-f", &manifest("smallest.yaml"), "--nb", &remote]);
    assert_eq!(status, Some(3), "{plan}");
    let rows = rows(&plan);
    assert!(rows.contains(&"added Logical_Switch_Port shop_web".to_owned()), "{rows:?}");
    assert!(!rows.iter().any(|row| row.contains("foreign")), "rows of other clients are left alone: {rows:?}");
    assert_eq!(dump(), before, "nothing is written");

    let nowhere = run(&["plan", "-f", &manifest("smallest.yaml"), "--nb", "unix:/nonexistent/nb.sock"], &[]);
    assert_eq!(nowhere.status, Some(1), "{nowhere:?}");
    assert!(
        nowhere.stderr.contains("cannot read unix:/nonexistent/nb.sock") && nowhere.stderr.contains("hint: "),
        "{nowhere:?}"
    );
}
