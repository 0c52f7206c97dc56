//! The client against three raft members under faults.

use std::time::Duration;

use lab::{Database, Databases};
use ovsdb::client::Config;
use ovsdb::operation::Condition;

use crate::common::{
    add_switch, await_leader, await_status, config, connect, connect_to_leader, databases, has_switch, machine_of,
    next_changes, see_switch, write_switch,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_survives_a_killed_leader_and_follower() {
    let lab = databases("kill", Databases::Raft);
    let (client, leader) = connect_to_leader(&lab, config(&lab)).await;
    write_switch(&client, "before").await;
    lab.kill(&leader).unwrap();
    write_switch(&client, "after").await;
    see_switch(&client, "after").await;
    assert!(has_switch(&client.snapshot(), "before"));
    lab.restart(&leader).unwrap();
    let follower =
        ["nb-1", "nb-2", "nb-3"].into_iter().find(|member| *member != await_leader(&lab) && *member != leader).unwrap();
    lab.kill(follower).unwrap();
    write_switch(&client, "later").await;
    see_switch(&client, "later").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_leader_is_left_for_its_successor() {
    let lab = databases("stop", Databases::Raft);
    // Its silence alone would end no session.
    let (client, leader) =
        connect_to_leader(&lab, Config { probe_interval: Duration::from_secs(3600), ..config(&lab) }).await;
    let paused = lab.pause(&leader).unwrap();
    let why = await_status(&client, |status| !status.connected).await.last_error.unwrap();
    assert!(why.contains("leads now") && why.contains(&machine_of(&leader)), "{why}");
    write_switch(&client, "meanwhile").await;
    paused.resume().unwrap();
    see_switch(&client, "meanwhile").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_server_without_a_successor_is_given_up() {
    let lab = databases("hang", Databases::Standalone);
    let client = connect(config(&lab)).await;
    let paused = lab.pause("nb").unwrap();
    let why = await_status(&client, |status| !status.connected).await.last_error.unwrap();
    assert!(why.contains("no data from the server"), "{why}");
    paused.resume().unwrap();
    write_switch(&client, "afterwards").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_leaves_a_partitioned_leader() {
    let lab = databases("cut", Databases::Raft);
    let client = connect(config(&lab)).await;
    let leader = await_leader(&lab);
    let alone = machine_of(&leader);
    let others = ["db-1", "db-2", "db-3"].into_iter().filter(|name| *name != alone);
    let cuts: Vec<_> = others.map(|other| lab.partition(&alone, other).unwrap()).collect();
    // The old leader is still reachable, but it steps down: its `_Server` state makes the client leave.
    write_switch(&client, "meanwhile").await;
    see_switch(&client, "meanwhile").await;
    assert!(cuts.iter().map(|cut| cut.dropped().unwrap()).sum::<u64>() > 0);
    assert!(!client.status().borrow().remote.clone().unwrap_or_default().contains(&alone));
    for cut in cuts {
        cut.heal().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_transfers_lose_nothing() {
    let lab = databases("transfer", Databases::Raft);
    let client = connect(config(&lab)).await;
    write_switch(&client, "one").await;
    let socket = Database::Northbound.control_socket();
    let mut changes = client.subscribe();
    next_changes(&mut changes).await;
    for (round, words) in
        [&["ovsdb-server/compact", "OVN_Northbound"][..], &["cluster/failure-test", "transfer-leadership"]]
            .iter()
            .enumerate()
    {
        let leader = await_leader(&lab);
        let machine = lab.machine(&machine_of(&leader)).unwrap();
        let mut command = vec!["ovn-appctl", "-t", &socket];
        command.extend_from_slice(words);
        machine.run(&command).unwrap();
        // Reads and writes work with any leader.
        let name = format!("round-{round}");
        write_switch(&client, &name).await;
        see_switch(&client, &name).await;
    }
    // No spurious changes were seen.
    let seen = changes.take().map_or(0, |batch| batch.changes.iter().filter(|change| change.after.is_none()).count());
    assert_eq!(seen, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_recovers_when_all_members_restart() {
    let lab = databases("quorum", Databases::Raft);
    let client = connect(config(&lab)).await;
    write_switch(&client, "before").await;
    for member in ["nb-1", "nb-2", "nb-3"] {
        lab.kill(member).unwrap();
    }
    await_status(&client, |status| !status.connected).await;
    let error = client.transact_within(&add_switch("lost"), Duration::from_secs(1)).await.unwrap_err();
    assert!(error.to_string().contains("no data") || error.to_string().contains("no server"), "{error}");
    // The replica is still readable.
    assert!(has_switch(&client.snapshot(), "before"));
    for member in ["nb-1", "nb-2", "nb-3"] {
        lab.restart(member).unwrap();
    }
    write_switch(&client, "after").await;
    see_switch(&client, "after").await;
    assert!(has_switch(&client.snapshot(), "before"));
    // Their files are lost: there is a new, empty cluster.
    lab.recreate_database(Database::Northbound).unwrap();
    let status = await_status(&client, |status| status.connected && status.replacements > 0).await;
    assert_eq!(status.replacements, 1);
    write_switch(&client, "anew").await;
    see_switch(&client, "anew").await;
    assert!(!has_switch(&client.snapshot(), "before"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_standalone_restart_only_real_changes_are_seen() {
    let lab = databases("restart", Databases::Standalone);
    for name in ["a", "b", "c"] {
        lab.nbctl(&["ls-add", name]).unwrap();
    }
    let client = connect(config(&lab)).await;
    let mut changes = client.subscribe();
    next_changes(&mut changes).await;
    lab.kill("nb").unwrap();
    lab.restart("nb").unwrap();
    lab.nbctl(&["ls-del", "a", "--", "ls-add", "d"]).unwrap();
    see_switch(&client, "d").await;
    // A standalone server has no history and sends a full dump; only the two changes are seen.
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let batch = next_changes(&mut changes).await;
        let switches = batch.changes.into_iter().filter(|change| change.table == 0);
        seen.extend(switches.map(|change| (change.before.is_some(), change.after.is_some())));
    }
    seen.sort_unstable();
    assert_eq!(seen, [(false, true), (true, false)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_conversion_while_connected_is_followed() {
    let lab = databases("convert", Databases::Raft);
    lab.nbctl(&["ls-add", "kept"]).unwrap();
    let mut config = config(&lab);
    config.tables[0].columns.as_mut().unwrap().push("brand_new".into());
    let client = connect(config).await;
    assert_eq!(client.status().borrow().missing.len(), 1);
    let mut changes = client.subscribe();
    next_changes(&mut changes).await;
    let leader = lab.machine(&machine_of(&await_leader(&lab))).unwrap();
    let script = "set -e; python3 - <<'P'\n\
        import json\n\
        s=json.load(open('/usr/share/ovn/ovn-nb.ovsschema'))\n\
        s['version']='99.0.0'\n\
        s['tables']['Logical_Switch']['columns']['brand_new']={'type':'string'}\n\
        json.dump(s,open('/tmp/new.ovsschema','w'))\nP\n\
        ovsdb-client --timeout=30 convert unix:/run/ovn/ovnnb_db.sock /tmp/new.ovsschema";
    leader.run(&["bash", "-c", script]).unwrap();
    await_status(&client, |status| status.connected && status.missing.is_empty()).await;
    assert_eq!(client.schema().unwrap().version, "99.0.0");
    let row = client.snapshot();
    let row = row.table("Logical_Switch").unwrap().iter().next().unwrap();
    assert_eq!((row.text("name").unwrap(), row.text("brand_new").unwrap()), ("kept".into(), String::new()));
    assert!(
        changes.take().is_none_or(|batch| batch.changes.iter().all(|change| change.table != 0)),
        "the row did not change"
    );
    write_switch(&client, "after").await;
    see_switch(&client, "after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lagging_follower_never_rolls_the_replica_back() {
    let lab = databases("lag", Databases::Raft);
    let mut settings = config(&lab);
    settings.leader_only = false;
    let leader = await_leader(&lab);
    let follower = ["nb-1", "nb-2", "nb-3"].into_iter().find(|member| *member != leader).unwrap();
    let cuts: Vec<_> = ["db-1", "db-2", "db-3"]
        .into_iter()
        .filter(|other| *other != machine_of(follower))
        .map(|other| lab.partition(&machine_of(follower), other).unwrap())
        .collect();
    // The follower is first in the list, so that the client tries it first.
    let place = settings.remotes.iter().position(|remote| remote.to_string().contains(&machine_of(follower))).unwrap();
    let ahead = connect(config(&lab)).await;
    for round in 0..20 {
        write_switch(&ahead, &format!("r{round}")).await;
    }
    settings.remotes.swap(0, place);
    let client = connect(settings).await;
    see_switch(&client, "r19").await;
    // A new client may have tried the lagging member, but cannot have got this row from it.
    let serving = await_status(&client, |status| status.connected).await.remote.unwrap();
    assert!(!serving.contains(&machine_of(follower)), "{serving}");
    let mut changes = client.subscribe();
    next_changes(&mut changes).await;
    // The connected member dies: the lagging one must not be used before it has caught up.
    let dies = ["nb-1", "nb-2", "nb-3"].into_iter().find(|member| serving.contains(&machine_of(member))).unwrap();
    let sessions = client.status().borrow().sessions;
    lab.kill(dies).unwrap();
    for cut in cuts {
        cut.heal().unwrap();
    }
    await_status(&client, |status| status.connected && status.sessions > sessions).await;
    assert!(has_switch(&client.snapshot(), "r19"));
    let gone = changes.take().map_or(0, |batch| batch.changes.iter().filter(|change| change.after.is_none()).count());
    assert_eq!(gone, 0, "the replica was rolled back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_changed_while_disconnected_are_applied() {
    let lab = databases("offline", Databases::Raft);
    lab.nbctl(&["ls-add", "blue", "--", "ls-add", "red"]).unwrap();
    let mut settings = config(&lab);
    settings.tables[0] = settings.tables[0].clone().conditions(vec![Condition::equals("name", "blue")]);
    let (client, leader) = connect_to_leader(&lab, settings).await;
    assert!(has_switch(&client.snapshot(), "blue") && !has_switch(&client.snapshot(), "red"));
    lab.kill(&leader).unwrap();
    await_status(&client, |status| !status.connected).await;
    // The next server knows the last transaction ID, and would send no changes.
    client.set_conditions("Logical_Switch", Some(vec![Condition::equals("name", "red")])).await.unwrap();
    see_switch(&client, "red").await;
    assert!(!has_switch(&client.snapshot(), "blue"));
}
