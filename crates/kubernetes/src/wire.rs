//! What we read of the server's JSON ourselves: envelopes and metadata, borrowed from the bytes that arrived.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Which object, and which incarnation of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Identity {
    /// Its namespace; empty for objects of the whole cluster.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Tells an object from its successor of the same name.
    pub uid: String,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// One line of a watch.
#[derive(Debug, Deserialize)]
pub(crate) struct Event<'a> {
    #[serde(rename = "type", borrow)]
    pub(crate) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) object: &'a RawValue,
}

/// The object of a line that tells of a creation or a change, if the line is exactly as servers write it: found without
/// reading the object, which is a third of the work of an event. Whoever cannot read the result reads the [`Event`].
pub(crate) fn upserted(line: &[u8]) -> Option<&str> {
    let line = std::str::from_utf8(line).ok()?;
    [r#"{"type":"MODIFIED","object":{"#, r#"{"type":"ADDED","object":{"#]
        .iter()
        .find(|prefix| line.starts_with(**prefix))
        .and_then(|prefix| line[prefix.len() - 1..].strip_suffix('}'))
}

/// One page of a list. The objects stay text, so that a bad one spoils nothing but itself.
#[derive(Debug, Deserialize)]
pub(crate) struct Page<'a> {
    #[serde(borrow)]
    pub(crate) metadata: PageMetadata<'a>,
    #[serde(borrow, default)]
    pub(crate) items: Option<Vec<&'a RawValue>>,
}

/// Where a page stands in its list, and the list in time.
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

/// Who an object is; of one that does not even say that, what is known is nothing.
pub(crate) fn identity(object: &str) -> Identity {
    serde_json::from_str::<Named<'_>>(object)
        .map(|Named { metadata }| Identity {
            namespace: metadata.namespace.into_owned(),
            name: metadata.name.into_owned(),
            uid: metadata.uid.into_owned(),
        })
        .unwrap_or_default()
}

/// `metadata.resourceVersion`. Reading stops as soon as it is found, which in practice is near the object's beginning:
/// this happens for every event, and most of an object is of no interest here.
pub(crate) fn version(object: &str) -> Option<&str> {
    let mut found = None;
    let mut reader = serde_json::Deserializer::from_str(object);
    // Stopping early is an error to serde; what was found by then counts.
    let _ = Find { path: &["metadata", "resourceVersion"], found: &mut found }.deserialize(&mut reader);
    found
}

/// Looks for a string by its path.
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

/// Whether a key is this one, without keeping it.
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
    fn what_is_missing_or_odd_is_not_found_and_harms_nothing() {
        for object in ["", "{", "[]", "7", "null", r#"{"metadata":null}"#, r#"{"metadata":{}}"#, r#"{"metadata":[]}"#] {
            assert_eq!(version(object), None, "{object}");
            assert_eq!(identity(object), Identity::default(), "{object}");
        }
        assert_eq!(version(r#"{"metadata":{"resourceVersion":7}}"#), None);
        assert_eq!(identity(r#"{"metadata":{"name":"node-1"}}"#).to_string(), "node-1");
    }

    #[test]
    fn the_usual_line_is_cut_without_being_read() {
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
    fn pages_and_events_keep_their_objects_as_text() {
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
