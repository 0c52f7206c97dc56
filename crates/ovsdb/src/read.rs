//! Deserializes values by their type in the schema, directly from text.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, SeqAccess, Unexpected, Visitor};
use serde_json::Value;

use crate::datum::{Atom, AtomicType, Datum};
use crate::schema::ColumnType;
use crate::text::{Interner, TextInterner};
use crate::uuid::Uuid;

/// Caches of recent values, so that equal values share memory.
#[derive(Debug)]
pub(crate) struct Shared {
    texts: TextInterner,
    maps: Interner<Datum>,
    /// Buffer for the values of one row, reused for the next.
    pub(crate) fields: Vec<(usize, Datum)>,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self { texts: TextInterner::new(), maps: Interner::new(1024), fields: Vec::with_capacity(16) }
    }

    /// Maps repeat from row to row: the ports of a namespace have equal ones.
    fn map(&mut self, pairs: Vec<(Atom, Atom)>) -> Datum {
        let datum = Datum::map(pairs);
        self.maps.intern(&datum, |kept| *kept == datum, || datum.clone())
    }
}

/// Deserializes a value from a JSON tree.
pub fn datum(json: &Value, kind: &ColumnType) -> Result<Datum, serde_json::Error> {
    DatumSeed { kind, shared: &mut Shared::new() }.deserialize(json)
}

/// Deserializes a value from JSON text.
pub fn datum_from_str(json: &str, kind: &ColumnType) -> Result<Datum, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let datum = DatumSeed { kind, shared: &mut Shared::new() }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(datum)
}

/// Deserializes the value of a column.
pub(crate) struct DatumSeed<'a> {
    pub(crate) kind: &'a ColumnType,
    pub(crate) shared: &'a mut Shared,
}

