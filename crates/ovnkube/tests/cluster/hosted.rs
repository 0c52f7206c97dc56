//! The databases of a hosted control plane, in pods on the pod network with volumes in three zones: they are unprivileged,
//! survive rotation under load, evictions and lost volumes, and move to another namespace with their volumes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bench::{Figure, Goal};
use lab::pki::{Authority, hosted_database_names};
use lab::{Databases, Family, GatewayMode, Lab, LabSpec, Ovn};
use ovsdb::client::TlsFiles;
use serde_json::{Value, json};

use crate::common::product;
use crate::writer::Writer;

const MANIFEST: &str = include_str!("../../../../deploy/hosted/databases.yaml");
const LIMIT: Duration = Duration::from_secs(300);
const REPLICAS: usize = 3;

/// A hosted control plane in a namespace.
struct Hosted<'a> {
    lab: &'a Lab,
    namespace: &'static str,
    tls: TlsFiles,
}

/// Removes a directory on drop.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl<'a> Hosted<'a> {
    /// Creates the namespace, where the API server admits unprivileged pods only, and certificates of the control plane's own CA.
    fn new(lab: &'a Lab, namespace: &'static str, certificates: &Directory) -> Self {
        let directory = certificates.0.join(namespace);
        let authority = Authority::create(&directory, "ovn-ca").unwrap();
        let names = hosted_database_names(namespace);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let leaf = authority.issue("ovn", "ovn", None, &names, &[]).unwrap();
        let file = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
        let labels = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
        let object = |kind: &str, name: &str, key: &str, data: &Value| json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name, "namespace": namespace }, key: data });
        let items = [
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace, "labels": labels } }),
            object(
                "Secret",
                "ovn-cert",
                "stringData",
                &json!({ "tls.key": file(&leaf.key), "tls.crt": file(&leaf.certificate) }),
            ),
            object("ConfigMap", "ovn-ca", "data", &json!({ "ca-bundle.crt": file(&authority.certificate) })),
        ];
        lab.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string()).unwrap();
        let tls = TlsFiles {
            certificate: leaf.certificate,
            private_key: leaf.key,
            authorities: authority.certificate,
            verify_host_name: false,
        };
        Self { lab, namespace, tls }
    }

    fn deploy(&self) {
        self.lab.apply(&MANIFEST.replace("clusters-example", self.namespace)).unwrap();
    }

    fn kubectl(&self, words: &[&str]) -> Result<String, String> {
        self.lab.kubectl(&[&["-n", self.namespace], words].concat()).map_err(|error| error.to_string())
    }

    fn exec(&self, member: usize, container: &str, command: &[&str]) -> Result<String, String> {
        let pod = format!("ovnkube-master-{member}");
        self.kubectl(&[&["exec", &pod, "-c", container, "--"], command].concat())
    }

    fn await_rollout(&self) {
        let status =
            ["kubectl", "-n", self.namespace, "rollout", "status", "statefulset/ovnkube-master", "--timeout=290s"];
        self.lab.machine("control").unwrap().run_within(LIMIT, &status).unwrap();
    }

    /// Waits until three members of a database are connected and no other server is in its configuration; returns the
    /// cluster ID.
    fn await_three(&self, database: &str) -> String {
        let deadline = Instant::now() + LIMIT;
        let script = format!("ovnkube db status {database} -o json || true");
        loop {
            // Any of them may be starting.
            let text = (0..REPLICAS).find_map(|member| self.exec(member, "nbdb", &["sh", "-c", &script]).ok());
            let report: Value = serde_json::from_str::<Value>(&text.unwrap_or_default()).unwrap_or_default()[0].clone();
            let members = report["members"].as_array().map_or(0, Vec::len);
            let servers = report["local"]["servers"].as_array().map_or(0, Vec::len);
            let healthy = report["problems"].as_array().is_some_and(Vec::is_empty);
            if let (true, 3, 3) = (healthy, servers, members) {
                return report["members"][0]["cluster"].as_str().unwrap().to_owned();
            }
            assert!(Instant::now() < deadline, "{report:#}");
        }
    }

    /// A field of each pod, in the order of their numbers.
    fn pods(&self, path: &str) -> Vec<String> {
        let path = format!("jsonpath={{range .items[*]}}{{{path}}}{{\"\\n\"}}{{end}}");
        let text = self.kubectl(&["get", "pods", "--sort-by=.metadata.name", "-o", &path]).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// The PersistentVolume of each member.
    fn volumes(&self) -> Vec<String> {
        let volume = |member: usize| {
            let claim = format!("datadir-ovnkube-master-{member}");
            self.kubectl(&["get", "pvc", &claim, "-o", "jsonpath={.spec.volumeName}"]).unwrap()
        };
        (0..REPLICAS).map(volume).collect()
    }

    /// Addresses of the northbound servers that do not change: a Service for each pod.
    fn stable_addresses(&self) -> Vec<IpAddr> {
        let service = |member: usize| {
            let name = format!("nb-{member}");
            let selector = json!({ "statefulset.kubernetes.io/pod-name": format!("ovnkube-master-{member}") });
            let spec = json!({ "selector": selector, "ports": [{ "port": 9641 }] });
            let metadata = json!({ "name": name, "namespace": self.namespace });
            let object = json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec });
            self.lab.apply(&object.to_string()).unwrap();
            self.kubectl(&["get", "service", &name, "-o", "jsonpath={.spec.clusterIP}"]).unwrap().parse().unwrap()
        };
        (0..REPLICAS).map(service).collect()
    }

    fn host(&self, member: usize) -> String {
        format!("ovnkube-master-{member}.ovnkube-master-internal.{}.svc.cluster.local", self.namespace)
    }
}

