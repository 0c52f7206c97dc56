//! The requested tables and columns, reduced to those that the server's schema has.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::client::config::{IndexSpec, TableMonitor};
use crate::operation::Condition;
use crate::replica::{IndexKey, MAX_COLUMNS};
use crate::schema::{DatabaseSchema, TableSchema};

/// A requested table or column that the server does not have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Missing {
    /// As it was requested.
    pub table: String,
    /// None if the whole table is missing.
    pub column: Option<String>,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.column {
            Some(column) => write!(f, "{}.{column}", self.table),
            None => f.write_str(&self.table),
        }
    }
}

/// The tables in the order of the request; a missing one has no columns.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) tables: Vec<Arc<TableSchema>>,
    pub(crate) indexes: Vec<(usize, IndexKey)>,
    pub(crate) missing: Vec<Missing>,
    present: Vec<bool>,
}

impl Plan {
    pub(crate) fn new(schema: &DatabaseSchema, monitors: &[TableMonitor]) -> Self {
        let mut plan = Self { tables: Vec::new(), indexes: Vec::new(), missing: Vec::new(), present: Vec::new() };
        for (position, monitor) in monitors.iter().enumerate() {
            let found = schema.tables.get(&monitor.table);
            plan.present.push(found.is_some());
            let table = match found {
                Some(table) => restricted(table, monitor, &mut plan.missing),
                None => {
                    plan.missing.push(Missing { table: monitor.table.clone(), column: None });
                    absent(&monitor.table)
                }
            };
            for index in &monitor.indexes {
                let key = match index {
                    IndexSpec::Columns(columns) => {
                        IndexKey::columns(&table, &columns.iter().map(String::as_str).collect::<Vec<_>>())
                    }
                    IndexSpec::MapKey { column, key } => IndexKey::map_key(&table, column, key),
                };
                plan.indexes.extend(key.map(|key| (position, key)));
            }
            plan.tables.push(Arc::new(table));
        }
        plan
    }

    /// Whether the server has this monitored table.
    pub(crate) fn is_present(&self, table: &str) -> bool {
        self.tables.iter().zip(&self.present).any(|(known, present)| *present && known.name == table)
    }

    /// The `<monitor-requests>` of all tables that exist.
    pub(crate) fn requests(&self, conditions: &[Option<Vec<Condition>>], conditional: bool) -> Value {
        let tables = self.tables.iter().enumerate().filter(|(position, _)| self.present[*position]);
        let requests: BTreeMap<&str, Value> = tables
            .map(|(position, table)| {
                let columns: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
                let request = match conditions.get(position) {
                    Some(Some(conditions)) if conditional => json!([{ "columns": columns, "where": conditions }]),
                    _ => json!([{ "columns": columns }]),
                };
                (table.name.as_str(), request)
            })
            .collect();
        json!(requests)
    }
}

fn absent(name: &str) -> TableSchema {
    TableSchema { name: name.to_owned(), columns: Vec::new(), indexes: Vec::new(), is_root: true, max_rows: None }
}

/// The table with only the requested columns.
fn restricted(table: &TableSchema, monitor: &TableMonitor, missing: &mut Vec<Missing>) -> TableSchema {
    let mut kept = table.clone();
    if let Some(columns) = &monitor.columns {
        for column in columns.iter().filter(|column| table.column(column).is_none()) {
            missing.push(Missing { table: table.name.clone(), column: Some(column.clone()) });
        }
        kept.columns.retain(|column| columns.contains(&column.name));
    }
    kept.columns.truncate(MAX_COLUMNS);
    let names = |index: &Vec<usize>| -> Option<Vec<usize>> {
        index.iter().map(|column| kept.column_index(&table.columns[*column].name)).collect()
    };
    kept.indexes = table.indexes.iter().filter_map(names).collect();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tables_and_columns_are_reported_and_skipped() {
        let schema =
            DatabaseSchema::parse(&json!({"name": "T", "tables": {"A": {"indexes": [["name"], ["b"]], "columns": {
            "name": {"type": "string"}, "b": {"type": "integer"}}}}}))
            .unwrap();
        let monitors = [
            TableMonitor::new("A").columns(&["name", "tier"]).index(&["name"]).index(&["tier"]),
            TableMonitor::new("B"),
        ];
        let plan = Plan::new(&schema, &monitors);
        let missing: Vec<String> = plan.missing.iter().map(ToString::to_string).collect();
        assert_eq!(missing, ["A.tier", "B"]);
        assert_eq!(plan.tables[0].columns.len(), 1);
        // An index on a column that is not monitored is skipped.
        assert_eq!((plan.tables[0].indexes.len(), plan.indexes.len()), (1, 1));
        assert_eq!(plan.requests(&[None, None], true), json!({"A": [{"columns": ["name"]}]}));
    }
}
