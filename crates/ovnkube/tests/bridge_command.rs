//! `ovnkube bridge`: output, files and exit statuses.

mod ovnkube;

use std::path::{Path, PathBuf};

use ovnkube::{file, run};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/examples/bridge/install-config.yaml");

fn host(name: &str) -> String {
    format!("{}/../bridge/tests/hosts/{name}.yml", env!("CARGO_MANIFEST_DIR"))
}

fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if path.exists() {
        std::fs::remove_dir_all(&path).expect("a directory to remove");
    }
    path
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect();
    names.sort();
    names
}

#[test]
fn check_reports_line_reason_and_remedy() {
    let path = host("violations/br020-address-on-uplink");
    let outcome = run(&["bridge", "check", &path], &[]);
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    for part in
        ["yml:6:", "BR020", "IPv4 is enabled on enp2s0, the uplink", "move them to the internal interface", "1 error"]
    {
        assert!(outcome.stdout.contains(part), "{part}:\n{}", outcome.stdout);
    }
    let outcome = run(&["bridge", "check", "-o", "json", &path], &[]);
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(report["valid"], false);
    assert_eq!(report["files"][0]["form"], "nmstate");
    let violation = &report["files"][0]["violations"][0];
    assert_eq!((&violation["code"], &violation["line"]), (&"BR020".into(), &6.into()), "{violation}");
}

#[test]
fn check_exits_with_0_for_valid_files_and_warnings() {
    let outcome = run(&["bridge", "check", &host("valid/bond"), &host("valid/two-nics")], &[]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert_eq!(outcome.stdout.matches("follows the rules").count(), 2);
    let outcome = run(&["bridge", "check", EXAMPLE, "-o", "json"], &[]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(report["files"][0]["hosts"], serde_json::json!(["master-0", "master-1", "master-2"]));
    assert_eq!(report["files"][0]["violations"][2]["host"], "master-2");
}

#[test]
fn what_cannot_be_read_is_a_failure_and_wrong_usage_is_2() {
    let missing = run(&["bridge", "check", "/nowhere.yml"], &[]);
    assert_eq!(missing.status, Some(1), "{missing:?}");
    assert!(missing.stderr.starts_with("error: cannot read /nowhere.yml: "), "{}", missing.stderr);
    let binary = file("bridge-binary.yml", b"\xff\xfe");
    assert_eq!(run(&["bridge", "check", &binary], &[]).status, Some(1));
    for arguments in [
        &["bridge", "check"][..],
        &["bridge", "check", "x", "--machine-network", "192.0.2.1/24"],
        &["bridge", "default", "--uplink", "eth0"],
        &["bridge", "default", "--uplink", "br-ex", "--dhcp", "ipv4"],
        &["bridge", "render", "--install-config", EXAMPLE, "--output", "x", "--format", "nmstate", "--role", "worker"],
    ] {
        let outcome = run(arguments, &[]);
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    }
}

#[test]
fn render_writes_each_form() {
    let output = directory("bridge-render");
    let target = output.to_str().unwrap();
    let render = |more: &[&str]| {
        let all = [&["bridge", "render", "--install-config", EXAMPLE, "--output", target, "--format"], more].concat();
        let outcome = run(&all, &[]);
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        outcome.stdout
    };
    let written = render(&["nmstate"]);
    assert_eq!(written.lines().count(), 3, "{written}");
    assert_eq!(names(&output), ["master-0.yml", "master-1.yml", "master-2.yml"]);
    // Each file is what a node's NMState gets, so it must pass alone.
    let each = run(&["bridge", "check", output.join("master-2.yml").to_str().unwrap()], &[]);
    assert_eq!(each.status, Some(0), "{each:?}");
    render(&["ignition"]);
    render(&["ignition", "--all-hosts"]);
    render(&["machine-config"]);
    render(&["machine-config", "--role", "infra"]);
    let all = names(&output);
    for name in ["master-1.ign", "all-hosts.ign", "10-br-ex-master.yml", "10-br-ex-worker.yml", "10-br-ex-infra.yml"] {
        assert!(all.iter().any(|found| found == name), "{all:?} lacks {name}");
    }
}

#[test]
fn render_writes_nothing_if_a_host_breaks_a_rule() {
    let output = directory("bridge-refused");
    let config = host("violations/br004-host-names");
    let target = output.to_str().unwrap();
    let outcome =
        run(&["bridge", "render", "--install-config", &config, "--output", target, "--format", "nmstate"], &[]);
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("BR004: host ../etc/shadow: "), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("error: nothing was written: "), "{}", outcome.stderr);
    assert!(!output.exists());
    let nmstate = host("valid/dhcp");
    let outcome =
        run(&["bridge", "render", "--install-config", &nmstate, "--output", target, "--format", "nmstate"], &[]);
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("is not an install-config"), "{}", outcome.stderr);
}

#[test]
fn the_default_bridge_passes_the_check() {
    let fixed = ["--address", "192.0.2.5/24", "--gateway", "192.0.2.1", "--dns", "192.0.2.53", "--link-mtu", "9000"];
    for (name, more) in [("dhcp", &["--dhcp", "both"][..]), ("static", &fixed)] {
        let outcome = run(&[&["bridge", "default", "--uplink", "enp2s0"], more].concat(), &[]);
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        let path = file(&format!("bridge-default-{name}.yml"), outcome.stdout.as_bytes());
        let checked = run(&["bridge", "check", &path], &[]);
        assert_eq!(checked.status, Some(0), "{checked:?}");
    }
    let far = run(
        &["bridge", "default", "--uplink", "enp2s0", "--address", "192.0.2.5/24", "--gateway", "198.51.100.1"],
        &[],
    );
    assert_eq!(far.status, Some(1), "{far:?}");
    assert!(far.stderr.contains("error: BR042: gateway 198.51.100.1 is in no network of br-ex; "), "{}", far.stderr);
    assert_eq!(far.stdout, "");
}
