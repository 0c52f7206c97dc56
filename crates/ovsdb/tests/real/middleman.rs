//! A proxy that relays whole messages in both directions and manipulates them.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use lab::Databases;
use ovsdb::replica::Snapshot;

use crate::common::{
    await_replica, await_status, config, connect, databases, for_each_message, has_switch, see_switch, write_switch,
};

type Upstreams = Arc<Mutex<Vec<UnixStream>>>;

/// Relays between loopback and a real server.
struct Proxy {
    port: u16,
    upstreams: Upstreams,
    /// Replies that contain this text are dropped.
    swallow: Arc<Mutex<Option<String>>>,
}

impl Proxy {
    fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (upstreams, swallow) = (Upstreams::default(), Arc::new(Mutex::new(None)));
        let path = server.trim_start_matches("unix:").to_owned();
        let (all, eat) = (upstreams.clone(), swallow.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = UnixStream::connect(&path) else { continue };
                all.lock().unwrap().push(server.try_clone().unwrap());
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || pass(from, to, Some));
                let eat = eat.clone();
                std::thread::spawn(move || {
                    pass(server, client, move |text| {
                        let eaten =
                            eat.lock().unwrap().as_ref().is_some_and(|word: &String| text.contains(word.as_str()));
                        (!eaten).then_some(text)
                    });
                });
            }
        });
        Self { port, upstreams, swallow }
    }

    /// Sends a request to the server in the client's name; its reply is dropped.
    fn inject(&self, text: &str, answer: &str) {
        *self.swallow.lock().unwrap() = Some(answer.to_owned());
        let mut upstreams = self.upstreams.lock().unwrap();
        upstreams.last_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }
}

/// Relays whole messages as `change` returns them; `None` drops the message.
fn pass(from: impl Read, mut to: impl Write, change: impl Fn(String) -> Option<String>) {
    for_each_message(from, |message| {
        let changed = change(String::from_utf8_lossy(&message).into_owned());
        changed.is_none_or(|text| to.write_all(text.as_bytes()).is_ok())
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silently_dropped_monitor_is_detected_and_rebuilt() {
    let lab = databases("dropped", Databases::Standalone);
    let server = lab.record().endpoints.northbound.unwrap();
    let middleman = Proxy::start(&server);
    let mut settings = config(&lab);
    settings.remotes = vec![format!("tcp:127.0.0.1:{}", middleman.port).parse().unwrap()];
    settings.audit_interval = std::time::Duration::from_millis(500);
    let client = connect(settings).await;
    let sessions = client.status().borrow().sessions;
    middleman.inject(r#"{"id":"evil","method":"monitor_cancel","params":["replica"]}"#, r#""evil""#);
    lab.nbctl(&["ls-add", "unseen"]).unwrap();
    // Only the monitor audit detects it: the server answers every probe.
    see_switch(&client, "unseen").await;
    let status = await_status(&client, |status| status.connected && status.sessions > sessions).await;
    assert!(status.last_error.unwrap().contains("no longer knows our monitor"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_monitor_methods_are_supported() {
    // The client tries methods from the newest down; here the newer ones fail.
    let lab = databases("old", Databases::Standalone);
    let server = lab.record().endpoints.northbound.unwrap();
    for hidden in ["monitor_cond_since", "monitor_cond"] {
        let port = downgrade(&server, hidden);
        let mut settings = config(&lab);
        settings.remotes = vec![format!("tcp:127.0.0.1:{port}").parse().unwrap()];
        let client = connect(settings).await;
        let name = format!("by-{hidden}");
        write_switch(&client, &name).await;
        see_switch(&client, &name).await;
        lab.nbctl(&["set", "logical_switch", &name, "external_ids:a=b"]).unwrap();
        let modified =
            |snapshot: &Snapshot| {
                snapshot.table("Logical_Switch").unwrap().iter().any(|row| {
                    row.text("name").as_deref() == Some(&name) && row.get("external_ids").unwrap().len() == 1
                })
            };
        await_replica(&client, "the modified switch", modified).await;
        lab.nbctl(&["ls-del", &name]).unwrap();
        await_replica(&client, "the switch gone", |snapshot| !has_switch(snapshot, &name)).await;
    }
}

/// A server that does not support a method and newer ones: the proxy garbles the method's name.
fn downgrade(server: &str, hidden: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let path = server.trim_start_matches("unix:").to_owned();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = UnixStream::connect(&path).unwrap();
            let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            // `monitor_cond` is a prefix of `monitor_cond_since`: both are hidden.
            let method = format!("\"method\":\"{hidden}");
            std::thread::spawn(move || pass(from, to, |text| Some(text.replace(&method, "\"method\":\"garbled_"))));
            std::thread::spawn(move || pass(server, client, Some));
        }
    });
    port
}
