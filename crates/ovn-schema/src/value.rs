//! Rust types of columns, and their conversion to and from the database's values.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ovsdb::datum::{Atom, AtomicType, Datum};
use ovsdb::schema::ColumnType;
use ovsdb::uuid::Uuid;

/// A map of strings, as `external_ids` and `options`.
pub type StringMap = BTreeMap<String, String>;

/// Rust type of an atom. No column of these databases is a real.
pub trait AtomValue: Clone + Ord {
    /// The OVSDB type of the atoms.
    const KIND: AtomicType;

    /// Converts for an operation.
    fn to_atom(&self) -> Atom;

    /// Converts from an atom; `None` if it has another type.
    fn from_atom(atom: &Atom) -> Option<Self>;
}

/// Rust type of a column.
pub trait ColumnValue: Default + PartialEq {
    /// Type that the server's column must have.
    const SHAPE: Shape;

    /// Converts for an operation, in normal form.
    fn to_datum(&self) -> Datum;

    /// Converts from a datum; `None` if it has another shape.
    fn from_datum(datum: &Datum) -> Option<Self>;
}

/// Type of a column, without constraints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// What the members of a set are, or the keys of a map.
    pub key: AtomicType,
    /// Type of a map's values.
    pub value: Option<AtomicType>,
    /// How many atoms or pairs are possible.
    pub holds: Holds,
}

/// Number of atoms or pairs of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Holds {
    /// Exactly one: neither a set nor a map.
    One,
    /// An optional value.
    AtMostOne,
    /// A set or a map.
    Many,
}

impl Shape {
    /// Whether a server's column has this shape. Bounds of sets are ignored as long as more than one member is allowed:
    /// they change between versions.
    pub fn fits(&self, column: &ColumnType) -> bool {
        let kinds = column.key.atomic == self.key && column.value.as_ref().map(|value| value.atomic) == self.value;
        let number = match self.holds {
            Holds::One => column.min == 1 && column.max == Some(1),
            Holds::AtMostOne => column.min == 0 && column.max == Some(1),
            Holds::Many => column.max.is_none_or(|max| max > 1),
        };
        kinds && number
    }

    /// The shape of a server's column.
    pub fn of(column: &ColumnType) -> Self {
        let holds = match (column.min, column.max) {
            (1, Some(1)) => Holds::One,
            (_, Some(1)) => Holds::AtMostOne,
            _ => Holds::Many,
        };
        Self { key: column.key.atomic, value: column.value.as_ref().map(|value| value.atomic), holds }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.name();
        match (self.value, self.holds) {
            (None, Holds::One) => write!(f, "one {key}"),
            (None, Holds::AtMostOne) => write!(f, "one {key} or none"),
            (None, Holds::Many) => write!(f, "a set of {key}"),
            (Some(value), Holds::Many) => write!(f, "a map of {key} to {}", value.name()),
            (Some(value), _) => write!(f, "one pair of {key} and {}", value.name()),
        }
    }
}

/// Implements an atom, and the column of exactly one of it.
macro_rules! atom {
    ($type:ty, $kind:ident, $to:expr, $from:expr) => {
        impl AtomValue for $type {
            const KIND: AtomicType = AtomicType::$kind;

            fn to_atom(&self) -> Atom {
                Atom::$kind($to(self))
            }

            fn from_atom(atom: &Atom) -> Option<Self> {
                if let Atom::$kind(value) = atom { Some($from(value)) } else { None }
            }
        }

        impl ColumnValue for $type {
            const SHAPE: Shape = Shape { key: AtomicType::$kind, value: None, holds: Holds::One };

            fn to_datum(&self) -> Datum {
                Datum::One(self.to_atom())
            }

            fn from_datum(datum: &Datum) -> Option<Self> {
                if let Datum::One(atom) = datum { Self::from_atom(atom) } else { None }
            }
        }
    };
}

