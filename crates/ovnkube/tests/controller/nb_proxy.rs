//! A proxy between a controller and the northbound database that can hold, close or lose messages.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use ovsdb::frame::{Framer, Limits};

use crate::cluster::Cluster;
use crate::nb_states::SEQUENCE;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Open,
    /// Connections stay open; messages are delivered later.
    Held,
    /// Existing and new connections are closed.
    Shut,
}

struct State {
    mode: Mutex<Mode>,
    changed: Condvar,
    /// Whether some commits are lost.
    lossy: AtomicBool,
    commits: AtomicU32,
    lost_replies: AtomicU32,
    lost_requests: AtomicU32,
    connections: Mutex<Vec<UnixStream>>,
}

/// Relays whole messages between its own socket and a real server.
pub(crate) struct NbProxy {
    state: Arc<State>,
    /// The remote to give to the controller instead of the server's.
    pub(crate) address: String,
}

impl NbProxy {
    /// A proxy for the lab's only northbound server.
    pub(crate) fn start(cluster: &Cluster) -> Self {
        let server = cluster.lab.record().endpoints.northbound.unwrap().trim_start_matches("unix:").to_owned();
        let path = format!("{}.proxy", server.trim_end_matches(".sock"));
        let listener = UnixListener::bind(&path).unwrap();
        let state = Arc::new(State {
            mode: Mutex::new(Mode::Open),
            changed: Condvar::new(),
            lossy: AtomicBool::new(false),
            commits: AtomicU32::new(0),
            lost_replies: AtomicU32::new(0),
            lost_requests: AtomicU32::new(0),
            connections: Mutex::default(),
        });
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if *shared.mode.lock().unwrap() != Mode::Shut
                    && let Ok(server) = UnixStream::connect(&server)
                {
                    relay(&shared, &client, &server);
                }
            }
        });
        Self { state, address: format!("unix:{path}") }
    }

    /// Holds all messages until `open`, which delivers them.
    pub(crate) fn hold(&self) {
        self.set_mode(Mode::Held);
    }

    /// Closes all connections, and every new one.
    pub(crate) fn shut(&self) {
        self.set_mode(Mode::Shut);
        for connection in self.state.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn open(&self) {
        self.set_mode(Mode::Open);
    }

    /// From now on, of four commits one loses its reply and one its request; the connection is closed with it.
    pub(crate) fn lose_commits(&self) {
        self.state.lossy.store(true, Ordering::SeqCst);
    }

    /// How many commits lost their reply, and how many did not reach the server.
    pub(crate) fn lost(&self) -> (u32, u32) {
        (self.state.lost_replies.load(Ordering::SeqCst), self.state.lost_requests.load(Ordering::SeqCst))
    }

    fn set_mode(&self, mode: Mode) {
        *self.state.mode.lock().unwrap() = mode;
        self.state.changed.notify_all();
    }
}

fn relay(state: &Arc<State>, client: &UnixStream, server: &UnixStream) {
    let ends = || [client.try_clone().unwrap(), server.try_clone().unwrap()];
    state.connections.lock().unwrap().extend(ends());
    let dropping = Arc::new(AtomicBool::new(false));
    let ([from, mut to], [mut back, replies]) = (ends(), ends());
    let (shared, drop_replies) = (state.clone(), dropping.clone());
    std::thread::spawn(move || {
        for_each_message(from, |message| {
            shared.wait_while_held();
            let text = String::from_utf8_lossy(message);
            if shared.lossy.load(Ordering::SeqCst) && text.contains("\"transact\"") && text.contains(SEQUENCE) {
                match shared.commits.fetch_add(1, Ordering::SeqCst) % 4 {
                    0 => drop_replies.store(true, Ordering::SeqCst),
                    2 => {
                        shared.lost_requests.fetch_add(1, Ordering::SeqCst);
                        return false;
                    }
                    _ => {}
                }
            }
            to.write_all(message).is_ok()
        });
        let _ = to.shutdown(Shutdown::Both);
    });
    let shared = state.clone();
    std::thread::spawn(move || {
        for_each_message(replies, |message| {
            shared.wait_while_held();
            if dropping.load(Ordering::SeqCst) {
                // Only the reply itself is counted: it proves that the commit happened.
                let is_reply = String::from_utf8_lossy(message).contains("\"result\"");
                shared.lost_replies.fetch_add(u32::from(is_reply), Ordering::SeqCst);
                return !is_reply;
            }
            back.write_all(message).is_ok()
        });
        let _ = back.shutdown(Shutdown::Both);
    });
}

impl State {
    fn wait_while_held(&self) {
        let mode = self.mode.lock().unwrap();
        drop(self.changed.wait_while(mode, |mode| *mode == Mode::Held).unwrap());
    }
}

/// Passes each whole message of a stream to `take` until the stream ends or `take` returns false.
fn for_each_message(mut from: impl Read, mut take: impl FnMut(&[u8]) -> bool) {
    let mut framer = Framer::new(Limits::default());
    let mut chunk = [0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut chunk) {
        framer.buffer().extend_from_slice(&chunk[..read]);
        while let Ok(Some(message)) = framer.next_frame() {
            if !take(&message) {
                return;
            }
        }
    }
}
