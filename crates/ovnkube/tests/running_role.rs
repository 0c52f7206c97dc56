//! `ovnkube health` and `log-level` against a running role: this process is the role.

mod ovnkube;

use std::time::Duration;

use ovnkube::{file, run};
use telemetry::{Options, Telemetry};

/// One test, because a process has one telemetry.
#[test]
fn health_and_log_level_of_a_running_role() {
    let mut options = Options::new("tester", "1.2.3", "abc");
    options.listen = Some("127.0.0.1:0".parse().unwrap());
    let telemetry = Telemetry::start(&options).unwrap();
    let address = telemetry.address().unwrap().to_string();
    let northbound = telemetry.health().condition("northbound");
    northbound.not_ready("connecting\u{1b}[2J");

    // With --address the configuration file is not read.
    let broken = file("probe.conf", b"rubbish!\n");
    let unready = run(&["health", "--address", &address], &[("OVNKUBE_CONFIG", &broken)]);
    assert_eq!(unready.status, Some(1), "{}", unready.stderr);
    let lines: Vec<_> = unready.stdout.lines().collect();
    assert_eq!(
        lines,
        ["CONDITION   STATE   REASON", "northbound  failed  connecting\\u{1b}[2J", "(all)       failed",]
    );

    // With the configured address; a broken file is status 2.
    let configured = [("OVNKUBE_METRICS_BIND_ADDRESS", address.as_str())];
    assert_eq!(run(&["health"], &configured).status, Some(1));
    assert_eq!(run(&["health", "--config", &broken], &configured).status, Some(2));

    northbound.ready();
    assert_eq!(run(&["health", "readyz"], &configured).status, Some(0));
    let json = run(&["health", "-o", "json"], &configured);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["ok"], true);
    assert_eq!(json["checks"][0]["name"], "northbound");

    assert_eq!(run(&["health", "livez"], &configured).status, Some(0));
    let commits = telemetry.health().heartbeat("commits", Duration::ZERO);
    let dead = run(&["health", "livez"], &configured);
    assert_eq!(dead.status, Some(1));
    assert!(dead.stdout.contains("commits  "), "{}", dead.stdout);
    commits.pause();
    assert_eq!(run(&["health", "livez"], &configured).status, Some(0));

    assert_eq!(run(&["log-level"], &configured).stdout, "info\n");
    assert_eq!(run(&["log-level", "warn"], &configured).stdout, "warn\n");
    assert_eq!(telemetry.log_level().get(), "warn");
    let refused = run(&["log-level", "loud"], &configured);
    assert_eq!(refused.status, Some(1));
    assert!(refused.stderr.contains("\"loud\" is not a level"), "{}", refused.stderr);
    assert_eq!(refused.stderr.lines().count(), 1);
    assert_eq!(telemetry.log_level().get(), "warn");

    // The client's own log level follows the flags.
    let chatty = run(&["health", "--address", &address, "--log-level", "debug"], &[]);
    assert!(chatty.stderr.contains("\"message\":\"sending a request\""), "{}", chatty.stderr);

    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(telemetry.stop());
    let gone = run(&["health"], &configured);
    assert_eq!(gone.status, Some(2));
    assert!(gone.stderr.starts_with(&format!("error: cannot connect to {address}: ")), "{}", gone.stderr);
    assert!(gone.stderr.contains("hint: "), "{}", gone.stderr);
}

#[test]
fn an_unreachable_role_is_status_2() {
    let off = run(&["health"], &[("OVNKUBE_METRICS_BIND_ADDRESS", "off")]);
    assert_eq!(off.status, Some(2));
    assert!(off.stderr.contains("is off, so the role has no endpoint; hint: give --address"));
    let bad = run(&["log-level", "--address", "here"], &[]);
    assert_eq!(bad.status, Some(2));
    assert!(bad.stderr.contains("bad address \"here\""), "{}", bad.stderr);
    // A port without a listener.
    let nobody = run(&["health", "--address", "127.0.0.1:1"], &[]);
    assert_eq!(nobody.status, Some(2));
    assert!(nobody.stderr.starts_with("error: cannot connect to 127.0.0.1:1: "));
}