fn assert_unprivileged(hosted: &Hosted<'_>) {
    for container in ["nbdb", "sbdb"] {
        let status = hosted.exec(0, container, &["cat", "/proc/self/status"]).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(field("Uid:"), "65532 65532 65532 65532");
        assert_eq!(field("NoNewPrivs:"), "1");
        for set in ["CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            assert_eq!(field(set), "0000000000000000", "{set}");
        }
        let refused = hosted.exec(0, container, &["sh", "-c", "echo > /usr/written"]).unwrap_err();
        assert!(refused.contains("Read-only file system"), "{refused}");
    }
    // Not on the host's network.
    for (pod, host) in hosted.pods(".status.podIP").iter().zip(hosted.pods(".status.hostIP")) {
        assert_ne!(*pod, host);
    }
}

/// Each listener serves its metrics over TLS to an account that may read them, and refuses all others.
fn assert_only_authorized_clients_read_the_metrics(hosted: &Hosted<'_>) {
    for account in ["reader", "stranger"] {
        hosted.kubectl(&["create", "serviceaccount", account]).unwrap();
    }
    let subject = format!("--serviceaccount={}:reader", hosted.namespace);
    let role = "--clusterrole=ovnkube-metrics-reader";
    hosted.kubectl(&["create", "clusterrolebinding", "hosted-reader", role, &subject]).unwrap();
    let authorization = |account: &str| {
        let token = hosted.kubectl(&["create", "token", account]).unwrap();
        format!("--header 'Authorization: Bearer {}'", token.trim())
    };
    let (reader, stranger) = (authorization("reader"), authorization("stranger"));
    let name = format!("ovnkube-master-internal.{}.svc.cluster.local", hosted.namespace);
    let authority = std::fs::read_to_string(&hosted.tls.authorities).unwrap();
    let machine = hosted.lab.node(1).unwrap();
    for address in hosted.pods(".status.podIP") {
        for (port, database) in [(9104, "OVN_Northbound"), (9105, "OVN_Southbound")] {
            let scrape = |arguments: &str| {
                let script = format!(
                    "curl --silent --show-error --max-time 30 --write-out '%{{http_code}}' --cacert /dev/stdin \
                     --resolve {name}:{port}:{address} {arguments} https://{name}:{port}/metrics"
                );
                machine.run_with_input(&["sh", "-c", &script], &authority).map_err(|error| error.to_string())
            };
            // A member that is ready may not have made a check since it joined: the raft metrics appear with the next one.
            let server = format!("ovn_db_cluster_servers{{db_name=\"{database}\"");
            let metrics = lab::poll(LIMIT, || {
                let metrics = scrape(&reader)?;
                let complete = metrics.ends_with("200") && metrics.contains(&server);
                if complete { Ok(()) } else { Err(metrics) }
            });
            metrics.unwrap_or_else(|metrics| panic!("{address}:{port}: {metrics}"));
            assert!(scrape("").unwrap().ends_with("401"), "{address}:{port} without a token");
            assert!(scrape(&stranger).unwrap().ends_with("403"), "{address}:{port} with the token of another account");
        }
    }
}

