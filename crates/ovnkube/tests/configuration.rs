//! The configuration: precedence, provenance, and error reports.

mod ovnkube;

use std::path::PathBuf;

use ovnkube::{file, run};

#[test]
fn config_show_names_the_layer_that_set_each_value() {
    let path = file(
        "layers.conf",
        b"# a comment\n[logging]\nlevel = warn\nformat=human ; a comment\n[metrics]\nbind-address=\"0.0.0.0:9102\"\n",
    );
    let shown = run(
        &["config", "show", "--config", &path, "--log-level", "debug"],
        &[("OVNKUBE_LOGGING_LEVEL", "error"), ("OVNKUBE_LOGGING_FORMAT", "json")],
    );
    assert_eq!(shown.status, Some(0), "{}", shown.stderr);
    let cells: Vec<Vec<&str>> = shown.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let place = format!("{path}:6");
    assert_eq!(
        cells[..4],
        [
            vec!["SETTING", "VALUE", "SOURCE"],
            vec!["[logging]", "level", "debug", "--log-level"],
            vec!["[logging]", "format", "json", "OVNKUBE_LOGGING_FORMAT"],
            vec!["[metrics]", "bind-address", "0.0.0.0:9102", &place],
        ]
    );
    assert!(!shown.stdout.contains('\u{1b}'), "no colour in a pipe");
}

#[test]
fn config_show_in_json_names_file_and_line() {
    let path = file("json.conf", b"[logging]\nlevel=warn\n");
    let shown = run(&["config", "show", "-o", "json"], &[("OVNKUBE_CONFIG", &path)]);
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(shown["file"], path.as_str());
    assert_eq!(shown["settings"][0]["value"], "warn");
    assert_eq!(shown["settings"][0]["source"]["kind"], "file");
    assert_eq!(shown["settings"][0]["source"]["line"], 2);
    assert_eq!(shown["settings"][2]["source"]["kind"], "default");
}

#[test]
fn config_check_reports_every_error_at_once() {
    let path = file(
        "mistakes.conf",
        b"[metrics]\nbind-adress=off\nbind-address=nowhere\nbind-address=off\nrubbish!\n\xff\nx\0y\n[logging]\nlevel=\"open\n",
    );
    let outcome = run(&["config", "check", &path, "--log-format", "xml"], &[("OVNKUBE_METRICS_BIND_ADDRESS", "9102")]);
    assert_eq!(outcome.status, Some(2));
    assert_eq!(outcome.stdout, "");
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    let expected = [
        format!("error: {path}:2: [metrics] bind-adress: unknown key; did you mean bind-address?"),
        format!("error: {path}:3: [metrics] bind-address: \"nowhere\": not an IP address with a port; allowed: "),
        format!("error: {path}:4: [metrics] bind-address: already set in line 3; keep one of the two"),
        format!("error: {path}:5: neither a [section], nor key=value, nor a comment"),
        format!("error: {path}:6: not UTF-8 text (byte 1 of the line)"),
        format!("error: {path}:7: a NUL byte"),
        format!("error: {path}:9: [logging] level: a quote that is not closed"),
        "error: --log-format: \"xml\": not a log format; allowed: auto".to_owned(),
        "error: OVNKUBE_METRICS_BIND_ADDRESS: \"9102\": not an IP address with a port; allowed: ".to_owned(),
    ];
    assert_eq!(lines.len(), expected.len(), "{}", outcome.stderr);
    for (line, start) in lines.iter().zip(expected) {
        assert!(line.starts_with(&start), "{line}\nshould start with\n{start}");
    }
}

#[test]
fn a_given_config_file_must_be_readable() {
    let missing = run(&["config", "show", "--config", "/nonexistent/a.conf"], &[]);
    assert_eq!(missing.status, Some(2));
    assert!(missing.stderr.starts_with("error: /nonexistent/a.conf: no such file; "), "{}", missing.stderr);
    let variable = run(&["config", "show"], &[("OVNKUBE_CONFIG", "/nonexistent/b.conf")]);
    assert!(variable.stderr.starts_with("error: /nonexistent/b.conf: no such file; "));
    let directory = run(&["config", "check", env!("CARGO_TARGET_TMPDIR")], &[]);
    assert_eq!(directory.status, Some(2));
    assert!(directory.stderr.contains(": a directory, not a file; "), "{}", directory.stderr);
    let endless = run(&["config", "check", "/dev/zero"], &[]);
    assert!(endless.stderr.contains("larger than 1 MiB"), "{}", endless.stderr);
}

