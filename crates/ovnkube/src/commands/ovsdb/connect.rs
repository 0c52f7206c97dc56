//! From the arguments to a client with a complete replica.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use ovsdb::client::{Client, Config, Remote, TableMonitor, TlsFiles};
use ovsdb::schema::{DatabaseSchema, TableSchema};
use tokio::time::timeout;

use super::Misuse;
use crate::cli::Server;
use crate::suggest;

/// The server's database about databases.
const SERVER: &str = "_Server";
/// A column of every row that is in no schema.
pub(super) const UUID: &str = "_uuid";

/// Server, TLS files and deadline.
pub(super) struct Access<'a> {
    server: &'a Server,
    tls: Option<TlsFiles>,
    deadline: Instant,
}

impl<'a> Access<'a> {
    pub(super) fn new(server: &'a Server, limit: Duration) -> anyhow::Result<Self> {
        let tls = match (&server.private_key, &server.certificate, &server.ca_cert) {
            (Some(private_key), Some(certificate), Some(authorities)) => Some(TlsFiles {
                certificate: certificate.clone(),
                private_key: private_key.clone(),
                authorities: authorities.clone(),
                verify_host_name: server.verify_host_name,
            }),
            _ => None,
        };
        let encrypted = server.remote.0.iter().find(|remote| matches!(remote, Remote::Ssl(_)));
        if let (Some(remote), None) = (encrypted, &tls) {
            let hint = "give --private-key, --certificate and --ca-cert";
            bail!(Misuse(format!("{remote} needs TLS files; hint: {hint}")));
        }
        Ok(Self { server, tls, deadline: Instant::now() + limit })
    }

    fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// The servers as given.
    fn names(&self) -> String {
        let names: Vec<String> = self.server.remote.0.iter().map(ToString::to_string).collect();
        names.join(",")
    }

    /// A connected client with a complete replica of these tables.
    pub(super) async fn open(&self, database: &str, tables: Vec<TableMonitor>) -> anyhow::Result<Client> {
        match self.try_open(database, tables, self.remaining()).await {
            Ok(client) => Ok(client),
            Err(problem) => {
                // An unknown database is the usual reason; list those of the server.
                if let Ok(databases) = self.databases(self.remaining().max(Duration::from_secs(2))).await
                    && !databases.iter().any(|other| other == database)
                {
                    return Err(self.no_such_database(database, &databases));
                }
                Err(anyhow!("cannot reach {database} at {}: {problem}; hint: {}", self.names(), self.hint(&problem)))
            }
        }
    }

    fn no_such_database(&self, database: &str, databases: &[String]) -> anyhow::Error {
        let hint = match near(database, databases.iter().map(String::as_str)) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("it has {}; give the database before the tables", databases.join(", ")),
        };
        anyhow!("{} has no database {database:?}; hint: {hint}", self.names())
    }

    fn hint(&self, problem: &str) -> &'static str {
        if problem.contains("not the leader") {
            "give all members of the cluster, separated by commas, or --no-leader-only"
        } else if self.tls.is_some() {
            "check that ovsdb-server runs and listens there, and that both sides trust the same certificate authority"
        } else {
            "check that ovsdb-server runs and listens there"
        }
    }

    /// The error is the last problem.
    async fn try_open(&self, database: &str, tables: Vec<TableMonitor>, limit: Duration) -> Result<Client, String> {
        let mut config = Config::new(self.server.remote.0.clone(), database);
        config.tls.clone_from(&self.tls);
        config.tables = tables;
        config.leader_only = !self.server.no_leader_only;
        config.call_timeout = limit.max(Duration::from_secs(1));
        config.connect_timeout = config.connect_timeout.min(config.call_timeout);
        // The client would retry forever. With one server, fail at the first problem; of several, one may
        // still become the leader.
        let alone = config.remotes.len() == 1;
        let client = Client::start(config);
        let mut status = client.status();
        let settled = status.wait_for(|status| status.connected || (alone && status.last_error.is_some()));
        let in_time = timeout(limit, settled).await.is_ok();
        let status = client.status().borrow().clone();
        if status.connected {
            return Ok(client);
        }
        // Remove the remote's name, which is redundant if there is only one.
        let mut problem = status.last_error.unwrap_or_else(|| "no response".into());
        if let (true, Some(remote)) = (alone, self.server.remote.0.first()) {
            problem = problem.strip_prefix(&format!("{remote}: ")).unwrap_or(&problem).to_owned();
        }
        if !in_time {
            problem = format!("timed out ({problem})");
        }
        Err(problem)
    }

    /// Databases of the server, sorted by name, without `_Server`.
    async fn databases(&self, limit: Duration) -> Result<Vec<String>, String> {
        let client = self.try_open(SERVER, Vec::new(), limit).await?;
        let mut databases = client.databases().await.map_err(|error| error.to_string())?;
        databases.retain(|name| !name.starts_with('_'));
        databases.sort();
        Ok(databases)
    }

    /// The only database of the server; an error if there are several.
    pub(super) async fn only_database(&self) -> anyhow::Result<String> {
        let databases = self.databases(self.remaining()).await;
        let databases = databases
            .map_err(|problem| anyhow!("cannot reach {}: {problem}; hint: {}", self.names(), self.hint(&problem)))?;
        match databases.as_slice() {
            [only] => Ok(only.clone()),
            [] => bail!("{} has no database; hint: check that it is the server you mean", self.names()),
            several => bail!(Misuse(format!(
                "{} has several databases; hint: give one of {}",
                self.names(),
                several.join(", ")
            ))),
        }
    }

    /// Connects and waits until the server has sent it.
    pub(super) async fn schema(&self, database: &str) -> anyhow::Result<Arc<DatabaseSchema>> {
        let client = self.open(database, Vec::new()).await?;
        client.schema().ok_or_else(|| anyhow!("{} sent no schema of {database}", self.names()))
    }
}

