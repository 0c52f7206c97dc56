//! The in-memory database against the real ovsdb-server: random transactions, the same replies, the same contents.
//!
//! The transactions are the same in every run; `OVSDB_SEED` runs others,
//! `OVSDB_TRANSACTIONS` more of them, and `make soak` both.
//!
//! Shown to fail by removing rules, one at a time and with three seeds each: without garbage collection
//! by transaction 26, without the removal of weak references by 42, without indexes by 43, without
//! `maxRows` by 458, and with inserts that replace values of a map by 405.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use ovsdb::memory::{Database, RowChange};
use ovsdb::operation::{Condition, Operation, RowValues};
use ovsdb::schema::DatabaseSchema;
use ovsdb::uuid::Uuid;
use serde_json::{Value, json};

#[path = "memory_against_real/author.rs"]
mod author;
#[path = "memory_against_real/defect.rs"]
mod defect;

use author::{Author, LOCK, POOL, Random, pooled};
use defect::WeakReferences;

/// Limit of every wait.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Every type and constraint, and references of all kinds between root and other tables.
const SCHEMA: &str = r#"{"name": "Memory", "version": "1.0.0", "tables": {
  "Thing": {"isRoot": true, "maxRows": 20, "indexes": [["name"], ["code", "kind"]], "columns": {
    "name": {"type": "string"},
    "code": {"type": {"key": {"type": "integer", "minInteger": -9, "maxInteger": 99}}},
    "kind": {"type": {"key": {"type": "string", "enum": ["set", ["", "red", "green", "blue"]]}}},
    "born": {"type": {"key": "string", "min": 0, "max": 1}, "mutable": false},
    "flag": {"type": "boolean"},
    "label": {"type": {"key": {"type": "string", "maxLength": 2}, "min": 0, "max": 2}},
    "ratio": {"type": {"key": {"type": "real", "minReal": -10, "maxReal": 10}}},
    "maybe_integer": {"type": {"key": "integer", "min": 0, "max": 1}},
    "maybe_real": {"type": {"key": "real", "min": 0, "max": 1}},
    "flags": {"type": {"key": "boolean", "min": 0, "max": 2}},
    "integers": {"type": {"key": "integer", "min": 0, "max": "unlimited"}},
    "small": {"type": {"key": {"type": "integer", "minInteger": 0, "maxInteger": 20}, "min": 0, "max": 4}},
    "reals": {"type": {"key": "real", "min": 0, "max": "unlimited"}},
    "words": {"type": {"key": "string", "min": 1, "max": 3}},
    "options": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}, "ephemeral": true},
    "counters": {"type": {"key": "string", "value": {"type": "integer", "minInteger": -2, "maxInteger": 40},
                          "min": 0, "max": 3}},
    "anybody": {"type": {"key": "uuid", "min": 0, "max": 3}},
    "kids": {"type": {"key": {"type": "uuid", "refTable": "Kid"}, "min": 0, "max": "unlimited"}},
    "kids_by_name": {"type": {"key": "string", "value": {"type": "uuid", "refTable": "Kid"}, "min": 0, "max": 3}},
    "favourite": {"type": {"key": {"type": "uuid", "refTable": "Kid", "refType": "weak"}, "min": 0, "max": 1}},
    "friends": {"type": {"key": {"type": "uuid", "refTable": "Thing", "refType": "weak"}, "min": 0, "max": 4}},
    "notes": {"type": {"key": {"type": "uuid", "refTable": "Kid", "refType": "weak"}, "value": "string",
                       "min": 0, "max": "unlimited"}},
    "ranks": {"type": {"key": "integer", "value": {"type": "uuid", "refTable": "Kid", "refType": "weak"},
                       "min": 0, "max": "unlimited"}}}},
  "Kid": {"columns": {
    "name": {"type": "string"},
    "peers": {"type": {"key": {"type": "uuid", "refTable": "Kid"}, "min": 0, "max": "unlimited"}},
    "buddy": {"type": {"key": {"type": "uuid", "refTable": "Kid", "refType": "weak"}, "min": 0, "max": 1}}}},
  "Needy": {"isRoot": true, "maxRows": 12, "columns": {
    "one": {"type": {"key": {"type": "uuid", "refTable": "Kid"}}},
    "some": {"type": {"key": {"type": "uuid", "refTable": "Thing", "refType": "weak"}, "min": 1, "max": 3}}}},
  "Named": {"isRoot": true, "indexes": [["name"]], "columns": {
    "name": {"type": {"key": {"type": "string", "minLength": 1}}},
    "colour": {"type": {"key": {"type": "integer", "enum": ["set", [1, 2, 3]]}}}}},
  "Lonely": {"columns": {"name": {"type": "string"}}}}}"#;

