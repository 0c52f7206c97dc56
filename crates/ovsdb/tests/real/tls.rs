//! TLS: authentication of clients and servers.

use std::path::PathBuf;
use std::time::Duration;

use lab::{Databases, Lab, LabSpec, Ovn};
use ovsdb::client::{Client, Config, Remote, TableMonitor, TlsFiles};

use crate::common::{TIMEOUT, await_status, see_switch, write_switch};

struct Secure {
    lab: Lab,
    pki: PathBuf,
    remote: Remote,
}

fn secure(purpose: &str) -> Secure {
    let ovn = Ovn { databases: Databases::Standalone, tls: true, ..Ovn::default() };
    let lab = Lab::start(LabSpec::for_test(purpose).unwrap().ovn(ovn)).unwrap();
    let pki = lab::directories::Directories::from_environment().unwrap().lab(lab.name()).join("pki/ovn");
    // A relay makes the lab's server reachable on this host's loopback.
    let remote = lab.record().endpoints.northbound_remote.unwrap();
    let target = remote.trim_start_matches("ssl:").parse().unwrap();
    let relay = lab::tcp_forwarder::TcpForwarder::start(lab.machine("control").unwrap(), target, None).unwrap();
    let remote = format!("ssl:127.0.0.1:{}", relay.address().port()).parse().unwrap();
    // It ends with the test process.
    std::mem::forget(relay);
    Secure { lab, pki, remote }
}

impl Secure {
    fn files(&self, verify_host_name: bool) -> TlsFiles {
        TlsFiles {
            certificate: self.pki.join("ovn.crt"),
            private_key: self.pki.join("ovn.key"),
            authorities: self.pki.join("ca.crt"),
            verify_host_name,
        }
    }

    fn client(&self, files: TlsFiles) -> Client {
        let mut config = Config::new(vec![self.remote.clone()], "OVN_Northbound")
            .monitor(TableMonitor::new("Logical_Switch").columns(&["name"]).index(&["name"]));
        config.tls = Some(files);
        config.backoff.longest = Duration::from_millis(300);
        Client::start(config)
    }

