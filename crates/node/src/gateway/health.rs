//! The servers of health-check node ports: load balancers in front of the cluster ask there whether this node has
//! endpoints of a Service.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use topology::identity::ObjectKey;

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    service: ObjectKey,
    endpoints: usize,
}

/// The servers that there are.
#[derive(Debug, Default)]
pub(super) struct HealthServers {
    servers: BTreeMap<u16, (watch::Sender<Answer>, AbortHandle)>,
}

impl HealthServers {
    /// Makes them what they shall be; one whose answer changes goes on.
    pub(super) async fn carry(&mut self, wanted: BTreeMap<u16, (ObjectKey, usize)>) {
        self.servers.retain(|port, (_, server)| {
            let stays = wanted.contains_key(port) && !server.is_finished();
            if !stays {
                server.abort();
            }
            stays
        });
        for (port, (service, endpoints)) in wanted {
            let answer = Answer { service, endpoints };
            if let Some((tell, _)) = self.servers.get(&port) {
                tell.send_if_modified(|before| {
                    let changed = *before != answer;
                    *before = answer;
                    changed
                });
                continue;
            }
            let tell = watch::Sender::new(answer);
            match serve(port, tell.subscribe()).await {
                Ok(server) => drop(self.servers.insert(port, (tell, server))),
                Err(error) => {
                    let service = tell.borrow().service.to_string();
                    tracing::warn!(port, service, %error, "the health-check node port cannot be opened: who has it?");
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

async fn serve(port: u16, answer: watch::Receiver<Answer>) -> std::io::Result<AbortHandle> {
    // Of both families; where there is no IPv6, of the other.
    let listener = match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
        Ok(listener) => listener,
        Err(_) => TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], port))).await?,
    };
    let answer = Arc::new(answer);
    let app = Router::new().fallback(get(move || {
        let answer = answer.clone();
        async move { written(&answer.borrow()) }
    }));
    let server = tokio::spawn(async move {
        let _ = axum::serve(listener, app).await;
    });
    Ok(server.abort_handle())
}

/// As kube-proxy writes it.
fn written(answer: &Answer) -> (StatusCode, [(header::HeaderName, &'static str); 1], String) {
    let status = if answer.endpoints > 0 { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let (namespace, name) = (&*answer.service.namespace, &*answer.service.name);
    let body = json!({
        "service": {"namespace": namespace, "name": name},
        "localEndpoints": answer.endpoints,
        "serviceProxyHealthy": true,
    });
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string())
}
