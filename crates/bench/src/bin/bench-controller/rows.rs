//! The bare side of the northbound database: ports like those of pods, written and seen by a client that knows nothing
//! of Kubernetes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ovsdb::client::{Client, Config, Remote, Subscription, TableMonitor};
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::{Condition, Mutation, Mutator};
use ovsdb::replica::Changes;
use ovsdb::transaction::{Row, Transaction};
use ovsdb::uuid::Uuid;

use crate::object_watch::TIMEOUT;
use crate::objects::node_name;

pub(crate) const NORTHBOUND: &str = "OVN_Northbound";
pub(crate) const SOUTHBOUND: &str = "OVN_Southbound";
const PORTS: &str = "Logical_Switch_Port";

/// A client that holds these tables.
pub(crate) async fn connect(remote: &str, tables: &[&str]) -> Result<Client> {
    connect_to(remote, NORTHBOUND, tables).await
}

/// How many rows these tables have.
pub(crate) async fn count(remote: &str, database: &str, tables: &[&str]) -> Result<usize> {
    let snapshot = connect_to(remote, database, tables).await?.snapshot();
    Ok(tables.iter().filter_map(|table| snapshot.table(table)).map(ovsdb::replica::Table::len).sum())
}

async fn connect_to(remote: &str, database: &str, tables: &[&str]) -> Result<Client> {
    let config = Config::new(Remote::parse_list(remote)?, database);
    let config = tables.iter().fold(config, |config, table| config.monitor(TableMonitor::new(*table)));
    connected(config).await
}

async fn connected(config: Config) -> Result<Client> {
    let client = Client::start(config);
    client.connected(Duration::from_secs(60)).await?;
    Ok(client)
}

/// Writes ports on a switch of its own, and their addresses into a set of its own.
pub(crate) struct Writer {
    client: Client,
    switch: Uuid,
    set: Uuid,
}

impl Writer {
    pub(crate) async fn new(remote: &str, name: &str) -> Result<Self> {
        let client = connect(remote, &[]).await?;
        let mut transaction = Transaction::new();
        transaction.insert("Logical_Switch", Row::new().text("name", name));
        transaction.insert("Address_Set", Row::new().text("name", &name.replace('-', "_")));
        let outcome = client.transact(&transaction).await?;
        let made = |place| outcome.inserted(place).context("the server did not return the UUID of the new row");
        Ok(Self { switch: made(0)?, set: made(1)?, client })
    }

    /// One transaction for these ports, with the operations of a controller for as many pods: it inserts a row for each, and
    /// adds the rows to their switch and the addresses to an address set.
    pub(crate) async fn write(&self, names: &[String], first: usize, nodes: usize) -> Result<()> {
        let mut transaction = Transaction::new();
        let (mut ports, mut texts) = (Vec::new(), Vec::new());
        for (number, name) in names.iter().enumerate() {
            let [.., b, c, d] = (first + number + 3).to_be_bytes();
            let address = format!("10.{b}.{c}.{d}");
            let words = format!("0a:58:0a:{b:02x}:{c:02x}:{d:02x} {address}");
            let version = format!("{number:08x}-0000-4000-8000-000000000000");
            let chassis = node_name((first + number) % nodes);
            let (namespace, _) = name.split_once('_').unwrap_or((name, ""));
            let row = Row::new()
                .text("name", name)
                .text("addresses", &words)
                .text("port_security", &words)
                .map("options", [("iface-id-ver", version.as_str()), ("requested-chassis", chassis.as_str())])
                .map(
                    "external_ids",
                    [
                        ("bench.example.com/owner-controller", "nobody"),
                        ("bench.example.com/owner-name", name.as_str()),
                        ("bench.example.com/owner-type", "Pod"),
                        ("namespace", namespace),
                        ("pod", "true"),
                    ],
                );
            transaction.insert_named(PORTS, &format!("p{number}"), row);
            ports.push(Atom::Named(format!("p{number}").into()));
            texts.push(Atom::String(address.as_str().into()));
        }
        let add = |column: &str, atoms: Vec<Atom>| vec![Mutation::new(column, Mutator::Insert, Datum::set(atoms))];
        transaction.mutate("Logical_Switch", vec![Condition::uuid(self.switch)], add("ports", ports));
        transaction.mutate("Address_Set", vec![Condition::uuid(self.set)], add("addresses", texts));
        self.client.transact(&transaction).await?;
        Ok(())
    }

    /// Ports are removed with their switch.
    pub(crate) async fn remove(self) -> Result<()> {
        let mut transaction = Transaction::new();
        transaction.delete("Logical_Switch", vec![Condition::uuid(self.switch)]);
        transaction.delete("Address_Set", vec![Condition::uuid(self.set)]);
        self.client.transact(&transaction).await?;
        Ok(())
    }
}

/// A bare monitor of ports: when each was seen first.
pub(crate) struct Monitor {
    _client: Client,
    changes: Subscription,
    pub(crate) seen: HashMap<String, Instant>,
}

impl Monitor {
    pub(crate) async fn new(remote: &str) -> Result<Self> {
        let config = Config::new(Remote::parse_list(remote)?, NORTHBOUND);
        let client = connected(config.monitor(TableMonitor::new(PORTS).columns(&["name"]))).await?;
        let mut changes = client.subscribe();
        // Rows of the initial dump do not count.
        let _ = changes.take();
        Ok(Self { _client: client, changes, seen: HashMap::new() })
    }

    /// Waits for news and returns the names of new ports.
    pub(crate) async fn step(&mut self) -> Result<Vec<String>> {
        let changes =
            tokio::time::timeout(TIMEOUT, self.changes.next()).await.context("the monitor reported no port in time")?;
        let now = Instant::now();
        let new = new_ports(&changes);
        for name in &new {
            self.seen.entry(name.clone()).or_insert(now);
        }
        Ok(new)
    }
}

fn new_ports(changes: &Changes) -> Vec<String> {
    let name = |change: &ovsdb::replica::Change| {
        let (None, Some(row)) = (&change.before, &change.after) else { return None };
        let schema = changes.snapshot.table_at(change.table)?.schema();
        ovsdb::replica::RowView { uuid: change.uuid, row, schema }.text("name")
    };
    changes.changes.iter().filter_map(name).collect()
}
