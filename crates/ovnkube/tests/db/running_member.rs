//! What is destroyed under a running member: its file, and the record in the API. It keeps its data, and says what is wrong.

use serde_json::json;

use crate::site::{Member, Site, until};

fn set_record(site: &Site, value: &str) {
    let patch = json!({"data": {"nb": value}}).to_string();
    site.lab.kubectl(&["-n", "alone-1", "patch", "configmap", "ovnkube-db", "--type=merge", "-p", &patch]).unwrap();
}

impl Site {
    /// A change of the database: without one, a server writes no new snapshot.
    fn add_switch(&self, member: &Member) {
        self.shell(&format!("ovn-nbctl --db=unix:{}/ovnnb_db.sock ls-add", member.run()));
    }
}

fn server(site: &Site, member: &Member) -> u64 {
    until("the server runs", || site.manager(member)["process"].as_u64())
}

#[test]
fn a_lost_file_is_written_again_by_the_running_server() {
    let site = Site::start("lost-file");
    let member = site.alone(1);
    site.serve(&member);
    site.await_member(&member);
    let cluster = site.raft(&member, "Cluster ID");
    let process = server(&site, &member);
    for destroy in ["rm FILE", "truncate -s 0 FILE"] {
        site.shell(&destroy.replace("FILE", &member.file()));
        let message = site.await_finding(&member, "DamagedFile");
        assert!(message.contains(&member.file()) && message.contains("writes it again"), "{message}");
        site.add_switch(&member);
        site.await_resolved(&member, "DamagedFile");
    }
    // Another file is left alone until somebody moves it away.
    let keep = format!("cp {0} {0}.copy && mv {0}.copy {0}", member.file());
    site.shell(&keep);
    let before = site.sum(&member.file());
    let message = site.await_finding(&member, "DamagedFile");
    assert!(message.contains("move it away"), "{message}");
    assert_eq!(site.sum(&member.file()), before);
    site.shell(&format!("mv {0} {0}.found", member.file()));
    site.add_switch(&member);
    site.await_resolved(&member, "DamagedFile");
    assert_eq!(server(&site, &member), process, "the server was not restarted");
    // What was written is the same member.
    site.stop(&member);
    site.serve(&member);
    site.await_member(&member);
    assert_eq!(site.raft(&member, "Cluster ID"), cluster);
}

#[test]
fn a_bad_record_is_reported_and_stops_no_member_with_data() {
    let site = Site::start("bad-record");
    let member = site.alone(1);
    site.serve(&member);
    site.await_member(&member);
    let (cluster, good) = (site.raft(&member, "Cluster ID"), site.record("alone-1", "nb"));
    let id = cluster.split_once('(').unwrap().1.trim_end_matches(')').to_owned();
    let other = "11111111-2222-4333-8444-555555555555";
    let replaced = json!({"clusterId": other, "initiator": "x", "replaced": [id]}).to_string();
    let foreign = json!({"clusterId": other, "initiator": "x"}).to_string();
    for (record, part) in [("garbage{", "key nb"), (replaced.as_str(), "replaced cluster"), (&foreign, "names cluster")]
    {
        set_record(&site, record);
        let message = site.await_finding(&member, "BadRecord");
        assert!(message.contains(part), "{message}");
        assert_eq!(site.raft(&member, "Cluster ID"), cluster);
        set_record(&site, &good);
        site.await_resolved(&member, "BadRecord");
    }
    // With a record that cannot be read, its server is restarted all the same.
    set_record(&site, "garbage{");
    site.await_finding(&member, "BadRecord");
    let process = server(&site, &member);
    site.shell(&format!("kill -9 {process}"));
    until("the server is restarted", || site.manager(&member)["process"].as_u64().filter(|now| *now != process));
    site.await_member(&member);
    assert_eq!(site.raft(&member, "Cluster ID"), cluster);
    set_record(&site, &good);
    site.await_resolved(&member, "BadRecord");
}

#[test]
fn a_second_manager_is_refused() {
    let site = Site::start("second-manager");
    let member = site.alone(1);
    site.serve(&member);
    site.await_member(&member);
    site.lab.run(&member.program_as("second".into(), "off")).unwrap();
    let status = site.lab.wait_end("second", crate::site::LIMIT).unwrap();
    assert!(!status.success());
    let log = site.lab.log("second").unwrap();
    assert!(log.contains("another manager of this server runs"), "{log}");
    assert!(site.appctl(&member, &["cluster/status", member.schema()]).is_ok(), "its control socket is there");
}

#[test]
fn a_second_manager_of_the_same_volume_waits_until_the_first_one_ends() {
    let site = Site::start("one-volume");
    let first = site.alone(1);
    site.serve(&first);
    site.await_member(&first);
    // Two pods with one volume: sockets and locks of their own.
    let second = Member::new(2, "nb", "alone-1", &[2]);
    site.shell(&format!("ln -s {} {}", first.data(), second.data()));
    site.serve(&second);
    let message = site.await_finding(&second, "VolumeInUse");
    assert!(message.contains("another manager of this server runs") && message.contains("stop it first"), "{message}");
    site.await_finding(&second, "NotRunning");
    let (text, code) = site.status(&second, &[]);
    assert!(text.contains("problem: VolumeInUse: ") && code == 1, "{code}: {text}");
    assert!(site.appctl(&second, &["version"]).is_err(), "a second server runs on the volume");
    site.await_member(&first);

    let cluster = site.raft(&first, "Cluster ID");
    site.stop(&first);
    site.await_resolved(&second, "VolumeInUse");
    site.await_member(&second);
    assert_eq!(site.raft(&second, "Cluster ID"), cluster);
}
