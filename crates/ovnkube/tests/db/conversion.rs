//! The schema of a database follows the image, but only when every member has it, and never back.

use serde_json::Value;

use crate::site::{Member, Site, until};

const IMAGE: &str = "/usr/share/ovn";
pub(crate) const OLD: &str = "/var/lib/site/old";

/// Writes a schema as of an older release: a lower version, and one column less. Returns the image's version.
pub(crate) fn write_old_schema(site: &Site) -> String {
    let machine = site.machine();
    let text = machine.run(&["cat", &format!("{IMAGE}/ovn-nb.ovsschema")]).unwrap();
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    let version = schema["version"].as_str().unwrap().to_owned();
    schema["version"] = "6.0.0".into();
    let object = schema.as_object_mut().unwrap();
    object.remove("cksum");
    object["tables"]["NB_Global"]["columns"].as_object_mut().unwrap().remove("ipsec").unwrap();
    machine.run(&["mkdir", "-p", OLD]).unwrap();
    machine.run_with_input(&["sh", "-c", &format!("cat > {OLD}/ovn-nb.ovsschema")], &schema.to_string()).unwrap();
    version
}

pub(crate) fn version(site: &Site, member: &Member) -> String {
    let socket = format!("unix:{}/ovnnb_db.sock", member.run());
    let command = ["ovsdb-client", "--timeout=10", "--no-leader-only", "get-schema-version", &socket, "OVN_Northbound"];
    until("the server says its schema's version", || site.machine().run(&command).ok()).trim().to_owned()
}

#[test]
fn the_schema_is_converted_when_every_member_was_upgraded_and_never_back() {
    let site = Site::start("conversion");
    site.namespace("upgrade");
    let new = write_old_schema(&site);
    let member = |number| Member::new(number, "nb", "upgrade", &[1, 2, 3]);
    let old = |number| member(number).with(&["--schema-dir", OLD]);
    for number in 1..=3 {
        site.serve(&old(number));
    }
    (1..=3).for_each(|number| site.await_member(&member(number)));
    assert_eq!(version(&site, &member(1)), "6.0.0");
    let socket = format!("--db=unix:{}/ovnnb_db.sock", member(1).run());
    site.machine().run(&["ovn-nbctl", "--no-leader-only", &socket, "ls-add", "kept"]).unwrap();

    // Half a rollout: the leader knows who is missing, and converts nothing.
    for number in 1..=2 {
        site.stop(&member(number));
        site.serve(&member(number));
        site.await_member(&member(number));
    }
    // The third one may lead; then nobody has anything to convert to.
    until("an upgraded member leads", || {
        if site.is_leader(&member(3)) {
            site.appctl(&member(3), &["cluster/failure-test", "transfer-leadership"]).unwrap();
        }
        (1..=2).any(|number| site.is_leader(&member(number))).then_some(())
    });
    until("the leader waits for the third member", || {
        // Any of the two: a follower's finding does not say for whom the leader waits.
        let waiting = |number| site.finding(&member(number), "SchemaOutdated");
        let names = |message: String| message.contains("member-3 has an image with schema 6.0.0");
        (1..=2).filter_map(waiting).any(names).then_some(())
    });
    assert_eq!(version(&site, &member(1)), "6.0.0");

    site.stop(&member(3));
    site.serve(&member(3));
    for number in 1..=3 {
        until("the database is converted", || (version(&site, &member(number)) == new).then_some(()));
    }
    let rows = site.machine().run(&["ovn-nbctl", "--no-leader-only", &socket, "ls-list"]).unwrap();
    assert!(rows.contains("kept"), "{rows}");
    (1..=3).for_each(|number| site.await_resolved(&member(number), "SchemaOutdated"));

    // A downgrade: all members with the older image serve the newer database as it is.
    for number in 1..=3 {
        site.stop(&member(number));
        site.serve(&old(number));
        site.await_member(&member(number));
    }
    for number in 1..=3 {
        let newer = site.await_finding(&member(number), "SchemaNewer");
        assert!(newer.contains(&format!("the database has schema {new}, newer than 6.0.0")), "{newer}");
        assert_eq!(version(&site, &member(number)), new);
    }
    // The command asks this member alone: a follower says that nobody leads, and a leader may be one by then.
    let text = until("the leader's status has the note and no problem", || {
        let leader = (1..=3).find(|number| site.is_leader(&member(*number)))?;
        let (text, code) = site.status(&member(leader), &[]);
        println!("{code}: {text}");
        (text.contains("note: SchemaNewer") && code == 0).then_some(text)
    });
    // Known bugs of raft concern clusters of several members.
    if site.manager(&member(1))["serverVersion"] == "3.5.0" {
        assert!(text.contains("note: KnownRaftBugs: Open vSwitch 3.5.0"), "{text}");
    }
}
