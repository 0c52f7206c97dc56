//! Attempts of a tenant who has the role `edit` in a namespace.

use serde_json::{Value, json};

use crate::accounts::verdict;
use crate::api::{Caller, PatchKind};
use crate::cluster::{node, pod, until};
use crate::report::{Report, Scope};
use crate::site::Site;

/// A Service that claims something, and kube-proxy's behaviour.
struct Claim {
    name: &'static str,
    what: &'static str,
    spec: Value,
    /// The address whose load balancer would redirect packets.
    address: String,
    kube_proxy: &'static str,
}

fn service(name: &str, spec: &Value) -> Value {
    let mut whole = json!({"selector": {"app": "mine"}, "ports": [{"port": 443, "targetPort": 8443}]});
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "tenant"}, "spec": whole})
}

/// Whether a load balancer of the tenant has an address, or an Event says why not.
fn effect(site: &Site, claim: &Claim) -> String {
    until(&format!("{} is served or refused", claim.name), || {
        let field = format!("--field-selector=involvedObject.name={}", claim.name);
        let events = site.cluster.get(&["events", "-n", "tenant", &field]);
        let reasons = events["items"].as_array().unwrap().iter().filter_map(|event| {
            event["message"].as_str()?.contains(&claim.address).then(|| event["reason"].as_str()).flatten()
        });
        if let Some(reason) = reasons.into_iter().next() {
            return Some(format!("refused: Event `{reason}`"));
        }
        let rows = site
            .cluster
            .lab
            .nbctl(&["--bare", "--no-headings", "--columns=name,vips", "list", "Load_Balancer"])
            .unwrap();
        let own = rows.split("\n\n").filter(|row| row.contains(&format!("Service_tenant/{}_", claim.name)));
        own.into_iter().any(|row| row.contains(&claim.address)).then(|| "served".to_owned())
    })
}

pub(crate) fn attack(site: &Site, report: &mut Report) {
    let (cluster, tenant, reader) = (&site.cluster, site.tenant(), site.administrator());
    cluster.controller("c1");
    cluster.wait_leader("c1");
    let victim = cluster.network_of("default", "victim").address().to_string();
    cluster.apply_all(&[
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "victim", "namespace": "default"},
            "spec": {"clusterIP": "10.96.77.77", "selector": {"app": "victim"}, "ports": [{"port": 443}]}}),
        node("n3"),
    ]);
    report.heading("A tenant with the role `edit` in one namespace");
    report.paragraph("Account of a tenant; the foreign pod, Service and node are in other namespaces, or in none.");
    report.table(&["attempt", "API server", "ovnkube", "with kube-proxy"]);
    annotations(site, report, &tenant, &reader, &victim);
    services(site, report, &tenant, &victim);
    endpoints(report, &tenant, &reader);
    // It would undo what is written next.
    cluster.stop("c1");
}

fn tenant_row(report: &mut Report, what: &str, answer: &Value, [ours, theirs]: [&str; 2]) {
    let result = verdict(answer);
    let ours = if result == "allowed" { ours } else { "" };
    report.row(&[what, &result, ours, theirs]);
    report.attempts.push((Scope::Tenant, what.to_owned(), result == "allowed"));
}