/// `config check` and the controller print the same errors.
#[test]
fn config_check_rejects_what_the_controller_rejects() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("agreement");
    std::fs::create_dir_all(&directory).unwrap();
    let authority = lab::pki::Authority::create(&directory, "ovn-ca").unwrap();
    let own = authority.issue("own", "ovn", None, &[], &[]).unwrap();
    let other = authority.issue("other", "ovn", None, &[], &[]).unwrap();
    let [ca, certificate, key, foreign] =
        [&authority.certificate, &own.certificate, &own.key, &other.key].map(|path| path.to_str().unwrap());
    let tls = |key| ["--nb-client-privkey", key, "--nb-client-cert", certificate, "--nb-client-cacert", ca];
    assert_eq!(run(&[&["config", "check"][..], &tls(key)].concat(), &[]).status, Some(0));
    let broken = file("agreement.kubeconfig", b"users: [");
    let cases: [(&[&str], &[&str]); 10] = [
        (&["--k8s-service-cidrs", "10.130.0.0/16"], &["cluster-subnets 10.128.0.0/14 overlaps service-cidrs"]),
        (&["--gateway-v4-join-subnet", "100.64.0.0/31"], &["v4-join-subnet 100.64.0.0/31 is too small"]),
        (&["--ha-election-renew-deadline", "20"], &["[masterha]", "renew deadline (20s)", "duration (5s)"]),
        (&["--ha-election-lease-duration", "120"], &["[masterha]", "must be from 1 s to 60 s"]),
        (&["--nb-address", "ssl:192.0.2.1:6641"], &["[ovnnorth]", "give client-privkey, client-cert"]),
        (&["--sb-client-cert", certificate], &["[ovnsouth]", "give all three"]),
        (&tls("/nonexistent/key"), &["[ovnnorth] cannot use /nonexistent/key", "No such file"]),
        (&tls(foreign), &["[ovnnorth] invalid combination of TLS files"]),
        (&["--kubeconfig", &broken], &["cannot use the kubeconfig", &broken]),
        (&["--metrics-tls-cert", certificate], &["[metrics] has one of tls-cert and tls-key: give both"]),
    ];
    for (arguments, words) in cases {
        let checked = run(&[&["config", "check"], arguments].concat(), &[]);
        let started = run(&[&["controller", "--metrics-bind-address", "off"], arguments].concat(), &[]);
        assert_eq!((checked.status, started.status), (Some(2), Some(2)), "{arguments:?}: {}", started.stderr);
        assert_eq!(checked.stderr, started.stderr);
        let line = checked.stderr.strip_suffix('\n').unwrap();
        assert!(!line.contains('\n') && words.iter().all(|word| line.contains(word)), "{arguments:?}: {line}");
    }
    // Node subnets without addresses for pods are rejected.
    for (cidr, longest) in [("10.128.0.0/14/30", 29), ("fd01::/48/127", 126)] {
        for role in [&["config", "check"][..], &["controller", "--metrics-bind-address", "off"], &["node"]] {
            let refused = run(&[role, &["--cluster-subnets", cidr]].concat(), &[]);
            let words =
                format!("leaves a node no address for pods: write a network and a node length of at most {longest}");
            assert_eq!(refused.status, Some(2), "{role:?} {cidr}");
            assert!(refused.stderr.contains(&words), "{}", refused.stderr);
        }
    }
    // ovn-northd takes one set of TLS files only.
    let southbound = ["--sb-client-privkey", foreign, "--sb-client-cert", other.certificate.to_str().unwrap()];
    let remotes =
        ["--nb-address", "ssl:192.0.2.1:6641", "--sb-address", "ssl:192.0.2.1:6642", "--sb-client-cacert", ca];
    let both = [&["controller", "--run-northd"][..], &tls(key), &southbound, &remotes].concat();
    let refused = run(&both, &[]);
    assert_eq!(refused.status, Some(2));
    assert!(refused.stderr.starts_with("error: --run-northd: ovn-northd takes one"), "{}", refused.stderr);
    // All errors are reported at once.
    let several = [cases[0].0, cases[2].0, cases[5].0].concat();
    let checked = run(&[&["config", "check"], &several[..]].concat(), &[]);
    assert_eq!((checked.status, checked.stderr.lines().count()), (Some(2), 3), "{}", checked.stderr);
}

