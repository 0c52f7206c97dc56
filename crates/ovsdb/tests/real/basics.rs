//! The client without faults.

use lab::Databases;
use ovsdb::client::{CallError, Client, CommitError, Committer, Config, Resolution, SequenceCell, TableMonitor};
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::{Condition, Function, Mutation, Mutator};
use ovsdb::replica::Snapshot;
use ovsdb::transaction::{Row, Transaction};
use ovsdb::uuid::Uuid;

use crate::common::{
    TIMEOUT, add_switch, await_replica, await_status, config, connect, count_switches, databases, has_switch,
    next_changes, see_switch,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_replica_follows_own_and_foreign_transactions() {
    let lab = databases("follow", Databases::Standalone);
    lab.nbctl(&["ls-add", "before"]).unwrap();
    let client = connect(config(&lab)).await;
    assert!(has_switch(&client.snapshot(), "before"));
    let mut changes = client.subscribe();
    assert!(next_changes(&mut changes).await.changes.iter().all(|change| change.before.is_none()));

    let uuid = Uuid::from_bytes([0x42; 16]);
    let mut transaction = Transaction::new();
    let ids = [("k8s.ovn.org/name", "n1")];
    let place =
        transaction.insert_with_uuid("Logical_Switch", uuid, Row::new().text("name", "ours").map("external_ids", ids));
    let outcome = client.transact(&transaction).await.unwrap();
    assert_eq!(outcome.inserted(place), Some(uuid));
    see_switch(&client, "ours").await;
    let batch = next_changes(&mut changes).await;
    assert_eq!((batch.changes.len(), batch.changes[0].uuid), (1, uuid));

    lab.nbctl(&["set", "logical_switch", "ours", "external_ids:more=1"]).unwrap();
    let batch = next_changes(&mut changes).await;
    let row = batch.snapshot.table("Logical_Switch").unwrap().get(uuid).unwrap();
    assert_eq!(row.get("external_ids").unwrap().get_str("more").unwrap(), "1");
    lab.nbctl(&["ls-del", "ours"]).unwrap();
    assert_eq!(next_changes(&mut changes).await.changes[0].after, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_operation_names_its_owner_and_a_dry_run_changes_nothing() {
    let lab = databases("refuse", Databases::Standalone);
    let client = connect(config(&lab)).await;
    let mut transaction = Transaction::new();
    transaction.owned_by("node n1").insert("Logical_Switch", Row::new().text("name", "good"));
    transaction.owned_by("node n2").insert("Logical_Switch", Row::new().set("name", Atom::Integer(1)));
    let Err(CallError::Refused(refusal)) = client.transact(&transaction).await else {
        panic!("the operation was accepted")
    };
    assert_eq!((refusal.position, refusal.owner.as_deref()), (Some(1), Some("node n2")));
    let rest = transaction.without("node n2");
    assert!(client.dry_run(&rest).await.unwrap().inserted(0).is_some());
    client.transact(&rest).await.unwrap();
    see_switch(&client, "good").await;
    // The dry run wrote nothing: there is one switch, not two.
    assert_eq!(count_switches(&client.snapshot(), "good"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_kinds_of_operations_work() {
    let lab = databases("operations", Databases::Standalone);
    let client = connect(config(&lab)).await;
    let uuid = Uuid::from_bytes([7; 16]);
    let mut transaction = Transaction::new();
    transaction.comment("from a test");
    transaction.insert_with_uuid("Logical_Switch", uuid, Row::new().text("name", "sw"));
    transaction.insert_named("Logical_Switch_Port", "port", Row::new().text("name", "p1"));
    transaction.mutate(
        "Logical_Switch",
        vec![Condition::uuid(uuid)],
        vec![Mutation::new("ports", Mutator::Insert, Atom::Named("port".into()))],
    );
    let read = transaction.select("Logical_Switch", vec![Condition::equals("name", "sw")], &["ports"]);
    let outcome = client.transact(&transaction).await.unwrap();
    assert_eq!(outcome.rows(read).unwrap().len(), 1);

    let mut guarded = Transaction::new();
    let wrong = Datum::map([(Atom::String("k".into()), Atom::String("v".into()))]);
    guarded.require("Logical_Switch", uuid, vec![Condition::new("external_ids", Function::Includes, wrong)]);
    guarded.delete("Logical_Switch", vec![Condition::uuid(uuid)]);
    let Err(CallError::Refused(refusal)) = client.transact(&guarded).await else { panic!("the wait did not fail") };
    assert_eq!((refusal.position, refusal.error.error.as_str()), (Some(0), "timed out"));

    let mut aborted = add_switch("never");
    aborted.abort();
    assert!(matches!(client.transact(&aborted).await, Err(CallError::Refused(_))));
    assert!(!lab.nbctl(&["ls-list"]).unwrap().contains("never"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn monitor_conditions_change_at_run_time() {
    let lab = databases("conditions", Databases::Standalone);
    lab.nbctl(&["ls-add", "blue", "--", "ls-add", "red"]).unwrap();
    let mut config = config(&lab);
    config.tables[0] = config.tables[0].clone().conditions(vec![Condition::equals("name", "blue")]);
    let client = connect(config).await;
    assert!(has_switch(&client.snapshot(), "blue") && !has_switch(&client.snapshot(), "red"));
    client.set_conditions("Logical_Switch", Some(vec![Condition::equals("name", "red")])).await.unwrap();
    let only_red = |snapshot: &Snapshot| !has_switch(snapshot, "blue") && has_switch(snapshot, "red");
    await_replica(&client, "only the red one", only_red).await;
    client.set_conditions("Logical_Switch", None).await.unwrap();
    see_switch(&client, "blue").await;
    assert!(client.set_conditions("Nowhere", None).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_has_one_holder() {
    let lab = databases("locks", Databases::Standalone);
    let (one, two) = (connect(config(&lab)).await, connect(config(&lab)).await);
    assert!(one.lock("leader").await.unwrap());
    assert!(!two.lock("leader").await.unwrap());
    let mut asserted = add_switch("locked");
    asserted.assert_lock("leader");
    assert!(matches!(two.transact(&asserted).await, Err(CallError::Refused(_))));
    one.transact(&asserted).await.unwrap();
    one.unlock("leader").await.unwrap();
    let mut status = two.status();
    tokio::time::timeout(TIMEOUT, status.wait_for(|status| status.locks == ["leader"])).await.unwrap().unwrap();
    one.steal("leader").await.unwrap();
    tokio::time::timeout(TIMEOUT, status.wait_for(|status| status.locks.is_empty())).await.unwrap().unwrap();
    // A lock belongs to a session; after the server's restart one of the two gets it again.
    drop(two);
    lab.kill("nb").unwrap();
    lab.restart("nb").unwrap();
    await_status(&one, |status| status.sessions > 1 && status.locks == ["leader"]).await;
    one.transact(&asserted).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_columns_are_reported_and_the_rest_works() {
    let lab = databases("missing", Databases::Standalone);
    let mut config = config(&lab).monitor(TableMonitor::new("Flux_Capacitor"));
    config.tables[0].columns.as_mut().unwrap().push("gigawatts".into());
    let client = connect(config).await;
    let missing: Vec<String> = client.status().borrow().missing.iter().map(ToString::to_string).collect();
    assert_eq!(missing, ["Logical_Switch.gigawatts", "Flux_Capacitor"]);
    client.transact(&add_switch("still")).await.unwrap();
    see_switch(&client, "still").await;
    assert!(client.databases().await.unwrap().contains(&"OVN_Northbound".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_takeover_fences_the_former_writer() {
    let lab = databases("writers", Databases::Standalone);
    let client = connect(config(&lab)).await;
    let cell = cell(&client);
    let mut first = Committer::take_over(client.clone(), cell.clone(), "first", TIMEOUT).await.unwrap();
    let committed = first.commit(&add_switch("one"), TIMEOUT).await.unwrap();
    assert!(committed.outcome.unwrap().inserted(0).is_some());
    let mut second = Committer::take_over(client.clone(), cell, "second", TIMEOUT).await.unwrap();
    second.commit(&add_switch("two"), TIMEOUT).await.unwrap();
    assert!(matches!(first.commit(&add_switch("three"), TIMEOUT).await, Err(CommitError::Fenced { .. })));
    // A rejected transaction does not affect later ones; nor does one with a string for which the server ends the session.
    for row in [Row::new().set("name", Atom::Integer(1)), Row::new().text("name", "n2\0n3")] {
        let mut bad = Transaction::new();
        bad.owned_by("bad").insert("Logical_Switch", row);
        let Err(CommitError::Refused(refusal)) = second.commit(&bad, TIMEOUT).await else {
            panic!("the operation was accepted")
        };
        assert_eq!((refusal.position, refusal.owner.as_deref()), (Some(0), Some("bad")), "{refusal}");
    }
    assert_eq!(client.status().borrow().sessions, 1);
    second.commit(&add_switch("four"), TIMEOUT).await.unwrap();
    let switches = lab.nbctl(&["ls-list"]).unwrap();
    assert!(switches.contains("four") && !switches.contains("three"), "{switches}");
}

/// A sequence cell in NB_Global's row.
pub(crate) fn cell(client: &Client) -> SequenceCell {
    let snapshot = client.snapshot();
    let uuid = snapshot.table("NB_Global").unwrap().iter().next().unwrap().uuid;
    SequenceCell { table: "NB_Global".into(), uuid, column: "external_ids".into(), key: "test-sequence".into() }
}

#[tokio::test]
async fn without_a_server_calls_fail_as_not_sent() {
    let mut config = Config::new(vec!["unix:/nowhere/db.sock".parse().unwrap()], "OVN_Northbound");
    config.call_timeout = std::time::Duration::from_millis(300);
    let client = Client::start(config);
    let error = client.transact(&add_switch("x")).await.unwrap_err();
    assert!(matches!(&error, CallError::NotSent { .. }) && error.to_string().contains("/nowhere/db.sock"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_database_can_be_monitored() {
    let lab = databases("server", Databases::Standalone);
    let remotes = config(&lab).remotes;
    let client = connect(Config::new(remotes, "_Server").monitor(TableMonitor::new("Database"))).await;
    let snapshot = client.snapshot();
    let names: Vec<String> = snapshot.table("Database").unwrap().iter().filter_map(|row| row.text("name")).collect();
    assert!(names.contains(&"OVN_Northbound".to_owned()) && names.contains(&"_Server".to_owned()), "{names:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_commit_is_resolved_before_the_next() {
    let lab = databases("given-up", Databases::Standalone);
    let mut settings = config(&lab);
    settings.probe_interval = TIMEOUT;
    let client = connect(settings).await;
    let mut committer = Committer::take_over(client.clone(), cell(&client), "w", TIMEOUT).await.unwrap();
    for round in 0..5 {
        let (x, y) = (format!("x{round}"), format!("y{round}"));
        let paused = lab.pause("nb").unwrap();
        // The request is sent and the caller gives up: the paused server commits it later.
        let first = add_switch(&x);
        let moment = std::time::Duration::from_millis(100);
        assert!(tokio::time::timeout(moment, committer.commit(&first, TIMEOUT)).await.is_err());
        paused.resume().unwrap();
        assert!(matches!(committer.commit(&add_switch(&y), TIMEOUT).await, Err(CommitError::InDoubt)));
        let resolution = committer.resolve(TIMEOUT).await.unwrap().unwrap();
        assert!(!committer.in_doubt());
        committer.commit(&add_switch(&y), TIMEOUT).await.unwrap();
        let switches = lab.nbctl(&["--bare", "--columns=name", "list", "logical_switch"]).unwrap();
        let count = |name: &str| switches.lines().filter(|line| *line == name).count();
        assert_eq!((count(&x), count(&y)), (usize::from(resolution == Resolution::Committed), 1), "{resolution:?}");
    }
    let nowhere = SequenceCell { uuid: Uuid::from_bytes([9; 16]), ..cell(&client) };
    let error = Committer::take_over(client, nowhere, "w2", TIMEOUT).await.unwrap_err();
    assert!(matches!(error, CommitError::NoCell { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_condition_does_not_open_the_whole_table() {
    let lab = databases("refused", Databases::Standalone);
    lab.nbctl(&["ls-add", "blue", "--", "ls-add", "red"]).unwrap();
    let mut settings = config(&lab);
    settings.tables[0] = settings.tables[0].clone().conditions(vec![Condition::equals("name", "blue")]);
    let client = connect(settings).await;
    let bad = vec![Condition::equals("no_such_column", "x")];
    assert!(client.set_conditions("Logical_Switch", Some(bad)).await.is_err());
    lab.kill("nb").unwrap();
    lab.restart("nb").unwrap();
    await_status(&client, |status| status.connected && status.sessions > 1).await;
    assert!(has_switch(&client.snapshot(), "blue") && !has_switch(&client.snapshot(), "red"));
}
