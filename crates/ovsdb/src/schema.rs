//! Schema of a database: tables, columns, and types and constraints of their values.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::datum::{Atom, AtomicType, Datum};
use crate::read;

/// Schema of a database, as `get_schema` returns it.
#[derive(Debug, Clone, PartialEq)]
pub struct DatabaseSchema {
    /// Such as `OVN_Northbound`.
    pub name: String,
    /// Such as `7.11.0`.
    pub version: String,
    /// By table name.
    pub tables: BTreeMap<String, TableSchema>,
}

/// Columns and constraints of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct TableSchema {
    /// Such as `Logical_Switch`.
    pub name: String,
    /// Sorted by name; rows refer to columns by their index here.
    pub columns: Vec<ColumnSchema>,
    /// Each a combination of columns whose values are unique.
    pub indexes: Vec<Vec<usize>>,
    /// Whether rows exist without strong references to them.
    pub is_root: bool,
    /// Largest number of rows.
    pub max_rows: Option<u64>,
}

/// Type and behaviour of a column.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnSchema {
    /// Such as `external_ids`.
    pub name: String,
    /// Type and constraints of its values.
    pub kind: ColumnType,
    /// Whether its values are lost when the server restarts.
    pub ephemeral: bool,
    /// Whether it may change after the row was inserted.
    pub mutable: bool,
}

/// Type of a column: a set or a map of atoms, with bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnType {
    /// Atoms of a set, or keys of a map.
    pub key: BaseType,
    /// Values of a map; none for a set.
    pub value: Option<BaseType>,
    /// Smallest number of atoms or pairs: 0 or 1.
    pub min: u64,
    /// Largest number of atoms or pairs; `None`: unlimited.
    pub max: Option<u64>,
}

/// Type and constraints of an atom.
#[derive(Debug, Clone, PartialEq)]
pub struct BaseType {
    /// What a value is, before the constraints.
    pub atomic: AtomicType,
    /// Allowed values; all if `None`.
    pub choices: Option<Datum>,
    /// Smallest integer or real.
    pub min: Option<f64>,
    /// Largest integer or real.
    pub max: Option<f64>,
    /// Smallest length of a string.
    pub min_length: Option<u64>,
    /// Largest length of a string.
    pub max_length: Option<u64>,
    /// Target of a uuid.
    pub refers_to: Option<Reference>,
}

/// Where the uuids of a column lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Table that has the rows.
    pub table: String,
    /// A strong reference keeps its row; a weak one is removed with the row.
    pub strong: bool,
}

/// A schema that violates RFC 7047.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid schema at {path}: {problem}")]
pub struct SchemaError {
    path: String,
    problem: String,
}

fn wrong(path: impl fmt::Display, problem: impl Into<String>) -> SchemaError {
    SchemaError { path: path.to_string(), problem: problem.into() }
}

impl DatabaseSchema {
    /// Parses the JSON of `get_schema` or of a `.ovsschema` file.
    pub fn parse(json: &Value) -> Result<Self, SchemaError> {
        let text = |key: &str| json.get(key).and_then(Value::as_str).map(String::from);
        let name = text("name").ok_or_else(|| wrong("the top", "no name"))?;
        let version = text("version").unwrap_or_default();
        let tables = json.get("tables").and_then(Value::as_object).ok_or_else(|| wrong(&name, "no tables"))?;
        // If no table has `isRoot`, all are roots: RFC 7047's rule for old schemas.
        let roots = tables.values().any(|table| table.get("isRoot").and_then(Value::as_bool) == Some(true));
        let tables = tables
            .iter()
            .map(|(name, table)| Ok((name.clone(), TableSchema::parse(name, table, roots)?)))
            .collect::<Result<_, SchemaError>>()?;
        Ok(Self { name, version, tables })
    }
}

