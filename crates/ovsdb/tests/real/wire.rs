//! Fake servers that send invalid messages.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::time::Duration;

use ovsdb::client::{Client, Config, TableMonitor};
use ovsdb::frame::{Framer, Limits};

use crate::common::{TIMEOUT, for_each_message};

const SCHEMA: &str = r#"{"name":"Fake","version":"1.0.0","tables":{"T":{"columns":{"name":{"type":"string"}}}}}"#;

/// A server that answers the first requests properly and then sends the given bytes; returns its port.
fn fake(last_words: Vec<u8>, then_hang_up: bool) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let last_words = last_words.clone();
            std::thread::spawn(move || {
                let requests = client.try_clone().unwrap();
                for_each_message(requests, |request| {
                    let request: serde_json::Value = serde_json::from_slice(&request).unwrap();
                    let (id, method) = (&request["id"], request["method"].as_str().unwrap_or_default());
                    let answer = match method {
                        "get_schema" => format!(r#"{{"id":{id},"error":null,"result":{SCHEMA}}}"#),
                        "set_db_change_aware" | "echo" | "monitor" => {
                            format!(r#"{{"id":{id},"error":null,"result":{{}}}}"#)
                        }
                        _ => format!(r#"{{"id":{id},"error":"unknown method","result":null}}"#),
                    };
                    let _ = client.write_all(answer.as_bytes());
                    if method == "monitor" {
                        let _ = client.write_all(&last_words);
                        // It sends nothing more, not even probe replies.
                        while !then_hang_up && last_words.ends_with(b"meth") {
                            std::thread::park();
                        }
                        if then_hang_up {
                            let _ = client.shutdown(Shutdown::Both);
                        }
                        return !then_hang_up;
                    }
                    true
                });
            });
        }
    });
    port
}

/// The client's error for such a server.
async fn reason(last_words: &[u8], then_hang_up: bool) -> String {
    let port = fake(last_words.to_vec(), then_hang_up);
    let mut config =
        Config::new(vec![format!("tcp:127.0.0.1:{port}").parse().unwrap()], "Fake").monitor(TableMonitor::new("T"));
    config.limits = Limits { bytes: 1 << 16, depth: 32 };
    config.probe_interval = Duration::from_secs(2);
    let client = Client::start(config);
    let mut status = client.status();
    let ended = status.wait_for(|status| status.sessions > 0 && status.last_error.is_some());
    let status = tokio::time::timeout(TIMEOUT, ended).await.unwrap().unwrap().clone();
    status.last_error.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_messages_end_the_session_with_a_clear_error() {
    let uuid = "36bef046-7da7-43a5-905a-c17899216fcb";
    let update = |row: &str| {
        format!(r#"{{"id":null,"method":"update","params":["replica",{{"T":{{"{uuid}":{row}}}}}]}}"#).into_bytes()
    };
    for (words, hang_up, expected) in [
        (br#"{"id":null,"method":"upd"#.to_vec(), true, "in the middle of a message"),
        (Vec::new(), true, "closed the connection"),
        (format!("[\"{}", "x".repeat(1 << 17)).into_bytes(), false, "more than 65536 bytes"),
        ("[".repeat(40).into_bytes(), false, "nested deeper than 32"),
        (b"HTTP/1.1 400 Bad Request\r\n".to_vec(), false, "where a JSON text must start"),
        (br#"{"id":null,"method":"update","params":7}"#.to_vec(), false, "malformed message"),
        (update(r#"{"new":{"name":7}}"#), false, "T.name"),
        (update(r#"{"new":{"colour":"red"}}"#), false, "colour"),
        (update(r#"{"modify":{"name":"b"}}"#), false, "does not have"),
        (b"[1,2,3]".to_vec(), false, "malformed message"),
        (b"[\xff\xfe]".to_vec(), false, "UTF-8"),
    ] {
        let found = reason(&words, hang_up).await;
        assert!(found.contains(expected), "{:?} gave {found}", String::from_utf8_lossy(&words[..words.len().min(60)]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_incomplete_frame_followed_by_silence_times_out() {
    let found = reason(br#"{"id":null,"meth"#, false).await;
    assert!(found.contains("no data from the server"), "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsolicited_replies_and_unknown_notifications_are_ignored() {
    let words = br#"{"id":999,"error":null,"result":{}}{"id":null,"method":"gossip","params":[1]}{"id":"e","method":"echo","params":["hi"]}"#;
    let port = fake(words.to_vec(), false);
    let config =
        Config::new(vec![format!("tcp:127.0.0.1:{port}").parse().unwrap()], "Fake").monitor(TableMonitor::new("T"));
    let client = Client::start(config);
    client.connected(TIMEOUT).await.unwrap();
    // The session still works: a call gets a reply, even if it is an unknown method.
    let error = client.databases().await.unwrap_err();
    assert!(error.to_string().contains("unknown method"), "{error}");
    assert_eq!(client.status().borrow().sessions, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slowly_sending_server_is_alive() {
    // One message, a few bytes at a time, over longer than the probe interval.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let uuid = "36bef046-7da7-43a5-905a-c17899216fcb";
    let update = format!(
        r#"{{"id":null,"method":"update","params":["replica",{{"T":{{"{uuid}":{{"new":{{"name":"slow"}}}}}}}}]}}"#
    );
    let real = fake(Vec::new(), false);
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = std::net::TcpStream::connect(("127.0.0.1", real)).unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        // After the first requests it sends only the slow message, and no probe replies.
        let mut greeting = Framer::new(Limits::default());
        let (mut chunk, mut answers) = ([0; 4096], 0);
        while answers < 6 {
            let read = server.read(&mut chunk).unwrap();
            client.write_all(&chunk[..read]).unwrap();
            greeting.buffer().extend_from_slice(&chunk[..read]);
            while let Ok(Some(_)) = greeting.next_frame() {
                answers += 1;
            }
        }
        for part in update.as_bytes().chunks(4) {
            client.write_all(part).unwrap();
            std::thread::park_timeout(Duration::from_millis(70));
        }
    });
    let mut config =
        Config::new(vec![format!("tcp:127.0.0.1:{port}").parse().unwrap()], "Fake").monitor(TableMonitor::new("T"));
    config.probe_interval = Duration::from_secs(1);
    let client = Client::start(config);
    let mut changes = client.subscribe();
    let change = tokio::time::timeout(TIMEOUT, changes.next()).await.expect("the slow message arrives");
    assert_eq!(change.changes.len(), 1);
    assert_eq!(client.status().borrow().sessions, 1);
}
