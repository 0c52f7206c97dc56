//! A server that answers requests by a script, and records them.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// One scripted response.
pub(crate) struct Response {
    status: u16,
    chunks: Vec<Vec<u8>>,
    end: End,
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    Proper,
    Broken,
    Staying,
}

impl Response {
    pub(crate) fn ok(body: &str) -> Self {
        Self::failing(200, body)
    }

    pub(crate) fn failing(status: u16, body: &str) -> Self {
        Self { status, chunks: vec![body.as_bytes().to_vec()], end: End::Proper }
    }

    pub(crate) fn stream(chunks: Vec<Vec<u8>>) -> Self {
        Self { status: 200, chunks, end: End::Proper }
    }

    /// Keeps the stream open.
    pub(crate) fn staying(self) -> Self {
        Self { end: End::Staying, ..self }
    }

    /// Breaks the connection instead of ending the stream.
    pub(crate) fn breaking(self) -> Self {
        Self { end: End::Broken, ..self }
    }
}

/// The running server; stops on drop.
pub(crate) struct Server {
    asked: Arc<Mutex<Vec<String>>>,
    kubeconfig: PathBuf,
}

impl Server {
    pub(crate) fn start(script: Vec<Response>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let file = format!("scripted-{}-{}.kubeconfig", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let kubeconfig = std::env::temp_dir().join(file);
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: \"http://{address}\"}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n"
        );
        std::fs::write(&kubeconfig, text).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        std::thread::spawn(move || {
            let mut open = Vec::new();
            let mut script = script.into_iter();
            for connection in listener.incoming() {
                let Ok(connection) = connection else { continue };
                if let Some(kept) = serve(connection, &mut script, &log) {
                    open.push(kept);
                }
            }
        });
        Self { asked, kubeconfig }
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The request lines so far, without the protocol's version.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

/// Serves one request; returns the connection if it is to stay open.
fn serve(
    mut connection: TcpStream,
    script: &mut impl Iterator<Item = Response>,
    log: &Mutex<Vec<String>>,
) -> Option<TcpStream> {
    let mut lines = BufReader::new(connection.try_clone().ok()?).lines();
    let request = lines.next()?.ok()?;
    let headers: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    assert!(headers.iter().any(|header| header.eq_ignore_ascii_case("authorization: Bearer t")), "{headers:?}");
    assert!(headers.iter().any(|header| header.to_lowercase().starts_with("user-agent: ovnkube/")), "{headers:?}");
    // Requests after the script are not answered.
    let answer = script.next().unwrap_or(Response::stream(vec![]).staying());
    log.lock().unwrap().push(request.trim_end_matches(" HTTP/1.1").to_owned());
    let head = format!("HTTP/1.1 {} X\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n", answer.status);
    connection.write_all(head.as_bytes()).ok()?;
    for chunk in answer.chunks.iter().filter(|chunk| !chunk.is_empty()) {
        connection.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).ok()?;
        connection.write_all(chunk).ok()?;
        connection.write_all(b"\r\n").ok()?;
    }
    match answer.end {
        End::Proper => connection.write_all(b"0\r\n\r\n").ok()?,
        End::Broken => return None,
        End::Staying => return Some(connection),
    }
    None
}
