//! Services with their slices, and policies, as applications bring them.

use anyhow::Result;
use kubernetes::Api;
use serde_json::{Value, json};

use crate::objects::{WIDTH, created, parallel};

/// Where Services and their slices are.
pub(crate) const NAMESPACE: &str = "shops";
/// One in this many Services has a node port.
const NODE_PORTS: usize = 5;

/// Services in one namespace, each with one slice of endpoints that no pod has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Services {
    pub(crate) count: usize,
    pub(crate) endpoints: usize,
}

impl Services {
    pub(crate) fn name(number: usize) -> String {
        format!("shop-{number}")
    }

    pub(crate) fn slice_path(number: usize) -> String {
        format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/{}", Self::name(number))
    }

    /// An endpoint's address: of no subnet that a node has.
    pub(crate) fn address(number: usize, endpoint: usize) -> String {
        let [.., b, c, d] = ((number << 5) + endpoint).to_be_bytes();
        format!("10.{}.{c}.{d}", 132 + b)
    }

    pub(crate) fn has_node_port(number: usize) -> bool {
        number.is_multiple_of(NODE_PORTS)
    }

    fn service(number: usize) -> Value {
        let kind = if Self::has_node_port(number) { "NodePort" } else { "ClusterIP" };
        let ports = json!([{"name": "http", "port": 80, "targetPort": 8080}]);
        json!({"metadata": {"name": Self::name(number)}, "spec": {"type": kind, "ports": ports}})
    }

    fn slice(self, number: usize) -> Value {
        let endpoint = |place| json!({"addresses": [Self::address(number, place)], "conditions": {"ready": true}});
        let endpoints: Vec<Value> = (0..self.endpoints).map(endpoint).collect();
        let name = Self::name(number);
        json!({"metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}}, "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints})
    }

    pub(crate) async fn create(self, api: &Api) -> Result<()> {
        namespace(api, NAMESPACE).await?;
        let call = api.clone();
        parallel(WIDTH, self.count, move |number| {
            let api = call.clone();
            async move {
                let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices");
                api.post(&slices, self.slice(number).to_string().into_bytes()).await?;
                let services = format!("/api/v1/namespaces/{NAMESPACE}/services");
                api.post(&services, Self::service(number).to_string().into_bytes()).await?;
                anyhow::Ok(())
            }
        })
        .await
    }
}

/// Policies, ten in each namespace.
#[derive(Debug, Clone)]
pub(crate) struct Policies {
    /// Prefix of the namespaces' names.
    pub(crate) purpose: String,
    pub(crate) count: usize,
    pub(crate) namespaces: usize,
}

/// A policy: which pods it selects, its peers and ports. The naive form is made from the same table.
pub(crate) struct Shape {
    pub(crate) target: &'static str,
    pub(crate) ingress: bool,
    pub(crate) peers: &'static [&'static str],
    pub(crate) ports: &'static [(&'static str, u16)],
}

/// A typical set: default deny, then rules for each application.
pub(crate) const SHAPES: [Shape; 10] = [
    Shape { target: "", ingress: true, peers: &[], ports: &[] },
    Shape { target: "", ingress: false, peers: &[], ports: &[] },
    Shape { target: "", ingress: false, peers: &["dns"], ports: &[("UDP", 53), ("TCP", 53)] },
    Shape { target: "web", ingress: true, peers: &["ingress", "monitoring"], ports: &[("TCP", 8080), ("TCP", 8443)] },
    Shape { target: "web", ingress: false, peers: &["api"], ports: &[("TCP", 8080)] },
    Shape {
        target: "api",
        ingress: true,
        peers: &["web", "jobs", "monitoring"],
        ports: &[("TCP", 8080), ("TCP", 9090)],
    },
    Shape { target: "api", ingress: false, peers: &["db", "cache"], ports: &[("TCP", 5432), ("TCP", 6379)] },
    Shape { target: "db", ingress: true, peers: &["api", "jobs", "backup"], ports: &[("TCP", 5432)] },
    Shape { target: "cache", ingress: true, peers: &["api", "jobs"], ports: &[("TCP", 6379), ("TCP", 16379)] },
    Shape { target: "", ingress: true, peers: &["monitoring"], ports: &[("TCP", 9100), ("TCP", 9101), ("UDP", 9102)] },
];

impl Policies {
    pub(crate) fn namespace(&self, number: usize) -> String {
        format!("{}-{}", self.purpose, number % self.namespaces)
    }

    pub(crate) fn shape(&self, number: usize) -> &'static Shape {
        &SHAPES[number / self.namespaces % SHAPES.len()]
    }

    fn policy(&self, number: usize) -> Value {
        let Shape { target, ingress, peers, ports } = self.shape(number);
        let labels = |app: &str| if app.is_empty() { json!({}) } else { json!({"matchLabels": {"app": app}}) };
        let peers: Vec<Value> = peers.iter().map(|app| json!({"podSelector": labels(app)})).collect();
        let ports: Vec<Value> =
            ports.iter().map(|(protocol, port)| json!({"protocol": protocol, "port": port})).collect();
        let (field, kind, end) = if *ingress { ("ingress", "Ingress", "from") } else { ("egress", "Egress", "to") };
        let rules = if peers.is_empty() { json!([]) } else { json!([{end: peers, "ports": ports}]) };
        json!({"metadata": {"name": format!("policy-{number}")},
            "spec": {"podSelector": labels(target), "policyTypes": [kind], field: rules}})
    }

    pub(crate) async fn create(&self, api: &Api) -> Result<()> {
        for number in 0..self.namespaces {
            namespace(api, &self.namespace(number)).await?;
        }
        let (policies, call) = (self.clone(), api.clone());
        parallel(WIDTH, self.count, move |number| {
            let (body, api) = (policies.policy(number).to_string(), call.clone());
            let path = format!("/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies", policies.namespace(number));
            async move { Ok(api.post(&path, body.into_bytes()).await.map(drop)?) }
        })
        .await
    }
}

async fn namespace(api: &Api, name: &str) -> Result<()> {
    let body = json!({"metadata": {"name": name}}).to_string();
    created(api.post("/api/v1/namespaces", body.into_bytes()).await)
}
