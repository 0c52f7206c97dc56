//! Values: atoms, and the sets and maps of atoms that columns hold.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::ser::{Serialize, SerializeSeq, SerializeTuple, Serializer};

use crate::text::Text;
use crate::uuid::Uuid;

/// `<atomic-type>` of RFC 7047.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AtomicType {
    /// A signed integer of 64 bits.
    Integer,
    /// A 64-bit float.
    Real,
    /// `true` or `false`.
    Boolean,
    /// UTF-8.
    String,
    /// Identity of a row.
    Uuid,
}

impl AtomicType {
    /// Name in a schema, such as `integer`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Real => "real",
            Self::Boolean => "boolean",
            Self::String => "string",
            Self::Uuid => "uuid",
        }
    }

    /// The inverse of [`AtomicType::name`].
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Integer, Self::Real, Self::Boolean, Self::String, Self::Uuid]
            .into_iter()
            .find(|kind| kind.name() == name)
    }

    /// RFC 7047's default value of the type.
    pub fn default_atom(self) -> Atom {
        match self {
            Self::Integer => Atom::Integer(0),
            Self::Real => Atom::Real(0.0),
            Self::Boolean => Atom::Boolean(false),
            Self::String => Atom::String(Text::new("")),
            Self::Uuid => Atom::Uuid(Uuid::ZERO),
        }
    }
}

/// A scalar value.
#[derive(Debug, Clone)]
pub enum Atom {
    /// An atom of type `integer`.
    Integer(i64),
    /// An atom of type `real`; never NaN.
    Real(f64),
    /// An atom of type `boolean`.
    Boolean(bool),
    /// An atom of type `string`, in UTF-8.
    String(Text),
    /// A row's identity.
    Uuid(Uuid),
    /// Within a transaction: the row that an insert of the same transaction creates under this name.
    Named(Arc<str>),
}

impl Atom {
    /// Type of this atom; a named row is a uuid.
    pub fn kind(&self) -> AtomicType {
        match self {
            Self::Integer(_) => AtomicType::Integer,
            Self::Real(_) => AtomicType::Real,
            Self::Boolean(_) => AtomicType::Boolean,
            Self::String(_) => AtomicType::String,
            Self::Uuid(_) | Self::Named(_) => AtomicType::Uuid,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Integer(_) => 0,
            Self::Real(_) => 1,
            Self::Boolean(_) => 2,
            Self::String(_) => 3,
            Self::Uuid(_) => 4,
            Self::Named(_) => 5,
        }
    }
}

impl PartialEq for Atom {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::String(one), Self::String(two)) => one == two,
            _ => self.cmp(other) == Ordering::Equal,
        }
    }
}

impl Eq for Atom {}

impl PartialOrd for Atom {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Atom {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Integer(one), Self::Integer(two)) => one.cmp(two),
            // The server treats 0.0 and -0.0 as equal.
            (Self::Real(one), Self::Real(two)) => one.partial_cmp(two).unwrap_or_else(|| one.total_cmp(two)),
            (Self::Boolean(one), Self::Boolean(two)) => one.cmp(two),
            (Self::String(one), Self::String(two)) => one.cmp(two),
            (Self::Named(one), Self::Named(two)) => one.cmp(two),
            (Self::Uuid(one), Self::Uuid(two)) => one.cmp(two),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl Hash for Atom {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.rank().hash(state);
        match self {
            Self::Integer(value) => value.hash(state),
            Self::Real(value) => (if *value == 0.0 { 0 } else { value.to_bits() }).hash(state),
            Self::Boolean(value) => value.hash(state),
            Self::String(value) => value.hash(state),
            Self::Named(value) => value.hash(state),
            Self::Uuid(value) => value.hash(state),
        }
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(f),
            Self::Real(value) => value.fmt(f),
            Self::Boolean(value) => value.fmt(f),
            Self::String(value) => value.fmt(f),
            Self::Uuid(value) => value.fmt(f),
            Self::Named(name) => write!(f, "@{name}"),
        }
    }
}

impl Serialize for Atom {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Integer(value) => serializer.serialize_i64(*value),
            Self::Real(value) => serializer.serialize_f64(*value),
            Self::Boolean(value) => serializer.serialize_bool(*value),
            Self::String(value) => serializer.serialize_str(&value.as_str()),
            Self::Uuid(value) => tagged(serializer, "uuid", &value.to_string()),
            Self::Named(name) => tagged(serializer, "named-uuid", &**name),
        }
    }
}

fn tagged<S: Serializer, T: Serialize + ?Sized>(serializer: S, tag: &str, value: &T) -> Result<S::Ok, S::Error> {
    let mut pair = serializer.serialize_tuple(2)?;
    pair.serialize_element(tag)?;
    pair.serialize_element(value)?;
    pair.end()
}

