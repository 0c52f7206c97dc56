//! Row types of OVN_Northbound, OVN_Southbound and Open_vSwitch, declared once and checked against the server's schema.
//!
//! ```text
//!  tables! { … } ──▶ row types ──to_row──▶ ovsdb::transaction::Row ──▶ server
//!        │               ▲──read── ovsdb's values (replica, select) ◀──┘
//!        └─▶ declarations ──check(server's schema)──▶ Report: features off, errors, columns to monitor
//! ```
//!
//! A column is one line in [`northbound`], [`southbound`] or [`open_vswitch`]; the rest is generated. If a server lacks
//! a column, only the feature that needs it is off; a missing column of the core is an error.
//!
//! ```
//! use ovn_schema::northbound::{self, Acl, LogicalSwitch, LogicalSwitchPort};
//! use ovn_schema::{Feature, TableRow};
//! use ovsdb::{operation::Condition, schema::DatabaseSchema, transaction::Transaction, uuid::Uuid};
//!
//! // The schema of a server, here an old and very small one.
//! let schema = DatabaseSchema::parse(&serde_json::json!({"name": "OVN_Northbound", "version": "7.0.0", "tables": {
//!     "ACL": {"columns": {"priority": {"type": "integer"}, "match": {"type": "string"}}}}}))?;
//! let report = northbound::DATABASE.check(&schema);
//! assert!(!report.features().has(Feature::AclTiers));
//! assert!(report.lines().any(|line| line.contains("acl-tiers is off") && line.contains("ACL.tier")));
//! assert!(report.require_core().is_err());
//! assert_eq!(report.columns_present(Acl::TABLE).collect::<Vec<_>>(), ["priority", "match"]);
//!
//! // A row is a plain value that converts to and from the database's values.
//! let port = LogicalSwitchPort {
//!     name: "default_web".into(),
//!     addresses: ["0a:58:0a:80:00:05 10.128.0.5".into()].into(),
//!     options: [("requested-chassis".into(), "n1".into())].into(),
//!     ..LogicalSwitchPort::default()
//! };
//! let (switch, uuid) = (Uuid::from_bytes([1; 16]), Uuid::from_bytes([2; 16]));
//! assert_eq!(LogicalSwitchPort::from_values(uuid, &port.to_row().0)?, port);
//!
//! // Columns are typed constants, so that a mutation cannot use a wrong name or type.
//! let mut transaction = Transaction::new();
//! transaction.insert_with_uuid(LogicalSwitchPort::TABLE, uuid, port.to_sparse_row());
//! let join = LogicalSwitch::ports.insert([uuid]);
//! transaction.mutate(LogicalSwitch::TABLE, vec![Condition::uuid(switch)], vec![join]);
//!
//! // A value for a column that the server lacks is an error.
//! let lost = report.insert_row(&Acl { tier: 2, ..Acl::default() }).unwrap_err();
//! assert_eq!((lost.column, lost.feature), ("tier", Feature::AclTiers));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod database;
mod declare;
mod feature;
pub mod northbound;
pub mod open_vswitch;
pub mod release;
mod report;
pub mod southbound;
mod table;
mod value;

pub use database::Database;
pub use feature::{Feature, Features};
pub use report::{CoreIncomplete, FeatureOff, Missing, Problem, Report, Unsupported};
pub use table::{Choice, Column, ColumnDeclaration, ReadError, Rewritten, TableDeclaration, TableRow};
pub use value::{AtomValue, ColumnValue, Holds, Shape, StringMap};

/// Northbound, southbound, and Open vSwitch's.
pub const DATABASES: [Database; 3] = [northbound::DATABASE, southbound::DATABASE, open_vswitch::DATABASE];
