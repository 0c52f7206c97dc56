//! Deserializes monitor updates of all three kinds directly from text.

use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use crate::datum::Datum;
use crate::read::{DatumSeed, Shared};
use crate::replica::Row;
use crate::schema::TableSchema;
use crate::uuid::Uuid;

/// Values by column index.
pub(crate) type Fields = Vec<(usize, Datum)>;

/// How a row differs from the last state.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RowUpdate {
    /// Inserted or initial row, in its final form: a large dump is not held twice.
    Whole(Row),
    /// Differences of the changed columns.
    Modified(Fields),
    /// The row is gone; its values are not repeated.
    Deleted,
}

/// The changed rows of a monitored table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TableUpdate {
    /// Index of the table among the monitored ones.
    pub(crate) table: usize,
    pub(crate) rows: Vec<(Uuid, RowUpdate)>,
}

/// Deserializes `<table-updates>` or `<table-updates2>`, distinguished per row.
pub(crate) fn read_updates(
    json: &str,
    tables: &[Arc<TableSchema>],
    shared: &mut Shared,
) -> Result<Vec<TableUpdate>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let updates = TablesSeed { tables, shared }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(updates)
}

/// Compares names without copying, except those with escapes.
struct Name<F>(F);

impl<'de, T, F: FnOnce(&str) -> Option<T>> DeserializeSeed<'de> for Name<F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<T, F: FnOnce(&str) -> Option<T>> Visitor<'_> for Name<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a known name")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<T, E> {
        (self.0)(name).ok_or_else(|| E::custom(format!("{name:?} was not requested")))
    }
}

struct TablesSeed<'a> {
    tables: &'a [Arc<TableSchema>],
    shared: &'a mut Shared,
}

impl<'de> DeserializeSeed<'de> for TablesSeed<'_> {
    type Value = Vec<TableUpdate>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TablesSeed<'_> {
    type Value = Vec<TableUpdate>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("updates by table")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut updates = Vec::new();
        let tables = self.tables;
        while let Some(table) =
            map.next_key_seed(Name(|name: &str| tables.iter().position(|table| table.name == name)))?
        {
            let rows = map.next_value_seed(RowsSeed { table: &tables[table], shared: &mut *self.shared })?;
            updates.push(TableUpdate { table, rows });
        }
        Ok(updates)
    }
}

struct RowsSeed<'a> {
    table: &'a TableSchema,
    shared: &'a mut Shared,
}

impl<'de> DeserializeSeed<'de> for RowsSeed<'_> {
    type Value = Vec<(Uuid, RowUpdate)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RowsSeed<'_> {
    type Value = Vec<(Uuid, RowUpdate)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "updates of {} by row", self.table.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut rows = Vec::new();
        while let Some(uuid) = map.next_key_seed(Name(Uuid::parse))? {
            let update = map.next_value_seed(RowSeed { table: self.table, shared: &mut *self.shared })?;
            rows.push((uuid, update));
        }
        Ok(rows)
    }
}

/// Update of one row: one of `initial`, `insert`, `modify`, `delete`, or `old` and `new`.
struct RowSeed<'a> {
    table: &'a TableSchema,
    shared: &'a mut Shared,
}

#[derive(Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum What {
    Initial,
    Insert,
    Modify,
    Delete,
    Old,
    New,
}

impl<'de> DeserializeSeed<'de> for RowSeed<'_> {
    type Value = RowUpdate;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<RowUpdate, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RowSeed<'_> {
    type Value = RowUpdate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an update of a row of {}", self.table.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RowUpdate, A::Error> {
        let mut update = None;
        while let Some(what) = map.next_key::<What>()? {
            match what {
                What::Old => {
                    map.next_value::<IgnoredAny>()?;
                    // `old` without `new` is a deletion.
                    update.get_or_insert(RowUpdate::Deleted);
                }
                What::Delete => {
                    map.next_value::<IgnoredAny>()?;
                    update = Some(RowUpdate::Deleted);
                }
                What::Initial | What::Insert | What::New => {
                    let fields = FieldsSeed { table: self.table, shared: &mut *self.shared };
                    map.next_value_seed(fields)?;
                    update = Some(RowUpdate::Whole(Row::from_fields(&mut self.shared.fields, self.table)));
                }
                What::Modify => {
                    let fields = FieldsSeed { table: self.table, shared: &mut *self.shared };
                    map.next_value_seed(fields)?;
                    update = Some(RowUpdate::Modified(std::mem::take(&mut self.shared.fields)));
                }
            }
        }
        update.ok_or_else(|| A::Error::custom("the update of a row is empty"))
    }
}

