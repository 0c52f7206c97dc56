//! containerd and kubelet on a node, with images that the lab built itself.

use std::path::PathBuf;

use crate::container_image;
use crate::control_plane::{CLUSTER_DOMAIN, ControlPlane, cluster_dns_addresses};
use crate::error::{Error, Result, write_file};
use crate::machine::Machine;
use crate::ready::Ready;
use crate::spec::{Cni, Kubernetes};
use crate::supervisor::{Component, Supervisor};
use crate::underlay::CONTROL;
use crate::volumes::{zone, zone_name};

/// Directories of containerd and kubelet that cannot be on an overlay.
pub(crate) const DISKS: &[&str] = &["/var/lib/containerd", "/var/lib/kubelet", LOGS];
const LOGS: &str = "/var/log/pods";

/// The pod logs of a node, given the node's directory on the host.
pub(crate) fn pod_logs_dir(machine_dir: &std::path::Path) -> PathBuf {
    crate::machine::disk_dir(machine_dir, LOGS)
}

/// Starts containerd and kubelet; returns when the Node object exists.
pub(crate) fn start(
    supervisor: &Supervisor,
    node: &Machine,
    index: u32,
    plane: &ControlPlane,
    kubernetes: &Kubernetes,
    images: &[PathBuf],
) -> Result<()> {
    let name = &node.name;
    let upper = supervisor.machine_dir(name).join("upper");
    write_file(&upper.join("etc/containerd/config.toml"), containerd_configuration())?;
    node.run(&["mkdir", "-p", "/etc/cni/net.d", "/opt/cni/bin"])?;
    // containerd configures each pod's loopback with this plugin, whatever the pod network is.
    node.run(&["cp", "-a", "/usr/lib/cni/loopback", "/opt/cni/bin/"])?;
    if kubernetes.cni == Cni::Bridge {
        bridge_network(supervisor, node, index)?;
    }
    supervisor.start(Component::new(format!("{name}-containerd"), name, Ready::Notify, &["containerd"]))?;
    for image in images {
        import(&supervisor.machine_dir(name), node, image)?;
    }

    let kubeconfig = plane.kubelet_kubeconfig(name)?;
    let addresses: Vec<_> = supervisor.plan.addresses(name).iter().map(|own| own.address()).collect();
    let serving = plane.authority.issue(
        &format!("kubelet-{name}-serving"),
        &format!("system:node:{name}"),
        Some("system:nodes"),
        &[name],
        &addresses,
    )?;
    let cgroup = crate::cgroup::create(supervisor, name)?;
    let configuration = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         failCgroupV1: false\ncgroupDriver: cgroupfs\ncgroupRoot: {cgroup}\ncgroupsPerQOS: true\nenforceNodeAllocatable: [pods]\n\
         failSwapOn: false\ncontainerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n\
         tlsCertFile: {}\ntlsPrivateKeyFile: {}\n\
         authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: false}}, x509: {{clientCAFile: {}}}}}\n\
         authorization: {{mode: AlwaysAllow}}\nresolvConf: \"\"\n\
         evictionHard: {{memory.available: 100Mi}}\nimageGCHighThresholdPercent: 100\nregisterWithTaints: []\n",
        serving.certificate.display(),
        serving.key.display(),
        plane.authority.certificate.display(),
    );
    let configuration = configuration + &cluster_dns(supervisor) + sync_frequency(supervisor);
    write_file(&upper.join("etc/kubernetes/kubelet.yaml"), configuration)?;
    let node_ip = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let args = [
        "kubelet",
        "--config=/etc/kubernetes/kubelet.yaml",
        &format!("--kubeconfig={}", kubeconfig.display()),
        &format!("--hostname-override={name}"),
        &format!("--node-ip={node_ip}"),
        // Nodes alternate between three zones, for topology-aware Services and zonal volumes.
        &format!(
            "--node-labels=topology.kubernetes.io/region=lab,topology.kubernetes.io/zone={}",
            zone_name(zone(index))
        ),
        "--v=2",
    ];
    supervisor.start(Component::new(format!("{name}-kubelet"), name, Ready::Notify, &args))?;
    supervisor.machine(CONTROL)?.run(&[
        "kubectl",
        "wait",
        "--for=create",
        &format!("node/{name}"),
        "--timeout=100s",
    ])?;
    Ok(())
}

