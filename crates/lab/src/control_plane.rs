//! The Kubernetes control plane on the control machine: etcd, API server, controller manager, scheduler.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use crate::error::{Error, Result, write_file};
use crate::pki::{Authority, Identity, signing_key};
use crate::ready::Ready;
use crate::spec::Family;
use crate::supervisor::{Component, Supervisor, run_parallel};
use crate::underlay::{CONTROL, bracketed};

const API_SERVER: &str = "kube-apiserver";
/// On the control machine.
pub(crate) const API_PORT: u16 = 6443;

/// The Service CIDRs of the cluster.
pub(crate) fn service_ranges(family: Family) -> &'static str {
    match family {
        Family::V4 => "10.96.0.0/16",
        Family::V6 => "fd96::/112",
        Family::Dual => "10.96.0.0/16,fd96::/112",
    }
}

/// The cluster's DNS domain.
pub(crate) const CLUSTER_DOMAIN: &str = "cluster.local";

/// The ClusterIPs of the cluster DNS, from the Service CIDRs.
pub(crate) fn cluster_dns_addresses(family: Family) -> Vec<&'static str> {
    match family {
        Family::V4 => vec!["10.96.0.10"],
        Family::V6 => vec!["fd96::a"],
        Family::Dual => vec!["10.96.0.10", "fd96::a"],
    }
}

/// What kubelets need to know about the control plane.
pub(crate) struct ControlPlane {
    pub(crate) authority: Authority,
    dir: PathBuf,
    machine_url: String,
}

impl ControlPlane {
    /// Starts all four programs; returns when the API server is ready.
    pub(crate) fn start(supervisor: &Supervisor) -> Result<Self> {
        let dir = supervisor.dir().join("kubernetes");
        let address = supervisor.plan.primary(CONTROL)?;
        let plane = Self {
            authority: Authority::create(&dir.join("pki"), "kubernetes-ca")?,
            machine_url: format!("https://{}:{API_PORT}", bracketed(address)),
            dir,
        };
        plane.write_kubeconfigs(supervisor)?;
        supervisor.progress.step("etcd", || start_etcd(supervisor))?;
        supervisor.progress.step(API_SERVER, || plane.start_api_server(supervisor, address))?;
        supervisor.progress.step("controllers and scheduler", || plane.start_controllers(supervisor))?;
        Ok(plane)
    }

    fn pki(&self) -> PathBuf {
        self.dir.join("pki")
    }

    fn write_kubeconfigs(&self, supervisor: &Supervisor) -> Result<()> {
        for (file, user, organisation) in [
            ("admin", "lab-admin", Some("system:masters")),
            ("controller-manager", "system:kube-controller-manager", None),
            ("scheduler", "system:kube-scheduler", None),
        ] {
            let identity = self.authority.issue(file, user, organisation, &[], &[])?;
            self.write_kubeconfig(file, &self.machine_url, &identity)?;
        }
        let admin = self.dir.join("admin.kubeconfig");
        supervisor.record_file.change(|record| record.endpoints.machine_kubeconfig = Some(admin))
    }

