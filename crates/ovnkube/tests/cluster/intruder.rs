//! A pod with its own tools against the databases: it reaches their ports, and they do not talk to it.

use lab::matrix::sandbox_network;
use lab::pki::Authority;
use lab::place::Place;
use lab::{Database, Lab};
use serde_json::{Value, json};

/// A change that anybody who may write could make, and that would stay.
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

/// Without a certificate of the cluster's authority nothing in a pod changes the databases; with one it would, which
/// shows that it is the certificate that decides, not an unreachable port.
pub(crate) fn cannot_write_the_databases(lab: &Lab) {
    let pods = lab.kubectl(&["-n", "shop", "get", "pods", "-l", "app=stranger", "-o", "json"]).unwrap();
    let pods: Value = serde_json::from_str(&pods).unwrap();
    let pod = &pods["items"][0];
    let node = lab.machine(pod["spec"]["nodeName"].as_str().unwrap()).unwrap();
    let network = sandbox_network(&node, pod["metadata"]["uid"].as_str().unwrap()).unwrap().unwrap();
    let network = format!("--net={network}");

    let folder = Place::from_environment().unwrap().lab(lab.name()).join("pki");
    let foreign = Authority::create(&folder.join("foreign"), "ovn-ca").unwrap();
    let foreign_leaf = foreign.issue("ovn", "ovn", None, &[], &[]).unwrap();
    let own = |file: &str| folder.join("ovn").join(file).display().to_string();
    let identity = |key: String, certificate: String| vec!["-p".to_owned(), key, "-c".into(), certificate];
    // Before a server with a certificate of the right authority an intruder may well trust that.
    let authority = ["-C".to_owned(), own("ca.crt")];
    let ours = identity(own("ovn.key"), own("ovn.crt"));
    let foreign = identity(foreign_leaf.key.display().to_string(), foreign_leaf.certificate.display().to_string());

    let endpoints = lab.record().endpoints;
    for (database, remote) in [
        (Database::Northbound, endpoints.northbound_remote.unwrap()),
        (Database::Southbound, endpoints.southbound_remote.unwrap()),
    ] {
        let address = remote.strip_prefix("ssl:").unwrap_or_else(|| panic!("{remote} is not TLS"));
        let transact = |options: &[String], remote: &str, mark: &str| {
            let mut words = vec!["nsenter", &network, "ovsdb-client", "--timeout=10"];
            words.extend(options.iter().map(String::as_str));
            let change = transaction(database, mark);
            words.extend(["transact", remote, &change]);
            node.run(&words)
        };
        let said = transact(&[ours.as_slice(), &authority].concat(), &remote, "shown-to-be-reachable").unwrap();
        assert!(said.contains("\"count\":1"), "{said}");

        let plain = transact(&[], &format!("tcp:{address}"), "plain-intruder");
        assert!(plain.is_err(), "{plain:?}");
        let strange = transact(&[foreign.as_slice(), &authority].concat(), &remote, "foreign-intruder");
        assert!(strange.is_err(), "{strange:?}");
        // Without a certificate of its own; the refusal comes with the first answer.
        let call = json!({ "id": 0, "method": "transact", "params": serde_json::from_str::<Value>(&transaction(
            database, "nameless-intruder")).unwrap() });
        let script = "printf %s \"$2\" | timeout 10 openssl s_client -quiet -connect \"$1\" 2>&1 || true";
        let nameless = node.run(&["nsenter", &network, "sh", "-c", script, "sh", address, &call.to_string()]).unwrap();
        assert!(nameless.contains("alert") && !nameless.contains("result"), "{nameless}");

        let marks = marks(lab, database);
        assert!(marks.contains("shown-to-be-reachable") && !marks.contains("intruder"), "{marks}");
    }
}