/// Selected tables and columns.
pub(super) struct Choice {
    pub(super) tables: Vec<String>,
    /// None: all columns.
    pub(super) columns: Option<Vec<String>>,
}

impl Choice {
    /// Checks tables and columns against the schema; no table means all.
    pub(super) fn new(schema: &DatabaseSchema, tables: &[String], columns: &[String]) -> anyhow::Result<Self> {
        let mut chosen: Vec<String> = Vec::new();
        for table in tables {
            if !schema.tables.contains_key(table) {
                let known = schema.tables.keys().map(String::as_str);
                bail!("{} has no table {table:?}; hint: {}", schema.name, meant(table, known));
            }
            if !chosen.contains(table) {
                chosen.push(table.clone());
            }
        }
        if chosen.is_empty() {
            chosen = schema.tables.keys().cloned().collect();
        }
        let of_chosen = |name: &String| &schema.tables[name];
        for column in columns {
            let has = |table: &TableSchema| column == UUID || table.column(column).is_some();
            if !chosen.iter().map(of_chosen).any(has) {
                let known = chosen.iter().map(of_chosen).flat_map(|table| &table.columns);
                let known = known.map(|column| column.name.as_str());
                let table = if let [only] = chosen.as_slice() { only } else { &schema.name };
                bail!("{table} has no column {column:?}; hint: {}", meant(column, known));
            }
        }
        let mut columns = columns.to_vec();
        let mut seen = BTreeSet::new();
        columns.retain(|column| seen.insert(column.clone()));
        let columns = (!columns.is_empty()).then_some(columns);
        let mut choice = Self { tables: chosen, columns };
        let shows = |name: &String| !choice.shown(&schema.tables[name]).is_empty();
        let tables = choice.tables.iter().filter(|name| shows(name)).cloned().collect();
        choice.tables = tables;
        Ok(choice)
    }

    /// Columns of a table to show, in order.
    pub(super) fn shown<'c>(&'c self, table: &'c TableSchema) -> Vec<&'c str> {
        match &self.columns {
            Some(columns) => {
                let has = |column: &&str| *column == UUID || table.column(column).is_some();
                columns.iter().map(String::as_str).filter(has).collect()
            }
            None => std::iter::once(UUID).chain(table.columns.iter().map(|column| column.name.as_str())).collect(),
        }
    }

    /// Monitored tables; includes the column `name`, for sorting.
    pub(super) fn monitors(&self) -> Vec<TableMonitor> {
        let monitor = |table: &String| match &self.columns {
            Some(columns) if columns.iter().any(|column| column != UUID) => {
                let named = columns.iter().map(String::as_str).filter(|column| *column != UUID);
                TableMonitor::new(table).columns(&named.chain(["name"]).collect::<Vec<_>>())
            }
            _ => TableMonitor::new(table),
        };
        self.tables.iter().map(monitor).collect()
    }
}

fn meant<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: BTreeSet<&str> = known.collect();
    match near(name, known.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("there are {}", known.into_iter().collect::<Vec<_>>().join(", ")),
    }
}

/// The name that was probably meant, ignoring case.
fn near<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let known: Vec<(String, &str)> = known.map(|other| (other.to_lowercase(), other)).collect();
    let nearest = suggest::nearest(name, known.iter().map(|(lower, _)| lower.as_str()))?;
    known.iter().find(|(lower, _)| lower == nearest).map(|(_, other)| *other)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> DatabaseSchema {
        DatabaseSchema::parse(&json!({"name": "T", "tables": {
            "Switch": {"columns": {"name": {"type": "string"}, "ports": {"type": "integer"}}},
            "Port": {"columns": {"tag": {"type": "integer"}}}}}))
        .unwrap()
    }

    fn owned(words: &[&str]) -> Vec<String> {
        words.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unknown_tables_and_columns_are_rejected_with_a_suggestion() {
        let schema = schema();
        let choice = Choice::new(&schema, &[], &[]).unwrap();
        assert_eq!(choice.tables, ["Port", "Switch"]);
        assert_eq!(choice.shown(&schema.tables["Switch"]), ["_uuid", "name", "ports"]);
        let choice = Choice::new(&schema, &[], &owned(&["ports", "ports"])).unwrap();
        assert_eq!(
            (choice.tables.as_slice(), choice.shown(&schema.tables["Switch"])),
            (&owned(&["Switch"])[..], vec!["ports"])
        );
        for (tables, columns, hint) in [
            (&["switch"][..], &[][..], "did you mean Switch?"),
            (&["Qqqqqqqqqqqq"], &[], "there are Port, Switch"),
            (&["Switch"], &["prots"], "did you mean ports?"),
        ] {
            let error = Choice::new(&schema, &owned(tables), &owned(columns)).err().unwrap().to_string();
            assert!(error.ends_with(hint), "{error}");
        }
    }
}