/// Value of a column. Always in normal form: sorted, without duplicates, a set of one as [`Datum::One`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Datum {
    /// The empty set: an absent optional value.
    Empty,
    /// A scalar, an optional value that is present, or a set of one.
    One(Atom),
    /// Two or more atoms.
    Set(Arc<[Atom]>),
    /// Two or more row identities: the compact form of large reference sets.
    Uuids(Arc<[Uuid]>),
    /// Pairs, sorted by key; also the empty map.
    Map(Arc<[(Atom, Atom)]>),
}

impl Datum {
    /// A set of any size; sorts, and removes duplicates.
    pub fn set(atoms: impl IntoIterator<Item = Atom>) -> Self {
        let mut atoms: Vec<Atom> = atoms.into_iter().collect();
        atoms.sort_unstable();
        atoms.dedup();
        match atoms.len() {
            0 => Self::Empty,
            1 => Self::One(atoms.remove(0)),
            _ => {
                let uuids: Option<Vec<Uuid>> =
                    atoms.iter().map(|atom| if let Atom::Uuid(uuid) = atom { Some(*uuid) } else { None }).collect();
                uuids.map_or_else(|| Self::Set(atoms.into()), |uuids| Self::Uuids(uuids.into()))
            }
        }
    }

    /// A map, normalized; the last value of a key wins.
    pub fn map(pairs: impl IntoIterator<Item = (Atom, Atom)>) -> Self {
        let mut sorted: Vec<(Atom, Atom)> = pairs.into_iter().collect();
        sorted.sort_by(|one, two| one.0.cmp(&two.0));
        let mut pairs: Vec<(Atom, Atom)> = Vec::with_capacity(sorted.len());
        for pair in sorted {
            match pairs.last_mut() {
                Some(last) if last.0 == pair.0 => *last = pair,
                _ => pairs.push(pair),
            }
        }
        Self::Map(pairs.into())
    }

    /// Number of atoms or pairs.
    pub fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::One(_) => 1,
            Self::Set(atoms) => atoms.len(),
            Self::Uuids(uuids) => uuids.len(),
            Self::Map(pairs) => pairs.len(),
        }
    }

    /// Whether it is the empty set or the empty map.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The atoms of a set, in order; the keys of a map.
    pub fn atoms(&self) -> impl Iterator<Item = Atom> + '_ {
        let (one, set, uuids, pairs) = match self {
            Self::Empty => (None, &[][..], &[][..], &[][..]),
            Self::One(atom) => (Some(atom), &[][..], &[][..], &[][..]),
            Self::Set(atoms) => (None, &**atoms, &[][..], &[][..]),
            Self::Uuids(uuids) => (None, &[][..], &**uuids, &[][..]),
            Self::Map(pairs) => (None, &[][..], &[][..], &**pairs),
        };
        one.into_iter()
            .cloned()
            .chain(set.iter().cloned())
            .chain(uuids.iter().map(|uuid| Atom::Uuid(*uuid)))
            .chain(pairs.iter().map(|(key, _)| key.clone()))
    }

    /// The pairs of a map; empty for a set.
    pub fn pairs(&self) -> &[(Atom, Atom)] {
        if let Self::Map(pairs) = self { pairs } else { &[] }
    }

    /// The value of a key of a map.
    pub fn get(&self, key: &Atom) -> Option<&Atom> {
        let pairs = self.pairs();
        pairs.binary_search_by(|pair| pair.0.cmp(key)).ok().map(|at| &pairs[at].1)
    }

    /// The value of a string key of a map of strings.
    pub fn get_str(&self, key: &str) -> Option<String> {
        match self.get(&Atom::String(Text::new(key)))? {
            Atom::String(text) => Some(text.to_string()),
            _ => None,
        }
    }

    /// Whether a set contains the atom, or a map the key.
    pub fn contains(&self, atom: &Atom) -> bool {
        match (self, atom) {
            (Self::Empty, _) => false,
            (Self::One(one), _) => one == atom,
            (Self::Set(atoms), _) => atoms.binary_search(atom).is_ok(),
            (Self::Uuids(uuids), Atom::Uuid(uuid)) => uuids.binary_search(uuid).is_ok(),
            (Self::Uuids(_), _) => false,
            (Self::Map(_), _) => self.get(atom).is_some(),
        }
    }

    /// Applies a difference of an `update2`: atoms of a set are toggled; a pair of a map is removed if equal, else
    /// inserted or replaced.
    #[must_use]
    pub fn apply_difference(&self, difference: &Self) -> Self {
        if let (Self::Map(pairs), Self::Map(changes)) = (self, difference) {
            let mut merged: Vec<(Atom, Atom)> = Vec::with_capacity(pairs.len() + changes.len());
            merge(
                pairs,
                changes,
                |pair| &pair.0,
                |old, new| if old.1 == new.1 { None } else { Some(new.clone()) },
                &mut merged,
            );
            return Self::Map(merged.into());
        }
        if let (Self::Uuids(uuids), true) = (self, difference.len() <= 16) {
            // Large sets: few of many thousand change.
            let mut changed: Vec<Uuid> = uuids.to_vec();
            for atom in difference.atoms() {
                let Atom::Uuid(uuid) = atom else { continue };
                match changed.binary_search(&uuid) {
                    Ok(at) => drop(changed.remove(at)),
                    Err(at) => changed.insert(at, uuid),
                }
            }
            if changed.len() > 1 {
                return Self::Uuids(changed.into());
            }
            return Self::set(changed.into_iter().map(Atom::Uuid));
        }
        let (old, new): (Vec<Atom>, Vec<Atom>) = (self.atoms().collect(), difference.atoms().collect());
        let mut merged = Vec::with_capacity(old.len() + new.len());
        merge(&old, &new, |atom| atom, |_, _| None, &mut merged);
        Self::set(merged)
    }
}

