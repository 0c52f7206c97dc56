//! The active server as the EndpointSlice of a Service without a selector, which backups and all clients follow.

use std::net::IpAddr;

use kubernetes::{Api, ApiError, Patch};
use serde_json::{Value, json};

use crate::kind::Kind;

/// Name of the writer in the slice.
const WRITER: &str = "ovnkube-db";

/// The slice that names one host.
fn slice(service: &str, kind: Kind, host: &str, port: u16) -> Value {
    let address_type = match host.parse() {
        Ok(IpAddr::V4(_)) => "IPv4",
        Ok(IpAddr::V6(_)) => "IPv6",
        Err(_) => "FQDN",
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": name(service),
            "labels": { "kubernetes.io/service-name": service, remotes::MANAGED_BY: WRITER },
        },
        "addressType": address_type,
        "endpoints": [{ "addresses": [host], "conditions": { "ready": true } }],
        "ports": [{ "name": kind.port_name(), "port": port, "protocol": "TCP" }],
    })
}

fn name(service: &str) -> String {
    format!("{service}-active")
}

/// Publishes this host as the active server.
pub(crate) async fn publish(
    api: &Api,
    namespace: &str,
    service: &str,
    kind: Kind,
    (host, port): (&str, u16),
) -> Result<(), ApiError> {
    let body = slice(service, kind, host, port).to_string().into_bytes();
    let path = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices/{}?fieldManager={WRITER}&force=true",
        name(service)
    );
    api.patch(&path, Patch::Apply, body).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slice_names_the_host_and_its_writer() {
        for (host, kind) in [("192.0.2.1", "IPv4"), ("2001:db8::1", "IPv6"), ("db-0.db.ns.svc", "FQDN")] {
            let slice = slice("ovnkube-sb", Kind::Southbound, host, 6642);
            assert_eq!((&slice["addressType"], &slice["endpoints"][0]["addresses"][0]), (&json!(kind), &json!(host)));
            assert_eq!(slice["ports"], json!([{ "name": "south", "port": 6642, "protocol": "TCP" }]));
            assert_eq!(slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"], "ovnkube-db");
        }
    }
}
