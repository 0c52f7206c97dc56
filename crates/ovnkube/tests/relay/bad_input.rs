//! Wrong upstreams and options get an error that names the upstream and the remedy.

use std::process::Command;

use lab::Databases;
use lab::pki::Authority;

use crate::site::{CONTROL, Relay, Site};

#[test]
fn a_wrong_upstream_is_named_with_the_reason() {
    let site = Site::start("relay-wrong", 0, Databases::Standalone);
    let hint = "--upstream must list the members of the southbound database";

    let northbound = Relay(1);
    site.relay(northbound, &format!("ssl:{CONTROL}:6641"), &[]);
    site.await_reason(northbound, "6641: the server does not have database OVN_Southbound");
    site.await_reason(northbound, hint);

    let nobody = Relay(2);
    site.relay(nobody, &format!("ssl:{CONTROL}:6699"), &[]);
    site.await_reason(nobody, "Connection refused");

    // Of another CA: neither side accepts the other.
    let foreign = site.pki().join("foreign");
    Authority::create(&foreign, "another-ca").unwrap().issue("ovn", "ovn", None, &[], &[]).unwrap();
    let stranger = Relay(3);
    site.relay_with(stranger, &site.southbound(), &foreign, &[]);
    site.await_reason(stranger, "certificate");
    site.await_reason(stranger, hint);
}

#[test]
fn wrong_options_are_refused() {
    for (arguments, problem) in [
        (["--upstream", "192.0.2.1:6642"], "invalid OVSDB remote"),
        (["--upstream", "tcp:127.0.0.1:16642"], "is the relay itself"),
        (["--upstream", "ssl:192.0.2.1:6642"], "has ssl: remotes"),
        (["--role", "ovn-controller"], "needs TLS"),
    ] {
        let refused =
            Command::new(env!("CARGO_BIN_EXE_ovnkube")).args(["db", "relay"]).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{text}");
        assert!(text.contains(problem), "{text}");
    }
}