    /// Writes `FILE.kubeconfig` and returns its path.
    pub(crate) fn write_kubeconfig(&self, file: &str, url: &str, identity: &Identity) -> Result<PathBuf> {
        let path = self.dir.join(format!("{file}.kubeconfig"));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: lab\n\
             contexts: [{{name: lab, context: {{cluster: lab, user: {file}}}}}]\n\
             clusters: [{{name: lab, cluster: {{server: \"{url}\", certificate-authority: \"{}\"}}}}]\n\
             users: [{{name: {file}, user: {{client-certificate: \"{}\", client-key: \"{}\"}}}}]\n",
            self.authority.certificate.display(),
            identity.certificate.display(),
            identity.key.display()
        );
        write_file(&path, text)?;
        Ok(path)
    }

    pub(crate) fn kubelet_kubeconfig(&self, node: &str) -> Result<PathBuf> {
        let identity = self.authority.issue(
            &format!("kubelet-{node}"),
            &format!("system:node:{node}"),
            Some("system:nodes"),
            &[],
            &[],
        )?;
        self.write_kubeconfig(&format!("kubelet-{node}"), &self.machine_url, &identity)
    }

    /// For programs on the host, which reach the API server through the relay.
    pub(crate) fn host_kubeconfig(&self, relay: std::net::SocketAddr) -> Result<PathBuf> {
        let pki = self.pki();
        let identity = Identity { certificate: pki.join("admin.crt"), key: pki.join("admin.key") };
        self.write_kubeconfig("host", &format!("https://{relay}"), &identity)
    }

    fn start_api_server(&self, supervisor: &Supervisor, address: IpAddr) -> Result<()> {
        let pki = self.pki();
        let first_service: IpAddr = if supervisor.spec.family.has_v4() {
            Ipv4Addr::new(10, 96, 0, 1).into()
        } else {
            Ipv6Addr::new(0xfd96, 0, 0, 0, 0, 0, 0, 1).into()
        };
        let mut addresses: Vec<IpAddr> = supervisor.plan.addresses(CONTROL).iter().map(|own| own.address()).collect();
        addresses.extend([Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into(), first_service]);
        let names = [
            "localhost",
            CONTROL,
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        let serving = self.authority.issue("apiserver", "kube-apiserver", None, &names, &addresses)?;
        let to_kubelets = self.authority.issue(
            "apiserver-kubelet-client",
            "kube-apiserver-kubelet-client",
            Some("system:masters"),
            &[],
            &[],
        )?;
        let to_aggregated = self.authority.issue("front-proxy-client", "front-proxy-client", None, &[], &[])?;
        let (signing_private, signing_public) = signing_key(&pki)?;
        let args = [
            API_SERVER.to_owned(),
            "--etcd-servers=http://127.0.0.1:2379".into(),
            format!("--bind-address={}", if supervisor.spec.family.has_v6() { "::" } else { "0.0.0.0" }),
            format!("--secure-port={API_PORT}"),
            format!("--advertise-address={address}"),
            format!("--tls-cert-file={}", serving.certificate.display()),
            format!("--tls-private-key-file={}", serving.key.display()),
            format!("--client-ca-file={}", self.authority.certificate.display()),
            format!("--kubelet-certificate-authority={}", self.authority.certificate.display()),
            format!("--kubelet-client-certificate={}", to_kubelets.certificate.display()),
            format!("--kubelet-client-key={}", to_kubelets.key.display()),
            "--kubelet-preferred-address-types=InternalIP".into(),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
            format!("--service-account-key-file={}", signing_public.display()),
            format!("--service-account-signing-key-file={}", signing_private.display()),
            format!("--service-cluster-ip-range={}", service_ranges(supervisor.spec.family)),
            "--authorization-mode=Node,RBAC".into(),
            "--enable-admission-plugins=NodeRestriction".into(),
            "--allow-privileged=true".into(),
            // This machine has no route to ClusterIPs, so webhooks and aggregated APIs are called at their endpoints.
            "--enable-aggregator-routing=true".into(),
            format!("--requestheader-client-ca-file={}", self.authority.certificate.display()),
            "--requestheader-allowed-names=front-proxy-client".into(),
            "--requestheader-username-headers=X-Remote-User".into(),
            "--requestheader-group-headers=X-Remote-Group".into(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
            format!("--proxy-client-cert-file={}", to_aggregated.certificate.display()),
            format!("--proxy-client-key-file={}", to_aggregated.key.display()),
            "--max-requests-inflight=2000".into(),
            "--max-mutating-requests-inflight=1000".into(),
            "--event-ttl=1h".into(),
        ];
        // READY=1 means that it listens; `/readyz` that its start-up work is done. There is no event for the latter.
        let component = program(API_SERVER, Ready::Notify, &args).ready_command(&["kubectl", "get", "--raw=/readyz"]);
        supervisor.start(component)
    }

    fn start_controllers(&self, supervisor: &Supervisor) -> Result<()> {
        let pki = self.pki();
        let manager = [
            "kube-controller-manager".to_owned(),
            format!("--kubeconfig={}", self.dir.join("controller-manager.kubeconfig").display()),
            "--leader-elect=false".into(),
            "--use-service-account-credentials=true".into(),
            format!("--service-account-private-key-file={}", pki.join("sa.key").display()),
            format!("--root-ca-file={}", self.authority.certificate.display()),
            format!("--cluster-signing-cert-file={}", self.authority.certificate.display()),
            format!("--cluster-signing-key-file={}", self.authority.key.display()),
            "--allocate-node-cidrs=false".into(),
            // Its default of 20 requests per second makes its start take 5 s.
            "--kube-api-qps=500".into(),
            "--kube-api-burst=1000".into(),
            format!("--service-cluster-ip-range={}", service_ranges(supervisor.spec.family)),
        ];
        let scheduler = [
            "kube-scheduler".to_owned(),
            format!("--kubeconfig={}", self.dir.join("scheduler.kubeconfig").display()),
            "--leader-elect=false".into(),
        ];
        let serving = Ready::Log("Serving securely on".into());
        run_parallel(vec![
            Box::new(|| supervisor.start(program("kube-controller-manager", serving.clone(), &manager))),
            Box::new(|| supervisor.start(program("kube-scheduler", serving.clone(), &scheduler))),
        ])?;
        // Pods can be created once their namespace has its service account.
        supervisor.machine(CONTROL)?.run(&[
            "kubectl",
            "wait",
            "--for=create",
            "serviceaccount/default",
            "--timeout=100s",
        ])?;
        Ok(())
    }
}

fn program(name: &str, ready: Ready, args: &[String]) -> Component {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    Component::new(name, CONTROL, ready, &args)
}

fn start_etcd(supervisor: &Supervisor) -> Result<()> {
    let args = [
        "etcd",
        "--name=lab",
        "--data-dir=/var/lib/etcd/lab",
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=lab=http://127.0.0.1:2380",
        // The state is deleted with the lab: no need to wait for the disk.
        "--unsafe-no-fsync",
    ];
    supervisor.start(Component::new("etcd", CONTROL, Ready::Notify, &args))
}

/// The directory of the Kubernetes programs.
pub(crate) fn programs(supervisor: &Supervisor) -> Result<PathBuf> {
    supervisor.kubernetes.clone().ok_or_else(|| Error::Invalid("this lab has no Kubernetes".into()))
}
