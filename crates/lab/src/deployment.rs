//! Our network on the lab's cluster, as people put it there: the manifests of `deploy/`, an image, a ConfigMap. Then the
//! cluster's name service and the example application, which need it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use crate::control_plane::{API_PORT, name_service_addresses, service_ranges};
use crate::error::{Error, Result, make_dir, read_file};
use crate::machine::Machine;
use crate::pod_routes;
use crate::product_image;
use crate::site::Site;
use crate::spec::{Family, Product};
use crate::underlay::{CONTROL, bracketed, node_name};
use crate::{container_image, kubelet};

const NAMESPACE: &str = "ovn-kubernetes";
const NAMESPACE_MANIFEST: &str = include_str!("../../../deploy/ovnkube/namespace.yaml");
const DEFINITIONS: [&str; 2] = [
    include_str!("../../../deploy/crds/adminnetworkpolicies.yaml"),
    include_str!("../../../deploy/crds/baselineadminnetworkpolicies.yaml"),
];
const MANIFESTS: [&str; 4] = [
    include_str!("../../../deploy/controller/rbac.yaml"),
    include_str!("../../../deploy/ovnkube/rbac.yaml"),
    include_str!("../../../deploy/ovnkube/admission.yaml"),
    include_str!("../../../deploy/ovnkube/daemonsets.yaml"),
];
const NAME_SERVICE: &str = include_str!("../../../lab/coredns/coredns.yaml");
const APPLICATION: &str = include_str!("../../../deploy/examples/shop.yaml");
/// The example's policy.
pub(crate) const POLICY: &str = include_str!("../../../deploy/examples/store-policy.yaml");

/// How long pods may take to become ready. Generous: it only ends what would hang for ever.
const LIMIT: Duration = Duration::from_secs(200);

/// Where the cluster's pods have their addresses.
fn cluster_subnets(family: Family) -> &'static str {
    match family {
        Family::V4 => "10.128.0.0/14/23",
        Family::V6 => "fd01::/48/64",
        Family::Dual => "10.128.0.0/14/23,fd01::/48/64",
    }
}

/// The images of our network and of the name service.
pub(crate) fn images(site: &Site, product: &Product, coredns: &Path) -> Result<Vec<PathBuf>> {
    Ok(vec![
        product_image::pack(&site.dir().join("images"), &site.image, product)?,
        container_image::ensure_coredns(&site.place, coredns)?,
    ])
}

/// Puts the network, the name service and the application on the cluster; returns when all of it is ready.
pub(crate) fn start(site: &Site, product: &Product) -> Result<()> {
    let control = site.machine(CONTROL)?;
    site.progress.step("ovnkube from deploy/", || {
        // Who belongs to the control plane is the administrator's to say: kubelets may not.
        control.run(&["kubectl", "label", "node", &node_name(1), "node-role.kubernetes.io/control-plane="])?;
        apply(&control, NAMESPACE_MANIFEST)?;
        apply(&control, &DEFINITIONS.join("---\n"))?;
        apply(&control, &configuration(site, product)?)?;
        apply(&control, &MANIFESTS.join("---\n"))?;
        for daemonset in ["ovnkube-master", "ovnkube"] {
            rollout(&control, NAMESPACE, &format!("daemonset/{daemonset}"))?;
        }
        // A kubelet tells the node's state when it finds a network, and every few seconds.
        control.run_within(LIMIT, &["kubectl", "wait", "--for=condition=Ready", "node", "--all", "--timeout=180s"])?;
        pod_routes::start(site)
    })?;
    site.progress.step("name service and application", || {
        apply(&control, &name_service(site.spec.family))?;
        apply(&control, APPLICATION)?;
        apply(&control, POLICY)?;
        rollout(&control, "kube-system", "deployment/coredns")?;
        for workload in ["deployment/web", "deployment/store", "daemonset/client", "daemonset/stranger"] {
            rollout(&control, "shop", workload)?;
        }
        Ok(())
    })
}

