//! A role as a real process: its logs, HTTP endpoints and shutdown.
//!
//! The process is this test binary with an environment variable that makes it run [`role_process`] as a
//! role. The tests use the role's standard streams, so every step is awaited as an
//! event: commands go in on stdin, log lines come out on stderr.

mod role;

use std::io::{self, BufRead as _};
use std::net::TcpListener;
use std::time::Duration;

use nix::sys::signal::Signal;
use role::{Role, request};
use telemetry::{LogFormat, Options, Telemetry};

/// Not a test: the child process runs it.
#[test]
#[ignore = "runs as a child of the other tests"]
fn role_process() {
    let Ok(address) = std::env::var(role::ADDRESS) else {
        return;
    };
    let mut options = Options::new("tester", "1.2.3", "abc");
    options.listen = Some(address.parse().unwrap());
    options.listen_setting = "--metrics-bind-address".to_owned();
    if let Ok(millis) = std::env::var(role::GRACE_MILLIS) {
        options.grace = Duration::from_millis(millis.parse().unwrap());
    }
    if std::env::var_os(role::HUMAN).is_some() {
        options.log.format = LogFormat::Human;
    }
    let telemetry = match Telemetry::start(&options) {
        Ok(telemetry) => telemetry,
        Err(error) => {
            eprintln!("error: {error}");
            std::process::exit(1);
        }
    };
    let northbound = telemetry.health().condition("northbound");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for line in io::stdin().lock().lines() {
        match line.unwrap().as_str() {
            "ready" => northbound.ready(),
            "log-debug" => tracing::debug!("a debug line"),
            "wait" => runtime.block_on(telemetry.shutdown().wait()),
            "stop" => break,
            other => panic!("unknown command {other}"),
        }
        tracing::info!("done");
    }
    runtime.block_on(telemetry.stop());
}

#[test]
fn logs_are_json_when_stderr_is_not_a_terminal() {
    let mut role = Role::start(&[]);
    let started = role.started();
    assert_eq!(started["level"], "INFO");
    assert_eq!(started["role"], "tester");
    assert_eq!(started["commit"], "abc");
    assert!(started["timestamp"].is_string());
    role.command("stop");
    assert_eq!(role.exit_code(), Some(0));
}

#[test]
fn human_readable_logs_have_no_colour_in_a_file() {
    let mut role = Role::start(&[(role::HUMAN, "1")]);
    let line = role.line_with("started");
    assert!(line.contains("INFO") && line.contains("role=\"tester\""), "{line}");
    assert!(!line.contains('\u{1b}') && !line.starts_with('{'), "{line}");
}

#[test]
fn the_log_level_changes_at_run_time() {
    let mut role = Role::start(&[]);
    let address = role.address();
    assert_eq!(request(&address, "GET", "/log-level", ""), (200, "info\n".to_owned()));

    role.command("log-debug");
    assert!(!role.lines_until("done").iter().any(|line| line.contains("a debug line")));

    assert_eq!(request(&address, "PUT", "/log-level", "debug").0, 200);
    role.line_with("log level changed");
    role.command("log-debug");
    assert!(role.lines_until("done").iter().any(|line| line.contains("a debug line")));

    let (status, message) = request(&address, "PUT", "/log-level", "loud");
    assert_eq!(status, 400);
    assert!(message.contains("\"loud\" is not a level"), "{message}");
    assert_eq!(request(&address, "GET", "/log-level", "").1, "debug\n");
}

#[test]
fn the_http_endpoints_respond() {
    let mut role = Role::start(&[]);
    let address = role.address();
    let (status, body) = request(&address, "GET", "/metrics", "");
    assert_eq!(status, 200);
    assert!(body.contains("ovnkube_build_info{version=\"1.2.3\",commit=\"abc\",role=\"tester\"} 1"));
    assert!(body.ends_with("# EOF\n"));
    assert_eq!(request(&address, "GET", "/livez", ""), (200, "ok\n".to_owned()));
    let (status, body) = request(&address, "GET", "/nowhere", "");
    assert_eq!(status, 404);
    assert!(body.contains("/readyz"), "{body}");
    assert_eq!(request(&address, "PUT", "/log-level", &"x".repeat(5000)).0, 413);
}

#[test]
fn sigterm_makes_the_role_unready_then_drains_and_exits_0() {
    let mut role = Role::start(&[]);
    let address = role.address();
    assert_eq!(request(&address, "GET", "/readyz", "").0, 503);
    role.command("ready");
    role.line_with("done");
    assert_eq!(request(&address, "GET", "/readyz", ""), (200, "northbound: ok\nok\n".to_owned()));

    // A request whose body is incomplete when the role ends.
    let open = role::Open::put(&address, "/log-level", "warn");
    role.command("wait");
    role.signal(Signal::SIGTERM);
    role.line_with("stopping");
    let (status, body) = request(&address, "GET", "/readyz", "");
    assert_eq!(status, 503);
    assert_eq!(body, "northbound: ok\nshutdown: failed: stopping\nfailed\n");

    role.command("stop");
    role.line_with("role ended; finishing open requests");
    assert_eq!(open.finish(), (200, "warn\n".to_owned()));
    assert_eq!(role.exit_code(), Some(0));
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    let mut role = Role::start(&[]);
    role.started();
    role.signal(Signal::SIGTERM);
    role.line_with("stopping");
    role.signal(Signal::SIGINT);
    assert_eq!(role.exit_code(), Some(130));
}

#[test]
fn a_hung_role_is_ended_after_its_grace_period() {
    let mut role = Role::start(&[(role::GRACE_MILLIS, "1")]);
    role.started();
    role.signal(Signal::SIGINT);
    role.line_with("shutdown did not complete within the grace period; exiting");
    assert_eq!(role.exit_code(), Some(1));
}

#[test]
fn a_port_in_use_is_a_one_line_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut role = Role::start(&[(role::ADDRESS, &address)]);
    let line = role.line_with("error:");
    assert_eq!(
        line,
        format!(
            "error: cannot listen on {address}: the address is already in use; hint: stop the process that uses it, or choose another address with --metrics-bind-address"
        )
    );
    assert_eq!(role.exit_code(), Some(1));
}