atom!(String, String, |text: &Self| text.as_str().into(), ToString::to_string);
atom!(i64, Integer, Clone::clone, Clone::clone);
atom!(bool, Boolean, Clone::clone, Clone::clone);
atom!(Uuid, Uuid, Clone::clone, Clone::clone);

impl<T: AtomValue> ColumnValue for Option<T> {
    const SHAPE: Shape = Shape { key: T::KIND, value: None, holds: Holds::AtMostOne };

    fn to_datum(&self) -> Datum {
        self.as_ref().map_or(Datum::Empty, |value| Datum::One(value.to_atom()))
    }

    fn from_datum(datum: &Datum) -> Option<Self> {
        match datum {
            Datum::Empty => Some(None),
            Datum::One(atom) => T::from_atom(atom).map(Some),
            _ => None,
        }
    }
}

impl<T: AtomValue> ColumnValue for BTreeSet<T> {
    const SHAPE: Shape = Shape { key: T::KIND, value: None, holds: Holds::Many };

    fn to_datum(&self) -> Datum {
        Datum::set(self.iter().map(AtomValue::to_atom))
    }

    fn from_datum(datum: &Datum) -> Option<Self> {
        if matches!(datum, Datum::Map(_)) {
            return None;
        }
        datum.atoms().map(|atom| T::from_atom(&atom)).collect()
    }
}

impl<K: AtomValue, V: AtomValue> ColumnValue for BTreeMap<K, V> {
    const SHAPE: Shape = Shape { key: K::KIND, value: Some(V::KIND), holds: Holds::Many };

    fn to_datum(&self) -> Datum {
        Datum::map(self.iter().map(|(key, value)| (key.to_atom(), value.to_atom())))
    }

    fn from_datum(datum: &Datum) -> Option<Self> {
        let Datum::Map(pairs) = datum else { return None };
        pairs.iter().map(|(key, value)| Some((K::from_atom(key)?, V::from_atom(value)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ovsdb::schema::BaseType;

    fn column(key: AtomicType, value: Option<AtomicType>, min: u64, max: Option<u64>) -> ColumnType {
        ColumnType { key: BaseType::of(key), value: value.map(BaseType::of), min, max }
    }

    #[test]
    fn a_shape_fits_columns_of_the_same_type() {
        use AtomicType::{Integer, String as Text};
        let one = column(Text, None, 1, Some(1));
        let optional = column(Text, None, 0, Some(1));
        let (set, few) = (column(Text, None, 0, None), column(Text, None, 1, Some(4096)));
        let map = column(Text, Some(Text), 0, None);
        let fitting = |shape: Shape| [&one, &optional, &set, &few, &map].map(|column| shape.fits(column));
        assert_eq!(fitting(String::SHAPE), [true, false, false, false, false]);
        assert_eq!(fitting(Option::<String>::SHAPE), [false, true, false, false, false]);
        assert_eq!(fitting(BTreeSet::<String>::SHAPE), [false, false, true, true, false]);
        assert_eq!(fitting(StringMap::SHAPE), [false, false, false, false, true]);
        assert_eq!(fitting(i64::SHAPE), [false; 5]);
        assert!(!StringMap::SHAPE.fits(&column(Text, Some(Integer), 0, None)));
    }

    #[test]
    fn a_datum_of_another_shape_is_rejected() {
        let text = Datum::One(Atom::String("a".into()));
        assert_eq!(String::from_datum(&text).as_deref(), Some("a"));
        assert_eq!(i64::from_datum(&text), None);
        assert_eq!(String::from_datum(&Datum::Empty), None);
        assert_eq!(Option::<String>::from_datum(&Datum::set(["a", "b"].map(|text| Atom::String(text.into())))), None);
        assert_eq!(BTreeSet::<String>::from_datum(&Datum::map([])), None);
        assert_eq!(StringMap::from_datum(&Datum::Empty), None);
        // A named uuid is not a uuid.
        assert_eq!(Uuid::from_datum(&Datum::One(Atom::Named("row".into()))), None);
    }
}