const OF_MEMORY: [&str; 5] = ["Thing", "Kid", "Needy", "Named", "Lonely"];
const OF_NORTHBOUND: [&str; 6] =
    ["Logical_Switch", "Logical_Switch_Port", "Load_Balancer", "ACL", "Address_Set", "Port_Group"];

#[test]
fn memory_and_real_server_give_the_same_results() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("OVSDB_SEED").unwrap_or(174_485_057);
    let transactions = number("OVSDB_TRANSACTIONS").unwrap_or(2000);
    println!("OVSDB_SEED={seed}");
    let lab = lab::Lab::start(lab::LabSpec::for_test("memory").unwrap()).unwrap();
    let server = Server::start(&lab);
    for (database, tables) in [("Memory", &OF_MEMORY[..]), ("OVN_Northbound", &OF_NORTHBOUND[..])] {
        let started = Instant::now();
        let mut comparison = Comparison::new(server.connect(), database, tables, seed);
        for transaction in 0..transactions {
            comparison.transact(&format!("OVSDB_SEED={seed}: transaction {transaction} of {database}"));
        }
        println!(
            "{database}: {transactions} in {:?}, {} commits, {:?}",
            started.elapsed(),
            comparison.commits(),
            comparison.seen
        );
        // Transactions that all fail or all succeed would prove little.
        assert!(
            comparison.commits() > transactions / 4 && comparison.commits() < transactions,
            "{:?}",
            comparison.seen
        );
        for error in ["constraint violation", "referential integrity violation", "syntax error", "timed out"] {
            assert!(
                comparison.seen.contains_key(error),
                "{error} never occurred with seed {seed}: {:?}",
                comparison.seen
            );
        }
    }
}

/// A real server with both databases.
struct Server {
    socket: std::path::PathBuf,
    process: Child,
}

impl Server {
    fn start(lab: &lab::Lab) -> Self {
        let machine = lab.machine("control").unwrap();
        let place = lab::directories::Directories::from_environment().unwrap();
        let run = lab::machine_dir(&place.lab(lab.name()), "control").join("run");
        std::fs::write(run.join("memory.ovsschema"), SCHEMA).unwrap();
        machine.run(&["ovsdb-tool", "create", "/run/memory.db", "/run/memory.ovsschema"]).unwrap();
        machine.run(&["ovsdb-tool", "create", "/run/northbound.db", "/usr/share/ovn/ovn-nb.ovsschema"]).unwrap();
        let words = ["ovsdb-server", "-voff", "--unixctl=/run/memory.ctl", "--remote=punix:/run/memory.sock"];
        let words = [&words[..], &["/run/memory.db", "/run/northbound.db"]].concat();
        let process = machine.spawn(machine.command(&words).unwrap().stdin(Stdio::null())).unwrap();
        Self { socket: run.join("memory.sock"), process }
    }

    fn connect(&self) -> Client {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match UnixStream::connect(&self.socket) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                    let reader = BufReader::new(stream.try_clone().unwrap());
                    return Client { stream, reader, requests: 0 };
                }
                Err(error) => assert!(Instant::now() < deadline, "the server does not answer: {error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Client {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    requests: u64,
}

impl Client {
    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.requests += 1;
        let request = json!({"method": method, "params": parameters, "id": self.requests});
        self.stream.write_all(request.to_string().as_bytes()).unwrap();
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let mut messages = serde_json::Deserializer::from_reader(&mut self.reader).into_iter::<Value>();
            let Some(message) = messages.next() else { panic!("the server closed the connection after {request}") };
            let message = message.unwrap_or_else(|error| panic!("{error} after {request}"));
            // Skip the server's echo requests.
            assert!(Instant::now() < deadline, "no reply within {TIMEOUT:?} to {request}");
            if message["method"] == "echo" {
                let reply = json!({"result": message["params"], "error": null, "id": message["id"]});
                self.stream.write_all(reply.to_string().as_bytes()).unwrap();
            } else if message["id"] == self.requests {
                assert!(message["error"].is_null(), "{message}");
                return message["result"].clone();
            }
        }
    }
}