fn annotations(site: &Site, report: &mut Report, tenant: &Caller<'_>, reader: &Caller<'_>, victim: &str) {
    let pods = "/api/v1/namespaces/tenant/pods";
    let network =
        json!({"default": {"ip_addresses": [format!("{victim}/23")], "mac_address": "0a:58:0a:80:00:09"}}).to_string();
    let with = |name: &str, key: &str, value: &str| {
        let mut pod = pod("tenant", name, "n1");
        pod["spec"]["nodeName"] = Value::Null;
        pod["metadata"]["annotations"] = json!({key: value});
        pod
    };
    let mut mine = pod("tenant", "mine", "n1");
    mine["metadata"]["labels"] = json!({"app": "mine"});
    until("the tenant's pod", || (tenant.create(pods, &mine)["kind"] == "Pod").then_some(()));
    let networks = "k8s.ovn.org/pod-networks";
    tenant_row(
        report,
        "`k8s.ovn.org/pod-networks` on a new pod: the address of a foreign pod",
        &tenant.create(pods, &with("forged", networks, &network)),
        ["", "–"],
    );
    let patch = json!({"metadata": {"annotations": {networks: network}}});
    tenant_row(
        report,
        "the same on a running pod",
        &tenant.patch(&format!("{pods}/mine"), PatchKind::Merge, &patch),
        ["", "–"],
    );
    let status = json!({"status": {"podIPs": [{"ip": victim}]}});
    tenant_row(
        report,
        "status of a pod",
        &tenant.patch(&format!("{pods}/mine/status"), PatchKind::Merge, &status),
        ["", "–"],
    );
    let request = json!([{"name": "default", "ips": [victim]}]).to_string();
    let mut requested = with("requested", "v1.multus-cni.io/default-network", &request);
    requested["spec"]["nodeName"] = "n2".into();
    let answer = tenant.create(pods, &requested);
    let message = site.cluster.event_in("tenant", "requested", "StaticAddressRefused", &[victim]);
    assert!(!message.is_empty());
    tenant_row(
        report,
        "`v1.multus-cni.io/default-network`: the address of a foreign pod",
        &answer,
        ["refused: Event `StaticAddressRefused`", "–"],
    );
    let bandwidth = with("limited", "kubernetes.io/ingress-bandwidth", "1M");
    tenant_row(
        report,
        "`kubernetes.io/{ingress,egress}-bandwidth` of a pod of its own",
        &tenant.create(pods, &bandwidth),
        ["limits that pod only", "the CNI plugin's"],
    );
    for (what, path, key) in [
        (
            "`k8s.ovn.org/multicast-enabled`, `k8s.ovn.org/acl-logging` of its own namespace",
            "/api/v1/namespaces/tenant",
            "k8s.ovn.org/multicast-enabled",
        ),
        ("annotations of a foreign namespace", "/api/v1/namespaces/default", "k8s.ovn.org/multicast-enabled"),
        ("annotations of a node", "/api/v1/nodes/n1", "k8s.ovn.org/node-subnets"),
        ("annotations of a foreign pod", "/api/v1/namespaces/default/pods/victim", "example.com/a"),
    ] {
        let before = reader.get(path);
        let answer = tenant.patch(path, PatchKind::Merge, &json!({"metadata": {"annotations": {key: "true"}}}));
        tenant_row(report, what, &answer, ["", "–"]);
        assert_eq!(before["metadata"]["annotations"][key], reader.get(path)["metadata"]["annotations"][key], "{what}");
    }
    let mut host = pod("tenant", "host-port", "n1");
    host["spec"]["containers"][0]["ports"] = json!([{"containerPort": 8443, "hostPort": 6443}]);
    tenant_row(
        report,
        "`hostPort` of a server of the host (forbid it with Pod Security `baseline`)",
        &tenant.create(pods, &host),
        ["served: takes precedence on that node", "the CNI plugin `portmap` does the same"],
    );
}

