//! OVSDB: protocol, client, replica, transactions, and a database in memory. It knows no OVN.
//!
//! ```text
//!  Transaction ──▶ Client ──▶ server ──updates──▶ Replica ──▶ Snapshot, Subscription
//!                    │                               ▲
//!                 Committer (once, or not at all)    └── the same values as memory::Database
//! ```
//!
//! - [`client`]: sessions over unix, TCP and TLS with one of several servers, of a raft cluster the leader; a replica
//!   that survives reconnections; transactions with deadlines; commits that happen once ([`client::Committer`]).
//! - [`replica`]: the monitored tables as compact rows that snapshots share.
//! - [`transaction`], [`operation`]: building transactions, and reading what became of each operation.
//! - [`memory`]: a database with the server's semantics, for property tests and simulation.
//! - [`schema`], [`datum`], [`read`], [`text`], [`uuid`], [`frame`]: the values and how they are written.
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
//! let outcome = transaction.read_answer(database.transact(transaction.operations()))?;
//! assert!(outcome.inserted(inserted).is_some());
//! assert_eq!(outcome.rows(read).map(<[_]>::len), Some(1));
//!
//! // The name is an index: a second one is refused, and nothing of that transaction happens.
//! let refusal = transaction.read_answer(database.transact(transaction.operations())).unwrap_err();
//! assert_eq!(refusal.error.error, "constraint violation");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The same transaction goes to a server with [`client::Client::transact`].

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