/// How often a kubelet updates mounted Secrets and ConfigMaps; a minute unless certificates live only for minutes.
fn sync_frequency(supervisor: &Supervisor) -> &'static str {
    let short = supervisor.spec.ovn.as_ref().is_some_and(|ovn| ovn.lifetimes.is_some());
    if short { "syncFrequency: 3s\n" } else { "" }
}

/// The DNS settings of pods, if the cluster has a DNS.
fn cluster_dns(supervisor: &Supervisor) -> String {
    let addresses =
        supervisor.spec.product.as_ref().map(|_| cluster_dns_addresses(supervisor.spec.family)).unwrap_or_default();
    if addresses.is_empty() {
        return String::new();
    }
    format!("clusterDomain: {CLUSTER_DOMAIN}\nclusterDNS: {addresses:?}\n")
}

/// Imports the images of a tar file, given the node's directory on the host.
pub(crate) fn import(machine_dir: &std::path::Path, node: &Machine, image: &std::path::Path) -> Result<()> {
    // The cache is not mounted on the machine; `/run` is shared with the host.
    let name = image.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let shared = machine_dir.join("run").join(&name);
    std::fs::hard_link(image, &shared)
        .or_else(|_| std::fs::copy(image, &shared).map(|_| ()))
        .map_err(Error::io(format!("cannot hand {} to {}", image.display(), node.name)))?;
    let imported = node.run(&["ctr", "--namespace=k8s.io", "images", "import", "--local", &format!("/run/{name}")]);
    // containerd before 2.0 always imports locally and has no flag for it.
    let imported =
        imported.or_else(|_| node.run(&["ctr", "--namespace=k8s.io", "images", "import", &format!("/run/{name}")]));
    let _ = std::fs::remove_file(&shared);
    imported.map(|_| ())
}

fn containerd_configuration() -> String {
    format!(
        "version = 2\n\
         [plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"{}\"\n  disable_apparmor = true\n  restrict_oom_score_adj = true\n\
         [plugins.\"io.containerd.grpc.v1.cri\".containerd]\n  snapshotter = \"overlayfs\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n  runtime_type = \"io.containerd.runc.v2\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n  SystemdCgroup = false\n\
         [plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/opt/cni/bin\"\n  conf_dir = \"/etc/cni/net.d\"\n",
        container_image::PAUSE
    )
}

/// The standard CNI plugins: a subnet for each node, and routes to those of the other nodes.
fn bridge_network(supervisor: &Supervisor, node: &Machine, index: u32) -> Result<()> {
    node.run(&["sh", "-c", "cp -a /usr/lib/cni/* /opt/cni/bin/"])?;
    node.run(&[
        "sh",
        "-c",
        "echo 1 > /proc/sys/net/ipv4/ip_forward && echo 1 > /proc/sys/net/ipv6/conf/all/forwarding",
    ])?;
    let family = supervisor.spec.family;
    let subnets = |node: u32| {
        let mut subnets = Vec::new();
        subnets.extend(family.has_v4().then(|| format!("10.79.{node}.0/24")));
        subnets.extend(family.has_v6().then(|| format!("fd79:{node:x}::/64")));
        subnets
    };
    let ranges: Vec<_> = subnets(index).into_iter().map(|subnet| serde_json::json!([{ "subnet": subnet }])).collect();
    let mut routes = Vec::new();
    routes.extend(family.has_v4().then(|| serde_json::json!({ "dst": "0.0.0.0/0" })));
    routes.extend(family.has_v6().then(|| serde_json::json!({ "dst": "::/0" })));
    let network = serde_json::json!({
        "cniVersion": "1.0.0",
        "name": "lab",
        "plugins": [{
            "type": "bridge", "bridge": "cni0", "isGateway": true,
            "ipam": { "type": "host-local", "ranges": ranges, "routes": routes },
        }],
    });
    write_file(&supervisor.machine_dir(&node.name).join("upper/etc/cni/net.d/10-lab.conflist"), network.to_string())?;
    let mut batch = String::new();
    for other in (1..=supervisor.spec.nodes).filter(|other| *other != index) {
        let addresses = supervisor.plan.addresses(&crate::underlay::node_name(other));
        for (subnet, address) in subnets(other).iter().zip(addresses) {
            batch.push_str(&format!("route add {subnet} via {}\n", address.address()));
        }
    }
    node.run_with_input(&["ip", "-batch", "-"], &batch)?;
    Ok(())
}