impl<'de> DeserializeSeed<'de> for DatumSeed<'_> {
    type Value = Datum;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Datum, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DatumSeed<'_> {
    type Value = Datum;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind.value {
            Some(value) => write!(f, "a map of {} to {}", self.kind.key.atomic.name(), value.atomic.name()),
            None => write!(f, "a set of {}", self.kind.key.atomic.name()),
        }
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Datum, E> {
        self.atom(|visitor| visitor.visit_bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Datum, E> {
        self.atom(|visitor| visitor.visit_i64(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Datum, E> {
        self.atom(|visitor| visitor.visit_u64(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Datum, E> {
        self.atom(|visitor| visitor.visit_f64(value))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Datum, E> {
        self.atom(|visitor| visitor.visit_str(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Datum, A::Error> {
        let tag: Tag = sequence.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
        let kind = self.kind;
        let missing = |at| A::Error::invalid_length(at, &"a tag and a value");
        let datum = match tag {
            Tag::Set if !kind.is_map() => {
                let seed = Many { kind, shared: &mut self.shared.texts };
                Datum::set(sequence.next_element_seed(seed)?.ok_or_else(|| missing(1))?)
            }
            Tag::Map if kind.is_map() => {
                let seed = Pairs { kind, shared: &mut self.shared.texts };
                let pairs = sequence.next_element_seed(seed)?.ok_or_else(|| missing(1))?;
                self.shared.map(pairs)
            }
            Tag::Uuid | Tag::Named if !kind.is_map() && kind.key.atomic == AtomicType::Uuid => Datum::One(
                sequence.next_element_seed(Identity { named: tag == Tag::Named })?.ok_or_else(|| missing(1))?,
            ),
            _ => return Err(A::Error::custom(format!("{tag:?} is not {}", Expected(kind)))),
        };
        if sequence.next_element::<serde::de::IgnoredAny>()?.is_some() {
            return Err(A::Error::custom("a value has more than a tag and a value"));
        }
        Ok(datum)
    }
}

struct Expected<'a>(&'a ColumnType);

impl fmt::Display for Expected<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_map() { "a map" } else { "a set" })?;
        write!(f, " of {}", self.0.key.atomic.name())
    }
}

impl DatumSeed<'_> {
    fn atom<E: serde::de::Error>(self, read: impl FnOnce(AtomVisitor<'_>) -> Result<Atom, E>) -> Result<Datum, E> {
        if self.kind.is_map() {
            return Err(E::custom(format!("an atom is not {}", Expected(self.kind))));
        }
        read(AtomVisitor { kind: self.kind.key.atomic, shared: &mut self.shared.texts }).map(Datum::One)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
enum Tag {
    #[serde(rename = "set")]
    Set,
    #[serde(rename = "map")]
    Map,
    #[serde(rename = "uuid")]
    Uuid,
    #[serde(rename = "named-uuid")]
    Named,
}

/// The text after `uuid` or `named-uuid`.
struct Identity {
    named: bool,
}

impl<'de> DeserializeSeed<'de> for Identity {
    type Value = Atom;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Atom, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Identity {
    type Value = Atom;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a uuid")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Atom, E> {
        if self.named {
            return Ok(Atom::Named(text.into()));
        }
        Uuid::parse(text).map(Atom::Uuid).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// One atom of a known type.
struct AtomVisitor<'a> {
    kind: AtomicType,
    shared: &'a mut TextInterner,
}

impl<'de> DeserializeSeed<'de> for AtomVisitor<'_> {
    type Value = Atom;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Atom, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AtomVisitor<'_> {
    type Value = Atom;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an atom of type {}", self.kind.name())
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Atom, E> {
        match self.kind {
            AtomicType::Boolean => Ok(Atom::Boolean(value)),
            _ => Err(E::invalid_type(Unexpected::Bool(value), &self)),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Atom, E> {
        match self.kind {
            AtomicType::Integer => Ok(Atom::Integer(value)),
            // Whole reals are written without a point. Beyond 2^53 precision is lost anyway.
            #[allow(clippy::cast_precision_loss)]
            AtomicType::Real => Ok(Atom::Real(value as f64)),
            _ => Err(E::invalid_type(Unexpected::Signed(value), &self)),
        }
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Atom, E> {
        match i64::try_from(value) {
            Ok(signed) => self.visit_i64(signed),
            Err(_) => Err(E::invalid_value(Unexpected::Unsigned(value), &self)),
        }
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Atom, E> {
        match self.kind {
            AtomicType::Real if !value.is_nan() => Ok(Atom::Real(value)),
            _ => Err(E::invalid_type(Unexpected::Float(value), &self)),
        }
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Atom, E> {
        match self.kind {
            AtomicType::String => Ok(Atom::String(self.shared.text(value))),
            _ => Err(E::invalid_type(Unexpected::Str(value), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Atom, A::Error> {
        if self.kind != AtomicType::Uuid {
            return Err(A::Error::invalid_type(Unexpected::Seq, &self));
        }
        let tag: Tag = sequence.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
        if !matches!(tag, Tag::Uuid | Tag::Named) {
            return Err(A::Error::custom(format!("expected a uuid, not {tag:?}")));
        }
        let named = tag == Tag::Named;
        sequence.next_element_seed(Identity { named })?.ok_or_else(|| A::Error::invalid_length(1, &self))
    }
}

/// The atoms of a set.
struct Many<'a> {
    kind: &'a ColumnType,
    shared: &'a mut TextInterner,
}

impl<'de> DeserializeSeed<'de> for Many<'_> {
    type Value = Vec<Atom>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Atom>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Many<'_> {
    type Value = Vec<Atom>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of atoms")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Vec<Atom>, A::Error> {
        let mut atoms = Vec::new();
        let kind = self.kind.key.atomic;
        while let Some(atom) = sequence.next_element_seed(AtomVisitor { kind, shared: &mut *self.shared })? {
            atoms.push(atom);
        }
        Ok(atoms)
    }
}

/// The pairs of a map.
struct Pairs<'a> {
    kind: &'a ColumnType,
    shared: &'a mut TextInterner,
}

impl<'de> DeserializeSeed<'de> for Pairs<'_> {
    type Value = Vec<(Atom, Atom)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Pairs<'_> {
    type Value = Vec<(Atom, Atom)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of pairs")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = sequence.next_element_seed(Pair { kind: self.kind, shared: &mut *self.shared })? {
            pairs.push(pair);
        }
        Ok(pairs)
    }
}

struct Pair<'a> {
    kind: &'a ColumnType,
    shared: &'a mut TextInterner,
}

impl<'de> DeserializeSeed<'de> for Pair<'_> {
    type Value = (Atom, Atom);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Pair<'_> {
    type Value = (Atom, Atom);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pair")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let key = AtomVisitor { kind: self.kind.key.atomic, shared: &mut *self.shared };
        let key = sequence.next_element_seed(key)?.ok_or_else(|| A::Error::invalid_length(0, &"a pair"))?;
        let kind = self.kind.value.as_ref().map_or(AtomicType::String, |value| value.atomic);
        let value = AtomVisitor { kind, shared: self.shared };
        let value = sequence.next_element_seed(value)?.ok_or_else(|| A::Error::invalid_length(1, &"a pair"))?;
        if sequence.next_element::<serde::de::IgnoredAny>()?.is_some() {
            return Err(A::Error::invalid_length(3, &"a pair"));
        }
        Ok((key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::BaseType;

    fn kind(key: AtomicType, value: Option<AtomicType>) -> ColumnType {
        ColumnType { key: BaseType::of(key), value: value.map(BaseType::of), min: 0, max: None }
    }

    #[test]
    fn values_are_deserialized_by_their_type() {
        let uuid = "36bef046-7da7-43a5-905a-c17899216fcb";
        let read = |json: &str, key, value| datum_from_str(json, &kind(key, value)).unwrap();
        assert_eq!(read("7", AtomicType::Integer, None), Datum::One(Atom::Integer(7)));
        assert_eq!(read("7", AtomicType::Real, None), Datum::One(Atom::Real(7.0)));
        assert_eq!(read(r#""set""#, AtomicType::String, None), Datum::One(Atom::String("set".into())));
        assert_eq!(read(r#"["set",[]]"#, AtomicType::String, None), Datum::Empty);
        assert_eq!(
            read(&format!(r#"["uuid","{uuid}"]"#), AtomicType::Uuid, None),
            Datum::One(Atom::Uuid(uuid.parse().unwrap()))
        );
        assert_eq!(read(&format!(r#"["set",[["uuid","{uuid}"]]]"#), AtomicType::Uuid, None).len(), 1);
        let map = read(r#"["map",[["a","1"],["b","2"]]]"#, AtomicType::String, Some(AtomicType::String));
        assert_eq!(map.get_str("b").unwrap(), "2");
    }

    #[test]
    fn values_of_the_wrong_type_are_rejected() {
        for (json, key, value) in [
            ("true", AtomicType::Integer, None),
            ("7", AtomicType::String, None),
            (r#""7""#, AtomicType::String, Some(AtomicType::String)),
            (r#"["set",[7]]"#, AtomicType::String, None),
            (r#"["set"]"#, AtomicType::String, None),
            (r#"["set",[],[]]"#, AtomicType::String, None),
            (r#"["map",[["a"]]]"#, AtomicType::String, Some(AtomicType::String)),
            (r#"["map",[["a","b","c"]]]"#, AtomicType::String, Some(AtomicType::String)),
            (r#"["uuid","x"]"#, AtomicType::Uuid, None),
            (r#"["bag",[]]"#, AtomicType::String, None),
            ("18446744073709551615", AtomicType::Integer, None),
            ("null", AtomicType::String, None),
            ("{}", AtomicType::String, None),
        ] {
            assert!(datum_from_str(json, &kind(key, value)).is_err(), "{json}");
        }
    }

    #[test]
    fn equal_maps_share_their_memory() {
        let mut shared = Shared::new();
        let json = r#"["map",[["namespace","a"],["pod","true"]]]"#;
        let kind = kind(AtomicType::String, Some(AtomicType::String));
        let mut read = || {
            let seed = DatumSeed { kind: &kind, shared: &mut shared };
            seed.deserialize(&mut serde_json::Deserializer::from_str(json)).unwrap()
        };
        let (one, two) = (read(), read());
        assert!(matches!((&one, &two), (Datum::Map(a), Datum::Map(b)) if std::sync::Arc::ptr_eq(a, b)));
    }
}
