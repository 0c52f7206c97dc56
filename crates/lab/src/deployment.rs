//! Deploys ovnkube on the lab's cluster as users do (manifests of `deploy/`, an image, a ConfigMap), then the cluster
//! DNS and the example application, which need a pod network.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use crate::control_plane::{API_PORT, cluster_dns_addresses, service_ranges};
use crate::error::{Error, Result, create_dir, read_file};
use crate::machine::Machine;
use crate::pod_routes;
use crate::product_image;
use crate::spec::{Databases, Family, Product};
use crate::supervisor::Supervisor;
use crate::underlay::{CONTROL, OUTSIDE, bracketed, node_name};
use crate::{container_image, kubelet, signed};

const NAMESPACE: &str = "ovn-kubernetes";
const NAMESPACE_MANIFEST: &str = include_str!("../../../deploy/ovnkube/namespace.yaml");
const CRDS: [&str; 2] = [
    include_str!("../../../deploy/crds/adminnetworkpolicies.yaml"),
    include_str!("../../../deploy/crds/baselineadminnetworkpolicies.yaml"),
];
const MANIFESTS: [&str; 4] = [
    include_str!("../../../deploy/controller/rbac.yaml"),
    include_str!("../../../deploy/ovnkube/rbac.yaml"),
    include_str!("../../../deploy/ovnkube/admission.yaml"),
    include_str!("../../../deploy/ovnkube/daemonsets.yaml"),
];
/// Databases in pods; labs with databases of their own do without.
const DATABASES: &str = include_str!("../../../deploy/ovnkube/databases.yaml");
/// The signer of their certificates; labs with databases of their own have certificates of the lab.
const SIGNER: &str = include_str!("../../../deploy/ovnkube/pki.yaml");
const ACTIVE_BACKUP: &str = include_str!("../../../deploy/active-backup/databases.yaml");
const CLUSTER_DNS: &str = include_str!("../../../lab/coredns/coredns.yaml");
const APPLICATION: &str = include_str!("../../../deploy/examples/shop.yaml");
/// The NetworkPolicy of the example application.
pub(crate) const POLICY: &str = include_str!("../../../deploy/examples/store-policy.yaml");

/// How long pods may take to become ready. Generous: it only ends what would hang forever.
const LIMIT: Duration = Duration::from_secs(200);

/// `cluster-subnets` of the deployed configuration.
fn cluster_subnets(family: Family) -> &'static str {
    match family {
        Family::V4 => "10.128.0.0/14/23",
        Family::V6 => "fd01::/48/64",
        Family::Dual => "10.128.0.0/14/23,fd01::/48/64",
    }
}

/// The ovnkube and CoreDNS images.
pub(crate) fn images(supervisor: &Supervisor, product: &Product, coredns: &Path) -> Result<Vec<PathBuf>> {
    Ok(vec![
        product_image::pack(&supervisor.dir().join("images"), &supervisor.image, product)?,
        container_image::ensure_coredns(&supervisor.directories, coredns)?,
    ])
}