impl TableSchema {
    fn parse(name: &str, json: &Value, roots: bool) -> Result<Self, SchemaError> {
        let columns = json.get("columns").and_then(Value::as_object).ok_or_else(|| wrong(name, "no columns"))?;
        let mut columns: Vec<ColumnSchema> =
            columns.iter().map(|(column, json)| ColumnSchema::parse(name, column, json)).collect::<Result<_, _>>()?;
        columns.sort_by(|one, two| one.name.cmp(&two.name));
        let mut table = Self {
            name: name.to_owned(),
            columns,
            indexes: Vec::new(),
            is_root: !roots || json.get("isRoot").and_then(Value::as_bool).unwrap_or(false),
            max_rows: json.get("maxRows").and_then(Value::as_u64),
        };
        for index in json.get("indexes").and_then(Value::as_array).into_iter().flatten() {
            let names = index.as_array().ok_or_else(|| wrong(name, "an index is not a list of columns"))?;
            let columns = names
                .iter()
                .map(|column| column.as_str().and_then(|column| table.column_index(column)))
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| wrong(name, "an index has an unknown column"))?;
            table.indexes.push(columns);
        }
        Ok(table)
    }

    /// Index into [`TableSchema::columns`]; `None` if there is no such column.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.binary_search_by(|column| column.name.as_str().cmp(name)).ok()
    }

    /// Looks a column up; `None` if the server lacks it.
    pub fn column(&self, name: &str) -> Option<&ColumnSchema> {
        self.column_index(name).map(|index| &self.columns[index])
    }
}

impl ColumnSchema {
    fn parse(table: &str, name: &str, json: &Value) -> Result<Self, SchemaError> {
        let path = format!("{table}.{name}");
        let kind = json.get("type").ok_or_else(|| wrong(&path, "no type"))?;
        let flag = |key: &str, usual: bool| json.get(key).and_then(Value::as_bool).unwrap_or(usual);
        Ok(Self {
            name: name.to_owned(),
            kind: ColumnType::parse(&path, kind)?,
            ephemeral: flag("ephemeral", false),
            mutable: flag("mutable", true),
        })
    }
}

impl ColumnType {
    /// Exactly one unconstrained atom.
    pub fn scalar(atomic: AtomicType) -> Self {
        Self { key: BaseType::of(atomic), value: None, min: 1, max: Some(1) }
    }

    fn parse(path: &str, json: &Value) -> Result<Self, SchemaError> {
        let Some(object) = json.as_object() else {
            return Ok(Self { key: BaseType::parse(path, json)?, value: None, min: 1, max: Some(1) });
        };
        let key = object.get("key").ok_or_else(|| wrong(path, "no key in the type"))?;
        let value = object.get("value").map(|value| BaseType::parse(path, value)).transpose()?;
        let min = object.get("min").map_or(Some(1), Value::as_u64).filter(|min| *min <= 1);
        let max = match object.get("max") {
            None => Some(1),
            Some(Value::String(word)) if word == "unlimited" => None,
            Some(number) => Some(number.as_u64().filter(|max| *max > 0).ok_or_else(|| wrong(path, "invalid max"))?),
        };
        Ok(Self {
            key: BaseType::parse(path, key)?,
            value,
            min: min.ok_or_else(|| wrong(path, "min is neither 0 nor 1"))?,
            max,
        })
    }

    /// Whether values are maps.
    pub fn is_map(&self) -> bool {
        self.value.is_some()
    }

    /// Whether values are exactly one atom.
    pub fn is_scalar(&self) -> bool {
        self.value.is_none() && self.min == 1 && self.max == Some(1)
    }

    /// What an insert without the column stores: empty, zero, false, or the all-zero UUID.
    pub fn default_datum(&self) -> Datum {
        match &self.value {
            None if self.min == 0 => Datum::Empty,
            None => Datum::One(self.key.default_atom()),
            Some(_) if self.min == 0 => Datum::Map([].into()),
            Some(value) => Datum::map([(self.key.default_atom(), value.default_atom())]),
        }
    }

