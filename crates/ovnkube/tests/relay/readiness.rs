//! Readiness of a relay is evidence: a complete copy, and an upstream that executes writes.

use lab::{Database, Databases};

use crate::cluster::until;
use crate::site::{Relay, Site};

const RELAY: Relay = Relay(1);

#[test]
fn a_relay_is_ready_only_while_its_upstream_has_a_quorum() {
    let site = Site::start("relay-quorum", 0, Databases::Raft);
    site.relay(RELAY, &site.southbound(), &[]);
    site.await_ready(RELAY);
    let before = site.server(RELAY);
    let paused = [1, 2].map(|member| site.lab.pause(&Database::Southbound.component(member)).unwrap());
    site.await_reason(RELAY, "no upstream works");
    // Its manager is alive all the same, by a heartbeat that a manager that hangs would not give.
    let alive = site.get(RELAY, "/livez").unwrap();
    assert!(alive.starts_with("HTTP/1.0 200") && alive.contains("checks: ok: last success"), "{alive}");
    for member in paused {
        member.resume().unwrap();
    }
    site.await_ready(RELAY);
    // ovsdb-server found a member by itself.
    assert_eq!(site.server(RELAY), before);
}

/// ovsdb-server remembers the raft index of its upstream, and refuses a new cluster as stale.
#[test]
fn a_relay_follows_a_southbound_database_that_was_rebuilt() {
    let site = Site::start("relay-rebuilt", 0, Databases::Raft);
    // The index of the first cluster must be the higher one.
    for number in 0..20 {
        site.lab.nbctl(&["--wait=sb", "ls-add", &format!("ls-{number}")]).unwrap();
    }
    site.relay(RELAY, &site.southbound(), &[]);
    site.await_ready(RELAY);
    site.identity("n1");
    let clusters = |site: &Site| {
        let row = site.sbctl_as("n1", &RELAY.remote(), &["--bare", "--columns=_uuid", "list", "SB_Global"]);
        row.unwrap_or_default().trim().to_owned()
    };
    let before = clusters(&site);
    assert!(!before.is_empty());
    site.lab.recreate_database(Database::Southbound).unwrap();
    site.lab.sbctl(&["init"]).unwrap();
    until("the relay has the rows of the new database", || {
        let now = clusters(&site);
        (!now.is_empty() && now != before).then_some(())
    });
    site.await_ready(RELAY);
    assert!(site.restarts(RELAY) > 0, "ovsdb-server followed the new database by itself");
}