/// The southbound database answers at the Service's address that a Route leads to: from a node, with the hosted cluster's certificate.
fn assert_nodes_reach_the_external_service(hosted: &Hosted<'_>) {
    let service = ["get", "service", "ovnkube-master-external", "-o"];
    let address = hosted.kubectl(&[&service[..], &["jsonpath={.spec.clusterIP}"]].concat()).unwrap();
    let port = hosted.kubectl(&[&service[..], &["jsonpath={.spec.ports[*].port}"]].concat()).unwrap();
    let file = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
    let machine = hosted.lab.node(1).unwrap();
    let files = [&hosted.tls.private_key, &hosted.tls.certificate, &hosted.tls.authorities].map(file);
    for (name, content) in ["key", "crt", "ca"].iter().zip(&files) {
        machine.run_with_input(&["sh", "-c", &format!("umask 077; cat > /run/external.{name}")], content).unwrap();
    }
    let list = format!(
        "ovn-sbctl --db=ssl:{address}:{port} -p /run/external.key -c /run/external.crt -C /run/external.ca --timeout=60 \
         --no-leader-only --bare --columns=_uuid list SB_Global; status=$?; rm /run/external.*; exit $status"
    );
    let rows = machine.run_within(LIMIT, &["sh", "-c", &list]).unwrap();
    assert_eq!(rows.trim().lines().count(), 1, "{rows}");
}

/// A rolling restart: what was being written when a member was replaced is acknowledged before the next one is replaced.
fn restart_all_under_load(hosted: &Hosted<'_>, writer: &Writer) {
    // The writer waits for each row, so one more row means that none waits any longer.
    let mut acknowledged = Vec::new();
    let mut replaced = BTreeSet::new();
    let former = hosted.pods(".metadata.uid");
    hosted.kubectl(&["rollout", "restart", "statefulset/ovnkube-master"]).unwrap();
    while replaced.len() < REPLICAS {
        let gone = lab::poll(LIMIT, || {
            let now = hosted.pods(".metadata.uid");
            let gone = former.iter().find(|uid| !now.contains(uid) && !replaced.contains(*uid));
            gone.cloned().ok_or(())
        });
        assert!(replaced.insert(gone.expect("the next member is replaced")));
        acknowledged.push(writer.rows());
    }
    println!("rows acknowledged when a member was replaced: {acknowledged:?}");
    assert!(acknowledged.is_sorted_by(|one, next| one < next), "a write was not acknowledged: {acknowledged:?}");
}

