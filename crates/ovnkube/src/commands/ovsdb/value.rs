//! Values as text and as JSON.

use std::collections::BTreeSet;

use ovsdb::datum::{Atom, Datum};
use ovsdb::replica::RowView;
use ovsdb::schema::ColumnType;
use serde_json::{Map, Value};

use super::connect::UUID;

/// A value with more characters than this is long.
const LONG: usize = 60;

/// JSON whose form depends only on the column: a set is an array, a map an object, an optional value it or null.
pub(in crate::commands) fn json(datum: &Datum, kind: &ColumnType) -> Value {
    if kind.is_map() {
        let pairs = datum.pairs().iter().map(|(key, value)| (key.to_string(), json_atom(value)));
        return Value::Object(pairs.collect());
    }
    let mut atoms = datum.atoms().map(|atom| json_atom(&atom));
    if kind.max == Some(1) { atoms.next().unwrap_or(Value::Null) } else { atoms.collect() }
}

fn json_atom(atom: &Atom) -> Value {
    match atom {
        Atom::Integer(value) => (*value).into(),
        Atom::Real(value) => (*value).into(),
        Atom::Boolean(value) => (*value).into(),
        Atom::String(_) | Atom::Uuid(_) | Atom::Named(_) => atom.to_string().into(),
    }
}

/// Columns of a row as a JSON object.
pub(super) fn json_row(row: &RowView<'_>, columns: &[&str]) -> Map<String, Value> {
    let value = |column: &str| {
        if column == UUID {
            return Some(Value::String(row.uuid.to_string()));
        }
        Some(json(&*row.get(column)?, &row.schema.column(column)?.kind))
    };
    columns.iter().filter_map(|column| Some(((*column).to_owned(), value(column)?))).collect()
}

/// A column as text; empty for an empty value.
pub(super) fn text(row: &RowView<'_>, column: &str) -> String {
    match row.get(column) {
        _ if column == UUID => row.uuid.to_string(),
        Some(datum) if !datum.is_empty() => datum.to_string(),
        _ => String::new(),
    }
}

/// A change of a value. Of a long set or map, only removed and added members.
pub(in crate::commands) fn change(old: &Datum, new: &Datum) -> String {
    let (before, after) = (old.to_string(), new.to_string());
    let long = before.chars().count() > LONG || after.chars().count() > LONG;
    if !long || (old.len() <= 1 && new.len() <= 1) {
        return format!("{} → {}", quoted(old, before), quoted(new, after));
    }
    let parts = |datum: &Datum| -> BTreeSet<String> {
        if let Datum::Map(pairs) = datum {
            return pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
        }
        datum.atoms().map(|atom| atom.to_string()).collect()
    };
    let (old, new) = (parts(old), parts(new));
    let list = |parts: Vec<&String>| parts.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let (gone, come) = (old.difference(&new).collect::<Vec<_>>(), new.difference(&old).collect::<Vec<_>>());
    match (gone.is_empty(), come.is_empty()) {
        (true, _) => format!("added [{}]", list(come)),
        (_, true) => format!("removed [{}]", list(gone)),
        _ => format!("removed [{}], added [{}]", list(gone), list(come)),
    }
}

/// Quotes an empty string, which would not be visible.
fn quoted(datum: &Datum, text: String) -> String {
    if text.is_empty() && matches!(datum, Datum::One(_)) { "\"\"".to_owned() } else { text }
}

/// Escapes control characters, so that the text is one line and harmless on a terminal.
pub(in crate::commands) fn escape(text: &str) -> String {
    let show = |c: char| -> String { if c.is_control() { c.escape_default().collect() } else { c.to_string() } };
    text.chars().map(show).collect()
}

#[cfg(test)]
mod tests {
    use ovsdb::datum::AtomicType;
    use ovsdb::schema::BaseType;
    use serde_json::json;

    use super::*;

    fn strings(texts: &[&str]) -> Datum {
        Datum::set(texts.iter().map(|text| Atom::String((*text).into())))
    }

    #[test]
    fn the_form_of_json_depends_only_on_the_column() {
        let of = |min, max| ColumnType { min, max, ..ColumnType::scalar(AtomicType::String) };
        for (kind, texts, expected) in [
            (of(1, Some(1)), &["a"][..], json!("a")),
            (of(0, Some(1)), &["a"], json!("a")),
            (of(0, Some(1)), &[], json!(null)),
            (of(0, None), &["a"], json!(["a"])),
            (of(0, None), &[], json!([])),
        ] {
            assert_eq!(super::json(&strings(texts), &kind), expected);
        }
        let map = ColumnType { value: Some(BaseType::of(AtomicType::Integer)), ..of(0, None) };
        let datum = Datum::map([(Atom::String("a".into()), Atom::Integer(7))]);
        assert_eq!(super::json(&datum, &map), json!({"a": 7}));
    }

    #[test]
    fn a_long_change_is_shown_as_a_difference() {
        assert_eq!(change(&strings(&["a"]), &strings(&["a", "b"])), "a → [a, b]");
        assert_eq!(change(&strings(&[""]), &strings(&["x"])), "\"\" → x");
        let long = "0123456789".repeat(7);
        assert_eq!(change(&strings(&["a", &long]), &strings(&[&long, "b"])), "removed [a], added [b]");
        assert_eq!(change(&strings(&[&long]), &strings(&[&long, "b"])), "added [b]");
    }
}
