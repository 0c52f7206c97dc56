//! OVSDB: protocol, client, replica, transactions, and an in-memory database. Independent of OVN.
//!
//! ```text
//!  Transaction ──▶ Client ──▶ server ──updates──▶ Replica ──▶ Snapshot, Subscription
//!                    │                               ▲
//!                 Committer (exactly once)           └── the same values as memory::Database
//! ```
//!
//! - [`client`]: sessions over unix sockets, TCP and TLS with one of several servers (by default the raft leader); a
//!   replica that survives reconnects; transactions with deadlines; exactly-once commits ([`client::Committer`]).
//! - [`replica`]: the monitored tables as compact rows; snapshots share them.
//! - [`transaction`], [`operation`]: build transactions, and parse the result of each operation.
//! - [`memory`]: a database with the server's semantics, for property tests and simulation.
//! - [`schema`], [`datum`], [`read`], [`text`], [`uuid`], [`frame`]: values and their encoding.
//!
//! Everything but [`client`] is pure: no runtime, no socket (`default-features = false`).
//!
//! ```
//! use ovsdb::memory::Database;
//! use ovsdb::operation::Condition;
//! use ovsdb::schema::DatabaseSchema;
//! use ovsdb::transaction::{Row, Transaction};
//!
//! let schema = serde_json::json!({"name": "Lab", "version": "1.0.0", "tables": {
//!     "Switch": {"isRoot": true, "indexes": [["name"]], "columns": {"name": {"type": "string"}}}}});
//! let mut database = Database::new(DatabaseSchema::parse(&schema)?);
//!
//! let mut transaction = Transaction::new();
//! let inserted = transaction.owned_by("node n1").insert("Switch", Row::new().text("name", "sw1"));
//! let read = transaction.select("Switch", vec![Condition::equals("name", "sw1")], &["name"]);
//! let outcome = transaction.read_reply(database.transact(transaction.operations()))?;
//! assert!(outcome.inserted(inserted).is_some());
//! assert_eq!(outcome.rows(read).map(<[_]>::len), Some(1));
//!
//! // The name is an index: a duplicate is rejected, and the whole transaction has no effect.
//! let refusal = transaction.read_reply(database.transact(transaction.operations())).unwrap_err();
//! assert_eq!(refusal.error.error, "constraint violation");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`client::Client::transact`] sends the same transaction to a server.

#[cfg(feature = "client")]
pub mod client;
pub mod datum;
pub mod frame;
#[cfg(feature = "client")]
#[doc(hidden)]
pub mod fuzz;
pub mod memory;
#[cfg(feature = "client")]
mod message;
pub mod operation;
pub mod read;
pub mod replica;
pub mod schema;
pub mod sequence;
pub mod text;
pub mod transaction;
mod update;
pub mod uuid;
