//! Labs and clients for the tests.

use std::io::Read;
use std::time::Duration;

use lab::{Database, Databases, Lab, LabSpec, Ovn};
use ovsdb::client::{Client, Config, Remote, Status, Subscription, TableMonitor};
use ovsdb::datum::{Atom, Datum};
use ovsdb::frame::{Framer, Limits};
use ovsdb::replica::{Changes, IndexKey, Snapshot};
use ovsdb::transaction::{Row, Transaction};

/// Limit of every wait.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Delay between retries.
pub(crate) const AGAIN: Duration = Duration::from_millis(10);

pub(crate) fn databases(purpose: &str, databases: Databases) -> Lab {
    Lab::start(LabSpec::for_test(purpose).unwrap().ovn(Ovn { databases, ..Ovn::default() })).unwrap()
}

/// A northbound client that monitors switches and ports, with short timeouts.
pub(crate) fn config(lab: &Lab) -> Config {
    let remotes = lab.record().endpoints.northbound.unwrap();
    let mut config = Config::new(Remote::parse_list(&remotes).unwrap(), "OVN_Northbound")
        .monitor(
            TableMonitor::new("Logical_Switch")
                .columns(&["name", "ports", "external_ids", "other_config"])
                .index(&["name"]),
        )
        .monitor(TableMonitor::new("NB_Global"));
    config.probe_interval = Duration::from_secs(2);
    config.backoff.longest = Duration::from_millis(500);
    config
}

pub(crate) async fn connect(config: Config) -> Client {
    let client = Client::start(config);
    client.connected(TIMEOUT).await.unwrap();
    client
}

pub(crate) fn add_switch(name: &str) -> Transaction {
    let mut transaction = Transaction::new();
    transaction.insert("Logical_Switch", Row::new().text("name", name));
    transaction
}

pub(crate) fn has_switch(snapshot: &Snapshot, name: &str) -> bool {
    count_switches(snapshot, name) > 0
}

pub(crate) fn count_switches(snapshot: &Snapshot, name: &str) -> usize {
    let table = snapshot.table("Logical_Switch").unwrap();
    let key = IndexKey::columns(table.schema(), &["name"]).unwrap();
    table.find(&key, &[Datum::One(Atom::String(name.into()))]).count()
}

/// Waits for the next changes.
pub(crate) async fn next_changes(changes: &mut Subscription) -> Changes {
    tokio::time::timeout(TIMEOUT, changes.next()).await.unwrap_or_else(|_| panic!("no change came in {TIMEOUT:?}"))
}

/// Waits until the replica meets a condition.
pub(crate) async fn await_replica(client: &Client, what: &str, wanted: impl Fn(&Snapshot) -> bool) {
    let mut changes = client.subscribe();
    let seeing = async {
        while !wanted(&client.snapshot()) {
            changes.next().await;
        }
    };
    tokio::time::timeout(TIMEOUT, seeing)
        .await
        .unwrap_or_else(|_| panic!("the replica never showed {what}: {:?}", client.status().borrow()));
}

/// Waits until the replica has a switch.
pub(crate) async fn see_switch(client: &Client, name: &str) {
    await_replica(client, name, |snapshot| has_switch(snapshot, name)).await;
}

/// Writes a switch; retries until it is acknowledged.
pub(crate) async fn write_switch(client: &Client, name: &str) {
    let writing = async {
        while client.transact(&add_switch(name)).await.is_err() {
            // Yield after an immediate failure, so that the timeout can fire.
            tokio::time::sleep(AGAIN).await;
        }
    };
    tokio::time::timeout(TIMEOUT, writing)
        .await
        .unwrap_or_else(|_| panic!("{name} could not be written: {:?}", client.status().borrow()));
}

/// Waits for a leader of the northbound database.
pub(crate) fn await_leader(lab: &Lab) -> String {
    let deadline = std::time::Instant::now() + TIMEOUT;
    loop {
        match lab.raft_leader(Database::Northbound) {
            Ok(leader) => return leader,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
        }
    }
}

/// A client connected to the leader, and the leader's name.
pub(crate) async fn connect_to_leader(lab: &Lab, mut config: Config) -> (Client, String) {
    loop {
        let leader = await_leader(lab);
        // The leader is last in the list: the client must search for it.
        config.remotes.sort_by_key(|remote| remote.to_string().contains(&machine_of(&leader)));
        let client = connect(config.clone()).await;
        let serving = client.status().borrow().remote.clone().unwrap_or_default();
        if serving.contains(&machine_of(&leader)) {
            return (client, leader);
        }
        // On a busy machine the leader may have changed meanwhile.
        assert_ne!(await_leader(lab), leader, "{serving} does not lead, {leader} does");
    }
}

pub(crate) fn machine_of(component: &str) -> String {
    component.replace("nb-", "db-")
}

/// Waits until the client's status meets a condition.
pub(crate) async fn await_status(client: &Client, wanted: impl FnMut(&Status) -> bool) -> Status {
    let mut status = client.status();
    let waiting = status.wait_for(wanted);
    match tokio::time::timeout(TIMEOUT, waiting).await {
        Ok(status) => status.unwrap().clone(),
        Err(_) => panic!("the client's status is {:?}", client.status().borrow()),
    }
}

/// Passes each whole message of a stream to `take` until the stream ends or `take` returns false.
pub(crate) fn for_each_message(mut from: impl Read, mut take: impl FnMut(Vec<u8>) -> bool) {
    let mut framer = Framer::new(Limits::default());
    let mut chunk = [0; 1 << 16];
    while let Ok(read) = from.read(&mut chunk) {
        if read == 0 {
            return;
        }
        framer.buffer().extend_from_slice(&chunk[..read]);
        while let Ok(Some(message)) = framer.next_frame() {
            if !take(message) {
                return;
            }
        }
    }
}