fn name_service(family: Family) -> String {
    let addresses = name_service_addresses(family);
    let quoted = |address: &str| format!("{address:?}");
    NAME_SERVICE
        .replace("FIRST_CLUSTER_IP", &addresses.first().copied().map(quoted).unwrap_or_default())
        .replace("ALL_CLUSTER_IPS", &format!("{addresses:?}"))
}

fn apply(control: &Machine, manifest: &str) -> Result<()> {
    control.run_with_input(&["kubectl", "apply", "-f", "-"], manifest).map(|_| ())
}

/// Returns when all pods of a workload are ready; the error tells what those say that are not.
fn rollout(control: &Machine, namespace: &str, workload: &str) -> Result<()> {
    let words = ["kubectl", "-n", namespace, "rollout", "status", workload, "--timeout=180s"];
    control.run_within(LIMIT, &words).map(|_| ()).map_err(|error| {
        let pods = control.run(&["kubectl", "-n", namespace, "get", "pods", "--no-headers", "-o", "wide"]);
        let events = ["kubectl", "-n", namespace, "get", "events", "--no-headers", "--field-selector=type=Warning"];
        let events = control.run(&events).unwrap_or_default();
        let lines = |text: String| text.lines().rev().take(4).collect::<Vec<_>>().join(" | ");
        Error::Invalid(format!("{error}; pods: {}; warnings: {}", lines(pods.unwrap_or_default()), lines(events)))
    })
}

/// The ConfigMap `ovn-config`, and with TLS what it speaks of.
fn configuration(site: &Site, product: &Product) -> Result<String> {
    let endpoints = site.ledger.read().endpoints.clone();
    let family = site.spec.family;
    let mut data = json!({
        "OvnNorth": endpoints.northbound_remote,
        "OvnSouth": endpoints.southbound_remote,
        "k8s_apiserver": format!("https://{}:{API_PORT}", bracketed(site.plan.primary(CONTROL)?)),
        "net_cidr": cluster_subnets(family),
        "svc_cidr": service_ranges(family),
        "gateway_mode": product.gateway.as_str(),
    });
    let mut objects = Vec::new();
    if site.spec.ovn.as_ref().is_some_and(|ovn| ovn.tls) {
        data["ovn_private_key"] = "/ovn-cert/tls.key".into();
        data["ovn_certificate"] = "/ovn-cert/tls.crt".into();
        data["ovn_authorities"] = "/ovn-ca/ca-bundle.crt".into();
        let file = |name: &str| read_file(&site.dir().join("pki/ovn").join(name));
        let leaf = json!({ "tls.key": file("ovn.key")?, "tls.crt": file("ovn.crt")? });
        objects.push(object("Secret", "ovn-cert", "stringData", &leaf));
        objects.push(object("ConfigMap", "ovn-ca", "data", &json!({ "ca-bundle.crt": file("ca.crt")? })));
    }
    objects.push(object("ConfigMap", "ovn-config", "data", &data));
    Ok(json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string())
}

fn object(kind: &str, name: &str, key: &str, data: &serde_json::Value) -> serde_json::Value {
    json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name, "namespace": NAMESPACE }, key: data })
}

/// Keeps what the pods said, for the one who looks into a failure. The logs of pods lie on the nodes' own disks.
pub(crate) fn keep_logs_of_pods(site: &Site, kept: &Path) {
    if site.spec.product.is_none() {
        return;
    }
    for node in site.nodes() {
        let pods = kubelet::logs_of_pods(&site.machine_dir(&node));
        let target = kept.join("pods").join(&node);
        // What cannot be copied is missed by nobody but the reader.
        let _ = make_dir(&target).and_then(|()| copy_tree(&pods, &target));
    }
    eprintln!("---- the logs of pods are kept in {}", kept.join("pods").display());
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    let entries = std::fs::read_dir(from).map_err(Error::io(format!("cannot read {}", from.display())))?;
    for entry in entries.flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            make_dir(&target)?;
            copy_tree(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target).map_err(Error::io(format!("cannot write {}", target.display())))?;
        }
    }
    Ok(())
}
