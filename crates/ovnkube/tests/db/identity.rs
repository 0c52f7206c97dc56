//! Raft identities: lessons 6, 7, 19 and 30 of docs/lessons.md.

use crate::site::{LIMIT, Member, Site, until};

fn shell(site: &Site, script: &str) -> String {
    site.machine().run(&["sh", "-c", script]).unwrap()
}

/// Lesson 30: the member that created the cluster lost its volume while its peers are down.
#[test]
fn an_initiator_without_its_volume_and_peers_starts_no_second_cluster() {
    let site = Site::start("second");
    site.namespace("one");
    let members = [1, 2, 3].map(|number| Member::new(number, "nb", "one", &[1, 2, 3]));
    site.serve(&members[0]);
    site.await_member(&members[0]);
    members[1..].iter().for_each(|member| site.serve(member));
    members.iter().for_each(|member| site.await_member(member));
    let record = site.record("one", "nb");
    assert!(record.contains("\"initiator\":\"member-1\""), "{record}");
    let cluster = site.raft(&members[0], "Cluster ID");

    members.iter().rev().for_each(|member| site.stop(member));
    shell(&site, &format!("rm {}", members[0].file()));
    site.serve(&members[0]);
    // It joins the recorded cluster, which nobody else serves now, and goes on trying.
    let status = until("the initiator joins", || {
        Some(site.raft(&members[0], "Status")).filter(|status| status.starts_with("joining cluster"))
    });
    site.await_finding(&members[0], "NoQuorum");
    assert_eq!(site.raft(&members[0], "Status"), status);
    assert_eq!(site.record("one", "nb"), record);
    // Its server, and a second start, change nothing about that.
    site.stop(&members[0]);
    site.serve(&members[0]);
    site.await_finding(&members[0], "NoQuorum");
    assert_eq!(site.record("one", "nb"), record);

    members[1..].iter().for_each(|member| site.serve(member));
    members.iter().for_each(|member| site.await_member(member));
    assert_eq!(site.raft(&members[0], "Cluster ID"), cluster);
    assert_eq!(site.record("one", "nb"), record);
}

/// Lessons 6 and 7: files of another cluster, zeroed headers and damage after the header are refused, and stay as they are.
#[test]
fn no_manager_changes_or_removes_a_file_that_it_cannot_use() {
    let site = Site::start("identity");
    site.namespace("kept");
    let members = [1, 2, 3].map(|number| Member::new(number, "nb", "kept", &[1, 2, 3]));
    members.iter().for_each(|member| site.serve(member));
    members.iter().for_each(|member| site.await_member(member));
    // Records after the header, one of which is damaged below.
    let socket = format!("--db=unix:{}/ovnnb_db.sock", members[0].run());
    shell(
        &site,
        &format!("for i in $(seq 1 12); do ovn-nbctl --no-leader-only {socket} ls-add switch-$i || exit 1; done"),
    );
    let cluster = site.raft(&members[0], "Cluster ID");
    let id = cluster.split_once('(').unwrap().1.trim_end_matches(')').to_owned();
    let victim = &members[2];
    let file = victim.file();
    site.stop(victim);
    shell(&site, &format!("cp {file} {file}.good"));

    // With the right checksum: it is the ID that is wrong, as after a reboot of all machines. The header is the first record.
    let zero_id = format!(
        "sed '2s/{id}/00000000-0000-0000-0000-000000000000/' {file}.good > {file}; \
         length=$(head -n 1 {file} | cut -d' ' -f3); sum=$(tail -n +2 {file} | head -c $length | sha1sum | cut -d' ' -f1); \
         sed -i \"1s/ [0-9a-f]*$/ $sum/\" {file}"
    );
    let foreign = format!(
        "rm {file}; ovsdb-tool -vconsole:err create-cluster {file} /usr/share/ovn/ovn-nb.ovsschema tcp:127.0.1.3:6643"
    );
    // Not the last record: that one a crash may have interrupted.
    let rotten = format!(
        "cp {file}.good {file}; record=$(grep -abo 'OVSDB CLUSTER' {file} | tail -n 8 | head -n 1 | cut -d: -f1); \
         printf X | dd of={file} bs=1 seek=$((record + 100)) conv=notrunc"
    );
    for (script, finding) in [
        (zero_id.as_str(), "DamagedFile"),
        ("head -c 4096 /dev/zero > FILE", "DamagedFile"),
        ("head -c 100 FILE.good > FILE", "DamagedFile"),
        (&foreign, "ForeignCluster"),
        (&rotten, "DamagedFile"),
    ] {
        shell(&site, &format!("rm -f {}/.*~lock~", victim.data()));
        shell(&site, &script.replace("FILE", &file));
        let before = site.sum(&file);
        let others = shell(&site, &format!("ls {}", victim.data()));
        site.serve(victim);
        let message = site.await_finding(victim, finding);
        assert!(message.contains("ovnkube db replace-member"), "{message}");
        site.await_finding(victim, "NotRunning");
        site.stop(victim);
        assert_eq!(site.sum(&file), before, "{script} changed the file");
        assert_eq!(shell(&site, &format!("ls {}", victim.data())), others, "{script} changed the directory");
    }
    // The cluster did not notice, and the good file is still a member.
    assert_eq!(site.raft(&members[0], "Cluster ID"), cluster);
    shell(&site, &format!("cp {file}.good {file}"));
    site.serve(victim);
    site.await_member(victim);
    assert_eq!(site.raft(victim, "Cluster ID"), cluster);
}

