//! `ovnkube db restore` and `replace-member` while the quorum is lost: what they refuse, and what they do.

use lab::Program;

use crate::site::{LIMIT, Member, Site, host, until};

impl Site {
    /// Runs `ovnkube db` about a member, with the servers of `asked`; returns its output and whether it succeeded.
    fn command(&self, member: &Member, asked: &[u32], words: &[&str]) -> (String, bool) {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let name = format!("command-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let servers: Vec<String> = asked.iter().map(|number| format!("tcp:{}:6641", host(*number))).collect();
        let program = Program::new(&name, env!("CARGO_BIN_EXE_ovnkube"))
            .environment("OVNKUBE_OVNNORTH_ADDRESS", servers.join(","))
            .environment("POD_NAME", format!("member-{}", member.number))
            .arguments(["db", words[0], "nb"])
            .arguments(words[1..].iter().copied())
            .arguments(["--host", &host(member.number), "--namespace", &member.namespace])
            .arguments(["--data-dir", &member.data(), "--run-dir", &member.run()]);
        self.lab.run(&program).unwrap();
        let status = self.lab.wait_end(&name, LIMIT).unwrap();
        (self.lab.log(&name).unwrap(), status.success())
    }

    fn assert_refused(&self, member: &Member, asked: &[u32], words: &[&str], why: &[&str]) {
        let (before, record) = (self.raft(member, "Server ID"), self.record(&member.namespace, "nb"));
        let (text, done) = self.command(member, asked, words);
        assert!(!done, "{words:?}: {text}");
        for part in why {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert_eq!(self.record(&member.namespace, "nb"), record);
        assert_eq!(self.raft(member, "Server ID"), before);
    }
}

#[test]
fn without_a_quorum_the_last_copy_stays_and_only_a_backup_of_this_cluster_is_restored() {
    let site = Site::start("restore");
    let other = site.alone(4);
    site.namespace("three");
    let members = [1, 2, 3].map(|number| Member::new(number, "nb", "three", &[1, 2, 3]));
    members.iter().chain([&other]).for_each(|member| site.serve(member));
    members.iter().chain([&other]).for_each(|member| site.await_member(member));
    let member = &members[0];

    let [own, foreign, unknown] = ["own", "foreign", "unknown"].map(|name| format!("{}/{name}.backup", member.run()));
    for (of, file) in [(member, &own), (&other, &foreign)] {
        let (text, done) = site.command(of, &[of.number], &["backup", file]);
        assert!(done, "{text}");
        let cluster = site.raft(of, "Cluster ID");
        let id = cluster.split_once('(').unwrap().1.trim_end_matches(')');
        assert!(text.contains(&format!("of cluster {id}")), "{text}");
    }
    // Also without a reply at the control socket.
    site.shell(&format!("mv {0} {0}.hidden", other.control()));
    let (text, done) = site.command(&other, &[4], &["backup", &foreign]);
    assert!(done && !text.contains("of cluster none"), "{text}");
    site.shell(&format!("mv {0}.hidden {0}", other.control()));
    // As earlier versions described a backup of a server that did not answer.
    site.shell(&format!(
        "cp {own} {unknown}; sed 's/\"clusterId\": *\"[^\"]*\"/\"clusterId\": null/' {own}.json > {unknown}.json; grep -q null {unknown}.json"
    ));

    members[1..].iter().for_each(|member| site.stop(member));
    site.await_finding(member, "NoQuorum");
    site.assert_refused(
        member,
        &[1, 2, 3],
        &["replace-member"],
        &[
            "tcp:127.0.1.2:6641",
            "may be the last good copy; nothing was changed",
            "start a majority of the members first",
        ],
    );
    site.assert_refused(member, &[1], &["restore", &foreign], &["which this database never was", "--force"]);
    site.assert_refused(member, &[1], &["restore", &unknown], &["does not say of which cluster it is", "--force"]);

    let before = site.raft(member, "Cluster ID");
    let (text, done) = site.command(member, &[1], &["restore", &own]);
    assert!(done, "{text}");
    site.await_member(member);
    let restored = site.raft(member, "Cluster ID");
    assert_ne!(restored, before);
    let (text, done) = site.command(member, &[1], &["restore", &foreign, "--force"]);
    assert!(done, "{text}");
    until("the new cluster runs", || {
        Some(site.raft(member, "Cluster ID")).filter(|id| !id.is_empty() && *id != restored)
    });
    site.await_member(member);
}