fn services(site: &Site, report: &mut Report, tenant: &Caller<'_>, victim: &str) {
    let external = |address: &str| json!({"externalIPs": [address]});
    let same = "redirects pods' and the hosts' packets to the tenant (CVE-2020-8554)";
    let control = site.cluster.get(&["endpointslices", "-n", "default", "kubernetes"]);
    let api_server = control["endpoints"][0]["addresses"][0].as_str().unwrap().to_owned();
    let claims = [
        Claim {
            name: "ip-node",
            what: "`externalIPs`: a node's address",
            spec: external("10.99.0.222"),
            address: "10.99.0.222".into(),
            kube_proxy: same,
        },
        Claim {
            name: "ip-api",
            what: "`externalIPs`: the API server's address",
            spec: external(&api_server),
            address: api_server,
            kube_proxy: same,
        },
        Claim {
            name: "ip-pod",
            what: "`externalIPs`: a foreign pod's address",
            spec: external(victim),
            address: victim.into(),
            kube_proxy: same,
        },
        Claim {
            name: "ip-service",
            what: "`externalIPs`: a foreign Service's cluster IP",
            spec: external("10.96.77.77"),
            address: "10.96.77.77".into(),
            kube_proxy: "undefined: the rules of one of the two come first",
        },
        Claim {
            name: "ip-outside",
            what: "`externalIPs`: an address outside the cluster",
            spec: external("203.0.113.7"),
            address: "203.0.113.7".into(),
            kube_proxy: same,
        },
        Claim {
            name: "ip-outside-again",
            what: "`externalIPs`: an address that a foreign Service has",
            spec: external("203.0.113.7"),
            address: "203.0.113.7".into(),
            kube_proxy: "undefined: the rules of one of the two come first",
        },
    ];
    let path = "/api/v1/namespaces/tenant/services";
    for claim in &claims {
        let answer = tenant.create(path, &service(claim.name, &claim.spec));
        let effect = effect(site, claim);
        tenant_row(report, claim.what, &answer, [&effect, claim.kube_proxy]);
    }
    let taken = tenant.create(path, &service("cluster-ip", &json!({"clusterIP": "10.96.77.77"})));
    tenant_row(report, "`clusterIP`: that of a foreign Service", &taken, ["", "–"]);
    let balancer =
        tenant.create(path, &service("balancer", &json!({"type": "LoadBalancer", "loadBalancerIP": "203.0.113.8"})));
    tenant_row(
        report,
        "`loadBalancerIP`: any address",
        &balancer,
        ["ignored; the cloud's controller decides", "the same"],
    );
    let ingress = json!({"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}}});
    let status = tenant.patch(&format!("{path}/balancer/status"), PatchKind::Merge, &ingress);
    tenant_row(report, "`status.loadBalancer.ingress`: any address", &status, ["", "as `externalIPs` (CVE-2020-8554)"]);
    for (what, field) in [
        (
            "`internalTrafficPolicy`, `externalTrafficPolicy` of its own Service",
            json!({"type": "NodePort", "internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local"}),
        ),
        (
            "`nodePort` of a foreign Service or outside the range",
            json!({"type": "NodePort", "ports": [{"port": 443, "nodePort": 6443}]}),
        ),
        ("`type: ExternalName`", json!({"type": "ExternalName", "externalName": "example.com"})),
    ] {
        let name = format!("field-{}", field["type"].as_str().unwrap().to_lowercase().len() + what.len());
        let answer = tenant.create(path, &service(&name, &field));
        tenant_row(report, what, &answer, ["its own Service only", "the same"]);
    }
}

fn endpoints(report: &mut Report, tenant: &Caller<'_>, reader: &Caller<'_>) {
    let slice = |name: &str, address: &str| {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "namespace": "tenant", "labels": {"kubernetes.io/service-name": "ip-outside"}},
            "ports": [{"name": "", "port": 443, "protocol": "TCP"}], "endpoints": [{"addresses": [address]}]})
    };
    let path = "/apis/discovery.k8s.io/v1/namespaces/tenant/endpointslices";
    let what = "an EndpointSlice that names foreign addresses (CVE-2021-25740)";
    tenant_row(report, what, &tenant.create(path, &slice("by-hand", "10.99.0.222")), ["", "the API server decides"]);
    // With a role that allows it.
    let answer = reader.create(path, &slice("by-administrator", "10.99.0.222"));
    tenant_row(
        report,
        "the same, with a role that grants `endpointslices`",
        &answer,
        ["served: packets to the tenant's Service go there, and policies of the target apply", "the same"],
    );
}
