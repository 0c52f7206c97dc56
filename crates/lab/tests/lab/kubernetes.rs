//! Real kubelets run real pods.

use std::io::{Read, Write};

use lab::{Cni, Family, Kubernetes, Lab, LabSpec};

use crate::TIMEOUT;

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
      containers:
      - {name: web, image: 'localhost/agnhost:lab', imagePullPolicy: Never, args: [netexec, --http-port=8080],
         readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1}}
";

fn with_kubelets(purpose: &str, cni: Cni, family: Family) -> Lab {
    let kubernetes = Kubernetes { kubelets: true, cni, api_port: None };
    Lab::start(LabSpec::for_test(purpose).unwrap().nodes(2).family(family).kubernetes(kubernetes)).unwrap()
}

fn deployment_runs(purpose: &str, family: Family) {
    let lab = with_kubelets(purpose, Cni::Bridge, family);
    lab.kubectl(&["wait", "--for=condition=Ready", "node", "--all", "--timeout=100s"]).unwrap();
    lab.apply(DEPLOYMENT).unwrap();
    lab.kubectl(&["rollout", "status", "deployment/web", "--timeout=100s"]).unwrap();
    let listing = lab
        .kubectl(&[
            "get",
            "pods",
            "-l",
            "app=web",
            "-o",
            "jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName} {.status.podIP}{'\\n'}{end}",
        ])
        .unwrap();
    let pods: Vec<Vec<&str>> = listing.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(pods.len(), 2, "{listing}");
    assert_ne!(pods[0][1], pods[1][1], "both pods are on one node: {listing}");
    // Across nodes, by the API server's exec, which also shows that the control plane reaches the kubelets.
    let url = format!(
        "http://{}/hostname",
        if pods[1][2].contains(':') { format!("[{}]:8080", pods[1][2]) } else { format!("{}:8080", pods[1][2]) }
    );
    let answer = lab.kubectl(&["exec", pods[0][0], "--", "wget", "-q", "-O", "-", &url]).unwrap();
    assert_eq!(answer.trim(), pods[1][0]);
    let log = lab.kubectl(&["logs", pods[1][0]]).unwrap();
    assert!(log.contains("HTTP server"), "{log}");
}

#[test]
fn a_deployment_runs_with_the_bridge_plugin() {
    deployment_runs("deployment", Family::V4);
}

#[test]
fn a_deployment_runs_on_an_ipv6_cluster() {
    deployment_runs("deployment6", Family::V6);
}

#[test]
fn nodes_without_a_network_plugin_are_not_ready() {
    let lab = with_kubelets("not-ready", Cni::None, Family::Dual);
    let path =
        "jsonpath={.status.conditions[?(@.type=='Ready')].status} {.status.conditions[?(@.type=='Ready')].message}";
    // A kubelet registers its node before it has asked the container runtime.
    let says = lab::poll(TIMEOUT, || {
        let ready = lab.kubectl(&["get", "node", "n1", "-o", path]).unwrap();
        if ready.starts_with("False ") && ready.contains("cni plugin not initialized") { Ok(()) } else { Err(ready) }
    });
    assert_eq!(says, Ok(()));
}

#[test]
fn the_host_reaches_the_api_server_through_the_relay() {
    let lab = Lab::start(LabSpec::for_test("relay").unwrap().kubernetes(Kubernetes::default())).unwrap();
    let record = lab.record();
    let kubectl = record.kubernetes.unwrap().join("kubectl");
    let output = std::process::Command::new(kubectl)
        .args(["get", "--raw=/readyz", "--request-timeout=60s"])
        .env("KUBECONFIG", record.endpoints.kubeconfig.unwrap())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok", "{}", String::from_utf8_lossy(&output.stderr));
    // Garbage is answered with an error and does no harm.
    let address = record.endpoints.api.unwrap().trim_start_matches("https://").to_owned();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("400"), "{answer}");
}
