//! Valid and invalid CNI requests.
#![allow(clippy::unwrap_used)]

use cni::{AddResult, Address, Attachment, Code, Command, Failure, Interface, PodReference, Request, Route, Version};
use proptest::prelude::*;
use serde_json::{Value, json};

fn base64(text: &str) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut coded = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let mut bytes = [0; 4];
        bytes[1..=chunk.len()].copy_from_slice(chunk);
        let block = u32::from_be_bytes(bytes);
        for place in 0..4 {
            let digit = char::from(ALPHABET[(block >> (18 - 6 * place)) as usize & 63]);
            coded.push(if place <= chunk.len() { digit } else { '=' });
        }
    }
    coded
}

fn body(env: &Value, config: &str) -> Vec<u8> {
    json!({"env": env, "config": base64(config)}).to_string().into_bytes()
}

const ARGS: &str =
    "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-1;K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=u-1";

fn add(change: impl FnOnce(&mut Value)) -> Value {
    let mut env = json!({"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_NETNS": "/run/netns/x",
        "CNI_IFNAME": "eth0", "CNI_ARGS": ARGS});
    change(&mut env);
    env
}

fn config(version: &str) -> String {
    json!({"cniVersion": version, "name": "ovn-kubernetes", "type": "ovn-k8s-cni-overlay"}).to_string()
}

fn refused(env: &Value, config: &str) -> Failure {
    Request::parse(&body(env, config)).unwrap_err().0
}

#[test]
fn an_add_request_is_parsed() {
    let Request { command, configuration } = Request::parse(&body(&add(|_| {}), &config("1.0.0"))).unwrap();
    let pod = PodReference { namespace: "shop".into(), name: "web-1".into(), uid: Some("u-1".into()) };
    let attachment = Attachment { container: "c1".into(), interface: "eth0".into() };
    assert_eq!(command, Command::Add { attachment, netns: "/run/netns/x".into(), pod });
    assert_eq!((configuration.version, configuration.name.as_str()), (Version::V1_0_0, "ovn-kubernetes"));
}

#[test]
fn missing_or_invalid_variables_are_named() {
    type Change = fn(&mut Value);
    let odd: [(Change, &str); 9] = [
        (|env| env["CNI_COMMAND"] = json!("PLAY"), "PLAY"),
        (|env| env["CNI_CONTAINERID"] = json!(""), "CNI_CONTAINERID"),
        (|env| env["CNI_CONTAINERID"] = json!("../etc"), "CNI_CONTAINERID"),
        (|env| env["CNI_IFNAME"] = json!("an-interface-too-long"), "CNI_IFNAME"),
        (|env| env["CNI_IFNAME"] = json!("a/b"), "CNI_IFNAME"),
        (|env| env["CNI_NETNS"] = json!("relative"), "CNI_NETNS"),
        (|env| env["CNI_ARGS"] = json!("K8S_POD_NAME=web"), "K8S_POD_NAMESPACE"),
        (|env| env["CNI_ARGS"] = json!("K8S_POD_NAMESPACE=a/b;K8S_POD_NAME=web"), "a/b"),
        (|env| env["CNI_ARGS"] = json!("nonsense"), "nonsense"),
    ];
    for (change, named) in odd {
        let failure = refused(&add(change), &config("1.0.0"));
        assert_eq!(failure.code, Code::InvalidEnvironment, "{failure}");
        assert!(failure.message.contains(named), "{failure}");
    }
    assert_eq!(refused(&add(|_| {}), &config("9.9.9")).code, Code::IncompatibleVersion);
    assert_eq!(refused(&add(|_| {}), "{").code, Code::NotDecoded);
    assert_eq!(Request::parse(b"{").unwrap_err().0.code, Code::NotDecoded);
}

#[test]
fn del_needs_only_the_attachment() {
    let env =
        json!({"CNI_COMMAND": "DEL", "CNI_CONTAINERID": "c1", "CNI_IFNAME": "eth0", "CNI_NETNS": "", "CNI_ARGS": "?"});
    let request = Request::parse(&body(&env, &config("0.4.0"))).unwrap();
    assert!(matches!(request.command, Command::Delete { netns: None, pod: None, .. }), "{request:?}");
}

#[test]
fn gc_and_status_need_version_1_1() {
    for (word, version) in [("STATUS", "1.0.0"), ("GC", "1.0.0"), ("CHECK", "0.3.1")] {
        let env = add(|env| env["CNI_COMMAND"] = json!(word));
        assert_eq!(refused(&env, &config(version)).code, Code::IncompatibleVersion, "{word}");
    }
    let gc = json!({"CNI_COMMAND": "GC"});
    assert_eq!(refused(&gc, &config("1.1.0")).code, Code::InvalidConfiguration);
    let used = json!({"cniVersion": "1.1.0", "cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]});
    let request = Request::parse(&body(&gc, &used.to_string())).unwrap();
    assert_eq!(request.configuration.valid_attachments.unwrap().len(), 1);
}

#[test]
fn a_result_has_the_format_of_its_version() {
    let answer = AddResult {
        interfaces: vec![
            Interface { name: "4f1b2c".into(), mac: "0a:58:0a:80:00:05".into(), mtu: 1400, sandbox: None },
            Interface {
                name: "eth0".into(),
                mac: "0a:58:0a:80:00:05".into(),
                mtu: 1400,
                sandbox: Some("/run/netns/x".into()),
            },
        ],
        addresses: vec![Address {
            address: "10.128.0.5".parse().unwrap(),
            length: 23,
            gateway: "10.128.0.1".parse().ok(),
            interface: 1,
        }],
        routes: vec![Route { destination: "10.128.0.0/14".parse().unwrap(), via: "10.128.0.1".parse().ok() }],
        ..AddResult::default()
    };
    let read = |version| -> Value { serde_json::from_str(&answer.to_json(version)).unwrap() };
    let new = read(Version::V1_1_0);
    assert_eq!(
        new["interfaces"][1],
        json!({"name": "eth0", "mac": "0a:58:0a:80:00:05", "mtu": 1400, "sandbox": "/run/netns/x"})
    );
    assert_eq!(new["ips"][0], json!({"address": "10.128.0.5/23", "gateway": "10.128.0.1", "interface": 1}));
    assert_eq!(new["routes"][0], json!({"dst": "10.128.0.0/14", "gw": "10.128.0.1"}));
    let old = read(Version::V0_3_1);
    assert_eq!((&old["ips"][0]["version"], &old["interfaces"][0]["mtu"]), (&json!("4"), &Value::Null));
}

proptest! {
    #[test]
    fn no_request_panics(body in prop::collection::vec(any::<u8>(), 0..200), text in ".{0,60}", word in "(ADD|DEL|CHECK|GC|STATUS|.{0,8})") {
        let _ = Request::parse(&body);
        let env = json!({"CNI_COMMAND": word, "CNI_CONTAINERID": text, "CNI_IFNAME": text, "CNI_NETNS": text, "CNI_ARGS": text});
        let _ = Request::parse(&json!({"env": env, "config": text}).to_string().into_bytes());
    }
}