/// Both databases, side by side.
struct Comparison {
    client: Client,
    database: Database,
    tables: Vec<&'static str>,
    random: Random,
    /// UUIDs of the real server by those of the in-memory database, and back.
    theirs: BTreeMap<String, String>,
    ours: BTreeMap<String, String>,
    /// The contents according to the reported changes.
    told: BTreeMap<(String, Uuid), RowValues>,
    /// Row versions of the real server that were found equal.
    verified: BTreeMap<(&'static str, Uuid), Value>,
    /// How often each error occurred.
    seen: BTreeMap<String, u64>,
}

impl Comparison {
    fn new(mut client: Client, name: &str, tables: &[&'static str], seed: u64) -> Self {
        let schema = DatabaseSchema::parse(&client.call("get_schema", &json!([name]))).unwrap();
        assert_eq!(client.call("lock", &json!([LOCK])), json!({"locked": true}));
        Self {
            client,
            database: Database::with_seed(schema, seed),
            tables: tables.to_vec(),
            random: Random(seed),
            theirs: BTreeMap::new(),
            ours: BTreeMap::new(),
            told: BTreeMap::new(),
            verified: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    fn commits(&self) -> u64 {
        self.database.commits()
    }

    fn transact(&mut self, place: &str) {
        let operations = self.next_transaction();
        let theirs = self.ask_real(&operations);
        let before = self.commits();
        let (ours, changes) = self.database.transact_with_changes(&locks(), &operations);
        let context = || {
            let list = |values: &[Value]| values.iter().map(|value| format!("\n    {value}")).collect::<String>();
            let sent: Vec<Value> = operations.iter().map(|operation| json!(operation)).collect();
            format!("{place}\n  operations:{}\n  real:{}\n  memory:{}", list(&sent), list(&theirs), list(&ours))
        };
        assert_eq!(theirs.len(), ours.len(), "{}", context());
        for (index, (theirs, ours)) in theirs.iter().zip(&ours).enumerate() {
            if let (Some(Operation::Insert { uuid: None, .. }), Some(real), Some(own)) =
                (operations.get(index), inserted(theirs), inserted(ours))
            {
                self.ours.insert(real.to_owned(), own.to_owned());
                self.theirs.insert(own.to_owned(), real.to_owned());
            }
            assert_eq!(self.canonical_real(theirs), self.canonical(ours), "element {index} of {}", context());
            if let Some(error) = ours["error"].as_str() {
                *self.seen.entry(error.to_owned()).or_default() += 1;
            }
        }
        assert_eq!(self.commits() > before, !changes.is_empty(), "{}", context());
        self.compare_contents(changes, &context);
    }

    /// A transaction with a deterministic result.
    fn next_transaction(&mut self) -> Vec<Operation> {
        loop {
            let operations = Author::new(&mut self.random, &self.database, &self.tables).transaction();
            let (_, changes) = self.database.clone().transact_with_changes(&locks(), &operations);
            if defect::has_unparsable_number(&changes) {
                continue;
            }
            let schema = self.database.schema();
            let weak = defect::assess(schema, &self.told, &changes, &operations);
            match weak {
                WeakReferences::Untouched => return operations,
                WeakReferences::Removed | WeakReferences::LeftToChance => {
                    *self.seen.entry(format!("weak references {weak:?}")).or_default() += 1;
                    if weak == WeakReferences::Removed {
                        return operations;
                    }
                }
            }
        }
    }

    fn ask_real(&mut self, operations: &[Operation]) -> Vec<Value> {
        let operations = translate(&json!(operations), &self.theirs);
        let mut parameters = vec![json!(self.database.schema().name)];
        parameters.extend(operations.as_array().unwrap().iter().cloned());
        self.client.call("transact", &Value::Array(parameters)).as_array().unwrap().clone()
    }

    fn compare_contents(&mut self, changes: Vec<RowChange>, context: &dyn Fn() -> String) {
        let changed: BTreeSet<Uuid> = changes.iter().map(|change| change.uuid).collect();
        for change in changes {
            let id = (change.table, change.uuid);
            assert_eq!(self.told.get(&id), change.before.as_ref(), "{id:?} {}", context());
            assert_ne!(change.before, change.after, "{id:?} {}", context());
            match change.after {
                Some(after) => drop(self.told.insert(id, after)),
                None => drop(self.told.remove(&id)),
            }
        }
        if !changed.is_empty() {
            let contents = self.database.tables().map(|(table, uuid, row)| ((table.to_owned(), uuid), row));
            assert!(
                contents.eq(self.told.clone()),
                "the reported changes differ from the contents after {}",
                context()
            );
        }
        if self.commits().is_multiple_of(50) {
            self.verified.clear();
        }
        let versions = |table: &&str| select(table, vec![], Some(&["_uuid", "_version"]));
        let theirs = self.ask_real(&self.tables.iter().map(versions).collect::<Vec<_>>());
        let mut selects = Vec::new();
        for (table, theirs) in self.tables.clone().into_iter().zip(&theirs) {
            let rows = theirs["rows"].as_array().unwrap();
            let ours = self.told.keys().filter(|(name, _)| name == table).count();
            assert_eq!(rows.len(), ours, "rows of {table}, {theirs} after {}", context());
            for row in rows {
                let real = row["_uuid"][1].as_str().unwrap();
                let uuid = Uuid::parse(self.ours.get(real).map_or(real, String::as_str)).unwrap();
                let verified = self.verified.insert((table, uuid), row["_version"].clone());
                // Rows that neither side changed are usually not compared again.
                if verified.as_ref() != Some(&row["_version"]) || changed.contains(&uuid) {
                    selects.push(select(table, vec![Condition::uuid(uuid)], None));
                }
            }
        }
        let (theirs, ours) = (self.ask_real(&selects), self.database.clone().transact(&selects));
        for (theirs, ours) in theirs.iter().zip(&ours) {
            assert_eq!(self.canonical_real(theirs), self.canonical(ours), "contents after {}", context());
        }
    }

    fn canonical_real(&self, value: &Value) -> Value {
        self.canonical(&translate(value, &self.ours))
    }

    /// A canonical form of replies: only the names of errors; sorted sets, maps and rows; no negative zero;
    /// unknown UUIDs (versions, names without a row) all equal.
    fn canonical(&self, value: &Value) -> Value {
        match value {
            Value::Object(object) if object.contains_key("error") => json!({"error": object["error"]}),
            Value::Object(object) => {
                Value::Object(object.iter().map(|(key, value)| (key.clone(), self.canonical(value))).collect())
            }
            Value::Array(array) => {
                let mut array: Vec<Value> = array.iter().map(|value| self.canonical(value)).collect();
                if array.iter().all(|value| value.is_array() || value.is_object()) {
                    array.sort_by_cached_key(ToString::to_string);
                }
                if array.len() == 2 && array[0] == "set" {
                    array[1].as_array_mut().unwrap().sort_by_cached_key(ToString::to_string);
                }
                Value::Array(array)
            }
            Value::Number(number) if number.is_i64() => value.clone(),
            Value::Number(number) if number.as_f64() == Some(0.0) => json!(0),
            // The JSON parser may be off by one bit.
            Value::Number(number) => json!(format!("{:.12e}", number.as_f64().unwrap())),
            Value::String(text) if Uuid::parse(text).is_some_and(|uuid| !self.knows(uuid)) => json!("somebody"),
            other => other.clone(),
        }
    }

    fn knows(&self, uuid: Uuid) -> bool {
        POOL.contains(&uuid.as_bytes()[0]) && uuid == pooled(uuid.as_bytes()[0])
            || self.theirs.contains_key(&uuid.to_string())
    }
}

fn locks() -> BTreeSet<String> {
    BTreeSet::from([LOCK.to_owned()])
}

fn select(table: &str, conditions: Vec<Condition>, columns: Option<&[&str]>) -> Operation {
    let columns = columns.map(|columns| columns.iter().map(ToString::to_string).collect());
    Operation::Select { table: table.into(), conditions, columns }
}

fn inserted(result: &Value) -> Option<&str> {
    result["uuid"][1].as_str()
}

fn translate(value: &Value, words: &BTreeMap<String, String>) -> Value {
    match value {
        Value::String(text) => json!(words.get(text).unwrap_or(text)),
        Value::Array(array) => array.iter().map(|value| translate(value, words)).collect(),
        Value::Object(object) => {
            Value::Object(object.iter().map(|(key, value)| (key.clone(), translate(value, words))).collect())
        }
        other => other.clone(),
    }
}