/// Deploys ovnkube, the cluster DNS and the application; returns when all of it is ready.
pub(crate) fn start(supervisor: &Supervisor, product: &Product) -> Result<()> {
    let control = supervisor.machine(CONTROL)?;
    supervisor.progress.step("ovnkube from deploy/", || {
        // By the administrator: kubelets may not set this label.
        for number in 1..=supervisor.spec.control_planes {
            control.run(&["kubectl", "label", "node", &node_name(number), "node-role.kubernetes.io/control-plane="])?;
        }
        apply(&control, NAMESPACE_MANIFEST)?;
        apply(&control, &CRDS.join("---\n"))?;
        apply(&control, &configuration(supervisor, product)?)?;
        if supervisor.spec.has_signer() {
            apply(&control, SIGNER)?;
        }
        apply(&control, &manifest(supervisor, &MANIFESTS.join("---\n")))?;
        let databases = match supervisor.spec.ovn.as_ref().map(|ovn| ovn.databases) {
            Some(Databases::Pods) => Some(DATABASES),
            Some(Databases::ActiveBackup) => Some(ACTIVE_BACKUP),
            _ => None,
        };
        if let Some(databases) = databases {
            apply(&control, &manifest(supervisor, databases))?;
        }
        if supervisor.spec.has_signer() {
            rollout(&control, NAMESPACE, "daemonset/ovnkube-pki")?;
            signed::export(supervisor)?;
        }
        if databases.is_some() {
            rollout(&control, NAMESPACE, "daemonset/ovnkube-db")?;
        }
        for daemonset in ["ovnkube-master", "ovnkube"] {
            rollout(&control, NAMESPACE, &format!("daemonset/{daemonset}"))?;
        }
        // A kubelet updates the node's status when it finds a network, and every few seconds.
        control.run_within(LIMIT, &["kubectl", "wait", "--for=condition=Ready", "node", "--all", "--timeout=180s"])?;
        pod_routes::start(supervisor)
    })?;
    supervisor.progress.step("cluster DNS and application", || {
        let servers: Vec<_> = supervisor.plan.addresses(OUTSIDE).iter().map(|own| own.address().to_string()).collect();
        apply(&control, &cluster_dns(supervisor.spec.family, &servers.join(" ")))?;
        apply(&control, APPLICATION)?;
        apply(&control, POLICY)?;
        rollout(&control, "kube-system", "deployment/coredns")?;
        for workload in ["deployment/web", "deployment/store", "daemonset/client", "daemonset/stranger"] {
            rollout(&control, "shop", workload)?;
        }
        Ok(())
    })
}

fn cluster_dns(family: Family, servers: &str) -> String {
    let addresses = cluster_dns_addresses(family);
    let quoted = |address: &str| format!("{address:?}");
    CLUSTER_DNS
        .replace("NAME_SERVERS", servers)
        .replace("FIRST_CLUSTER_IP", &addresses.first().copied().map(quoted).unwrap_or_default())
        .replace("ALL_CLUSTER_IPS", &format!("{addresses:?}"))
}

/// A manifest as it is applied: without TLS there are no certificates to wait for.
fn manifest(supervisor: &Supervisor, text: &str) -> String {
    if supervisor.spec.ovn.as_ref().is_some_and(|ovn| ovn.tls) {
        return text.to_owned();
    }
    text.replace("{secretName: ovn-cert}", "{secretName: ovn-cert, optional: true}")
        .replace("configMap: {name: ovn-ca}", "configMap: {name: ovn-ca, optional: true}")
}

fn apply(control: &Machine, manifest: &str) -> Result<()> {
    control.run_with_input(&["kubectl", "apply", "-f", "-"], manifest).map(|_| ())
}

/// Returns when all pods of a workload are ready; the error contains pods and warnings.
fn rollout(control: &Machine, namespace: &str, workload: &str) -> Result<()> {
    let args = ["kubectl", "-n", namespace, "rollout", "status", workload, "--timeout=180s"];
    control.run_within(LIMIT, &args).map(|_| ()).map_err(|error| {
        let pods = control.run(&["kubectl", "-n", namespace, "get", "pods", "--no-headers", "-o", "wide"]);
        let events = ["kubectl", "-n", namespace, "get", "events", "--no-headers", "--field-selector=type=Warning"];
        let events = control.run(&events).unwrap_or_default();
        let lines = |text: String| text.lines().rev().take(4).collect::<Vec<_>>().join(" | ");
        Error::Invalid(format!("{error}; pods: {}; warnings: {}", lines(pods.unwrap_or_default()), lines(events)))
    })
}