/// Deserializes values into `shared.fields`, which is reused for every row.
struct FieldsSeed<'a> {
    table: &'a TableSchema,
    shared: &'a mut Shared,
}

impl<'de> DeserializeSeed<'de> for FieldsSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for FieldsSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "values of a row of {}", self.table.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { table, shared } = self;
        shared.fields.clear();
        while let Some(column) = map.next_key_seed(Name(|name: &str| table.column_index(name)))? {
            let kind = &table.columns[column].kind;
            let datum = map
                .next_value_seed(DatumSeed { kind, shared: &mut *shared })
                .map_err(|error| A::Error::custom(format!("{}.{}: {error}", table.name, table.columns[column].name)))?;
            shared.fields.push((column, datum));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datum::Atom;
    use crate::schema::DatabaseSchema;
    use serde_json::json;

    fn tables() -> Vec<Arc<TableSchema>> {
        let json = json!({"name": "T", "tables": {"Port": {"columns": {
            "name": {"type": "string"},
            "tags": {"type": {"key": "integer", "min": 0, "max": "unlimited"}}}}}});
        DatabaseSchema::parse(&json).unwrap().tables.into_values().map(Arc::new).collect()
    }

    fn read(json: &str) -> Result<Vec<TableUpdate>, serde_json::Error> {
        read_updates(json, &tables(), &mut Shared::new())
    }

    #[test]
    fn all_kinds_of_updates_are_deserialized() {
        let uuid = Uuid::from_bytes([3; 16]);
        let one = |what: &str| read(&format!(r#"{{"Port":{{"{uuid}":{what}}}}}"#)).unwrap().remove(0).rows.remove(0).1;
        let name = || Fields::from([(0, Datum::One(Atom::String("a".into())))]);
        let whole = || RowUpdate::Whole(Row::from_fields(&mut name(), &tables()[0]));
        assert_eq!(one(r#"{"initial":{"name":"a"}}"#), whole());
        assert_eq!(one(r#"{"insert":{"name":"a"}}"#), whole());
        assert_eq!(one(r#"{"modify":{"name":"a"}}"#), RowUpdate::Modified(name()));
        assert_eq!(one(r#"{"delete":null}"#), RowUpdate::Deleted);
        assert_eq!(one(r#"{"old":{"name":"b"},"new":{"name":"a"}}"#), whole());
        assert_eq!(one(r#"{"new":{"name":"a"},"old":{"name":"b"}}"#), whole());
        assert_eq!(one(r#"{"old":{"name":"a"}}"#), RowUpdate::Deleted);
    }

    #[test]
    fn unrequested_names_and_wrong_types_are_rejected_by_name() {
        let uuid = Uuid::from_bytes([3; 16]);
        for (json, word) in [
            (r#"{"Bridge":{}}"#.to_owned(), "Bridge"),
            (r#"{"Port":{"x":{"delete":null}}}"#.to_owned(), "x"),
            (format!(r#"{{"Port":{{"{uuid}":{{"insert":{{"colour":1}}}}}}}}"#), "colour"),
            (format!(r#"{{"Port":{{"{uuid}":{{"insert":{{"name":1}}}}}}}}"#), "Port.name"),
            (format!(r#"{{"Port":{{"{uuid}":{{}}}}}}"#), "the update of a row is empty"),
            (format!(r#"{{"Port":{{"{uuid}":{{"rename":{{}}}}}}}}"#), "rename"),
        ] {
            let message = read(&json).unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        }
    }
}
