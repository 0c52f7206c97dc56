//! Reads a spec field by field, so that errors name the field.

use serde_json::{Map, Value};

/// None if missing or null.
pub(super) fn get<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    value.get(key).filter(|value| !value.is_null())
}

/// The fields of a JSON object.
pub(super) fn object<'a>(value: &'a Value, path: &str) -> Result<&'a Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("{path}: not an object"))
}

/// Empty if missing or null.
pub(super) fn list<'a>(value: &'a Value, key: &str, path: &str) -> Result<&'a [Value], String> {
    match get(value, key) {
        None => Ok(&[]),
        Some(list) => list.as_array().map(Vec::as_slice).ok_or_else(|| format!("{path}.{key}: not a list")),
    }
}

/// A JSON string.
pub(super) fn text<'a>(value: &'a Value, path: &str) -> Result<&'a str, String> {
    value.as_str().ok_or_else(|| format!("{path}: not a string"))
}

/// A string that must be there.
pub(super) fn required_text<'a>(value: &'a Value, key: &str, path: &str) -> Result<&'a str, String> {
    let path = format!("{path}.{key}");
    text(get(value, key).ok_or_else(|| format!("{path}: missing"))?, &path)
}

/// A port, never 0.
pub(super) fn port(value: &Value, path: &str) -> Result<u16, String> {
    let number = value.as_i64().ok_or_else(|| format!("{path}: not a port"))?;
    let port = u16::try_from(number).ok().filter(|port| *port > 0);
    port.ok_or_else(|| format!("{path}: {number} is not a port (1 to 65535)"))
}

/// Refuses unknown fields: a rule with one must not be enforced in part.
pub(super) fn only(value: &Value, known: &[&str], path: &str) -> Result<(), String> {
    match object(value, path)?.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("{path}.{key}: unknown field")),
        None => Ok(()),
    }
}
