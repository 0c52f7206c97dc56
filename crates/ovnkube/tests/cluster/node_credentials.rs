//! What the certificate of one node opens: the ports of both databases, and each table and verb of the southbound one.

use std::collections::BTreeMap;

use lab::directories::Directories;
use lab::{Lab, Machine};
use serde_json::{Value, json};

use crate::pod_attack::Site;
use crate::report::{Report, Scope};

const DATABASE: &str = "OVN_Southbound";
/// Where the agent keeps the node's certificate.
const FILES: &str = "/var/lib/ovn-kubernetes/pki/current";
/// Port, what it is, and whether a node's certificate is accepted there.
const PORTS: [(u16, &str, bool); 6] = [
    (6641, "northbound database", false),
    (6642, "southbound database, for nodes", true),
    (6643, "northbound raft members", false),
    (6644, "southbound raft members", false),
    (6646, "southbound database, for the control plane", false),
    (6648, "southbound database, behind the listener for nodes; on loopback", false),
];

/// A client with private key, certificate, and the authorities of the servers.
struct Client<'a> {
    machine: &'a Machine,
    files: [String; 3],
}

impl Client<'_> {
    /// The TLS library's messages about a connection; what the server sends first, too.
    fn connect(&self, target: &str) -> String {
        let script = "timeout 5 openssl s_client -quiet -connect \"$1\" -key \"$2\" -cert \"$3\" -CAfile \"$4\" 2>&1 </dev/null || true";
        let [key, certificate, authorities] = &self.files;
        self.machine.run(&["sh", "-c", script, "sh", target, key, certificate, authorities]).unwrap()
    }

    fn ovsdb(&self, remote: &str, words: &[&str]) -> Result<Value, String> {
        let [key, certificate, authorities] = &self.files;
        let mut command = vec!["ovsdb-client", "--timeout=30", "-p", key, "-c", certificate, "-C", authorities];
        command.extend([words[0], remote]);
        command.extend(&words[1..]);
        let text = self.machine.run(&command).map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))
    }
}

/// What northd's row for the role allows in one table.
#[derive(Debug, Default)]
struct Permission {
    /// Columns of which one must contain the client's name; empty: every row.
    authorization: Vec<String>,
    insert_delete: bool,
    update: Vec<String>,
    /// The role has no row for other tables.
    listed: bool,
}

impl Permission {
    fn concerns(&self, row: &Value, name: &str) -> bool {
        // `column:key` is a key of a map.
        let value = |column: &String| match column.split_once(':') {
            Some((map, key)) => entry(&row[map], key),
            None => row[column].as_str().map(str::to_owned),
        };
        let is_named = |column: &String| value(column).as_deref() == Some(name);
        self.listed && (self.authorization.is_empty() || self.authorization.iter().any(is_named))
    }
}

/// A value of a map in OVSDB's JSON.
fn entry(map: &Value, key: &str) -> Option<String> {
    let pairs = map[1].as_array()?;
    pairs.iter().find(|pair| pair[0] == key)?[1].as_str().map(str::to_owned)
}

/// The strings of a set in OVSDB's JSON; an empty string stands for none.
fn strings(value: &Value) -> Vec<String> {
    let set = value[1].as_array().filter(|_| value[0] == "set").cloned().unwrap_or_else(|| vec![value.clone()]);
    set.iter().filter_map(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned).collect()
}

fn permissions(lab: &Lab) -> BTreeMap<String, Permission> {
    let columns = "--columns=table,authorization,insert_delete,update";
    let text = lab.sbctl(&["--format=json", columns, "list", "RBAC_Permission"]).unwrap();
    let rows: Value = serde_json::from_str(&text).unwrap();
    let permission = |row: &Value| {
        let allowed = Permission {
            authorization: strings(&row[1]),
            insert_delete: row[2] == true,
            update: strings(&row[3]),
            listed: true,
        };
        (row[0].as_str().unwrap().to_owned(), allowed)
    };
    rows["data"].as_array().unwrap().iter().map(permission).collect()
}

/// A value that a new row needs because the column's default is not valid; none if it is.
fn needed(column: &Value) -> Option<Value> {
    let kind = &column["type"];
    if kind["min"] == 0 {
        return None;
    }
    let smallest = kind["key"]["minInteger"].as_i64().filter(|smallest| *smallest > 0).map(Value::from);
    // One value is written without its set.
    let allowed = &kind["key"]["enum"];
    smallest.or_else(|| allowed.as_str().or(allowed[1][0].as_str()).map(Value::from))
}

/// The southbound database as this client may change it. Nothing takes effect: each transaction ends with `abort`.
struct Thief<'a> {
    client: &'a Client<'a>,
    remote: String,
    /// The common name of its certificate.
    name: String,
}

