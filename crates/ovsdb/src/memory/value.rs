//! Checks values against their column as the server does, and serializes them as the server does.

use serde_json::{Map, Number, Value, json};

use super::fault::Fault;
use super::names::Names;
use crate::datum::{Atom, AtomicType, Datum};
use crate::operation::RowValues;
use crate::schema::{BaseType, ColumnType};

/// Allowed number of atoms or pairs. Conditions and mutations relax that of the column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) min: u64,
    pub(crate) max: Option<u64>,
}

impl Bounds {
    pub(crate) const ONE: Self = Self { min: 1, max: Some(1) };
    pub(crate) const ANY: Self = Self { min: 0, max: None };

    pub(crate) fn of(kind: &ColumnType) -> Self {
        Self { min: kind.min, max: kind.max }
    }

    pub(crate) fn allow(self, count: usize) -> bool {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        count >= self.min && self.max.is_none_or(|max| count <= max)
    }

    fn check(self, count: usize) -> Result<(), Fault> {
        if self.allow(count) {
            return Ok(());
        }
        Err(Fault::syntax(format!("{count} members are present, which the column does not allow")))
    }
}

/// Checks a value for a column: type, count, constraints; resolves named uuids.
pub(crate) fn admit(datum: &Datum, kind: &ColumnType, names: &mut Names<'_>) -> Result<Datum, Fault> {
    admit_within(datum, kind, Bounds::of(kind), names)
}

/// As [`admit`], with another count.
pub(crate) fn admit_within(
    datum: &Datum,
    kind: &ColumnType,
    bounds: Bounds,
    names: &mut Names<'_>,
) -> Result<Datum, Fault> {
    match &kind.value {
        None => admit_set(datum, &kind.key, bounds, names),
        Some(value) => admit_map(datum, &kind.key, value, bounds, names),
    }
}

/// Checks a set. A bare atom is a set of one.
pub(crate) fn admit_set(datum: &Datum, base: &BaseType, bounds: Bounds, names: &mut Names<'_>) -> Result<Datum, Fault> {
    match datum {
        Datum::Map(_) => return Err(Fault::syntax(format!("expected {}, not a map", base.atomic.name()))),
        Datum::One(_) => {}
        Datum::Empty | Datum::Set(_) | Datum::Uuids(_) => bounds.check(datum.len())?,
    }
    let atoms = datum.atoms().map(|atom| admit_atom(&atom, base, names)).collect::<Result<Vec<_>, _>>()?;
    let set = Datum::set(atoms);
    // A name and a uuid, or 3 and 3.0, may be the same.
    if set.len() < datum.len() {
        return Err(Fault::duplicate_element("set contains duplicate"));
    }
    Ok(set)
}

fn admit_map(
    datum: &Datum,
    key: &BaseType,
    value: &BaseType,
    bounds: Bounds,
    names: &mut Names<'_>,
) -> Result<Datum, Fault> {
    let Datum::Map(pairs) = datum else { return Err(Fault::syntax("expected a map")) };
    bounds.check(pairs.len())?;
    let admitted = pairs
        .iter()
        .map(|pair| Ok((admit_atom(&pair.0, key, names)?, admit_atom(&pair.1, value, names)?)))
        .collect::<Result<Vec<_>, Fault>>()?;
    let map = Datum::map(admitted);
    if map.len() < pairs.len() {
        return Err(Fault::duplicate_element("map contains duplicate key"));
    }
    Ok(map)
}

