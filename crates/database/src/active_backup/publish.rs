//! The active server as the EndpointSlice of a Service without a selector, which backups and all clients follow.

use std::net::IpAddr;

use kubernetes::{Api, ApiError, Patch};
use serde_json::{Value, json};

use crate::options::Options;

/// Name of the writer in the slice.
const WRITER: &str = "ovnkube-db";

/// The slice that names one host.
fn slice(service: &str, host: &str, ports: &[(&str, u16)]) -> Value {
    let port = |(name, port): &(&str, u16)| json!({ "name": name, "port": port, "protocol": "TCP" });
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
        "ports": ports.iter().map(port).collect::<Vec<_>>(),
    })
}

fn name(service: &str) -> String {
    format!("{service}-active")
}

/// The named ports of a server.
fn ports(options: &Options) -> Vec<(&'static str, u16)> {
    let control = options.control_port().map(|port| (options.kind.control_port_name(), port));
    std::iter::once((options.kind.port_name(), options.port)).chain(control).collect()
}

/// Publishes this host as the active server.
pub(crate) async fn publish(api: &Api, options: &Options, service: &str) -> Result<(), ApiError> {
    let body = slice(service, &options.host, &ports(options)).to_string().into_bytes();
    let path = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices/{}?fieldManager={WRITER}&force=true",
        options.namespace,
        name(service)
    );
    api.patch(&path, Patch::Apply, body).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::{node_options, options};

    #[test]
    fn the_slice_names_the_host_and_its_writer() {
        for (host, kind) in [("192.0.2.1", "IPv4"), ("2001:db8::1", "IPv6"), ("db-0.db.ns.svc", "FQDN")] {
            let slice = slice("ovnkube-sb", host, &ports(&options()));
            assert_eq!((&slice["addressType"], &slice["endpoints"][0]["addresses"][0]), (&json!(kind), &json!(host)));
            assert_eq!(slice["ports"], json!([{ "name": "south", "port": 6642, "protocol": "TCP" }]));
            assert_eq!(slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"], "ovnkube-db");
        }
    }

    #[test]
    fn clients_that_are_not_nodes_have_a_port_of_their_own() {
        assert_eq!(ports(&node_options()), [("south", 6642), ("south-control", 6646)]);
    }
}
