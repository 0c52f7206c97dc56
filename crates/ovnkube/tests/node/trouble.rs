//! Parts of the node fail, pods are replaced: who is to be wired is, who is not is not, and nothing half-made stays.

use lab::Family;
use serde_json::{Value, json};

use crate::cluster::until;
use crate::sandbox::{Sandbox, addresses, request};
use crate::site::Site;

fn code(error: &Value) -> u64 {
    error["code"].as_u64().unwrap()
}

#[test]
fn a_pod_made_again_is_not_taken_for_the_one_before() {
    let site = Site::start("cni-again", 1, Family::V4);
    site.agents(&["--cni-patience", "20"]);
    let other = site.sandbox("other", 1);
    other.add();
    let old = site.sandbox("one", 1);
    old.add();
    site.delete_pod("one");
    let uid = site.pod("one", 1);
    assert_ne!(uid, old.uid);
    // The old sandbox asks again, before and after the new one has its port.
    assert_eq!(code(&old.ask("ADD").unwrap_err()), 101);
    let new = Sandbox::make(&site, 1, "new-sandbox", "one", &uid);
    let answer = new.add();
    let error = old.ask("ADD").unwrap_err();
    assert!(code(&error) == 101 && error.to_string().contains(&uid), "{error}");
    old.delete();
    assert_eq!(site.ports(1), ["default_one", "default_other"]);
    other.reaches(addresses(&answer)[0]);

    // A second sandbox of the same pod takes the port over; the first one's DEL leaves it alone.
    let newest = Sandbox::make(&site, 1, "newest-sandbox", "one", &uid);
    newest.add();
    assert_eq!(site.ports(1), ["default_one", "default_other"]);
    new.delete();
    assert_eq!(site.ports(1), ["default_one", "default_other"]);
    other.reaches(addresses(&answer)[0]);
    newest.delete();
    assert_eq!(site.ports(1), ["default_other"]);
    assert_eq!(site.ends(1).len(), 1);
}

#[test]
fn a_pod_that_is_deleted_meanwhile_is_not_wired() {
    let site = Site::start("cni-deleted", 1, Family::V4);
    site.agents(&[]);
    let one = site.sandbox("one", 1);
    site.cluster.network_of("default", "one");
    // Flows do not come while ovn-controller stands still; the pod is gone before they do.
    let paused = site.cluster.lab.pause("n1-ovn-controller").unwrap();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| one.ask("ADD"));
        until("the port is made", || (site.ports(1) == ["default_one"]).then_some(()));
        site.delete_pod("one");
        assert_eq!(code(&asking.join().unwrap().unwrap_err()), 101);
    });
    site.assert_empty(1);
    // And one whose sandbox the runtime removes while it is still being made.
    let two = site.sandbox("two", 1);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| two.ask("ADD"));
        until("the port is made", || (site.ports(1) == ["default_two"]).then_some(()));
        two.delete();
        assert_eq!(code(&asking.join().unwrap().unwrap_err()), 11);
    });
    site.assert_empty(1);
    paused.resume().unwrap();
}

#[test]
fn without_open_vswitch_nothing_is_half_made() {
    let site = Site::start("cni-ovs", 1, Family::V4);
    site.agents(&["--cni-patience", "20"]);
    let (one, two, three) = (site.sandbox("one", 1), site.sandbox("two", 1), site.sandbox("three", 1));
    one.add();
    let database = "n1-ovsdb-server";
    let killed = site.cluster.lab.kill(database).unwrap();
    drop(killed);
    until("STATUS tells", || {
        let error = request(&site, 1, "STATUS", &json!({})).err()?;
        (code(&error) == 50 && error.to_string().contains("Open vSwitch")).then_some(())
    });
    let error = two.ask("ADD").unwrap_err();
    assert!(code(&error) == 11 && error.to_string().contains("start Open vSwitch"), "{error}");
    // The interface goes at once, the port when the database is back.
    assert_eq!(code(&one.ask("DEL").unwrap_err()), 11);
    assert!(site.ends(1).is_empty());
    site.cluster.lab.restart(database).unwrap();
    until("the database is followed again", || one.ask("DEL").ok());
    assert!(site.ports(1).is_empty());
    until("the next one is wired", || two.ask("ADD").ok());

    // A server that stands still may still have done what was asked when it goes on.
    let paused = site.cluster.lab.pause(database).unwrap();
    let error = three.ask("ADD").unwrap_err();
    assert_eq!(code(&error), 11, "{error}");
    paused.resume().unwrap();
    until("nothing of it stays", || (site.ports(1) == ["default_two"]).then_some(()));
    assert_eq!(site.ends(1).len(), 1);
    until("it is wired after all", || three.ask("ADD").ok());
}

#[test]
fn sandboxes_are_removed_without_the_api() {
    let site = Site::start("cni-api", 1, Family::V4);
    site.agents(&["--cni-patience", "1"]);
    let (one, two, three) = (site.sandbox("one", 1), site.sandbox("two", 1), site.sandbox("three", 1));
    // The patience is short for the one that waits for the API below; a busy machine may need longer.
    let wired = |sandbox: &Sandbox| until("it is wired", || sandbox.ask("ADD").ok());
    wired(&one);
    let answer = wired(&two);
    site.cluster.network_of("default", "three");
    let paused = site.cluster.lab.pause("kube-apiserver").unwrap();
    one.reaches(addresses(&answer)[0]);
    // What the agent knows already it can wire.
    three.ask("ADD").ok();
    for sandbox in [&one, &two, &three] {
        sandbox.delete();
        sandbox.delete();
    }
    site.assert_empty(1);
    // One that it has never heard of has to wait for the API.
    let unknown = Sandbox::make(&site, 1, "unknown", "unknown", "0-0");
    assert_eq!(code(&unknown.ask("ADD").unwrap_err()), 11);
    paused.resume().unwrap();
}