fn admit_atom(atom: &Atom, base: &BaseType, names: &mut Names<'_>) -> Result<Atom, Fault> {
    let admitted = match (base.atomic, atom) {
        (AtomicType::Integer, Atom::Integer(value)) => Some(Atom::Integer(*value)),
        // The server's JSON does not distinguish 3 and 3.0.
        (AtomicType::Integer, Atom::Real(value)) => whole(*value).map(Atom::Integer),
        (AtomicType::Real, Atom::Integer(value)) => Some(Atom::Real(*value as f64)),
        // It parses -0.0 as the integer 0.
        (AtomicType::Real, Atom::Real(value)) if *value == 0.0 => Some(Atom::Real(0.0)),
        (AtomicType::Real, Atom::Real(value)) if value.is_finite() => Some(Atom::Real(*value)),
        (AtomicType::Boolean, Atom::Boolean(_))
        | (AtomicType::String, Atom::String(_))
        | (AtomicType::Uuid, Atom::Uuid(_)) => Some(atom.clone()),
        (AtomicType::Uuid, Atom::Named(name)) => Some(Atom::Uuid(names.resolve(name)?)),
        _ => None,
    };
    let admitted = admitted.ok_or_else(|| Fault::syntax(format!("expected {}, not {atom}", base.atomic.name())))?;
    check_atom(&admitted, base)?;
    Ok(admitted)
}

/// The integer that a whole real is serialized as.
fn whole(value: f64) -> Option<i64> {
    value.to_string().parse().ok()
}

/// Checks the allowed values, the range and the length of an atom.
pub(crate) fn check_atom(atom: &Atom, base: &BaseType) -> Result<(), Fault> {
    if base.choices.as_ref().is_some_and(|choices| !choices.contains(atom)) {
        return Err(Fault::constraint(format!("{atom} is not one of the allowed values")));
    }
    let (measure, min, max) = match atom {
        Atom::Integer(value) => (*value as f64, base.min, base.max),
        Atom::Real(value) => (*value, base.min, base.max),
        Atom::String(text) => {
            let limit = |length: Option<u64>| length.map(|length| length as f64);
            (text.as_str().chars().count() as f64, limit(base.min_length), limit(base.max_length))
        }
        _ => return Ok(()),
    };
    if min.is_some_and(|min| measure < min) || max.is_some_and(|max| measure > max) {
        return Err(Fault::constraint(format!("{atom} is not within the limits of the column")));
    }
    Ok(())
}

pub(crate) fn check_atoms(datum: &Datum, kind: &ColumnType) -> Result<(), Fault> {
    datum.atoms().try_for_each(|atom| check_atom(&atom, &kind.key))?;
    match &kind.value {
        Some(value) => datum.pairs().iter().try_for_each(|pair| check_atom(&pair.1, value)),
        None => Ok(()),
    }
}

/// A value as the server serializes it.
pub(crate) fn to_json(datum: &Datum) -> Value {
    match datum {
        Datum::One(atom) => atom_to_json(atom),
        Datum::Map(pairs) => {
            json!([
                "map",
                pairs.iter().map(|pair| json!([atom_to_json(&pair.0), atom_to_json(&pair.1)])).collect::<Vec<_>>()
            ])
        }
        _ => json!(["set", datum.atoms().map(|atom| atom_to_json(&atom)).collect::<Vec<_>>()]),
    }
}

fn atom_to_json(atom: &Atom) -> Value {
    match atom {
        Atom::Integer(value) => Value::from(*value),
        Atom::Real(value) => real_to_json(*value),
        Atom::Boolean(value) => Value::from(*value),
        Atom::String(text) => Value::from(text.as_str()),
        Atom::Uuid(uuid) => json!(["uuid", uuid.to_string()]),
        Atom::Named(name) => json!(["named-uuid", &**name]),
    }
}

/// The server writes 15 significant digits, and whole numbers below 10^15 without a point.
fn real_to_json(value: f64) -> Value {
    let written: f64 = format!("{value:.14e}").parse().unwrap_or(value);
    match whole(written) {
        Some(integer) if written.abs() < 1e15 => Value::from(integer),
        _ => Number::from_f64(written).map_or(Value::Null, Value::Number),
    }
}

/// A row as the server serializes it.
pub(crate) fn row_to_json(row: &RowValues) -> Value {
    Value::Object(row.iter().map(|(column, datum)| (column.clone(), to_json(datum))).collect::<Map<_, _>>())
}