/// A voluntary disruption of one member is allowed, of a second one is not.
fn assert_evictions_keep_the_quorum(hosted: &Hosted<'_>) {
    let allowed = "--for=jsonpath={.status.disruptionsAllowed}=1";
    hosted.kubectl(&["wait", allowed, "pdb/ovn-raft-quorum-guard", "--timeout=100s"]).unwrap();
    let evict = |member: usize| {
        let name = format!("ovnkube-master-{member}");
        let metadata = json!({ "name": name, "namespace": hosted.namespace });
        let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata }).to_string();
        let path = format!("/api/v1/namespaces/{}/pods/{name}/eviction", hosted.namespace);
        let control = hosted.lab.machine("control").unwrap();
        control
            .run_with_input(&["kubectl", "create", "--raw", &path, "-f", "-"], &body)
            .map_err(|error| error.to_string())
    };
    let evicted = hosted.pods(".metadata.uid")[0].clone();
    evict(0).unwrap();
    let refused = evict(1).unwrap_err();
    assert!(refused.contains("disruption budget"), "{refused}");
    // Until then a rollout looks complete, and the next fault would hit a second member.
    let gone = || if hosted.pods(".metadata.uid").contains(&evicted) { Err(()) } else { Ok(()) };
    lab::poll(LIMIT, gone).expect("the evicted pod is replaced");
}

/// Moves the control plane and its volumes to another namespace, where members have other names.
fn swing<'a>(from: &Hosted<'a>, namespace: &'static str, certificates: &Directory) -> Hosted<'a> {
    let lab = from.lab;
    let volumes = from.volumes();
    let record = from.kubectl(&["get", "configmap", "ovnkube-db", "-o", "jsonpath={.data}"]).unwrap();
    let to = Hosted::new(lab, namespace, certificates);
    let pairs: Vec<String> = (0..REPLICAS).map(|member| format!("{}={}", from.host(member), to.host(member))).collect();
    let pairs: Vec<&str> = pairs.iter().map(String::as_str).collect();

    // Refused while the cluster works under its old names.
    let host = to.host(0);
    let early = [&["ovnkube", "db", "rename", "nb", "--host", &host][..], &pairs].concat();
    let refused = from.exec(0, "nbdb", &early).unwrap_err();
    assert!(refused.contains("works under its old names") && refused.contains("nothing was changed"), "{refused}");

    from.kubectl(&["delete", "statefulset", "ovnkube-master", "--wait", "--cascade=foreground", "--timeout=110s"])
        .unwrap();
    from.kubectl(&["delete", "pvc", "--all", "--wait", "--timeout=110s"]).unwrap();
    for (member, volume) in volumes.iter().enumerate() {
        let claim = json!({ "namespace": namespace, "name": format!("datadir-ovnkube-master-{member}"), "uid": null, "resourceVersion": null });
        let patch = json!({ "spec": { "claimRef": claim } }).to_string();
        lab.kubectl(&["patch", "persistentvolume", volume, "--type=merge", "-p", &patch]).unwrap();
    }
    // The record goes first: a member without data must not create a second cluster.
    let data: Value = serde_json::from_str(&record).unwrap();
    let metadata = json!({ "name": "ovnkube-db", "namespace": namespace });
    lab.apply(&json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data }).to_string())
        .unwrap();
    to.deploy();
    for member in 0..REPLICAS {
        let pod = format!("pod/ovnkube-master-{member}");
        to.kubectl(&["wait", "--for=create", &pod, "--timeout=100s"]).unwrap();
        for container in ["nbdb", "sbdb"] {
            let running =
                format!("--for=jsonpath={{.status.containerStatuses[?(@.name=='{container}')].started}}=true");
            to.kubectl(&["wait", &running, &pod, "--timeout=100s"]).unwrap();
        }
    }
    let short = to.exec(0, "nbdb", &["ovnkube", "db", "rename", "nb", pairs[0]]).unwrap_err();
    assert!(short.contains("the list lacks members of this cluster"), "{short}");
    for member in 0..REPLICAS {
        for (container, database) in [("nbdb", "nb"), ("sbdb", "sb")] {
            let command = [&["ovnkube", "db", "rename", database][..], &pairs].concat();
            let said = to.exec(member, container, &command).unwrap();
            assert!(said.contains("starts again as"), "{said}");
        }
    }
    to
}

