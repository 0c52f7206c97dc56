//! `ovnkube ovsdb dump`.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use ovsdb::replica::{RowView, Table};
use serde_json::{Map, Value, json};

use super::connect::{Access, Choice};
use super::{grid, value};
use crate::cli::{Dump, Output};

pub(super) async fn run(dump: &Dump) -> anyhow::Result<()> {
    let access = Access::new(&dump.server, Duration::from_secs(dump.timeout.into()))?;
    let database = match &dump.database {
        Some(database) => database.clone(),
        None => access.only_database().await?,
    };
    let schema = access.schema(&database).await?;
    let choice = Choice::new(&schema, &dump.tables, &dump.columns)?;
    let snapshot = access.open(&database, choice.monitors()).await?.snapshot();
    match dump.output {
        Output::Json => {
            let tables: Map<String, Value> = snapshot.tables().map(|table| as_json(table, &choice)).collect();
            console::print_json(&json!({ "database": database, "tables": tables }))?;
        }
        Output::Table => {
            // If all tables are dumped, skip empty ones.
            let tables = snapshot.tables().filter(|table| !dump.tables.is_empty() || !table.is_empty());
            let cut = io::stdout().is_terminal();
            let tables: Vec<String> = tables.map(|table| as_text(table, &choice, cut)).collect();
            console::print(&tables.join("\n"))?;
        }
    }
    Ok(())
}

/// Sorted by name if there is one, else by uuid.
fn sorted(table: &Table) -> Vec<RowView<'_>> {
    let mut rows: Vec<RowView<'_>> = table.iter().collect();
    rows.sort_by_cached_key(|row| (row.get("name").map(std::borrow::Cow::into_owned), row.uuid));
    rows
}

fn as_json(table: &Table, choice: &Choice) -> (String, Value) {
    let columns = choice.shown(table.schema());
    let rows = sorted(table).iter().map(|row| Value::Object(value::json_row(row, &columns))).collect();
    (table.schema().name.clone(), rows)
}

fn as_text(table: &Table, choice: &Choice, cut: bool) -> String {
    let rows = sorted(table);
    let mut columns = choice.shown(table.schema());
    let mut empty = Vec::new();
    // Skip columns that are empty in every row.
    if choice.columns.is_none() && !rows.is_empty() {
        let is_empty = |column: &&str| rows.iter().all(|row| value::text(row, column).is_empty());
        (empty, columns) = columns.into_iter().partition(is_empty);
        // The name comes first.
        columns.sort_by_key(|column| (*column != super::connect::UUID, *column != "name"));
    }
    let counted = if rows.len() == 1 { "1 row".to_owned() } else { format!("{} rows", rows.len()) };
    let mut text = format!("{} ({counted})\n", table.schema().name);
    if !rows.is_empty() {
        let cells: Vec<Vec<String>> =
            rows.iter().map(|row| columns.iter().map(|column| value::text(row, column)).collect()).collect();
        text.push_str(&grid::render(&columns, &cells, cut));
    }
    if !empty.is_empty() {
        text.push_str(&format!("(empty in every row: {})\n", empty.join(", ")));
    }
    text
}