/// The ConfigMap `ovn-config`; with TLS and without a signer also the certificates that it refers to.
fn configuration(supervisor: &Supervisor, product: &Product) -> Result<String> {
    let endpoints = supervisor.record_file.read().endpoints.clone();
    let family = supervisor.spec.family;
    let mut data = json!({
        "OvnNorth": endpoints.northbound_remote,
        "OvnSouth": endpoints.southbound_remote,
        "k8s_apiserver": format!("https://{}:{API_PORT}", bracketed(supervisor.plan.primary(CONTROL)?)),
        "net_cidr": cluster_subnets(family),
        "svc_cidr": service_ranges(family),
        "gateway_mode": product.gateway.name(),
    });
    // In pods, ovsdb-server has another port for clients that are not nodes.
    let databases = supervisor.spec.ovn.as_ref().map(|ovn| ovn.databases);
    let pods = matches!(databases, Some(Databases::Pods | Databases::ActiveBackup));
    let south = endpoints.southbound_remote.as_deref().unwrap_or_default();
    data["OvnSouthControl"] = if pods { south.replace(":6642", ":6646") } else { south.to_owned() }.into();
    let services = match supervisor.spec.ovn.as_ref().map(|ovn| ovn.databases) {
        Some(Databases::Pods) => Some(["ovnkube-db", "ovnkube-db"]),
        Some(Databases::ActiveBackup) => Some(["ovnkube-nb", "ovnkube-sb"]),
        _ => None,
    };
    if let Some([northbound, southbound]) = services {
        data["OvnNorthService"] = northbound.into();
        data["OvnSouthService"] = southbound.into();
    }
    let mut objects = Vec::new();
    if supervisor.spec.ovn.as_ref().is_some_and(|ovn| ovn.tls) {
        data["ovn_private_key"] = "/ovn-cert/tls.key".into();
        data["ovn_certificate"] = "/ovn-cert/tls.crt".into();
        data["ovn_authorities"] = "/ovn-ca/ca-bundle.crt".into();
        // Without a signer all nodes share a certificate of the lab.
        let of_nodes =
            if supervisor.spec.has_signer() { "/var/lib/ovn-kubernetes/pki/current" } else { "/ovn-node-cert" };
        data["ovn_node_private_key"] = format!("{of_nodes}/tls.key").into();
        data["ovn_node_certificate"] = format!("{of_nodes}/tls.crt").into();
        if supervisor.spec.has_signer() {
            data["ovn_node_certificate_dir"] = "/var/lib/ovn-kubernetes/pki".into();
            data["ovn_node_authorities"] = "/ovn-node-ca/ca-bundle.crt".into();
        }
    }
    if let Some(lifetimes) = supervisor.spec.ovn.as_ref().and_then(|ovn| ovn.lifetimes.as_ref()) {
        data["pki_ca_lifetime"] = lifetimes.ca[0].as_str().into();
        data["pki_ca_renew_after"] = lifetimes.ca[1].as_str().into();
        data["pki_leaf_lifetime"] = lifetimes.leaf[0].as_str().into();
        data["pki_leaf_renew_after"] = lifetimes.leaf[1].as_str().into();
        data["pki_distribution_delay"] = lifetimes.distribution_delay.as_str().into();
    }
    if supervisor.spec.ovn.as_ref().is_some_and(|ovn| ovn.tls) && !supervisor.spec.has_signer() {
        let file = |name: &str| read_file(&supervisor.dir().join("pki/ovn").join(name));
        let leaf = json!({ "tls.key": file("ovn.key")?, "tls.crt": file("ovn.crt")? });
        for name in ["ovn-cert", "ovn-node-cert"] {
            objects.push(object("Secret", name, "stringData", &leaf));
        }
        objects.push(object("ConfigMap", "ovn-ca", "data", &json!({ "ca-bundle.crt": file("ca.crt")? })));
    }
    objects.push(object("ConfigMap", "ovn-config", "data", &data));
    Ok(json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string())
}

fn object(kind: &str, name: &str, key: &str, data: &serde_json::Value) -> serde_json::Value {
    json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name, "namespace": NAMESPACE }, key: data })
}

/// Copies the pods' logs, for debugging. They are on the nodes' disk directories.
pub(crate) fn keep_pod_logs(supervisor: &Supervisor, kept: &Path) {
    if supervisor.spec.product.is_none() {
        return;
    }
    for node in supervisor.nodes() {
        let pods = kubelet::pod_logs_dir(&supervisor.machine_dir(&node));
        let target = kept.join("pods").join(&node);
        // Best effort.
        let _ = create_dir(&target).and_then(|()| copy_tree(&pods, &target));
    }
    eprintln!("---- pod logs are in {}", kept.join("pods").display());
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    let entries = std::fs::read_dir(from).map_err(Error::io(format!("cannot read {}", from.display())))?;
    for entry in entries.flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            create_dir(&target)?;
            copy_tree(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target).map_err(Error::io(format!("cannot write {}", target.display())))?;
        }
    }
    Ok(())
}
