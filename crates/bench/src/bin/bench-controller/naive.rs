//! Rows and logical flows of Services and policies, compared with the naive form: one load balancer per Service and
//! node, one rule per peer and port. Both use the same nodes, pods and northd.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use bench::{Figure, Goal};
use ovsdb::client::Client;
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::{Condition, Mutation, Mutator};
use ovsdb::transaction::{Row, Transaction};
use ovsdb::uuid::Uuid;
use topology::plan::TABLES;

use crate::growth::{self, Size};
use crate::objects::{Pods, node_name};
use crate::rows::{NORTHBOUND, SOUTHBOUND, connect, count};
use crate::workload::{Policies, Services, Shape};
use crate::world::World;

/// Rows of one transaction.
const BATCH: usize = 500;
const APPS: [&str; 10] = ["web", "api", "db", "cache", "jobs", "backup", "monitoring", "ingress", "dns", "other"];

pub(crate) fn figures(size: Size, services: Services, policies: usize) -> Result<Vec<Figure>> {
    let (world, controller) = growth::begin(size)?;
    let namespaces = policies.div_ceil(APPS.len());
    let pods = Pods {
        apps: &APPS,
        namespace_size: size.pods.div_ceil(namespaces),
        ..Pods::new("flows", size.pods, size.nodes)
    };
    world.grow(&pods)?;
    world.settle(&[&controller])?;
    let bare = counts(&world)?;
    let policies = Policies { purpose: pods.purpose.clone(), count: policies, namespaces };
    eprintln!("{} Services and {} policies, the naive form", services.count, policies.count);
    let naive = Naive { services, policies: policies.clone(), pods: pods.clone(), nodes: size.nodes };
    let made = world.inside(async |_| naive.write(&world).await)?;
    world.settle(&[&controller])?;
    let naive = counts(&world)?.less(bare);
    world.inside(async |_| remove(&world, &made).await)?;
    world.settle(&[&controller])?;
    let left = counts(&world)?;
    anyhow::ensure!(
        left.rows == bare.rows,
        "rows of the naive form were not removed: {} rows, {} before",
        left.rows,
        bare.rows
    );
    eprintln!("the same by the controller");
    world.inside(async |api| {
        policies.create(&api).await?;
        services.create(&api).await
    })?;
    world.settle(&[&controller])?;
    let ours = counts(&world)?.less(bare);
    eprintln!("  naive: {} rows and {} flows; ours: {} and {}", naive.rows, naive.flows, ours.rows, ours.flows);
    let named = |what: &str| {
        format!("{what}, {} Services and {} policies on {}", services.count, policies.count, world.label())
    };
    let ratio = |ours: usize, naive: usize| ours as f64 / naive as f64;
    Ok(vec![
        Figure::new(named("northbound rows against the naive form"), ratio(ours.rows, naive.rows), "×")
            .with_goal(Goal::AtMost(0.5)),
        Figure::new(named("logical flows against the naive form"), ratio(ours.flows, naive.flows), "×")
            .with_goal(Goal::AtMost(0.5)),
        Figure::new(named("northbound rows"), ours.rows as f64, ""),
        Figure::new(named("logical flows"), ours.flows as f64, ""),
    ])
}

#[derive(Debug, Clone, Copy)]
struct Counts {
    rows: usize,
    flows: usize,
}

impl Counts {
    fn less(self, other: Self) -> Self {
        Self { rows: self.rows.saturating_sub(other.rows), flows: self.flows.saturating_sub(other.flows) }
    }
}

fn counts(world: &World) -> Result<Counts> {
    world.await_northd()?;
    world.inside(async |_| {
        let rows = count(&world.northbound, NORTHBOUND, &TABLES).await?;
        let flows = count(&world.southbound, SOUTHBOUND, &["Logical_Flow"]).await?;
        Ok(Counts { rows, flows })
    })
}

struct Naive {
    services: Services,
    policies: Policies,
    pods: Pods,
    nodes: usize,
}

