//! A ServiceMonitor as the scrape configuration that the Prometheus Operator would generate from it.

use std::path::Path;

use serde_json::{Value, json};

use crate::error::{Error, Result};

/// How Prometheus reaches the API server and the targets.
pub(super) struct ApiAccess<'a> {
    pub(super) server: &'a str,
    pub(super) authority: &'a Path,
    /// Token of the ServiceAccount, for the API server and for the targets.
    pub(super) token: &'a Path,
    /// Directory with a file `NAME.crt` for each ConfigMap in `tlsConfig.ca`.
    pub(super) target_authorities: &'a Path,
}

/// One scrape configuration per endpoint. The endpoint's own interval is replaced.
pub(super) fn of_service_monitor(monitor: &Value, access: &ApiAccess<'_>, interval: &str) -> Result<Vec<Value>> {
    let spec = &monitor["spec"];
    let endpoints = spec["endpoints"].as_array().ok_or_else(|| Error::Invalid("no endpoints to scrape".into()))?;
    endpoints.iter().map(|endpoint| of_endpoint(monitor, endpoint, access, interval)).collect()
}

fn of_endpoint(monitor: &Value, endpoint: &Value, access: &ApiAccess<'_>, interval: &str) -> Result<Value> {
    let port = endpoint["port"].as_str().ok_or_else(|| Error::Invalid("an endpoint without a port".into()))?;
    let authority = endpoint["tlsConfig"]["ca"]["configMap"]["name"].as_str();
    let Some(authority) = authority.filter(|_| !endpoint["bearerTokenFile"].is_null()) else {
        return Err(Error::Invalid(format!("the endpoint {port} has no token or no certificate authority")));
    };
    let authority = access.target_authorities.join(format!("{authority}.crt"));
    let mut relabeling = Vec::new();
    for (label, value) in monitor["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten() {
        let label = label.replace(|sign: char| !sign.is_ascii_alphanumeric(), "_");
        relabeling.push(keep(&format!("__meta_kubernetes_service_label_{label}"), value));
    }
    relabeling.push(keep("__meta_kubernetes_endpointslice_port_name", &endpoint["port"]));
    for (source, target) in
        [("namespace", "namespace"), ("service_name", "service"), ("pod_name", "pod"), ("service_name", "job")]
    {
        relabeling.push(json!({ "source_labels": [format!("__meta_kubernetes_{source}")], "target_label": target }));
    }
    relabeling.push(json!({ "target_label": "endpoint", "replacement": port }));
    let authorization = json!({ "credentials_file": access.token });
    Ok(json!({
        "job_name": format!("serviceMonitor/{}/{port}", monitor["metadata"]["name"].as_str().unwrap_or_default()),
        "scheme": endpoint["scheme"].as_str().unwrap_or("http"),
        "scrape_interval": interval,
        "scrape_timeout": interval,
        "authorization": authorization,
        "tls_config": { "ca_file": authority, "server_name": endpoint["tlsConfig"]["serverName"] },
        "kubernetes_sd_configs": [{
            "role": "endpointslice",
            "api_server": access.server,
            "authorization": authorization,
            "tls_config": { "ca_file": access.authority },
            "namespaces": { "names": [monitor["metadata"]["namespace"]] },
        }],
        "relabel_configs": relabeling,
    }))
}

/// The scrape configuration of programs on the control machine. The rules group by namespace.
pub(super) fn of_targets(targets: &[String]) -> Value {
    json!({ "job_name": "programs", "static_configs": [{ "targets": targets, "labels": { "namespace": "lab" } }] })
}

fn keep(label: &str, value: &Value) -> Value {
    json!({ "source_labels": [label], "regex": value, "action": "keep" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configurations(monitor: &Value) -> Result<Vec<Value>> {
        let access = ApiAccess {
            server: "https://api:6443",
            authority: Path::new("/api.crt"),
            token: Path::new("/token"),
            target_authorities: Path::new("/authorities"),
        };
        of_service_monitor(monitor, &access, "1s")
    }

    #[test]
    fn every_endpoint_of_the_shipped_monitor_is_scraped_with_tls_and_the_token() {
        let monitor = super::super::yaml(super::super::SERVICE_MONITOR).unwrap();
        let configurations = configurations(&monitor).unwrap();
        assert_eq!(configurations.len(), 6);
        for one in configurations {
            assert_eq!(one["scheme"], "https");
            assert_eq!(one["authorization"]["credentials_file"], "/token");
            let of_nodes = one["job_name"] == "serviceMonitor/ovnkube/node";
            let (authority, name) = if of_nodes { ("ovn-node-ca", "ovnkube-node") } else { ("ovn-ca", "ovn") };
            let file = format!("/authorities/{authority}.crt");
            assert_eq!(one["tls_config"], json!({ "ca_file": file, "server_name": name }));
            assert!(one["tls_config"]["insecure_skip_verify"].is_null());
            assert_eq!(one["kubernetes_sd_configs"][0]["namespaces"]["names"][0], "ovn-kubernetes");
            let first = &one["relabel_configs"][0];
            assert_eq!(first["source_labels"][0], "__meta_kubernetes_service_label_app_kubernetes_io_component");
            assert_eq!((&first["regex"], &first["action"]), (&json!("metrics"), &json!("keep")));
        }
    }

    #[test]
    fn an_endpoint_without_a_token_is_refused() {
        let monitor = json!({ "spec": { "endpoints": [{ "port": "node" }] } });
        assert!(configurations(&monitor).unwrap_err().to_string().contains("no token"));
        assert!(configurations(&json!({})).is_err());
    }
}