impl Thief<'_> {
    /// Whether the server would do it; none if it concerns no row any more.
    fn try_operation(&self, operation: &Value) -> Option<bool> {
        let transaction = json!([DATABASE, operation, { "op": "abort" }]).to_string();
        let results = self.client.ovsdb(&self.remote, &["transact", &transaction]).unwrap();
        let result = &results[0];
        match result["error"].as_str() {
            Some("permission error") => Some(false),
            Some(other) => panic!("{operation}: {other}: {result}"),
            None if result["count"] == 0 => None,
            None => Some(true),
        }
    }

    fn rows(&self, table: &str) -> Vec<Value> {
        let transaction = json!([DATABASE, { "op": "select", "table": table, "where": [] }]).to_string();
        let results = self.client.ovsdb(&self.remote, &["transact", &transaction]).unwrap();
        results[0]["rows"].as_array().unwrap().clone()
    }

    /// Every verb on one table, and every column. `attempts` gets what was allowed, and whether the role says so.
    fn attack(&self, table: &str, schema: &Value, allowed: &Permission, attempts: &mut Vec<(Scope, String, bool)>) {
        let mut record = |what: String, own: bool, done: Option<bool>| {
            let Some(done) = done else { return };
            attempts.push((if own { Scope::Own } else { Scope::Foreign }, what, done));
        };
        for whose in [self.name.as_str(), "another-chassis"] {
            let named = allowed.authorization.iter().filter(|column| !column.contains(':'));
            let columns = schema["columns"].as_object().unwrap();
            let mut row: serde_json::Map<_, _> =
                columns.iter().filter_map(|(name, column)| Some((name.clone(), needed(column)?))).collect();
            row.extend(named.map(|column| (column.clone(), whose.into())));
            let own = allowed.insert_delete && allowed.concerns(&Value::Object(row.clone()), &self.name);
            let done = self.try_operation(&json!({ "op": "insert", "table": table, "row": row }));
            record(format!("insert a row of {whose} into {table}"), own, done);
        }
        let (own, foreign): (Vec<_>, Vec<_>) =
            self.rows(table).into_iter().partition(|row| allowed.concerns(row, &self.name));
        for (row, mine) in own.first().map(|row| (row, true)).into_iter().chain(foreign.first().map(|row| (row, false)))
        {
            let this = json!([["_uuid", "==", row["_uuid"]]]);
            let whose = if mine { "own" } else { "another's" };
            let done = self.try_operation(&json!({ "op": "delete", "table": table, "where": this }));
            record(format!("delete {whose} row of {table}"), mine && allowed.insert_delete, done);
            for (column, kind) in schema["columns"].as_object().unwrap() {
                if kind["mutable"] == false {
                    continue;
                }
                let permitted = mine && allowed.update.contains(column);
                let update = json!({ "op": "update", "table": table, "where": this, "row": { column: row[column] } });
                record(format!("update {column} of {whose} row of {table}"), permitted, self.try_operation(&update));
            }
        }
    }
}

/// What the certificate of n2 opens.
pub(crate) fn attack(site: &Site, report: &mut Report) {
    report.heading("The certificate of one node");
    report.paragraph(
        "From node n2, with the private key and the certificate of its directory `/var/lib/ovn-kubernetes/pki`.",
    );
    report.table(&["port", "result"]);
    let authorities = |file: &str| {
        let folder = Directories::from_environment().unwrap().lab(site.lab.name()).join("pki/ovn");
        folder.join(file).display().to_string()
    };
    let (n1, n2) = (&site.own_node, &site.other_node);
    let of_node = |machine| Client {
        machine,
        files: [format!("{FILES}/tls.key"), format!("{FILES}/tls.crt"), authorities("ca.crt")],
    };
    let node = of_node(&n2.place.machine);
    let control_plane =
        Client { machine: &n2.place.machine, files: ["ovn.key", "ovn.crt", "ca.crt"].map(&authorities) };
    for (port, what, expected) in PORTS {
        let loopback = port == 6648;
        let target = if loopback { format!("127.0.0.1:{port}") } else { format!("{}:{port}", n1.v4) };
        // On loopback, root of the control-plane node tries.
        let answer = if loopback { of_node(&n1.place.machine).connect(&target) } else { node.connect(&target) };
        assert!(answer.contains("depth="), "{target} is not reached by TLS: {answer}");
        let accepted = !answer.contains("alert");
        report.row(&[&format!("{port}, {what}"), if accepted { "accepted" } else { "refused" }]);
        report.attempts.push((if expected { Scope::Own } else { Scope::Foreign }, format!("{port}, {what}"), accepted));
        if !loopback {
            // Otherwise a refusal would show nothing.
            let control = control_plane.connect(&target);
            assert_eq!(control.contains("alert"), expected, "{target} with the control plane's certificate: {control}");
        }
    }
    let remote = format!("ssl:{}:6642", n1.v4);
    let words = ["ovs-vsctl", "--timeout=30", "get", "Open_vSwitch", ".", "external_ids:system-id"];
    let name = n2.place.machine.run(&words).unwrap().trim().trim_matches('"').to_owned();
    let thief = Thief { client: &node, remote: remote.clone(), name };
    let schema = node.ovsdb(&remote, &["get-schema", DATABASE]).unwrap();
    let (permissions, nothing) = (permissions(&site.lab), Permission::default());
    let mut attempts = Vec::new();
    for (table, schema) in schema["tables"].as_object().unwrap() {
        thief.attack(table, schema, permissions.get(table).unwrap_or(&nothing), &mut attempts);
    }
    // Enough of both kinds that the comparison means something.
    for scope in [Scope::Own, Scope::Foreign] {
        assert!(attempts.iter().filter(|(one, ..)| *one == scope).count() > 20, "{attempts:?}");
    }
    report.attempts.extend(attempts);
    report.paragraph(
        "Every verb was tried on every table of the southbound database with this certificate, and every column, on rows of its own \
         chassis and on others': nothing is allowed but what the role's [table](#every-chassis-in-the-southbound-database) lists.",
    );
}