/// Allowed, with a warning.
#[test]
fn plain_tcp_to_a_remote_database_is_warned_about() {
    let remotes = ["--nb-address", "tcp:192.0.2.1:6641", "--sb-address", "tcp:127.0.0.1:6642,tcp:[2001:db8::1]:6642"];
    let checked = run(&[&["config", "check"], &remotes[..]].concat(), &[]);
    assert_eq!(checked.status, Some(0), "{}", checked.stderr);
    let lines: Vec<&str> = checked.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{}", checked.stderr);
    assert!(
        lines[0].starts_with("warning: INSECURE: [ovnnorth] address has plain TCP to another host (tcp:192.0.2.1:")
    );
    assert!(lines[1].contains("[ovnsouth]") && lines[1].contains("(tcp:[2001:db8::1]:6642)"), "{}", lines[1]);
    // A role logs the warning at start; here it then fails without a cluster.
    for role in ["controller", "node"] {
        let started = run(&[&[role, "--metrics-bind-address", "off"], &remotes[..]].concat(), &[]);
        assert!(started.status.is_some_and(|status| status != 0));
        let warned: Vec<&str> = started.stderr.lines().filter(|line| line.contains("INSECURE")).collect();
        assert_eq!(warned.len(), if role == "controller" { 2 } else { 1 }, "{}", started.stderr);
        assert!(warned.iter().all(|line| line.contains("WARN")), "{warned:?}");
    }
    let local = ["--nb-address", "tcp:127.0.0.1:6641", "--sb-address", "unix:/run/ovn/ovnsb_db.sock"];
    assert_eq!(run(&[&["config", "check"], &local[..]].concat(), &[]).stderr, "");
}

#[test]
fn a_deprecated_setting_works_and_is_warned_of() {
    let path = file("deprecated.conf", b"[cni]\npatience = 20\n");
    let checked = run(&["config", "check", &path], &[]);
    assert_eq!(checked.status, Some(0), "{}", checked.stderr);
    assert_eq!(checked.stderr, format!("warning: {path}:2: [cni] patience is deprecated: use [cni] add-timeout\n"));
    let shown = run(&["config", "show", "--cni-patience", "30"], &[("OVNKUBE_CONFIG", &path)]);
    let line = shown.stdout.lines().find(|line| line.contains("add-timeout")).unwrap();
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(cells, ["[cni]", "add-timeout", "30", "--cni-patience"]);
    let started = run(&["node", "--metrics-bind-address", "off", "--cni-patience", "20"], &[]);
    let warned =
        started.stderr.lines().any(|line| line.contains("WARN") && line.contains("--cni-patience is deprecated"));
    assert!(warned, "{}", started.stderr);
}

#[test]
fn config_check_rejects_listeners_that_cannot_serve_and_roles_log_it() {
    let certificate = file("listener.crt", b"");
    let files = ["--metrics-tls-cert", &certificate, "--metrics-tls-key", &certificate];
    let address = ["--metrics-tls-bind-address", "127.0.0.1:9102"];
    let missing = "[metrics] tls-bind-address is set, but tls-cert and tls-key are not: give both, or set tls-bind-address to off";
    let same = "[metrics] bind-address 127.0.0.1:9102 and tls-bind-address 127.0.0.1:9102 cannot both be used";
    let both = run(&[&["config", "check"], &address[..]].concat(), &[]);
    assert_eq!(both.status, Some(2), "{}", both.stderr);
    assert!([missing, same].iter().all(|words| both.stderr.contains(words)), "{}", both.stderr);
    let one = run(&[&["config", "check"], &address[..], &files].concat(), &[]);
    assert_eq!((one.status, one.stderr.contains(missing)), (Some(2), false), "{}", one.stderr);
    let other = ["--metrics-tls-bind-address", "127.0.0.1:9103"];
    let fine = run(&[&["config", "check"], &other[..], &files].concat(), &[]);
    assert_eq!((fine.status, fine.stderr.as_str()), (Some(0), ""));
    // A role of a cluster without certificates.
    let role = run(&[&["node", "--metrics-bind-address", "off"], &other[..]].concat(), &[]);
    assert!(role.stderr.contains("metrics are not served to other machines"), "{}", role.stderr);
}

#[test]
fn config_check_warns_of_misspelt_variables() {
    let environment = [("OVNKUBE_LOGING_LEVEL", "debug"), ("OVNKUBE_DB_HOST", "192.0.2.1")];
    let checked = run(&["config", "check"], &environment);
    assert_eq!(checked.status, Some(0), "{}", checked.stderr);
    let words = "warning: unknown environment variable \"OVNKUBE_LOGING_LEVEL\" is ignored; did you mean OVNKUBE_LOGGING_LEVEL?\n";
    assert_eq!(checked.stderr, words);
}

#[test]
fn the_example_passes_the_check() {
    let example = run(&["config", "example"], &[]);
    let path = file("example.conf", example.stdout.as_bytes());
    let checked = run(&["config", "check", &path], &[]);
    assert_eq!(checked.status, Some(0), "{}", checked.stderr);
    assert!(checked.stdout.contains("no problem; settings: 0 of 47 set"), "{}", checked.stdout);
}

#[test]
fn commands_that_need_no_configuration_do_not_read_it() {
    let broken = file("broken.conf", b"rubbish!\n");
    for arguments in [["version"].as_slice(), &["config", "example"], &["completions", "bash"]] {
        assert_eq!(run(arguments, &[("OVNKUBE_CONFIG", &broken)]).status, Some(0), "{arguments:?}");
    }
}
