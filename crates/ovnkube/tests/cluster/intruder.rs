//! A compromised pod against the databases: it reaches their ports, and TLS rejects it. And a node agent's token against
//! other nodes' objects.

use std::time::Duration;

use lab::directories::Directories;
use lab::matrix::sandbox_network;
use lab::pki::Authority;
use lab::{Database, Lab};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(120);

/// A transaction that any client with write access could commit.
fn transaction(database: Database, mark: &str) -> String {
    let (schema, table) = match database {
        Database::Northbound => (database.schema(), "NB_Global"),
        Database::Southbound => (database.schema(), "SB_Global"),
    };
    let mutation = json!(["external_ids", "insert", ["map", [[mark, "yes"]]]]);
    json!([schema, { "op": "mutate", "table": table, "where": [], "mutations": [mutation] }]).to_string()
}

fn marks(lab: &Lab, database: Database) -> String {
    let words = |table| ["--bare", "--columns=external_ids", "list", table];
    match database {
        Database::Northbound => lab.nbctl(&words("NB_Global")).unwrap(),
        Database::Southbound => lab.sbctl(&words("SB_Global")).unwrap(),
    }
}

/// Without a certificate of the cluster's CA a pod cannot change the databases; with one it can, which shows that the
/// certificate decides and not an unreachable port.
pub(crate) fn cannot_write_the_databases(lab: &Lab) {
    let pods = lab.kubectl(&["-n", "shop", "get", "pods", "-l", "app=stranger", "-o", "json"]).unwrap();
    let pods: Value = serde_json::from_str(&pods).unwrap();
    let pod = &pods["items"][0];
    let node = lab.machine(pod["spec"]["nodeName"].as_str().unwrap()).unwrap();
    let network = sandbox_network(&node, pod["metadata"]["uid"].as_str().unwrap()).unwrap().unwrap();
    let network = format!("--net={network}");

    let folder = Directories::from_environment().unwrap().lab(lab.name()).join("pki");
    let foreign = Authority::create(&folder.join("foreign"), "ovn-ca").unwrap();
    let foreign_leaf = foreign.issue("ovn", "ovn", None, &[], &[]).unwrap();
    let own = |file: &str| folder.join("ovn").join(file).display().to_string();
    let identity = |key: String, certificate: String| vec!["-p".to_owned(), key, "-c".into(), certificate];
    // The intruder trusts the server's CA.
    let authority = ["-C".to_owned(), own("ca.crt")];
    let ours = identity(own("ovn.key"), own("ovn.crt"));
    let foreign = identity(foreign_leaf.key.display().to_string(), foreign_leaf.certificate.display().to_string());

    let endpoints = lab.record().endpoints;
    let path = "jsonpath={.data.OvnSouthControl}";
    let southbound = ["-n", "ovn-kubernetes", "get", "configmap", "ovn-config", "-o", path];
    for (database, remote) in [
        (Database::Northbound, endpoints.northbound_remote.unwrap()),
        // Where the control plane's certificate is accepted; `node_credentials` is about the port for nodes.
        (Database::Southbound, lab.kubectl(&southbound).unwrap().trim().to_owned()),
    ] {
        let address = remote.strip_prefix("ssl:").unwrap_or_else(|| panic!("{remote} is not TLS"));
        let transact = |options: &[String], remote: &str, mark: &str| {
            let mut words = vec!["nsenter", &network, "ovsdb-client", "--timeout=10"];
            words.extend(options.iter().map(String::as_str));
            let change = transaction(database, mark);
            words.extend(["transact", remote, &change]);
            node.run(&words)
        };
        // Repeated: on a busy machine a connection may take longer than the client waits.
        let reachable = || transact(&[ours.as_slice(), &authority].concat(), &remote, "shown-to-be-reachable");
        let said = lab::poll(LIMIT, reachable).unwrap();
        assert!(said.contains("\"count\":1"), "{said}");

        let without_tls = transact(&[], &format!("tcp:{address}"), "plain-intruder");
        assert!(without_tls.is_err(), "{without_tls:?}");
        let foreign_ca = transact(&[foreign.as_slice(), &authority].concat(), &remote, "foreign-intruder");
        assert!(foreign_ca.is_err(), "{foreign_ca:?}");
        // Without a client certificate: the server's alert, or an error of the write if the connection is closed by then.
        let call = json!({ "id": 0, "method": "transact", "params": serde_json::from_str::<Value>(&transaction(
            database, "nameless-intruder")).unwrap() });
        let script = "printf %s \"$2\" | timeout 60 openssl s_client -quiet -connect \"$1\" 2>&1 || true";
        let without_certificate =
            node.run(&["nsenter", &network, "sh", "-c", script, "sh", address, &call.to_string()]).unwrap();
        let refused = ["alert", "errno"].iter().any(|word| without_certificate.contains(word));
        assert!(refused && !without_certificate.contains("result"), "{without_certificate}");

        let marks = marks(lab, database);
        assert!(marks.contains("shown-to-be-reachable") && !marks.contains("intruder"), "{marks}");
    }
}