/// Merges two sorted lists; where both have a key, `both` decides.
fn merge<T: Clone>(
    old: &[T],
    new: &[T],
    key: impl Fn(&T) -> &Atom,
    both: impl Fn(&T, &T) -> Option<T>,
    into: &mut Vec<T>,
) {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    loop {
        match (old.peek(), new.peek()) {
            (None, None) => return,
            (Some(_), None) => into.extend(old.next().cloned()),
            (None, Some(_)) => into.extend(new.next().cloned()),
            (Some(one), Some(two)) => match key(one).cmp(key(two)) {
                Ordering::Less => into.extend(old.next().cloned()),
                Ordering::Greater => into.extend(new.next().cloned()),
                Ordering::Equal => {
                    into.extend(both(one, two));
                    old.next();
                    new.next();
                }
            },
        }
    }
}

impl From<Atom> for Datum {
    fn from(atom: Atom) -> Self {
        Self::One(atom)
    }
}

impl fmt::Display for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("[]"),
            Self::One(atom) => atom.fmt(f),
            Self::Set(_) | Self::Uuids(_) => {
                let atoms: Vec<String> = self.atoms().map(|atom| atom.to_string()).collect();
                write!(f, "[{}]", atoms.join(", "))
            }
            Self::Map(pairs) => {
                let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
                write!(f, "{{{}}}", pairs.join(", "))
            }
        }
    }
}

impl Serialize for Datum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::One(atom) => atom.serialize(serializer),
            Self::Map(pairs) => tagged(serializer, "map", &**pairs),
            _ => tagged(serializer, "set", &Atoms(self)),
        }
    }
}

struct Atoms<'a>(&'a Datum);

impl Serialize for Atoms<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(Some(self.0.len()))?;
        for atom in self.0.atoms() {
            sequence.serialize_element(&atom)?;
        }
        sequence.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(texts: &[&str]) -> Datum {
        Datum::set(texts.iter().map(|text| Atom::String(Text::new(text))))
    }

    fn options(pairs: &[(&str, &str)]) -> Datum {
        Datum::map(pairs.iter().map(|(key, value)| (Atom::String(Text::new(key)), Atom::String(Text::new(value)))))
    }

    #[test]
    fn values_take_at_most_24_bytes() {
        assert!(size_of::<Atom>() <= 24 && size_of::<Datum>() <= 24, "{} {}", size_of::<Atom>(), size_of::<Datum>());
    }

    #[test]
    fn values_serialize_to_the_json_of_rfc_7047() {
        let json = |datum: &Datum| serde_json::to_string(datum).unwrap();
        assert_eq!(json(&strings(&[])), r#"["set",[]]"#);
        assert_eq!(json(&strings(&["a"])), r#""a""#);
        assert_eq!(json(&strings(&["b", "a", "b"])), r#"["set",["a","b"]]"#);
        assert_eq!(json(&options(&[])), r#"["map",[]]"#);
        assert_eq!(json(&options(&[("k", "v")])), r#"["map",[["k","v"]]]"#);
        assert_eq!(json(&Datum::One(Atom::Named("row1".into()))), r#"["named-uuid","row1"]"#);
    }

    #[test]
    fn differences_toggle_sets_and_replace_in_maps() {
        assert_eq!(strings(&["a", "b"]).apply_difference(&strings(&["b", "c"])), strings(&["a", "c"]));
        assert_eq!(strings(&["a"]).apply_difference(&strings(&["a"])), Datum::Empty);
        let map = options(&[("a", "1"), ("b", "2")]);
        assert_eq!(
            map.apply_difference(&options(&[("a", "1"), ("b", "3"), ("c", "4")])),
            options(&[("b", "3"), ("c", "4")])
        );
        let uuid = |n: u8| Atom::Uuid(Uuid::from_bytes([n; 16]));
        let set = Datum::set((1..=5).map(uuid));
        assert_eq!(set.apply_difference(&Datum::set([uuid(2), uuid(9)])), Datum::set([1, 3, 4, 5, 9].map(uuid)));
        assert_eq!(Datum::set([uuid(1), uuid(2)]).apply_difference(&Datum::One(uuid(2))), Datum::One(uuid(1)));
    }
}
