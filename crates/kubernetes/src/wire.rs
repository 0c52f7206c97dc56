//! Envelopes and metadata of the server's JSON, borrowed from the received bytes.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Namespace and name: unique among the objects of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Identity {
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// Distinguishes an object from a later one with the same name.
    pub uid: String,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// One event of a watch.
#[derive(Debug, Deserialize)]
pub(crate) struct Event<'a> {
    #[serde(rename = "type", borrow)]
    pub(crate) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) object: &'a RawValue,
}

/// The object of an ADDED or MODIFIED event, if the line has exactly the usual form: found without parsing the object,
/// which saves a third of the work per event. If the result cannot be parsed, parse the [`Event`].
pub(crate) fn upserted(line: &[u8]) -> Option<&str> {
    let line = std::str::from_utf8(line).ok()?;
    [r#"{"type":"MODIFIED","object":{"#, r#"{"type":"ADDED","object":{"#]
        .iter()
        .find(|prefix| line.starts_with(**prefix))
        .and_then(|prefix| line[prefix.len() - 1..].strip_suffix('}'))
}

/// One page of a list. Objects stay unparsed, so that a malformed one does not affect the others.
#[derive(Debug, Deserialize)]
pub(crate) struct Page<'a> {
    #[serde(borrow)]
    pub(crate) metadata: PageMetadata<'a>,
    #[serde(borrow, default)]
    pub(crate) items: Option<Vec<&'a RawValue>>,
}

/// Version of the list, and continue token of the next page.
#[derive(Debug, Deserialize)]
pub(crate) struct PageMetadata<'a> {
    #[serde(rename = "resourceVersion", borrow, default)]
    pub(crate) version: Cow<'a, str>,
    #[serde(rename = "continue", borrow, default)]
    pub(crate) next: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
}

/// Identity of an object; empty fields if missing.
pub(crate) fn identity(object: &str) -> Identity {
    serde_json::from_str::<Named<'_>>(object)
        .map(|Named { metadata }| Identity {
            namespace: metadata.namespace.into_owned(),
            name: metadata.name.into_owned(),
            uid: metadata.uid.into_owned(),
        })
        .unwrap_or_default()
}

/// `metadata.resourceVersion`. Parsing stops as soon as it is found, usually near the start: this runs for every event.
pub(crate) fn version(object: &str) -> Option<&str> {
    let mut found = None;
    let mut reader = serde_json::Deserializer::from_str(object);
    // serde treats stopping early as an error; the result counts.
    let _ = Find { path: &["metadata", "resourceVersion"], found: &mut found }.deserialize(&mut reader);
    found
}

/// Finds a string by its path.
struct Find<'found, 'text> {
    path: &'static [&'static str],
    found: &'found mut Option<&'text str>,
}

impl<'text> DeserializeSeed<'text> for Find<'_, 'text> {
    type Value = ();

    fn deserialize<D: Deserializer<'text>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.path.is_empty() {
            *self.found = Some(<&str>::deserialize(deserializer)?);
            return Ok(());
        }
        deserializer.deserialize_map(self)
    }
}

impl<'text> Visitor<'text> for Find<'_, 'text> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'text>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((wanted, rest)) = self.path.split_first() else { return Err(A::Error::custom("no path")) };
        while let Some(is_wanted) = map.next_key_seed(Is(wanted))? {
            if is_wanted {
                map.next_value_seed(Find { path: rest, found: &mut *self.found })?;
                return Err(A::Error::custom("found"));
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// Compares a key without copying it.
struct Is(&'static str);

impl<'text> DeserializeSeed<'text> for Is {
    type Value = bool;

    fn deserialize<D: Deserializer<'text>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Is {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_found_in_any_order_of_fields() {
        let typed =
            r#"{"kind":"Pod","metadata":{"name":"a","namespace":"b","uid":"c","resourceVersion":"7"},"spec":{}}"#;
        let sorted = r#"{"a":[{"metadata":{"resourceVersion":"0"}}],"metadata":{"annotations":{"resourceVersion":"1"},
            "name":"a","namespace":"b","resourceVersion":"7","uid":"c"}}"#;
        let expected = Identity { namespace: "b".into(), name: "a".into(), uid: "c".into() };
        for object in [typed, sorted] {
            assert_eq!(version(object), Some("7"));
            assert_eq!(identity(object), expected);
        }
    }

    #[test]
    fn missing_or_invalid_metadata_is_empty() {
        for object in ["", "{", "[]", "7", "null", r#"{"metadata":null}"#, r#"{"metadata":{}}"#, r#"{"metadata":[]}"#] {
            assert_eq!(version(object), None, "{object}");
            assert_eq!(identity(object), Identity::default(), "{object}");
        }
        assert_eq!(version(r#"{"metadata":{"resourceVersion":7}}"#), None);
        assert_eq!(identity(r#"{"metadata":{"name":"node-1"}}"#).to_string(), "node-1");
    }

    #[test]
    fn the_object_of_a_usual_line_is_found_without_parsing() {
        assert_eq!(upserted(br#"{"type":"ADDED","object":{"x":[1]}}"#), Some(r#"{"x":[1]}"#));
        assert_eq!(upserted(br#"{"type":"MODIFIED","object":{}}"#), Some("{}"));
        for unusual in [
            r#"{"type":"DELETED","object":{}}"#,
            r#"{"type":"ADDED","object":7}"#,
            r#"{"type":"ADDED", "object":{}}"#,
            r#"{"object":{},"type":"ADDED"}"#,
            r#"{"type":"ADDED","object":{"#,
        ] {
            assert_eq!(upserted(unusual.as_bytes()), None, "{unusual}");
        }
        assert_eq!(upserted(b"{\"type\":\"ADDED\",\"object\":{\"\xff\":1}}"), None);
    }

    #[test]
    fn pages_and_events_keep_objects_unparsed() {
        let page: Page<'_> = serde_json::from_str(
            r#"{"kind":"PodList","metadata":{"resourceVersion":"9","continue":"x"},"items":[{"a": 1},"odd"]}"#,
        )
        .unwrap();
        assert_eq!((page.metadata.version.as_ref(), page.metadata.next.as_deref()), ("9", Some("x")));
        let items: Vec<&str> = page.items.iter().flatten().map(|item| item.get()).collect();
        assert_eq!(items, [r#"{"a": 1}"#, r#""odd""#]);
        for empty in [r#"{"metadata":{"resourceVersion":"9"}}"#, r#"{"metadata":{"resourceVersion":"9"},"items":null}"#]
        {
            let page: Page<'_> = serde_json::from_str(empty).unwrap();
            assert_eq!(page.items.iter().flatten().count(), 0);
        }
        let event: Event<'_> = serde_json::from_slice(br#"{"type":"ADDED","object":{"x":[1]}}"#).unwrap();
        assert_eq!((event.kind.as_ref(), event.object.get()), ("ADDED", r#"{"x":[1]}"#));
    }
}
