//! Invalid requests and pods without a usable network: clear errors, and nothing is left behind.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;

use lab::Family;
use serde_json::{Value, json};

use crate::cluster::{TIMEOUT, pod, until};
use crate::sandbox::{Sandbox, request};
use crate::site::{Site, configuration};

const DIRECTORY: &str = "/run/ovn-kubernetes/cni";

/// Posts a raw request to the agent's socket; returns the HTTP status line and the error.
fn post(site: &Site, header: &str, body: &[u8]) -> (String, Value) {
    let mut stream = UnixStream::connect(site.path(1, &format!("{DIRECTORY}/ovn-cni-server.sock"))).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    let head = format!(
        "POST / HTTP/1.1\r\nhost: x\r\n{header}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // The agent may close the connection early.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}, then {read:?}"));
    (head.lines().next().unwrap().to_owned(), serde_json::from_str(body).unwrap())
}

fn assert_error(error: &Value, code: u32, words: &[&str]) {
    assert_eq!(error["code"], code, "{error}");
    let text = format!("{} {}", error["msg"].as_str().unwrap(), error["details"].as_str().unwrap());
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {error}");
    }
}

#[test]
fn invalid_cni_requests_are_rejected() {
    let site = Site::start("cni-nonsense", 1, Family::V4);
    site.agents(&[]);
    let version = "ovnkube-cni: 1";
    for (header, body, code, words) in [
        (version, "{", 6, vec!["cannot parse the request"]),
        (version, r#"{"env":{"CNI_COMMAND":"ADD"},"config":"!"}"#, 6, vec!["base64"]),
        (version, r#"{"env":{"CNI_COMMAND":"ADD"},"config":"bm9uc2Vuc2U="}"#, 6, vec!["configuration"]),
        (version, r#"{"env":{"CNI_COMMAND":"PLAY"},"config":"e30="}"#, 4, vec!["PLAY", "ADD, DEL"]),
        (version, r#"{"env":{},"config":"e30="}"#, 4, vec!["CNI_COMMAND"]),
        (
            version,
            r#"{"env":{"CNI_COMMAND":"ADD","CNI_ARGS":"K8S_POD_NAME=x;K8S_POD_NAMESPACE=../y"},"config":"e30="}"#,
            4,
            vec!["CNI_ARGS"],
        ),
        ("ovnkube-cni: 7", "{}", 1, vec!["CNI plugin and node agent versions differ", "7"]),
        ("x-other: 1", "{}", 1, vec!["CNI plugin and node agent versions differ", "unknown"]),
    ] {
        let (status, error) = post(&site, header, body.as_bytes());
        assert!(status.contains("400"), "{status}");
        assert_error(&error, code, &words);
    }
    let (status, error) = post(&site, version, &vec![b'x'; 2 << 20]);
    assert!(status.contains("413"), "{status}");
    assert_error(&error, 6, &["longer than"]);

    // The socket is for root only; with opened permissions another user is rejected by its credentials.
    let mode = |path: &str| std::fs::metadata(site.path(1, path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(DIRECTORY), mode(&format!("{DIRECTORY}/ovn-cni-server.sock"))), (0o700, 0o600));
    let sandbox = site.sandbox("one", 1);
    let error = sandbox.run_plugin("ADD", &configuration("1.0.0", &json!({})), Some(1234)).unwrap_err();
    assert_error(&error, 11, &["cannot reach the ovnkube node agent"]);
    for (path, mode) in [(DIRECTORY, 0o755), (&format!("{DIRECTORY}/ovn-cni-server.sock"), 0o666)] {
        std::fs::set_permissions(site.path(1, path), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let error = sandbox.run_plugin("ADD", &configuration("1.0.0", &json!({})), Some(1234)).unwrap_err();
    assert_error(&error, 4, &["runs as root", "user 1234"]);
    assert_error(&sandbox.run_plugin("ADD", "no JSON", None).unwrap_err(), 6, &["configuration"]);
    assert_error(&sandbox.run_plugin("STATUS", &configuration("1.0.0", &json!({})), None).unwrap_err(), 1, &["1.1.0"]);
    site.assert_empty(1);
}

#[test]
fn add_fails_for_a_pod_without_a_usable_network() {
    let site = Site::start("cni-pods", 2, Family::V4);
    site.agents(&["--cni-add-timeout", "10"]);
    // An unknown pod, or one of another node, fails at once.
    let nobody = Sandbox::create(&site, 1, "nobody", "nobody", "0-0");
    assert_error(&nobody.ask("ADD").unwrap_err(), 101, &["pod default/nobody", "gone"]);
    let uid = site.pod("elsewhere", 2);
    let elsewhere = Sandbox::create(&site, 1, "elsewhere", "elsewhere", &uid);
    assert_error(&elsewhere.ask("ADD").unwrap_err(), 101, &["on node \"n2\""]);
    let mut host = pod("default", "host", "n1");
    host["spec"]["hostNetwork"] = json!(true);
    site.cluster.apply_all(&[host]);
    let host = Sandbox::create(&site, 1, "host", "host", &site.uid("host"));
    assert_error(&host.ask("ADD").unwrap_err(), 4, &["uses the host's network"]);

    // A network namespace that vanished, and a file that is none.
    let one = site.pod("one", 1);
    site.cluster.network_of("default", "one");
    let vanished = Sandbox::without_namespace(&site, 1, "vanished", "one", &one);
    assert_error(&vanished.ask("ADD").unwrap_err(), 3, &["/run/netns/vanished"]);
    std::fs::write(site.path(1, "/run/netns/plain"), "").unwrap();
    let plain = Sandbox::without_namespace(&site, 1, "plain", "one", &one);
    assert_error(&plain.ask("ADD").unwrap_err(), 3, &["/run/netns/plain"]);
    // The interface name is in use.
    let taken = Sandbox::create(&site, 1, "taken", "one", &one);
    taken.run(&["ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth9"]);
    assert_error(&taken.ask("ADD").unwrap_err(), 5, &["eth0", "exists"]);
    site.assert_empty(1);

    // Without a controller the pod gets no address.
    site.cluster.lab.kill("c1").unwrap();
    let late = site.sandbox("late", 1);
    assert_error(
        &late.ask("ADD").unwrap_err(),
        11,
        &["no network from ovnkube controller after 10s", "has not allocated its network"],
    );
    // A forged annotation is not used.
    let network = r#"{"default":{"ip_addresses":["10.128.0.200/23"],"mac_address":"0a:58:0a:80:00:c8","gateway_ips":["10.128.0.1"]}}"#;
    let own = site.cluster.network_of("default", "one").address().to_string();
    for name in ["one", "late"] {
        site.cluster.annotate("pod", name, &[("k8s.ovn.org/pod-networks", network)]);
    }
    let forged = until("the agent sees the annotation", || {
        let error = late.ask("ADD").unwrap_err();
        error.to_string().contains("was not written by ovnkube controller").then_some(error)
    });
    assert_error(&forged, 11, &["pod default/late", "k8s.ovn.org/NetworkAllocated"]);
    site.assert_empty(1);
    // Nor an overwritten one, which the agent has seen by now: the pod gets the network of its recorded condition.
    let recorded = Sandbox::create(&site, 1, "recorded", "one", &one);
    // The timeout is short for the ADDs that wait in vain; a busy machine may need longer.
    let result = until("ADD succeeds", || recorded.ask("ADD").ok());
    assert!(result["ips"][0]["address"].as_str().unwrap().starts_with(&format!("{own}/")), "{result}, not {own}");
    recorded.delete();
    // Recorded, but without a logical port: its flows are never installed.
    let condition = json!({"type": "k8s.ovn.org/NetworkAllocated", "status": "True", "message": network});
    let record = json!({"status": {"conditions": [condition]}}).to_string();
    let words = ["patch", "pod", "late", "--subresource=status", "--type=strategic", "-p", &record];
    site.cluster.lab.kubectl(&words).unwrap();
    let error = until("the agent sees the record", || {
        let error = late.ask("ADD").unwrap_err();
        error.to_string().contains("ovn-controller").then_some(error)
    });
    assert_error(&error, 11, &["ovn-controller has not installed the flows of port default_late"]);
    site.assert_empty(1);
    // DEL works for rejected sandboxes.
    for sandbox in [&nobody, &elsewhere, &host, &vanished, &taken, &late] {
        sandbox.delete();
    }
    request(&site, 1, "GC", &json!({"cni.dev/valid-attachments": []})).unwrap();
    assert_error(&request(&site, 1, "GC", &json!({})).unwrap_err(), 7, &["cni.dev/valid-attachments"]);
}
