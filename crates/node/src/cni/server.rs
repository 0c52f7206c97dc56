//! The socket: who may ask, how much, and in which words.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{Response, StatusCode};
use axum::serve::IncomingStream;
use cni::{Code, Failure, Version};
use cni_shim::{PROTOCOL, PROTOCOL_HEADER, SOCKET};
use telemetry::Shutdown;
use tokio::net::UnixListener;
use tokio::sync::oneshot;

use super::Inner;

/// No request of a runtime is longer: GC names all attachments of a node, in some hundred bytes each.
const LONGEST: usize = 1 << 20;

/// Who is at the other end.
#[derive(Debug, Clone, Copy)]
struct Client {
    user: Option<u32>,
}

impl Connected<IncomingStream<'_, UnixListener>> for Client {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        Self { user: stream.io().peer_cred().ok().map(|credentials| credentials.uid()) }
    }
}

pub(super) async fn serve(inner: Arc<Inner>, shutdown: Shutdown) -> Result<(), String> {
    let folder = inner.parts.folder.clone();
    let listener =
        listen(&folder).map_err(|error| format!("the CNI server cannot listen in {}: {error}", folder.display()))?;
    tracing::info!(folder = %folder.display(), "the CNI server listens");
    let service = Router::new().fallback(handle).with_state(inner).into_make_service_with_connect_info::<Client>();
    axum::serve(listener, service)
        .with_graceful_shutdown(async move { shutdown.wait().await })
        .await
        .map_err(|error| format!("the CNI server ended: {error}"))
}

/// Makes the socket, for root alone at every moment.
fn listen(folder: &Path) -> io::Result<UnixListener> {
    if let Some(above) = folder.parent() {
        std::fs::create_dir_all(above)?;
    }
    // Its own mode from the beginning, and also where another one made it.
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    std::fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    let name = Path::new(SOCKET).file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let (socket, new) = (folder.join(name), folder.join(".new.sock"));
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&new)?;
    std::fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    // Whoever asks meanwhile finds the old one or the new one, and never none.
    std::fs::rename(&new, &socket)?;
    Ok(listener)
}

async fn handle(
    State(inner): State<Arc<Inner>>,
    ConnectInfo(client): ConnectInfo<Client>,
    request: Request,
) -> Response<Body> {
    match answer(inner, client, request).await {
        Ok(text) => response(StatusCode::OK, text),
        Err((status, text)) => response(status, text),
    }
}

async fn answer(inner: Arc<Inner>, client: Client, request: Request) -> Result<String, (StatusCode, String)> {
    let refused = |status, failure: Failure| {
        tracing::warn!(%failure, user = client.user, "a request was refused");
        (status, failure.to_json(Version::default()))
    };
    let ours = nix::unistd::geteuid().as_raw();
    if client.user.is_none_or(|user| user != 0 && user != ours) {
        let message = "this socket is for the container runtime of the host, which runs as root";
        let user = client.user.map_or_else(|| "nobody".to_owned(), |user| user.to_string());
        let failure =
            Failure::new(Code::InvalidEnvironment, message).with_details(format!("the client is of user {user}"));
        return Err(refused(StatusCode::FORBIDDEN, failure));
    }
    let spoken = request.headers().get(PROTOCOL_HEADER).map(|value| value.to_str().unwrap_or("?").to_owned());
    if spoken.as_deref() != Some(PROTOCOL) {
        let spoken =
            spoken.map_or_else(|| "does not say what it speaks".to_owned(), |spoken| format!("speaks {spoken:?}"));
        let failure = Failure::new(Code::IncompatibleVersion, "the plugin is none of this agent's version")
            .with_details(format!("it {spoken}, the agent {PROTOCOL:?}; the agent installs its own when it is ready"));
        return Err(refused(StatusCode::BAD_REQUEST, failure));
    }
    let body = axum::body::to_bytes(request.into_body(), LONGEST).await.map_err(|error| {
        let message = format!("the request is longer than {LONGEST} bytes, or broke off");
        refused(StatusCode::PAYLOAD_TOO_LARGE, Failure::new(Code::NotDecoded, message).with_details(error.to_string()))
    })?;
    // A task of its own: whoever asked may go, and what was begun is still brought to an end.
    let (here, gone) = oneshot::channel();
    let answering = tokio::spawn(inner.answer(body.into(), gone)).await;
    drop::<oneshot::Sender<()>>(here);
    match answering {
        Ok(answer) => answer.map_err(|text| (StatusCode::BAD_REQUEST, text)),
        Err(error) => {
            let failure = Failure::new(Code::Internal, "the request was not finished").with_details(error.to_string());
            Err(refused(StatusCode::INTERNAL_SERVER_ERROR, failure))
        }
    }
}

fn response(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(PROTOCOL_HEADER, axum::http::HeaderValue::from_static(PROTOCOL));
    headers.insert("content-type", axum::http::HeaderValue::from_static("application/json"));
    response
}
