//! The listener with real connections: nodes on one side, a server that demands the certificate of a node on the other.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ovsdb::client::{TlsFiles, any_name_verifier};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::refusal::Reason;
use super::testing::Authority;
use super::*;

/// A wait that takes this long fails the test.
const LIMIT: Duration = Duration::from_secs(60);

type Identity = (CertificateDer<'static>, PrivateKeyDer<'static>);

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

struct Site {
    directory: PathBuf,
    control: Authority,
    nodes: Authority,
    metrics: NodeMetrics,
    listener: NodeListener,
    port: u16,
}

impl Site {
    /// A listener, and a server behind it that greets each client with its name and repeats what it says.
    async fn start(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("node-listener-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (control, nodes) = (Authority::new("control"), Authority::new("nodes"));
        let (certificate, key) = control.issue_pem("ovn");
        let file = |name: &str| directory.join(name);
        std::fs::write(file("tls.crt"), certificate).unwrap();
        std::fs::write(file("tls.key"), key).unwrap();
        std::fs::write(file("ca.crt"), control.pem()).unwrap();
        std::fs::write(file("nodes.crt"), nodes.pem()).unwrap();
        let server = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
        let port = {
            let free = std::net::TcpListener::bind((LOOPBACK, 0)).unwrap();
            free.local_addr().unwrap().port()
        };
        let options = ListenerOptions {
            listen: LOOPBACK.to_string(),
            port,
            local_port: server.local_addr().unwrap().port(),
            socket: None,
            tls: TlsFiles {
                certificate: file("tls.crt"),
                private_key: file("tls.key"),
                authorities: file("ca.crt"),
                verify_host_name: false,
            },
            authorities: file("nodes.crt"),
            combined: file("combined.crt"),
        };
        let metrics = NodeMetrics::unregistered();
        let listener = NodeListener::start(options, metrics.clone()).unwrap();
        tokio::spawn(greet(server, control.issue(&["ovn"]), file("combined.crt")));
        let site = Self { directory, control, nodes, metrics, listener, port };
        assert!(TcpStream::connect(site.address()).await.is_err(), "closed until the server runs");
        site.listener.open(std::process::id());
        site.until("the port is open", async || site.metrics.listening.get() == 1).await;
        site
    }

    fn address(&self) -> SocketAddr {
        (LOOPBACK, self.port).into()
    }

    async fn until(&self, what: &str, mut check: impl AsyncFnMut() -> bool) {
        let waited = tokio::time::timeout(LIMIT, async {
            while !check().await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"));
    }

    /// Replaces a file as kubelet does.
    fn replace(&self, file: &str, text: &str) {
        std::fs::write(self.directory.join("new"), text).unwrap();
        std::fs::rename(self.directory.join("new"), self.directory.join(file)).unwrap();
    }

    /// Connects as a node; the name by which the server knows it.
    async fn connect(&self, identity: Option<Identity>) -> std::io::Result<(TlsStream<TcpStream>, String)> {
        let stream = TcpStream::connect(self.address()).await?;
        self.connect_by(stream, identity).await
    }

    async fn connect_by(
        &self,
        stream: TcpStream,
        identity: Option<Identity>,
    ) -> std::io::Result<(TlsStream<TcpStream>, String)> {
        let verifier = any_name_verifier(vec![self.control.certificate()], provider()).unwrap();
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match identity {
            Some((certificate, key)) => config.with_client_auth_cert(vec![certificate], key).unwrap(),
            None => config.with_no_client_auth(),
        };
        let name = ServerName::from(LOOPBACK);
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let greeting = stream.read_u8().await?;
        let mut name = vec![0; greeting.into()];
        stream.read_exact(&mut name).await?;
        Ok((stream, String::from_utf8(name).unwrap()))
    }

    async fn refused(&self, identity: Option<Identity>, reason: Reason) {
        let before = self.metrics.refusals(reason);
        assert!(self.connect(identity).await.is_err(), "{reason:?}");
        self.until("the refusal is counted", async || self.metrics.refusals(reason) > before).await;
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A server that trusts the combined file as it is at each connection.
async fn greet(listener: TcpListener, (certificate, key): Identity, combined: PathBuf) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let mut roots = RootCertStore::empty();
        trust::certificates(&combined).unwrap().into_iter().for_each(|it| roots.add(it).unwrap());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate.clone()], key.clone_key())
            .unwrap();
        tokio::spawn(async move {
            let mut stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await.unwrap();
            let name = trust::name(&stream.get_ref().1.peer_certificates().unwrap()[0]).unwrap();
            stream.write_u8(name.len().try_into().unwrap()).await.unwrap();
            stream.write_all(name.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            let (mut read, mut write) = tokio::io::split(stream);
            let _ = tokio::io::copy(&mut read, &mut write).await;
        });
    }
}

/// Whether a session repeats what it is sent.
async fn works(stream: &mut TlsStream<TcpStream>) -> bool {
    let mut answer = [0; 5];
    stream.write_all(b"hello").await.is_ok() && stream.read_exact(&mut answer).await.is_ok() && &answer == b"hello"
}

#[tokio::test]
async fn a_node_reaches_the_server_under_its_own_name_and_others_do_not() {
    let site = Site::start("names").await;
    let (mut one, name) = site.connect(Some(site.nodes.issue(&["n1"]))).await.unwrap();
    assert_eq!(name, "n1");
    let (mut two, name) = site.connect(Some(site.nodes.issue(&["n2"]))).await.unwrap();
    assert_eq!(name, "n2");
    assert!(works(&mut one).await && works(&mut two).await);
    assert_eq!(site.metrics.sessions.get(), 2);
    site.refused(None, Reason::NoCertificate).await;
    site.refused(Some(site.control.issue(&["n1"])), Reason::UnknownAuthority).await;
    site.refused(Some(Authority::new("nodes").issue(&["n1"])), Reason::UnknownAuthority).await;
    site.refused(Some(site.nodes.issue(&["n1", "n2"])), Reason::BadName).await;
    assert!(works(&mut one).await);
    drop((one, two));
    site.until("both sessions are over", async || site.metrics.sessions.get() == 0).await;
}

#[tokio::test]
async fn a_revocation_closes_the_session_and_a_rotation_does_not() {
    let site = Site::start("revocation").await;
    let (stolen, other) = (site.nodes.issue(&["n1"]), site.nodes.issue(&["n2"]));
    let keep = |(certificate, key): &Identity| (certificate.clone(), key.clone_key());
    let (mut one, _) = site.connect(Some(keep(&stolen))).await.unwrap();
    let (mut two, _) = site.connect(Some(keep(&other))).await.unwrap();
    let hex: String = trust::fingerprint(&stolen.0).iter().map(|byte| format!("{byte:02x}")).collect();
    site.replace("revoked", &format!("{hex}\n"));
    assert_eq!(tokio::time::timeout(LIMIT, one.read(&mut [0])).await.unwrap().unwrap_or(0), 0, "closed");
    site.refused(Some(stolen), Reason::Revoked).await;
    assert!(works(&mut two).await);

    // Another CA of the nodes, then another one of the control plane: sessions stay.
    let (next, control) = (Authority::new("next"), Authority::new("next-control"));
    site.replace("nodes.crt", &format!("{}{}", next.pem(), site.nodes.pem()));
    site.until("the new CA is accepted", async || site.connect(Some(next.issue(&["n3"]))).await.is_ok()).await;
    site.replace("ca.crt", &format!("{}{}", site.control.pem(), control.pem()));
    let combined = || std::fs::read_to_string(site.directory.join("combined.crt")).unwrap();
    site.until("the server's file is written", async || combined().contains(control.pem().trim())).await;
    assert!(works(&mut two).await);

    // Half a bundle, and half a list of revoked certificates.
    site.replace("nodes.crt", &next.pem()[..300]);
    site.replace("ca.crt", &control.pem()[..300]);
    site.replace("revoked", &hex[..20]);
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let (mut three, _) = site.connect(Some(next.issue(&["n3"]))).await.unwrap();
    assert!(works(&mut two).await && combined().contains(control.pem().trim()));

    // The former CA is retired.
    site.replace("revoked", "");
    site.replace("nodes.crt", &next.pem());
    assert_eq!(tokio::time::timeout(LIMIT, two.read(&mut [0])).await.unwrap().unwrap_or(0), 0, "closed");
    site.refused(Some(other), Reason::UnknownAuthority).await;
    assert!(works(&mut three).await);
}

#[tokio::test]
async fn without_its_server_the_port_is_closed() {
    let site = Site::start("closed").await;
    let (mut one, _) = site.connect(Some(site.nodes.issue(&["n1"]))).await.unwrap();
    site.listener.close();
    assert_eq!(tokio::time::timeout(LIMIT, one.read(&mut [0])).await.unwrap().unwrap_or(0), 0);
    site.until("connections are refused", async || {
        TcpStream::connect(site.address()).await.is_err_and(|it| it.kind() == std::io::ErrorKind::ConnectionRefused)
    })
    .await;
    assert_eq!(site.metrics.sessions.get(), 0);
    // Another program takes the port; the listener says so, and opens it when it is free.
    let taken = TcpListener::bind(site.address()).await.unwrap();
    site.listener.open(std::process::id());
    site.until("the problem is named", async || matches!(site.listener.problem(), Some(ListenerProblem::Port(_))))
        .await;
    drop(taken);
    site.until("the port is open", async || site.connect(Some(site.nodes.issue(&["n1"]))).await.is_ok()).await;
    assert_eq!(site.listener.problem(), None);
}

#[tokio::test]
async fn clients_that_send_nothing_do_not_keep_others_out() {
    let site = Site::start("silent").await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(site.address()).await.unwrap());
    }
    site.until("the surplus is refused", async || site.metrics.refusals(Reason::TooMany) > 0).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let stream = socket.connect(site.address()).await.unwrap();
    site.connect_by(stream, Some(site.nodes.issue(&["n1"]))).await.unwrap();
    // They are ended one day, and so is a client in the middle of its handshake.
    site.until("their time is over", async || site.metrics.refusals(Reason::Timeout) >= 64).await;
    site.connect(Some(site.nodes.issue(&["n2"]))).await.unwrap();
    drop(silent);
}
