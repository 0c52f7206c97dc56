//! HTTP servers of health-check node ports, at which external load balancers check whether this node has endpoints of a
//! Service.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;
use objects::ObjectKey;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// What a server reports.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HealthStatus {
    service: ObjectKey,
    endpoints: usize,
}

/// Running servers, by port.
#[derive(Debug, Default)]
pub(super) struct HealthServers {
    servers: BTreeMap<u16, (watch::Sender<HealthStatus>, AbortHandle)>,
}

impl HealthServers {
    /// Starts and stops servers. A running server whose status changes keeps its connections.
    pub(super) async fn apply(&mut self, wanted: BTreeMap<u16, (ObjectKey, usize)>) {
        self.servers.retain(|port, (_, server)| {
            let stays = wanted.contains_key(port) && !server.is_finished();
            if !stays {
                server.abort();
            }
            stays
        });
        for (port, (service, endpoints)) in wanted {
            let status = HealthStatus { service, endpoints };
            if let Some((sender, _)) = self.servers.get(&port) {
                sender.send_if_modified(|before| {
                    let changed = *before != status;
                    *before = status;
                    changed
                });
                continue;
            }
            let sender = watch::Sender::new(status);
            match serve(port, sender.subscribe()).await {
                Ok(server) => drop(self.servers.insert(port, (sender, server))),
                Err(error) => {
                    let service = sender.borrow().service.to_string();
                    tracing::warn!(port, service, %error, "cannot listen on the health-check node port; another process may use it; retrying at the next change");
                }
            }
        }
    }
}

impl Drop for HealthServers {
    fn drop(&mut self) {
        for (_, server) in self.servers.values() {
            server.abort();
        }
    }
}

async fn serve(port: u16, status: watch::Receiver<HealthStatus>) -> std::io::Result<AbortHandle> {
    // An IPv6 socket serves both families; without IPv6, IPv4 only.
    let listener = match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
        Ok(listener) => listener,
        Err(_) => TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], port))).await?,
    };
    let status = Arc::new(status);
    let app = Router::new().fallback(get(move || {
        let status = status.clone();
        async move { response(&status.borrow()) }
    }));
    let server = tokio::spawn(async move {
        let _ = axum::serve(listener, app).await;
    });
    Ok(server.abort_handle())
}

/// The same body and status as kube-proxy's.
fn response(status: &HealthStatus) -> (StatusCode, [(header::HeaderName, &'static str); 1], String) {
    let code = if status.endpoints > 0 { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let (namespace, name) = (&*status.service.namespace, &*status.service.name);
    let body = json!({
        "service": {"namespace": namespace, "name": name},
        "localEndpoints": status.endpoints,
        "serviceProxyHealthy": true,
    });
    (code, [(header::CONTENT_TYPE, "application/json")], body.to_string())
}