/// Lesson 19: the disk of a member fills up. It is reported before, the file is compacted, and the server runs again when
/// there is space.
#[test]
fn a_full_disk_is_reported_before_and_the_server_returns_when_there_is_space() {
    let site = Site::start("full");
    site.namespace("full");
    let member = Member::new(1, "nb", "full", &[1]);
    shell(&site, &format!("mkdir -p {0} && mount -t tmpfs -o size=160m none {0}", member.data()));
    site.serve(&member);
    site.await_member(&member);
    let socket = format!("--db=unix:{}/ovnnb_db.sock", member.run());

    // The log grows by rewriting one large value: the file does, the database does not.
    shell(&site, &format!("head -c 1000000 /dev/zero | tr '\\0' x > {}/value", member.run()));
    let size = || site.manager(&member)["fileBytes"].as_u64().unwrap_or(0);
    let grow = format!(
        "v=$(head -c 100000 {}/value); for i in $(seq 1 260); do ovn-nbctl {socket} set NB_Global . name=$i$v || exit 1; done",
        member.run()
    );
    // On a busy machine so many commands take longer than the usual limit of one.
    site.machine().run_within(LIMIT, &["sh", "-c", &grow]).unwrap();
    let before = until("the manager sees the large file", || Some(size()).filter(|size| *size > 16 << 20));
    shell(&site, &format!("fallocate -l 60M {}/other", member.data()));
    site.await_finding(&member, "DiskAlmostFull");
    until("the file is compacted", || Some(size()).filter(|size| *size < before / 4));
    assert!(site.lab.log(&member.component()).unwrap().contains("disk almost full; compacted the database"));

    // Really full: what cannot be committed is not acknowledged; with space it works again without help.
    shell(&site, &format!("dd if=/dev/zero of={}/filler bs=1M || true", member.data()));
    // Each write is new and larger than the last block of the file.
    let mut count = 0;
    let mut write = || {
        count += 1;
        let script = format!(
            "v=$(head -c 20000 {}/value); ovn-nbctl --timeout=5 {socket} set NB_Global . name=full-{count}$v",
            member.run()
        );
        site.machine().run(&["sh", "-c", &script])
    };
    until("a write fails", || write().err());
    until("the full disk is named", || {
        ["DiskFull", "DiskAlmostFull"].iter().find_map(|name| site.finding(&member, name))
    });
    until("what is shown as free is free", || {
        site.manager(&member)["diskFreeBytes"].as_u64().filter(|free| *free < 1 << 20)
    });
    shell(&site, &format!("rm {0}/filler {0}/other", member.data()));
    until("a write succeeds again", || write().ok());
    for name in ["DiskFull", "DiskAlmostFull", "NotRunning"] {
        site.await_resolved(&member, name);
    }
}
