//! Rows for the measurements: ports of pods, switches of nodes, load balancers of Services.

use std::time::Duration;

use anyhow::{Context, Result};
use ovsdb::client::{Client, Config, Remote, TableMonitor};
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::{Condition, Mutation, Mutator};
use ovsdb::transaction::{Row, Transaction};
use ovsdb::uuid::Uuid;

pub(crate) const DATABASE: &str = "OVN_Northbound";
/// Replicated tables.
pub(crate) const TABLES: [&str; 3] = ["Logical_Switch", "Logical_Switch_Port", "Load_Balancer"];
/// Ports in a transaction, as many as the bare client puts into one.
pub(crate) const BATCH: usize = 200;

/// The large database: nodes with a switch each, pods on them, services.
pub(crate) const SWITCHES: usize = 100;
pub(crate) const PORTS: usize = 25_000;
pub(crate) const SERVICES: usize = 1_000;

/// A client of the northbound database without a replica.
pub(crate) fn config(remotes: &str) -> Result<Config> {
    Ok(Config::new(Remote::parse_list(remotes)?, DATABASE))
}

/// A client of the northbound database with a replica of the three tables.
pub(crate) fn replica_config(remotes: &str) -> Result<Config> {
    Ok(TABLES.iter().fold(config(remotes)?, |config, table| config.monitor(TableMonitor::new(*table))))
}

/// Starts a client and waits until it is connected.
pub(crate) async fn connect(config: Config) -> Result<Client> {
    let client = Client::start(config);
    client.connected(Duration::from_secs(60)).await?;
    Ok(client)
}

/// Adds ports to a switch: the same rows, with the same names, as the bare client writes.
pub(crate) fn ports(switch: &str, uuid: Uuid, namespace: impl Fn(usize) -> String, numbers: &[usize]) -> Transaction {
    let mut transaction = Transaction::new();
    for number in numbers {
        let addresses = addresses(*number);
        let version = format!("{number:08x}-0000-4000-8000-000000000000");
        let namespace = namespace(*number);
        let row = Row::new()
            .text("name", &format!("{namespace}_{number}"))
            .text("addresses", &addresses)
            .text("port_security", &addresses)
            .map("external_ids", [("namespace", namespace.as_str()), ("pod", "true")])
            .map("options", [("iface-id-ver", version.as_str()), ("requested-chassis", switch)]);
        transaction.insert_named("Logical_Switch_Port", &format!("p{number}"), row);
    }
    let names = numbers.iter().map(|number| Atom::Named(format!("p{number}").into()));
    let insert = Mutation::new("ports", Mutator::Insert, Datum::set(names));
    transaction.mutate("Logical_Switch", vec![Condition::uuid(uuid)], vec![insert]);
    transaction
}

/// MAC and IPv4 address of a port, within 10.0.0.0/8.
fn addresses(number: usize) -> String {
    let [.., b, c, d] = (number + 3).to_be_bytes();
    format!("0a:58:0a:{b:02x}:{c:02x}:{d:02x} 10.{b}.{c}.{d}")
}

/// Creates an empty switch.
pub(crate) async fn make_switch(client: &Client, name: &str) -> Result<Uuid> {
    let mut transaction = Transaction::new();
    let subnet = [("subnet", "10.128.0.0/23")];
    transaction.insert("Logical_Switch", Row::new().text("name", name).map("other_config", subnet));
    client.transact(&transaction).await?.inserted(0).context("the server did not return the UUID of the switch")
}

/// Creates the large database.
pub(crate) async fn fill(client: &Client) -> Result<()> {
    let numbers: Vec<usize> = (0..PORTS).collect();
    // A namespace's pods are on all nodes, and it has some hundred of them.
    let namespace = |number: usize| format!("team-{}-production", number % 200);
    for (index, numbers) in numbers.chunks(PORTS / SWITCHES).enumerate() {
        let name = format!("node-{index}.example.internal");
        let switch = make_switch(client, &name).await?;
        for numbers in numbers.chunks(BATCH) {
            client.transact(&ports(&name, switch, namespace, numbers)).await?;
        }
    }
    let services: Vec<usize> = (0..SERVICES).collect();
    for services in services.chunks(BATCH) {
        let mut transaction = Transaction::new();
        for service in services {
            transaction.insert("Load_Balancer", load_balancer(*service));
        }
        client.transact(&transaction).await?;
    }
    Ok(())
}

/// A service of two ports with four endpoints each.
fn load_balancer(number: usize) -> Row {
    let owner = format!("team-{}-production/service-{number}", number % 200);
    let vips: Vec<(String, String)> = [(80, 8080), (443, 8443)]
        .into_iter()
        .map(|(port, target)| {
            let endpoints = (0..4).map(|endpoint| {
                let at = number * 4 + endpoint;
                format!("10.{}.{}.{}:{target}", 128 + at / 62_500, at / 250 % 250, at % 250 + 3)
            });
            let address = format!("172.30.{}.{}:{port}", number / 250, number % 250 + 1);
            (address, endpoints.collect::<Vec<_>>().join(","))
        })
        .collect();
    Row::new()
        .text("name", &format!("Service_{owner}_TCP_cluster"))
        .text("protocol", "tcp")
        .map("vips", vips.iter().map(|(vip, targets)| (vip.as_str(), targets.as_str())))
        .map("external_ids", [("k8s.ovn.org/kind", "Service"), ("k8s.ovn.org/owner", owner.as_str())])
        .map(
            "options",
            [
                ("event", "false"),
                ("hairpin_snat_ip", "169.254.169.5 fd69::5"),
                ("neighbor_responder", "none"),
                ("reject", "true"),
                ("skip_snat", "false"),
            ],
        )
}