/// The token of n2's agent can write Node n2 and no other; a token of the same account that is not bound to a node can
/// write none. (`kubectl patch` reads first, which agents may not.)
pub(crate) fn cannot_write_other_nodes(lab: &Lab) {
    let ours = |words: &[&str]| lab.kubectl(&[&["-n", "ovn-kubernetes"], words].concat()).unwrap();
    let api = ours(&["get", "configmap", "ovn-config", "-o", "jsonpath={.data.k8s_apiserver}"]);
    let on_n2 = ["get", "pods", "-l", "app=ovnkube", "--field-selector", "spec.nodeName=n2"];
    let agent = ours(&[&on_n2[..], &["-o", "jsonpath={.items[0].metadata.name}"]].concat());
    let file = "/var/run/secrets/kubernetes.io/serviceaccount/token";
    let own = ours(&["exec", agent.trim(), "-c", "ovnkube-node", "--", "cat", file]);
    let bind = ["--bound-object-kind", "Pod", "--bound-object-name", agent.trim()];
    let bound = ours(&[&["create", "token", "ovnkube-node"], &bind[..]].concat());
    let unbound = ours(&["create", "token", "ovnkube-node"]);

    let machine = lab.machine("n2").unwrap();
    let patch = |token: &str, node: &str, body: &Value| -> Value {
        let address = format!("{}/api/v1/nodes/{node}/status", api.trim());
        let bearer = format!("Authorization: Bearer {}", token.trim());
        let kind = "Content-Type: application/strategic-merge-patch+json";
        let body = body.to_string();
        let words = ["curl", "-gsSk", "-X", "PATCH", "-H", &bearer, "-H", kind, "-d", &body, &address];
        serde_json::from_str(&machine.run(&words).unwrap()).unwrap()
    };
    let annotation = json!({"metadata": {"annotations": {"example.com/intruder": "yes"}}});
    let subnets = json!({"metadata": {"annotations": {"k8s.ovn.org/node-subnets": "intruder"}}});
    let own_condition = json!({"status": {"conditions": [{"type": "k8s.ovn.org/NodeNetworkReady", "status": "True"}]}});
    let condition = json!({"status": {"conditions": [{"type": "example.com/Intruder", "status": "True"}]}});
    let refused = |answer: &Value, why: &str| {
        assert_eq!((&answer["kind"], &answer["code"]), (&json!("Status"), &json!(403)), "{answer}");
        assert!(answer["message"].as_str().is_some_and(|message| message.contains(why)), "{answer}");
    };
    for token in [&own, &bound] {
        for body in [&annotation, &own_condition] {
            refused(&patch(token, "n1", body), "bound to node n2, the request is for node n1");
            refused(&patch(&unbound, "n2", body), "bound to no node");
        }
        let answer = patch(token, "n2", &own_condition);
        assert_eq!(answer["kind"], "Node", "{answer}");
        for body in [&annotation, &subnets] {
            refused(
                &patch(token, "n2", body),
                "may write only these annotations of its node: k8s.ovn.org/l3-gateway-config",
            );
        }
        refused(
            &patch(token, "n2", &condition),
            "may write only these conditions of its node: k8s.ovn.org/NodeNetworkReady",
        );
    }
    // The label would schedule a control-plane pod there, whose token can write all nodes.
    let label = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
    refused(&patch(&own, "n2", &label), "may not change the labels");
    let n1 = lab.kubectl(&["get", "node", "n1", "-o", "json"]).unwrap();
    assert!(!n1.to_lowercase().contains("intruder"), "{n1}");
}
