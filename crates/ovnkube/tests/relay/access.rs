//! Access control behind a relay. OVN's RBAC lets a node change only its own chassis, by the name in its certificate. A
//! member applies it to its own clients, so behind a relay to the relay's certificate: only a role of the relay itself
//! distinguishes nodes.

use std::sync::atomic::{AtomicU32, Ordering};

use lab::Databases;

use crate::site::{CONTROL, Relay, Site};

/// A port of the member with OVN's role `ovn-controller`.
const RESTRICTED: u16 = 6650;

/// Changes the row of a chassis, as node `n1`.
fn change(site: &Site, remote: &str, chassis: &str) -> Result<String, String> {
    // Another value each time: ovn-sbctl sends nothing if nothing changes.
    static CHANGES: AtomicU32 = AtomicU32::new(0);
    let value = format!("other_config:changed={}", CHANGES.fetch_add(1, Ordering::Relaxed));
    site.sbctl_as("n1", remote, &["set", "Chassis", chassis, &value])
}

fn assert_denied(result: Result<String, String>) {
    let error = result.unwrap_err();
    assert!(error.contains("permission error"), "{error}");
}

#[test]
fn only_a_role_of_the_relay_keeps_a_node_from_changing_another() {
    let site = Site::start("relay-access", 0, Databases::Standalone);
    site.identity("n1");
    for chassis in ["n1", "n2"] {
        site.lab.sbctl(&["chassis-add", chassis, "geneve", &format!("10.1.0.{}", &chassis[1..])]).unwrap();
    }
    site.lab.sbctl(&["set-connection", "role=ovn-controller", &format!("pssl:{RESTRICTED}:0.0.0.0")]).unwrap();
    let connections = "db:OVN_Southbound,SB_Global,connections";
    let add = ["ovn-appctl", "-t", "/run/ovn/ovnsb_db.ctl", "ovsdb-server/add-remote", connections];
    site.control().run(&add).unwrap();
    let restricted = format!("ssl:{CONTROL}:{RESTRICTED}");

    // Without a relay: the member knows the node by its certificate.
    change(&site, &restricted, "n1").unwrap();
    assert_denied(change(&site, &restricted, "n2"));

    // A relay without a role forwards everything under its own name.
    let open = Relay(1);
    site.relay(open, &site.southbound(), &[]);
    site.await_ready(open);
    change(&site, &open.remote(), "n2").unwrap();

    // A relay with the role applies it to its clients, as the member does.
    let guarded = Relay(2);
    site.relay(guarded, &site.southbound(), &["--role", "ovn-controller"]);
    site.await_ready(guarded);
    change(&site, &guarded.remote(), "n1").unwrap();
    assert_denied(change(&site, &guarded.remote(), "n2"));

    // The relay's own connection must not have the role: the member applies it to the relay's name, which is not a chassis.
    let confined = Relay(3);
    site.relay(confined, &restricted, &[]);
    site.await_reason(confined, "needs a port without an RBAC role");
    let error = change(&site, &confined.remote(), "n1").unwrap_err();
    assert!(error.contains("permission error"), "{error}");

    // A client of another CA is refused by a relay as by a member.
    let foreign = lab::pki::Authority::create(&site.pki().join("foreign"), "another-ca").unwrap();
    let stranger = foreign.issue("stranger", "n1", None, &[], &[]).unwrap();
    for (from, to) in [(&stranger.key, "stranger.key"), (&stranger.certificate, "stranger.crt")] {
        std::fs::copy(from, site.pki().join(to)).unwrap();
    }
    site.sbctl_as("stranger", &guarded.remote(), &["show"]).unwrap_err();
}