    async fn refusal(&self, files: TlsFiles) -> String {
        let client = self.client(files);
        let mut status = client.status();
        let refused = status.wait_for(|status| status.last_error.is_some());
        let status = tokio::time::timeout(TIMEOUT, refused).await.unwrap().unwrap().clone();
        assert_eq!(status.sessions, 0);
        status.last_error.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_certificates_are_rejected_with_the_reason() {
    let secure = secure("tls");
    let client = secure.client(secure.files(false));
    client.connected(TIMEOUT).await.unwrap();
    write_switch(&client, "secure").await;
    see_switch(&client, "secure").await;

    // The server's certificate is not for loopback: only host name verification fails.
    let wrong_name = secure.refusal(secure.files(true)).await;
    assert!(wrong_name.contains("not valid for name") || wrong_name.contains("NotValidForName"), "{wrong_name}");

    let stranger = lab::pki::Authority::create(&secure.pki.join("stranger"), "stranger").unwrap();
    let wrong_authority = TlsFiles { authorities: stranger.certificate.clone(), ..secure.files(false) };
    let wrong_authority = secure.refusal(wrong_authority).await;
    assert!(wrong_authority.contains("UnknownIssuer") || wrong_authority.contains("BadSignature"), "{wrong_authority}");

    let missing = secure.refusal(TlsFiles { certificate: "/nowhere.crt".into(), ..secure.files(false) }).await;
    assert!(missing.contains("/nowhere.crt"), "{missing}");
    let no_key = secure.refusal(TlsFiles { private_key: secure.pki.join("ovn.crt"), ..secure.files(false) }).await;
    assert!(no_key.contains("ovn.crt"), "{no_key}");

    let identity = stranger.issue("stranger", "ovn", None, &[], &[]).unwrap();
    let files = TlsFiles { certificate: identity.certificate, private_key: identity.key, ..secure.files(false) };
    let not_let_in = secure.refusal(files).await;
    assert!(!not_let_in.is_empty(), "{not_let_in}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_server_certificate_is_rejected() {
    let secure = secure("expired");
    // A second server with an expired certificate of the same CA.
    let authority = lab::pki::Authority::create(&secure.pki.join("late"), "late").unwrap();
    let identity = authority.issue_expired("late", "ovn").unwrap();
    let control = secure.lab.machine("control").unwrap();
    let path = |path: &std::path::Path| path.display().to_string();
    let arguments = [
        format!("--private-key={}", path(&identity.key)),
        format!("--certificate={}", path(&identity.certificate)),
        format!("--ca-cert={}", path(&secure.pki.join("ca.crt"))),
    ];
    control.run(&["ovsdb-tool", "create", "/tmp/late.db", "/usr/share/ovn/ovn-nb.ovsschema"]).unwrap();
    // A server that hangs before it daemonizes would keep the pipes open for ever.
    let apart = r#""$@" >/run/late.out 2>&1 || { cat /run/late.out >&2; exit 1; }"#;
    let mut words = vec![
        "sh",
        "-c",
        apart,
        "sh",
        "ovsdb-server",
        "--detach",
        "--no-chdir",
        "--pidfile=/run/late.pid",
        "--unixctl=/run/late.ctl",
        "--remote=pssl:7641:0.0.0.0",
    ];
    words.extend(arguments.iter().map(String::as_str));
    words.push("/tmp/late.db");
    control.run(&words).unwrap();
    let target = "10.99.0.1:7641".parse().unwrap();
    let relay = lab::tcp_forwarder::TcpForwarder::start(control, target, None).unwrap();
    let late = Secure {
        remote: format!("ssl:{}", relay.address()).parse().unwrap(),
        pki: secure.pki.clone(),
        lab: secure.lab,
    };
    let expired = late.refusal(TlsFiles { authorities: authority.certificate.clone(), ..late.files(false) }).await;
    assert!(expired.to_lowercase().contains("expired"), "{expired}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_certificates_are_used_without_a_restart() {
    let secure = secure("renewed");
    let own = secure.pki.join("own");
    std::fs::create_dir_all(&own).unwrap();
    let files = TlsFiles { certificate: own.join("c"), private_key: own.join("k"), ..secure.files(false) };
    let client = secure.client(files);
    await_status(&client, |status| status.last_error.is_some()).await;
    // The files appear: the next attempt reads them.
    std::fs::copy(secure.pki.join("ovn.key"), own.join("k")).unwrap();
    std::fs::copy(secure.pki.join("ovn.crt"), own.join("c")).unwrap();
    client.connected(TIMEOUT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_written_files_leave_the_former_ones_in_effect() {
    let secure = secure("half-written");
    let own = secure.pki.join("own");
    std::fs::create_dir_all(&own).unwrap();
    let path = |file: &str| own.join(file);
    let content = |file: &str| std::fs::read(secure.pki.join(file)).unwrap();
    let restore = || ["ovn.crt", "ovn.key", "ca.crt"].map(|file| std::fs::write(path(file), content(file)).unwrap());
    restore();
    let files = TlsFiles {
        certificate: path("ovn.crt"),
        private_key: path("ovn.key"),
        authorities: path("ca.crt"),
        verify_host_name: false,
    };
    let client = secure.client(files.clone());
    client.connected(TIMEOUT).await.unwrap();
    let stranger = lab::pki::Authority::create(&secure.pki.join("stranger"), "ovn-ca").unwrap();
    let other = stranger.issue("ovn", "ovn", None, &[], &[]).unwrap();
    let half = |file: &str| content(file)[..content(file).len() / 2].to_vec();
    let damages: [(&str, Vec<u8>); 5] = [
        ("ovn.crt", half("ovn.crt")),
        ("ovn.key", half("ovn.key")),
        ("ca.crt", half("ca.crt")),
        ("ca.crt", Vec::new()),
        // The new certificate is there, its key is not.
        ("ovn.crt", std::fs::read(other.certificate).unwrap()),
    ];
    for (sessions, (file, damaged)) in (2..).zip(damages) {
        std::fs::write(path(file), damaged).unwrap();
        assert!(files.check().is_err(), "{file}");
        secure.lab.kill("nb").unwrap();
        secure.lab.restart("nb").unwrap();
        await_status(&client, |status| status.connected && status.sessions >= sessions).await;
        restore();
        files.check().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sni_is_sent_for_host_names_only() {
    use tokio::io::AsyncReadExt;
    let folder = std::env::temp_dir().join(format!("ovsdb-sni-{}", std::process::id()));
    let authority = lab::pki::Authority::create(&folder, "sni").unwrap();
    let identity = authority.issue("client", "client", None, &[], &[]).unwrap();
    for (host, told) in [("localhost", true), ("127.0.0.1", false)] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut config = Config::new(vec![format!("ssl:{host}:{port}").parse().unwrap()], "OVN_Northbound");
        config.tls = Some(TlsFiles {
            certificate: identity.certificate.clone(),
            private_key: identity.key.clone(),
            authorities: authority.certificate.clone(),
            verify_host_name: false,
        });
        let _client = Client::start(config);
        let hello = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut hello = [0; 2048];
            let length = stream.read(&mut hello).await.unwrap();
            hello[..length].to_vec()
        };
        let hello = tokio::time::timeout(TIMEOUT, hello).await.expect("the client sends nothing");
        // SNI is unencrypted in the ClientHello: routers use it.
        assert_eq!(hello.windows(host.len()).any(|part| part == host.as_bytes()), told, "{host}");
    }
    let _ = std::fs::remove_dir_all(folder);
}
