//! Rows of the databases as comparable texts.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::cluster::Cluster;

/// The northbound tables that the controller writes, without NB_Global.
pub(crate) fn tables() -> impl Iterator<Item = &'static str> {
    topology::plan::TABLES.into_iter().filter(|table| *table != "NB_Global")
}

/// A value as a stable text: members of sets and maps sorted, separated by spaces.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(pair) => match (pair[0].as_str(), &pair[1]) {
            (Some("set"), Value::Array(members)) => {
                members.iter().map(text).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ")
            }
            (Some("map"), Value::Array(members)) => {
                let pairs = members.iter().map(|pair| format!("{}={}", text(&pair[0]), text(&pair[1])));
                pairs.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ")
            }
            (_, inner) => text(inner),
        },
        other => other.to_string(),
    }
}

impl Cluster {
    /// The rows of a northbound table.
    pub(crate) fn raw(&self, table: &str) -> Vec<Map<String, Value>> {
        let listing = self.lab.nbctl(&["--no-leader-only", "--format=json", "list", table]).unwrap();
        objects(&serde_json::from_str(&listing).unwrap())
    }

    /// The rows of a southbound table.
    pub(crate) fn raw_southbound(&self, table: &str) -> Vec<Map<String, Value>> {
        let listing = self.lab.sbctl(&["--no-leader-only", "--format=json", "list", table]).unwrap();
        objects(&serde_json::from_str(&listing).unwrap())
    }

    /// Some columns of all rows of a table.
    pub(crate) fn columns(&self, table: &str, columns: &[&str]) -> BTreeSet<Vec<String>> {
        let rows = self.raw(table);
        rows.iter().map(|row| columns.iter().map(|column| text(&row[*column])).collect()).collect()
    }

    /// The row with a name.
    pub(crate) fn row(&self, table: &str, name: &str) -> Option<Map<String, Value>> {
        self.raw(table).into_iter().find(|row| row["name"] == name)
    }

    /// One column of the row with a name.
    pub(crate) fn value(&self, table: &str, name: &str, column: &str) -> Option<String> {
        self.row(table, name).map(|row| text(&row[column]))
    }

    /// Some columns of the rows that a reference set refers to.
    pub(crate) fn members(
        &self,
        table: &str,
        name: &str,
        column: &str,
        of: &str,
        columns: &[&str],
    ) -> BTreeSet<Vec<String>> {
        let held = self.value(table, name, column).unwrap_or_default();
        let held: BTreeSet<&str> = held.split(' ').collect();
        let rows = self.raw(of).into_iter().filter(|row| held.contains(text(&row["_uuid"]).as_str()));
        rows.map(|row| columns.iter().map(|column| text(&row[*column])).collect()).collect()
    }

    /// All rows by table and UUID, without columns that OVN writes.
    pub(crate) fn all_rows(&self) -> BTreeMap<(String, String), String> {
        let remote = self.lab.record().endpoints.northbound.unwrap();
        let control = self.lab.machine("control").unwrap();
        let dump = control.run(&["ovsdb-client", "--format=json", "dump", &remote, "OVN_Northbound"]).unwrap();
        let mut all = BTreeMap::new();
        for listing in serde_json::Deserializer::from_str(&dump).into_iter::<Value>() {
            let listing = listing.unwrap();
            let table = listing["caption"].as_str().unwrap().trim_end_matches(" table").to_owned();
            if !tables().any(|known| known == table) {
                continue;
            }
            for mut row in objects(&listing) {
                row.retain(|column, _| !["_version", "up", "status", "dynamic_addresses"].contains(&column.as_str()));
                let contents: Vec<String> = row.iter().map(|(key, value)| format!("{key}: {}", text(value))).collect();
                all.insert((table.clone(), text(&row["_uuid"])), contents.join(", "));
            }
        }
        all
    }

    /// UUIDs by name.
    pub(crate) fn identities(&self, table: &str) -> BTreeMap<String, String> {
        self.raw(table).iter().map(|row| (text(&row["name"]), text(&row["_uuid"]))).collect()
    }

    /// Tunnel keys by the datapath's `external_ids`.
    pub(crate) fn tunnel_keys(&self) -> BTreeMap<String, String> {
        let rows = self.raw_southbound("Datapath_Binding");
        rows.iter().map(|row| (text(&row["external_ids"]), text(&row["tunnel_key"]))).collect()
    }

    /// A transaction of another client on the northbound database.
    pub(crate) fn transact(&self, operations: &[Value]) {
        let remote = self.lab.record().endpoints.northbound.unwrap();
        let mut request = vec![json!("OVN_Northbound")];
        request.extend(operations.iter().cloned());
        let control = self.lab.machine("control").unwrap();
        let answer = control.run(&["ovsdb-client", "transact", &remote, &Value::from(request).to_string()]).unwrap();
        assert!(!answer.contains("\"error\""), "{answer}");
    }
}

fn objects(listing: &Value) -> Vec<Map<String, Value>> {
    let headings: Vec<&str> = listing["headings"].as_array().unwrap().iter().map(|h| h.as_str().unwrap()).collect();
    let row = |row: &Value| {
        headings.iter().zip(row.as_array().unwrap()).map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
    };
    listing["data"].as_array().unwrap().iter().map(row).collect()
}
