//! A backup server takes over while the former active one still accepts writes: the client follows the list of servers, and
//! the sequence cell fences a writer that has committed to the former one.

use lab::{Databases, Lab, Program};
use ovsdb::client::{CommitError, Committer, Remote};
use tokio::sync::watch;

use crate::basics::cell;
use crate::common::{TIMEOUT, add_switch, config, connect, count_switches, databases, has_switch};

const BACKUP: &str = "/run/ovn/backup.ctl";

/// A second northbound server, which replicates from the first; returns both addresses, valid on the host.
fn with_backup(lab: &Lab) -> (Remote, Remote) {
    let control = lab.machine("control").unwrap();
    control.run(&["ovsdb-tool", "create", "/run/ovn/backup.db", "/usr/share/ovn/ovn-nb.ovsschema"]).unwrap();
    let program = Program::new("backup", "ovsdb-server").arguments([
        "-vconsole:info",
        "--unixctl=/run/ovn/backup.ctl",
        "--remote=punix:/run/ovn/backup.sock",
        "--sync-from=unix:/run/ovn/ovnnb_db.sock",
        "/run/ovn/backup.db",
    ]);
    lab.run(&program).unwrap();
    let active: Remote = lab.record().endpoints.northbound.unwrap().parse().unwrap();
    let Remote::Unix(path) = &active else { panic!("{active}") };
    let backup = Remote::Unix(path.with_file_name("backup.sock"));
    (active, backup)
}

fn command(lab: &Lab, command: &str) -> String {
    let command = format!("ovsdb-server/{command}");
    lab.machine("control").unwrap().run(&["ovs-appctl", "-t", BACKUP, &command]).unwrap_or_default()
}

#[tokio::test]
async fn a_writer_of_the_former_active_server_is_fenced_by_the_new_one() {
    let lab = databases("failover", Databases::Standalone);
    let (active, backup) = with_backup(&lab);
    let list = |remotes: &[&Remote]| Some(remotes.iter().map(|it| (*it).clone()).collect::<Vec<_>>());
    let (servers, updates) = watch::channel(list(&[&active]));
    let mut settings = config(&lab);
    settings.remote_updates = Some(updates);
    let client = connect(settings.clone()).await;
    let mut writer = Committer::take_over(client.clone(), cell(&client), "former", TIMEOUT).await.unwrap();
    writer.commit(&add_switch("replicated"), TIMEOUT).await.unwrap();

    // A second server in the list does not end the session.
    let sessions = client.status().borrow().sessions;
    servers.send_replace(list(&[&backup, &active]));
    writer.commit(&add_switch("also-replicated"), TIMEOUT).await.unwrap();
    assert_eq!(client.status().borrow().sessions, sessions);

    // The backup has it all, and becomes active: the other one is cut off, and does not know.
    settings.remotes = vec![backup.clone()];
    settings.remote_updates = None;
    let other = connect(settings).await;
    while !has_switch(&other.snapshot(), "also-replicated") {
        tokio::time::sleep(crate::common::AGAIN).await;
    }
    assert!(command(&lab, "sync-status").contains("replicating"));
    command(&lab, "disconnect-active-ovsdb-server");
    let mut successor = Committer::take_over(other.clone(), cell(&other), "successor", TIMEOUT).await.unwrap();
    successor.commit(&add_switch("of-the-successor"), TIMEOUT).await.unwrap();
    // The former one still accepts this. It is lost.
    writer.commit(&add_switch("lost"), TIMEOUT).await.unwrap();

    // Its writer follows the list to the new server, and can write nothing there.
    servers.send_replace(list(&[&backup]));
    let fenced = writer.commit(&add_switch("fenced"), TIMEOUT).await;
    assert!(matches!(fenced, Err(CommitError::Fenced { .. })), "{fenced:?}");
    assert_eq!(client.status().borrow().remote.as_deref(), Some(backup.to_string().as_str()));
    let snapshot = client.snapshot();
    for (name, count) in
        [("replicated", 1), ("also-replicated", 1), ("of-the-successor", 1), ("lost", 0), ("fenced", 0)]
    {
        assert_eq!(count_switches(&snapshot, name), count, "{name}");
    }
    successor.commit(&add_switch("goes-on"), TIMEOUT).await.unwrap();
}
