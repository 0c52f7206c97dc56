//! Five members: two may fail, a third one may not, and all return with what was acknowledged.

use crate::site::{Member, Site, until};

/// Kills manager and server, as when a machine dies.
fn kill(site: &Site, member: &Member) {
    let server = until("the server runs", || site.manager(member)["process"].as_u64());
    site.lab.kill(&member.component()).unwrap();
    site.shell(&format!("kill -9 {server}"));
}

/// Writes through the server of a member, which forwards to the leader.
fn write(site: &Site, member: &Member, name: &str) -> Result<String, String> {
    let socket = format!("--db=unix:{}/ovnnb_db.sock", member.run());
    let words = ["ovn-nbctl", "--timeout=5", "--no-leader-only", &socket, "--may-exist", "ls-add", name];
    site.machine().run(&words).map_err(|error| error.to_string())
}

#[test]
fn writes_continue_while_two_of_five_members_are_dead() {
    let site = Site::start("five");
    site.namespace("five");
    let members = [1, 2, 3, 4, 5].map(|number| Member::new(number, "nb", "five", &[1, 2, 3, 4, 5]));
    members.iter().for_each(|member| site.serve(member));
    members.iter().for_each(|member| site.await_member(member));
    let cluster = site.raft(&members[0], "Cluster ID");
    assert!(members.iter().all(|member| site.raft(member, "Cluster ID") == cluster));

    let leader = until("a leader", || members.iter().find(|member| site.is_leader(member)));
    let others: Vec<&Member> = members.iter().filter(|member| member.number != leader.number).collect();
    kill(&site, leader);
    kill(&site, others[0]);
    until("a write through a survivor", || write(&site, others[1], "two-dead").ok());
    for survivor in &others[1..] {
        until("every survivor takes writes", || write(&site, survivor, &format!("by-{}", survivor.number)).ok());
    }
    let leads = || others[1..].iter().find(|member| site.is_leader(member));
    let leads = until("a survivor leads", leads);
    site.await_finding(leads, "QuorumAtRisk");

    // The third one was needed.
    kill(&site, others[1]);
    site.await_finding(others[2], "NoQuorum");
    let refused = write(&site, others[2], "three-dead");
    assert!(refused.is_err(), "acknowledged without a quorum: {refused:?}");

    for member in [leader, others[0], others[1]] {
        site.serve(member);
    }
    for member in &members {
        site.await_member(member);
        assert_eq!(site.raft(member, "Cluster ID"), cluster);
        let socket = format!("--db=unix:{}/ovnnb_db.sock", member.run());
        until("it has what was acknowledged", || {
            let list =
                site.machine().run(&["ovn-nbctl", "--timeout=5", "--no-leader-only", &socket, "ls-list"]).ok()?;
            let all = ["two-dead", "by-"].iter().all(|name| list.contains(name));
            all.then_some(())
        });
    }
    site.await_resolved(&members[0], "NoQuorum");
}
