//! Entry point for fuzzing: feeds arbitrary server bytes to every parser. Must not panic.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::frame::{Framer, Limits};
use crate::message::Incoming;
use crate::read::Shared;
use crate::replica::Replica;
use crate::schema::{DatabaseSchema, TableSchema};
use crate::transaction::Transaction;
use crate::update::read_updates;

fn tables() -> &'static [Arc<TableSchema>] {
    static TABLES: OnceLock<Vec<Arc<TableSchema>>> = OnceLock::new();
    TABLES.get_or_init(|| {
        let schema = serde_json::json!({"name": "Fuzz", "tables": {"T": {"columns": {
            "name": {"type": "string"}, "number": {"type": "integer"}, "share": {"type": "real"},
            "up": {"type": {"key": "boolean", "min": 0}}, "ref": {"type": {"key": "uuid", "min": 0, "max": "unlimited"}},
            "ids": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}}}}});
        DatabaseSchema::parse(&schema).map(|schema| schema.tables.into_values().map(Arc::new).collect()).unwrap_or_default()
    })
}

/// Parses the bytes in every way the client does; returns the number of valid messages.
pub fn one_input(bytes: &[u8]) -> usize {
    let mut understood = 0;
    let mut framer = Framer::new(Limits { bytes: 1 << 16, depth: 64 });
    framer.buffer().extend_from_slice(bytes);
    while let Ok(Some(frame)) = framer.next_frame() {
        let Ok(text) = String::from_utf8(frame) else { continue };
        let Ok(incoming) = Incoming::parse(&text) else { continue };
        understood += 1;
        let _ = incoming.answers();
        for part in [incoming.params, incoming.result].into_iter().flatten() {
            let Ok(value) = serde_json::from_str::<Value>(part.get()) else { continue };
            let _ = DatabaseSchema::parse(&value);
            let _ = Transaction::new().read_reply(value.as_array().cloned().unwrap_or_default());
            // Updates are the whole result of a reply, and the last parameter of a notification.
            for candidate in value.as_array().and_then(|list| list.last()).into_iter().chain([&value]) {
                let mut replica = Replica::new(tables(), &[]);
                if let Ok(updates) = read_updates(&candidate.to_string(), tables(), &mut Shared::new()) {
                    let _ = replica.apply(updates.clone(), &mut Vec::new());
                    let _ = replica.replace(updates, &mut Vec::new());
                }
            }
        }
    }
    understood
}