/// Writes rows in transactions of some hundred, and records root rows for removal.
struct Writer {
    client: Client,
    transaction: Transaction,
    named: usize,
    made: Vec<(&'static str, Uuid)>,
    /// Places of rows that have to be removed again, by table.
    places: Vec<(&'static str, usize)>,
}

impl Writer {
    fn insert(&mut self, table: &'static str, row: Row) -> Atom {
        self.named += 1;
        let name = format!("n{}", self.named);
        self.places.push((table, self.transaction.operations().len()));
        self.transaction.insert_named(table, &name, row);
        Atom::Named(name.into())
    }

    fn add(&mut self, table: &str, row: Uuid, column: &str, atoms: Vec<Atom>) {
        let mutations = vec![Mutation::new(column, Mutator::Insert, Datum::set(atoms))];
        self.transaction.mutate(table, vec![Condition::uuid(row)], mutations);
    }

    async fn flush(&mut self) -> Result<()> {
        let outcome = self.client.transact(&std::mem::take(&mut self.transaction)).await?;
        for (table, place) in self.places.drain(..) {
            self.made
                .push((table, outcome.inserted(place).context("the server did not return the UUID of the new row")?));
        }
        Ok(())
    }
}

impl Naive {
    async fn write(&self, world: &World) -> Result<Vec<(&'static str, Uuid)>> {
        let client = connect(&world.northbound, &["Logical_Switch", "Logical_Router", "Logical_Switch_Port"]).await?;
        let mut writer =
            Writer { client, transaction: Transaction::new(), named: 0, made: Vec::new(), places: Vec::new() };
        self.load_balancers(&mut writer).await?;
        self.rules(&mut writer).await?;
        Ok(writer.made)
    }

    async fn load_balancers(&self, writer: &mut Writer) -> Result<()> {
        let snapshot = writer.client.snapshot();
        let by_name = |table: &str| -> BTreeMap<String, Uuid> {
            let rows = snapshot.table(table).into_iter().flat_map(ovsdb::replica::Table::iter);
            rows.filter_map(|row| Some((row.text("name")?, row.uuid))).collect()
        };
        let (switches, routers) = (by_name("Logical_Switch"), by_name("Logical_Router"));
        for node in 0..self.nodes {
            let name = node_name(node);
            let switch = *switches.get(&name).with_context(|| format!("node {name} has no switch"))?;
            let router = *routers.get(&format!("GR_{name}")).with_context(|| format!("node {name} has no router"))?;
            for first in (0..self.services.count).step_by(BATCH) {
                let mut atoms = Vec::new();
                for number in first..(first + BATCH).min(self.services.count) {
                    let backends: Vec<String> =
                        (0..self.services.endpoints).map(|place| Services::address(number, place) + ":8080").collect();
                    let backends = backends.join(",");
                    let vip = format!("172.30.{}.{}:80", 128 + number / 250, number % 250 + 1);
                    let mut vips = vec![(vip.as_str(), backends.as_str())];
                    let door = format!("10.97.{}.{}:{}", node / 250, node % 250 + 1, 30_000 + number);
                    if Services::has_node_port(number) {
                        vips.push((door.as_str(), backends.as_str()));
                    }
                    let name = format!("naive_{number}_{name}");
                    let row = Row::new().text("name", &name).text("protocol", "tcp").map("vips", vips);
                    atoms.push(writer.insert("Load_Balancer", row));
                }
                writer.add("Logical_Switch", switch, "load_balancer", atoms.clone());
                writer.add("Logical_Router", router, "load_balancer", atoms);
                writer.flush().await?;
            }
        }
        Ok(())
    }

    async fn rules(&self, writer: &mut Writer) -> Result<()> {
        let snapshot = writer.client.snapshot();
        let ports = snapshot.table("Logical_Switch_Port").context("the replica has no table Logical_Switch_Port")?;
        // By namespace and app: the port, and its address.
        let mut crowd: BTreeMap<(String, &str), Vec<(Uuid, String)>> = BTreeMap::new();
        let known: BTreeMap<String, _> = ports.iter().filter_map(|row| Some((row.text("name")?, row))).collect();
        for number in 0..self.pods.count {
            let row = known.get(&self.pods.port(number)).with_context(|| format!("pod {number} has no port"))?;
            let addresses = row.text("addresses").context("a port has no address")?;
            let address = addresses.split(' ').nth(1).context("a port has no address")?.to_owned();
            crowd.entry((self.pods.namespace(number), self.pods.app(number))).or_default().push((row.uuid, address));
        }
        for number in 0..self.policies.count {
            let (namespace, Shape { target, ingress, peers, ports }) =
                (self.policies.namespace(number), self.policies.shape(number));
            let those = |app: &str| {
                let chosen = crowd.iter().filter(|((of, own), _)| *of == namespace && (app.is_empty() || *own == app));
                chosen.flat_map(|(_, pods)| pods).cloned().collect::<Vec<_>>()
            };
            let group = format!("naive_group_{number}");
            let (direction, port, end) =
                if *ingress { ("to-lport", "outport", "src") } else { ("from-lport", "inport", "dst") };
            let rule = |priority, action: &str, more: &str| {
                let matching = format!("{port} == @{group}{more}");
                let row = Row::new().text("direction", direction).text("match", &matching).text("action", action);
                row.set("priority", Atom::Integer(priority))
            };
            let mut rules = vec![
                writer.insert("ACL", rule(1000, "drop", "")),
                writer.insert("ACL", rule(1001, "allow", " && (arp || nd)")),
            ];
            for (place, peer) in peers.iter().enumerate() {
                let set = format!("naive_set_{number}_{place}");
                let addresses = those(peer).into_iter().map(|(_, address)| Atom::String(address.as_str().into()));
                let row = Row::new().text("name", &set).set("addresses", Datum::set(addresses.collect::<Vec<_>>()));
                writer.insert("Address_Set", row);
                for (protocol, number) in *ports {
                    let word = protocol.to_lowercase();
                    let more = format!(" && ip4.{end} == ${set} && {word}.dst == {number}");
                    rules.push(writer.insert("ACL", rule(1001, "allow-related", &more)));
                }
            }
            let members = those(target).into_iter().map(|(uuid, _)| Atom::Uuid(uuid)).collect::<Vec<_>>();
            let row = Row::new().text("name", &group).set("ports", Datum::set(members)).set("acls", Datum::set(rules));
            writer.insert("Port_Group", row);
            writer.flush().await?;
        }
        Ok(())
    }
}

/// Removes everything; rules are removed with their groups.
async fn remove(world: &World, made: &[(&'static str, Uuid)]) -> Result<()> {
    let client = connect(&world.northbound, &[]).await?;
    let roots: Vec<_> = made.iter().filter(|(table, _)| *table != "ACL").collect();
    for part in roots.chunks(BATCH) {
        let mut transaction = Transaction::new();
        for (table, uuid) in part {
            transaction.delete(table, vec![Condition::uuid(*uuid)]);
        }
        client.transact(&transaction).await?;
    }
    Ok(())
}