    /// Whether a value is the default.
    pub fn is_default(&self, datum: &Datum) -> bool {
        match datum {
            Datum::Empty => self.min == 0,
            Datum::Map(pairs) if pairs.is_empty() => self.min == 0,
            Datum::One(atom) => self.min == 1 && self.value.is_none() && *atom == self.key.default_atom(),
            Datum::Map(_) => self.min == 1 && *datum == self.default_datum(),
            Datum::Set(_) | Datum::Uuids(_) => false,
        }
    }
}

impl BaseType {
    /// An unconstrained atom.
    pub fn of(atomic: AtomicType) -> Self {
        Self { atomic, choices: None, min: None, max: None, min_length: None, max_length: None, refers_to: None }
    }

    fn default_atom(&self) -> Atom {
        self.atomic.default_atom()
    }

    fn parse(path: &str, json: &Value) -> Result<Self, SchemaError> {
        let kind = |name: &Value| {
            let name = name.as_str().unwrap_or_default();
            AtomicType::parse(name).ok_or_else(|| wrong(path, format!("unknown type {name:?}")))
        };
        if json.is_string() {
            return Ok(Self::of(kind(json)?));
        }
        let mut base = Self::of(kind(json.get("type").unwrap_or(&Value::Null))?);
        let number = |keys: [&str; 2]| keys.iter().find_map(|key| json.get(key)).and_then(Value::as_f64);
        base.min = number(["minInteger", "minReal"]);
        base.max = number(["maxInteger", "maxReal"]);
        base.min_length = json.get("minLength").and_then(Value::as_u64);
        base.max_length = json.get("maxLength").and_then(Value::as_u64);
        if let Some(choices) = json.get("enum") {
            let many = ColumnType { key: Self::of(base.atomic), value: None, min: 0, max: None };
            let choices = read::datum(choices, &many).map_err(|error| wrong(path, format!("invalid enum: {error}")))?;
            base.choices = Some(choices);
        }
        if let Some(table) = json.get("refTable").and_then(Value::as_str) {
            let strong = json.get("refType").and_then(Value::as_str) != Some("weak");
            base.refers_to = Some(Reference { table: table.to_owned(), strong });
        }
        Ok(base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_valid_schema_is_parsed() {
        let schema = DatabaseSchema::parse(&json!({
            "name": "Test", "version": "1.0.0", "cksum": "1 2",
            "tables": {
                "Root": {"isRoot": true, "maxRows": 3, "indexes": [["name"]], "columns": {
                    "name": {"type": "string", "mutable": false},
                    "kids": {"type": {"key": {"type": "uuid", "refTable": "Kid"}, "min": 0, "max": "unlimited"}},
                    "ids": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}, "ephemeral": true}}},
                "Kid": {"columns": {"colour": {"type": {"key": {"type": "string", "enum": ["set", ["red", "blue"]]}}}}}
            }
        }))
        .unwrap();
        let root = &schema.tables["Root"];
        assert!(root.is_root && !schema.tables["Kid"].is_root);
        assert_eq!(root.indexes, [[root.column_index("name").unwrap()]]);
        assert!(!root.column("name").unwrap().mutable && root.column("ids").unwrap().ephemeral);
        assert!(root.column("kids").unwrap().kind.key.refers_to.as_ref().unwrap().strong);
        assert_eq!(root.column("ids").unwrap().kind.default_datum(), Datum::map([]));
        assert_eq!(schema.tables["Kid"].column("colour").unwrap().kind.key.choices.as_ref().unwrap().len(), 2);
    }

    #[test]
    fn an_invalid_schema_is_rejected_with_its_location() {
        for (column, word) in [
            (json!({}), "no type"),
            (json!({"type": "text"}), "text"),
            (json!({"type": {"min": 0}}), "no key"),
            (json!({"type": {"key": "string", "min": 2}}), "min"),
            (json!({"type": {"key": "string", "max": "many"}}), "max"),
        ] {
            let json = json!({"name": "T", "tables": {"A": {"columns": {"b": column}}}});
            let message = DatabaseSchema::parse(&json).unwrap_err().to_string();
            assert!(message.contains("A.b") && message.contains(word), "{message}");
        }
    }
}
