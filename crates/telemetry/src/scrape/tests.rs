//! The listener over real TLS connections.

use std::collections::HashMap;
use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use super::*;

/// Authorizations by token.
#[derive(Debug)]
struct Fixed(HashMap<&'static str, Authorization>);

impl Authorizer for Fixed {
    fn review<'a>(&'a self, token: &'a str) -> ReviewFuture<'a> {
        Box::pin(async move { self.0.get(token).cloned().ok_or_else(|| "the API server does not reply".to_owned()) })
    }
}

/// A listener with a certificate in a directory of its own.
struct Listener {
    directory: PathBuf,
    address: SocketAddr,
}

impl Listener {
    async fn start(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("ovnkube-scrape-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let this = Self { directory, address: listener.local_addr().unwrap() };
        this.renew();
        let authorizations = HashMap::from([
            ("reader", Authorization::Allowed),
            ("stranger", Authorization::Forbidden { user: "system:serviceaccount:default:stranger".into() }),
            ("garbage", Authorization::Unauthenticated),
        ]);
        let status = StatusPage::default();
        status.set("{\"member\":\"n1\"}".into());
        let server = Server::new(Metrics::new("tester", "1.2.3", "abc"), status, Arc::new(Fixed(authorizations)));
        let files = CertificateFiles::new(this.path("tls.crt"), this.path("tls.key"), Some(this.path("ca.crt")));
        tokio::spawn(serve(listener, files, server));
        this
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.join(file)
    }

    /// Replaces the certificate as kubelet does; only the new one is trusted from now on.
    fn renew(&self) {
        self.issue("tls");
        std::fs::copy(self.path("tls.crt"), self.path("ca.crt")).unwrap();
    }

    /// A certificate that is its own authority, with its key.
    fn issue(&self, name: &str) {
        let issued = rcgen::generate_simple_self_signed(["ovn".to_owned()]).unwrap();
        for (file, text) in [("crt", issued.cert.pem()), ("key", issued.signing_key.serialize_pem())] {
            std::fs::write(self.path("new"), text).unwrap();
            std::fs::rename(self.path("new"), self.path(&format!("{name}.{file}"))).unwrap();
        }
    }

    /// Status and the whole response.
    async fn get(&self, path: &str, headers: &str) -> std::io::Result<(u16, String)> {
        self.get_with(None, path, headers).await
    }

    /// The same with this client certificate.
    async fn get_with(&self, client: Option<&str>, path: &str, headers: &str) -> std::io::Result<(u16, String)> {
        let stream = TcpStream::connect(self.address).await?;
        let client = client.map(|name| self.path(name));
        let connector = trusting(&self.path("ca.crt"), client.as_deref());
        let mut stream = connector.connect(ServerName::try_from("ovn").unwrap(), stream).await?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: ovn\r\n{headers}\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok((answer.split(' ').nth(1).unwrap().parse().unwrap(), answer))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A client that trusts one authority, and may have a certificate: files `.crt` and `.key`.
fn trusting(authority: &Path, client: Option<&Path>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots);
    TlsConnector::from(Arc::new(match client {
        None => config.with_no_client_auth(),
        Some(client) => {
            let certificate = CertificateDer::from_pem_file(client.with_extension("crt")).unwrap();
            let key = PrivateKeyDer::from_pem_file(client.with_extension("key")).unwrap();
            config.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    }))
}

#[tokio::test]
async fn the_status_says_whether_the_client_is_known_and_allowed() {
    let listener = Listener::start("status").await;
    let (status, text) = listener.get("/metrics", "Authorization: Bearer reader\r\n").await.unwrap();
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("ovnkube_build_info{version=\"1.2.3\""), "{text}");
    assert!(text.contains("content-type: application/openmetrics-text"), "{text}");
    for (token, status, words) in [
        ("", 401, "www-authenticate: Bearer"),
        ("Authorization: Bearer garbage\r\n", 401, "www-authenticate: Bearer"),
        ("Authorization: Basic reader\r\n", 401, "send a valid token"),
        ("Authorization: Bearer stranger\r\n", 403, "serviceaccount:default:stranger cannot get /metrics; hint: bind"),
        ("Authorization: Bearer new\r\n", 503, "cannot be reviewed now"),
    ] {
        let (answered, text) = listener.get("/metrics", token).await.unwrap();
        assert_eq!(answered, status, "{token}: {text}");
        assert!(text.contains(words) && !text.contains("ovnkube_build_info"), "{token}: {text}");
    }
    // Nothing else is served: probes and the log level are of the plain listener.
    for path in ["/livez", "/readyz", "/log-level", "/"] {
        assert_eq!(listener.get(path, "Authorization: Bearer reader\r\n").await.unwrap().0, 404, "{path}");
    }
}

#[tokio::test]
async fn the_status_is_for_clients_with_a_certificate_of_the_authorities() {
    let listener = Listener::start("peers").await;
    listener.issue("stranger");
    let (status, text) = listener.get_with(Some("tls"), "/status", "").await.unwrap();
    assert!(status == 200 && text.ends_with("{\"member\":\"n1\"}"), "{text}");
    assert!(text.contains("age: "), "{text}");
    for (client, token) in [(None, ""), (None, "Authorization: Bearer reader\r\n"), (Some("stranger"), "")] {
        let (status, text) = listener.get_with(client, "/status", token).await.unwrap();
        assert!(status == 403 && text.contains("needs a client certificate") && !text.contains("n1"), "{text}");
    }
    // A scraper is authorized by its token, whatever certificate it presents; a certificate alone is not enough.
    let scrape = async |client, token| listener.get_with(Some(client), "/metrics", token).await.unwrap().0;
    assert_eq!(scrape("stranger", "Authorization: Bearer reader\r\n").await, 200);
    assert_eq!(scrape("tls", "").await, 401);
}

#[tokio::test]
async fn a_renewed_certificate_is_used_and_a_broken_one_is_not() {
    let listener = Listener::start("renewal").await;
    let request = async || listener.get("/metrics", "Authorization: Bearer reader\r\n").await.map(|(status, _)| status);
    assert_eq!(request().await.unwrap(), 200);
    let old = std::fs::read(listener.path("ca.crt")).unwrap();
    listener.renew();
    assert_eq!(request().await.unwrap(), 200, "the client trusts only the new one");
    let new = std::fs::read(listener.path("ca.crt")).unwrap();
    std::fs::write(listener.path("ca.crt"), &old).unwrap();
    assert!(request().await.is_err(), "the old one is not used any more");
    // Half a renewal: the certificate is new, the key not yet.
    std::fs::write(listener.path("ca.crt"), &new).unwrap();
    std::fs::write(listener.path("tls.crt"), &old).unwrap();
    assert_eq!(request().await.unwrap(), 200);
    std::fs::remove_file(listener.path("tls.crt")).unwrap();
    assert_eq!(request().await.unwrap(), 200);
}

#[tokio::test]
async fn a_client_that_sends_nothing_does_not_keep_others_out() {
    let listener = Listener::start("silent").await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(listener.address).await.unwrap());
    }
    // All places of this address are taken, so the surplus is closed; after the limit of the handshake so are the others.
    let mut last = silent.pop().unwrap();
    assert_eq!(last.read(&mut [0; 1]).await.unwrap_or(0), 0);
    for stream in &mut silent {
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
    }
    assert_eq!(listener.get("/metrics", "Authorization: Bearer reader\r\n").await.unwrap().0, 200);
}
