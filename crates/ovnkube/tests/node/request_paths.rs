//! Lesson 25 (CVE-2021-20206): a request that names programs, files and credentials. None of them is used.

use std::os::unix::fs::PermissionsExt as _;

use lab::Family;
use serde_json::{Value, json};

use crate::site::{Site, configuration};

const EVIL: &str = "/evil";

/// Programs that leave a mark when they run, and files that look like credentials.
fn plant(site: &Site) {
    let folder = site.path(1, EVIL);
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["ovn-k8s-cni-overlay", "host-local", "plugin"] {
        let file = folder.join(name);
        std::fs::write(&file, format!("#!/bin/sh\ntouch {EVIL}/ran-$(basename $0)\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::fs::write(folder.join("kubeconfig"), "apiVersion: v1\nkind: Config\n").unwrap();
    std::fs::write(folder.join("token"), "stolen").unwrap();
}

fn planted(site: &Site) -> Vec<String> {
    let entries = std::fs::read_dir(site.path(1, EVIL)).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// All strings of a JSON value.
fn strings(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| strings(item, found)),
        Value::Object(fields) => {
            for (key, value) in fields {
                found.push(key.clone());
                strings(value, found);
            }
        }
        _ => {}
    }
}

#[test]
fn no_path_and_no_credential_is_taken_from_a_request() {
    let site = Site::start("cni-paths", 1, Family::V4);
    site.agents(&[]);
    plant(&site);
    let before = planted(&site);
    let upwards = format!("../../../..{EVIL}");
    let more = json!({
        "type": format!("{upwards}/plugin"), "ipam": {"type": format!("{upwards}/host-local"), "dataDir": format!("{EVIL}/data")},
        "kubeconfig": format!("{EVIL}/kubeconfig"), "kubernetes": {"kubeconfig": format!("{EVIL}/kubeconfig"), "k8s_auth_token": "stolen"},
        "tokenFile": format!("{EVIL}/token"), "logFile": format!("{EVIL}/log"), "log_file": format!("{EVIL}/log"),
        "confDir": EVIL, "binDir": EVIL, "socketPath": format!("{EVIL}/socket"), "serverSocket": format!("{EVIL}/socket"),
        "delegates": [{"type": format!("{EVIL}/plugin")}], "runtimeConfig": {"socket": format!("{EVIL}/socket")},
        "args": {"cni": {"ips": ["10.128.0.200/23"], "mac": "0a:58:0a:80:00:c8"}},
    });
    let variables = [
        ("CNI_PATH", EVIL),
        ("KUBECONFIG", "/evil/kubeconfig"),
        ("KUBERNETES_SERVICE_HOST", "192.0.2.1"),
        ("TOKEN", "stolen"),
        ("OVNKUBE_CNI_SOCKET_DIR", EVIL),
        ("HOME", EVIL),
        ("PATH", EVIL),
    ];
    let sandbox = site.sandbox("one", 1);
    let result = sandbox.run_plugin_with("ADD", &variables, &configuration("1.0.0", &more), None).unwrap();
    // The pod has the network that the controller recorded, and nothing that the request asked for.
    let own = site.cluster.network_of("default", "one").address().to_string();
    assert!(result["ips"][0]["address"].as_str().unwrap().starts_with(&format!("{own}/")), "{result}");
    sandbox.run_plugin_with("CHECK", &variables, &configuration("1.0.0", &more), None).unwrap();
    assert_eq!(planted(&site), before, "the request ran or wrote something");
    let log = site.cluster.lab.log("agent-n1").unwrap();
    assert!(!log.contains(EVIL) && !log.contains("stolen"), "{log}");

    // Names that would become parts of paths, and network namespaces that do not belong to pods.
    let uid = site.pod("two", 1);
    site.cluster.network_of("default", "two");
    let two = crate::sandbox::Sandbox::create(&site, 1, "two", "two", &uid);
    // Without link-local addresses and states of links: the kernel changes them in its own time.
    let routes = || {
        let run = |command: &[&str]| site.machine(1).run(command).unwrap();
        let links = run(&["ip", "-br", "link"]);
        let links: Vec<&str> = links.lines().filter_map(|line| line.split_whitespace().next()).collect();
        (run(&["ip", "-o", "address", "show", "scope", "global"]), links.join(" "), run(&["ip", "route"]))
    };
    let host = routes();
    for (variable, value, why) in [
        ("CNI_CONTAINERID", "../../evil", "CNI_CONTAINERID"),
        ("CNI_CONTAINERID", "a/b", "CNI_CONTAINERID"),
        ("CNI_IFNAME", "../x", "CNI_IFNAME"),
        ("CNI_NETNS", "evil/relative", "not an absolute path"),
        ("CNI_NETNS", "/evil/token", "not a network namespace"),
        ("CNI_NETNS", "/proc/1/ns/mnt", "cannot configure the interface pair"),
        ("CNI_NETNS", "/proc/1/ns/net", "host's network namespace"),
        ("CNI_NETNS", "/proc/self/ns/net", "host's network namespace"),
        ("CNI_ARGS", "K8S_POD_NAMESPACE=default;K8S_POD_NAME=../two", "CNI_ARGS"),
    ] {
        let answer = two.run_plugin_with("ADD", &[(variable, value)], &configuration("1.0.0", &json!({})), None);
        let error = answer.unwrap_err().to_string();
        assert!(error.contains(why), "{variable}={value}: {error}");
        assert_eq!(routes(), host, "{variable}={value} changed the host");
    }
    sandbox.delete();
    site.assert_empty(1);

    // What the plugin is given: a configuration without a path and without a credential.
    let file = std::fs::read_to_string(site.path(1, "/etc/cni/net.d/10-ovn-kubernetes.conf")).unwrap();
    let mut found = Vec::new();
    strings(&serde_json::from_str(&file).unwrap(), &mut found);
    for text in found {
        let lower = text.to_lowercase();
        assert!(
            !text.contains('/') && !["token", "kubeconfig", "cert", "key"].iter().any(|word| lower.contains(word)),
            "{file}"
        );
    }
}
