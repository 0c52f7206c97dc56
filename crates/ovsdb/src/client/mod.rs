//! The client: keeps a session with one of several servers and a replica of the monitored tables, and executes
//! transactions.
//!
//! ```text
//!  Client (handles) ──calls──▶ driver ──▶ Session ──▶ Wire ──▶ server
//!     ▲                                      │
//!     └── snapshot, Subscription ◀── store ◀─┘ updates
//! ```

mod commit;
mod config;
mod control;
mod end;
mod error;
mod handle;
mod handshake;
mod leader_search;
mod plan;
mod remote;
mod remote_list;
mod replacement;
mod server;
mod session;
mod silence;
mod store;
mod succession;
mod tls;
mod wire;

pub use commit::{CommitError, Committed, Committer, Resolution};
pub use config::{Config, IndexSpec, TableMonitor};
pub use control::control_command;
pub use error::CallError;
pub use handle::Client;
pub use leader_search::is_served;
pub use plan::Missing;
pub use remote::{Endpoint, Remote, RemoteError};
pub use replacement::Successor;
pub use store::{Status, Subscription};
pub use tls::{TlsError, TlsFiles, any_name_verifier};
pub use wire::{ByteStream, Stream, WireError, open_stream};

pub use crate::sequence::SequenceCell;