#[test]
fn hosted_databases_survive_rotation_eviction_lost_volumes_and_a_move() {
    let ovn = Ovn { databases: Databases::Standalone, ..Ovn::default() };
    let spec = LabSpec::for_test("hosted").unwrap().nodes(3).volumes(1).family(Family::V4).ovn(ovn);
    let lab = Lab::start(spec.product(product(GatewayMode::Shared))).unwrap();
    let certificates = Directory(std::env::temp_dir().join(format!("hosted-{}", std::process::id())));
    let hosted = Hosted::new(&lab, "clusters-a", &certificates);
    hosted.deploy();
    hosted.await_rollout();
    let clusters = ["nb", "sb"].map(|database| hosted.await_three(database));
    let zones: BTreeSet<String> =
        hosted.volumes().iter().map(|volume| volume.rsplit_once('-').unwrap().0.to_owned()).collect();
    assert_eq!(zones.len(), 3, "one volume in each zone: {zones:?}");
    assert_unprivileged(&hosted);
    assert_only_authorized_clients_read_the_metrics(&hosted);
    assert_nodes_reach_the_external_service(&hosted);

    // Rotation under load: all pods are replaced and have new addresses.
    let before = hosted.pods(".status.podIP");
    let addresses = hosted.stable_addresses();
    let writer = Writer::start(lab.node(1).unwrap(), &addresses, &hosted.tls);
    writer.await_rows(20, LIMIT);
    restart_all_under_load(&hosted, &writer);
    hosted.await_rollout();
    assert_eq!(hosted.await_three("nb"), clusters[0]);
    let written = writer.stop();
    let after = hosted.pods(".status.podIP");
    assert!(before.iter().all(|address| !after.contains(address)), "{before:?} and {after:?}");
    println!("rotation: {} rows acknowledged, longest gap {:?}", written.acknowledged.len(), written.longest_gap);
    let figures = [
        Figure::new("hosted rotation: longest write gap", written.longest_gap.as_secs_f64(), "s")
            .with_goal(Goal::AtMost(3.0)),
        Figure::new("hosted rotation: acknowledged writes", written.acknowledged.len() as f64, "writes"),
    ];
    bench::write_figures("hosted", &figures).unwrap();
    written.assert_complete(&hosted.rows());

    assert_evictions_keep_the_quorum(&hosted);
    hosted.await_rollout();
    assert_eq!(hosted.await_three("nb"), clusters[0]);

    // A lost volume: the member joins again, and the leader removes the old server.
    let lost = lab.lose_volume(&hosted.volumes()[1]).unwrap();
    println!("{lost}");
    hosted.kubectl(&["delete", "pod", "ovnkube-master-1", "--wait", "--timeout=110s"]).unwrap();
    hosted.await_rollout();
    let now = ["nb", "sb"].map(|database| hosted.await_three(database));
    assert_eq!(now, clusters);

    // All members move to another namespace with their volumes.
    let moved = swing(&hosted, "clusters-b", &certificates);
    moved.await_rollout();
    assert_eq!(["nb", "sb"].map(|database| moved.await_three(database)), clusters);
    written.assert_complete(&moved.rows());
}

impl Hosted<'_> {
    /// Names of all switches, from a member that is up to date.
    fn rows(&self) -> Vec<String> {
        let script = "ovn-nbctl --db=$OVNKUBE_OVNNORTH_ADDRESS -p /ovn-cert/tls.key -c /ovn-cert/tls.crt -C /ovn-ca/ca-bundle.crt \
                      --timeout=100 --bare --columns=name list Logical_Switch | grep .";
        self.exec(0, "nbdb", &["sh", "-c", script]).unwrap().lines().map(str::to_owned).collect()
    }
}
