//! A door between a controller and the northbound database: held, shut, or such that messages get lost in it.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use ovsdb::frame::{Framer, Limits};

use crate::cluster::Cluster;
use crate::states::SEQUENCE;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Open,
    /// Connections stand, and nothing passes; it passes later.
    Held,
    /// Connections end at once.
    Shut,
}

struct State {
    way: Mutex<Way>,
    moved: Condvar,
    /// Whether commits get lost.
    lossy: AtomicBool,
    commits: AtomicU32,
    lost_answers: AtomicU32,
    lost_requests: AtomicU32,
    connections: Mutex<Vec<UnixStream>>,
}

/// Listens on a socket of its own and passes whole messages on to a real server.
pub(crate) struct Door {
    state: Arc<State>,
    /// What the controller is told instead of the server's address.
    pub(crate) address: String,
}

impl Door {
    /// An open door to the lab's one northbound server.
    pub(crate) fn open_to_northbound(cluster: &Cluster) -> Self {
        let server = cluster.lab.record().endpoints.northbound.unwrap().trim_start_matches("unix:").to_owned();
        let path = format!("{}.door", server.trim_end_matches(".sock"));
        let listener = UnixListener::bind(&path).unwrap();
        let state = Arc::new(State {
            way: Mutex::new(Way::Open),
            moved: Condvar::new(),
            lossy: AtomicBool::new(false),
            commits: AtomicU32::new(0),
            lost_answers: AtomicU32::new(0),
            lost_requests: AtomicU32::new(0),
            connections: Mutex::default(),
        });
        let door = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if *door.way.lock().unwrap() != Way::Shut
                    && let Ok(server) = UnixStream::connect(&server)
                {
                    join(&door, &client, &server);
                }
            }
        });
        Self { state, address: format!("unix:{path}") }
    }

    /// Nothing passes any more; what was said meanwhile comes through when it opens again.
    pub(crate) fn hold(&self) {
        self.turn(Way::Held);
    }

    /// Every connection ends, and so does every new one.
    pub(crate) fn shut(&self) {
        self.turn(Way::Shut);
        for connection in self.state.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn open(&self) {
        self.turn(Way::Open);
    }

    /// From now on, of four commits the answer to one is lost, and one is lost itself; the connection goes with it.
    pub(crate) fn lose_commits(&self) {
        self.state.lossy.store(true, Ordering::SeqCst);
    }

    /// How many commits happened without an answer, and how many did not reach the server.
    pub(crate) fn lost(&self) -> (u32, u32) {
        (self.state.lost_answers.load(Ordering::SeqCst), self.state.lost_requests.load(Ordering::SeqCst))
    }

    fn turn(&self, way: Way) {
        *self.state.way.lock().unwrap() = way;
        self.state.moved.notify_all();
    }
}

fn join(state: &Arc<State>, client: &UnixStream, server: &UnixStream) {
    let ends = || [client.try_clone().unwrap(), server.try_clone().unwrap()];
    state.connections.lock().unwrap().extend(ends());
    let deaf = Arc::new(AtomicBool::new(false));
    let ([from, mut to], [mut back, answers]) = (ends(), ends());
    let (door, hears_nothing) = (state.clone(), deaf.clone());
    std::thread::spawn(move || {
        for_each_message(from, |message| {
            door.wait_while_held();
            let text = String::from_utf8_lossy(message);
            if door.lossy.load(Ordering::SeqCst) && text.contains("\"transact\"") && text.contains(SEQUENCE) {
                match door.commits.fetch_add(1, Ordering::SeqCst) % 4 {
                    0 => hears_nothing.store(true, Ordering::SeqCst),
                    2 => {
                        door.lost_requests.fetch_add(1, Ordering::SeqCst);
                        return false;
                    }
                    _ => {}
                }
            }
            to.write_all(message).is_ok()
        });
        let _ = to.shutdown(Shutdown::Both);
    });
    let door = state.clone();
    std::thread::spawn(move || {
        for_each_message(answers, |message| {
            door.wait_while_held();
            if deaf.load(Ordering::SeqCst) {
                // The answer itself, so that it is certain that the commit happened.
                let answered = String::from_utf8_lossy(message).contains("\"result\"");
                door.lost_answers.fetch_add(u32::from(answered), Ordering::SeqCst);
                return !answered;
            }
            back.write_all(message).is_ok()
        });
        let _ = back.shutdown(Shutdown::Both);
    });
}

impl State {
    fn wait_while_held(&self) {
        let way = self.way.lock().unwrap();
        drop(self.moved.wait_while(way, |way| *way == Way::Held).unwrap());
    }
}

/// Gives each whole message of a stream to `take`, until the stream ends or `take` says that it is enough.
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
