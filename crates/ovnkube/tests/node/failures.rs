//! Failing components and replaced pods: ADD and DEL stay correct, and nothing partial is left.

use lab::Family;
use serde_json::{Value, json};

use crate::cluster::until;
use crate::sandbox::{Sandbox, addresses, request};
use crate::site::Site;

fn code(error: &Value) -> u64 {
    error["code"].as_u64().unwrap()
}

#[test]
fn a_recreated_pod_is_not_confused_with_its_predecessor() {
    let site = Site::start("cni-again", 1, Family::V4);
    site.agents(&["--cni-add-timeout", "20"]);
    let other = site.sandbox("other", 1);
    other.add();
    let old = site.sandbox("one", 1);
    old.add();
    site.delete_pod("one");
    let uid = site.pod("one", 1);
    assert_ne!(uid, old.uid);
    // ADD for the old sandbox, before and after the new one has its port.
    assert_eq!(code(&old.ask("ADD").unwrap_err()), 101);
    let new = Sandbox::create(&site, 1, "new-sandbox", "one", &uid);
    let answer = new.add();
    let error = old.ask("ADD").unwrap_err();
    assert!(code(&error) == 101 && error.to_string().contains(&uid), "{error}");
    old.delete();
    assert_eq!(site.ports(1), ["default_one", "default_other"]);
    other.reaches(addresses(&answer)[0]);

    // A second sandbox of the same pod takes the port over; the first one's DEL leaves it alone.
    let newest = Sandbox::create(&site, 1, "newest-sandbox", "one", &uid);
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
fn pod_deletion_and_del_cancel_a_running_add() {
    let site = Site::start("cni-deleted", 1, Family::V4);
    site.agents(&[]);
    let one = site.sandbox("one", 1);
    site.cluster.network_of("default", "one");
    // Flows are not installed while ovn-controller is paused; the pod is deleted meanwhile.
    let paused = site.cluster.lab.pause("n1-ovn-controller").unwrap();
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| one.ask("ADD"));
        until("the port is created", || (site.ports(1) == ["default_one"]).then_some(()));
        site.delete_pod("one");
        assert_eq!(code(&adding.join().unwrap().unwrap_err()), 101);
    });
    site.assert_empty(1);
    // DEL during a running ADD.
    let two = site.sandbox("two", 1);
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| two.ask("ADD"));
        until("the port is created", || (site.ports(1) == ["default_two"]).then_some(()));
        two.delete();
        assert_eq!(code(&adding.join().unwrap().unwrap_err()), 11);
    });
    site.assert_empty(1);
    paused.resume().unwrap();
}

#[test]
fn an_ovsdb_outage_leaves_no_partial_attachment() {
    let site = Site::start("cni-ovs", 1, Family::V4);
    site.agents(&["--cni-add-timeout", "20"]);
    let (one, two, three) = (site.sandbox("one", 1), site.sandbox("two", 1), site.sandbox("three", 1));
    one.add();
    let database = "n1-ovsdb-server";
    let killed = site.cluster.lab.kill(database).unwrap();
    drop(killed);
    until("STATUS fails", || {
        let error = request(&site, 1, "STATUS", &json!({})).err()?;
        (code(&error) == 50 && error.to_string().contains("Open vSwitch")).then_some(())
    });
    let error = two.ask("ADD").unwrap_err();
    assert!(code(&error) == 11 && error.to_string().contains("start Open vSwitch"), "{error}");
    // The interface is removed at once, the port when the database is back.
    assert_eq!(code(&one.ask("DEL").unwrap_err()), 11);
    assert!(site.ends(1).is_empty());
    site.cluster.lab.restart(database).unwrap();
    until("DEL succeeds", || one.ask("DEL").ok());
    assert!(site.ports(1).is_empty());
    until("the next ADD succeeds", || two.ask("ADD").ok());

    // A paused server may commit the request when it resumes.
    let paused = site.cluster.lab.pause(database).unwrap();
    let error = three.ask("ADD").unwrap_err();
    assert_eq!(code(&error), 11, "{error}");
    paused.resume().unwrap();
    until("the port is removed", || (site.ports(1) == ["default_two"]).then_some(()));
    assert_eq!(site.ends(1).len(), 1);
    until("a retried ADD succeeds", || three.ask("ADD").ok());
}

#[test]
fn del_works_without_the_api_server() {
    let site = Site::start("cni-api", 1, Family::V4);
    site.agents(&["--cni-add-timeout", "1"]);
    let (one, two, three) = (site.sandbox("one", 1), site.sandbox("two", 1), site.sandbox("three", 1));
    // The timeout is short for the ADD that waits for the API below; a busy machine may need longer.
    let add = |sandbox: &Sandbox| until("ADD succeeds", || sandbox.ask("ADD").ok());
    add(&one);
    let answer = add(&two);
    site.cluster.network_of("default", "three");
    let paused = site.cluster.lab.pause("kube-apiserver").unwrap();
    one.reaches(addresses(&answer)[0]);
    // ADD may succeed for a pod that the agent knows.
    three.ask("ADD").ok();
    for sandbox in [&one, &two, &three] {
        sandbox.delete();
        sandbox.delete();
    }
    site.assert_empty(1);
    // An unknown pod waits for the API.
    let unknown = Sandbox::create(&site, 1, "unknown", "unknown", "0-0");
    assert_eq!(code(&unknown.ask("ADD").unwrap_err()), 11);
    paused.resume().unwrap();
}
