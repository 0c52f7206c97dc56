//! Row types: table, columns, and conversion to and from the database's values.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

use ovsdb::datum::Datum;
use ovsdb::operation::{Condition, Function, Mutation, Mutator, RowValues};
use ovsdb::transaction::Row;
use ovsdb::uuid::Uuid;

use crate::feature::Feature;
use crate::value::{AtomValue, ColumnValue, Shape};

/// A row of a table, without its uuid: rows with the same values are equal.
pub trait TableRow: Clone + fmt::Debug + Default + Eq + Hash + Send + Sync + 'static {
    /// As in the schema, such as `Logical_Switch`.
    const TABLE: &'static str;
    /// Declared columns in order. The server may have more, or lack some.
    const COLUMNS: &'static [&'static str];
    /// Requirements on the server's schema.
    const DECLARATION: TableDeclaration;

    /// All columns, also those with their default: for an update.
    fn to_row(&self) -> Row;

    /// Columns with values other than the default: for an insert, or if the server may lack the others.
    fn to_sparse_row(&self) -> Row;

    /// Converts from columns; a missing one has its default.
    fn read<D: Borrow<Datum>>(uuid: Uuid, column: impl FnMut(&'static str) -> Option<D>) -> Result<Self, ReadError>;

    /// Converts from values by column name.
    fn from_values(uuid: Uuid, values: &RowValues) -> Result<Self, ReadError> {
        Self::read(uuid, |column| values.get(column))
    }
}

/// A value of another type than declared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{table}.{column} of row {row} must be {expected}, not {found}")]
pub struct ReadError {
    /// As in the schema, such as `Logical_Switch`.
    pub table: &'static str,
    /// Where it was found.
    pub row: Uuid,
    /// As in the schema, such as `external_ids`.
    pub column: &'static str,
    /// Declared type.
    pub expected: Shape,
    /// Actual value, truncated.
    pub found: String,
}

/// Converts one column; used by `tables!` for each field.
pub(crate) fn read_column<T: ColumnValue>(
    table: &'static str,
    row: Uuid,
    column: &'static str,
    datum: Option<&Datum>,
) -> Result<T, ReadError> {
    let Some(datum) = datum else { return Ok(T::default()) };
    T::from_datum(datum).ok_or_else(|| ReadError { table, row, column, expected: T::SHAPE, found: shortened(datum) })
}

/// Truncates large values for messages.
fn shortened(datum: &Datum) -> String {
    const LONGEST: usize = 80;
    let text = format!("{datum:?}");
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// A table of `tables!`, to be checked against the server's schema.
#[derive(Debug, Clone, Copy)]
pub struct TableDeclaration {
    /// As in the schema, such as `Logical_Switch`.
    pub name: &'static str,
    /// The feature that is off if the server lacks it.
    pub feature: Feature,
    /// In the order of the fields.
    pub columns: &'static [ColumnDeclaration],
    /// Converts values to the row type and back: for code that iterates over all tables.
    pub rewrite: fn(Uuid, &RowValues) -> Result<Rewritten, ReadError>,
}

/// A row converted to its type and back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewritten {
    /// From [`TableRow::to_row`].
    pub full: Row,
    /// From [`TableRow::to_sparse_row`].
    pub sparse: Row,
}

/// Converts values to a row type and back.
pub(crate) fn rewrite<R: TableRow>(uuid: Uuid, values: &RowValues) -> Result<Rewritten, ReadError> {
    let row = R::from_values(uuid, values)?;
    Ok(Rewritten { full: row.to_row(), sparse: row.to_sparse_row() })
}

/// A column of `tables!`, to be checked against the server's schema.
#[derive(Debug, Clone, Copy)]
pub struct ColumnDeclaration {
    /// As in the schema, such as `external_ids`.
    pub name: &'static str,
    /// Required type.
    pub shape: Shape,
    /// The feature that is off if the server lacks it; `None`: that of the table.
    pub feature: Option<Feature>,
    /// Whether OVN or Open vSwitch writes it, so that it is only read here.
    pub observed: bool,
    /// Values that the server must allow, for an enum.
    pub choices: &'static [Choice],
}

/// A value that a column must allow.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    /// As it is in the database, such as `pass`.
    pub word: &'static str,
    /// The feature that is off if the server does not allow it; `None`: that of the column.
    pub feature: Option<Feature>,
}

impl ColumnDeclaration {
    pub(crate) const fn new(name: &'static str, shape: Shape) -> Self {
        Self { name, shape, feature: None, observed: false, choices: &[] }
    }

    /// All features that are off if a server lacks the column: its own, and those of its choices.
    pub fn features(&self, table: Feature) -> impl Iterator<Item = Feature> + use<> {
        let own = self.feature.unwrap_or(table);
        self.choices.iter().map(move |choice| choice.feature.unwrap_or(own)).chain([own])
    }

    pub(crate) const fn feature(mut self, feature: Feature) -> Self {
        self.feature = Some(feature);
        self
    }

    pub(crate) const fn observed(mut self) -> Self {
        self.observed = true;
        self
    }

    pub(crate) const fn choices(mut self, choices: &'static [Choice]) -> Self {
        self.choices = choices;
        self
    }
}

/// A typed column: builds conditions and mutations with the correct name and type.
pub struct Column<R, T> {
    name: &'static str,
    marker: PhantomData<fn() -> (R, T)>,
}

impl<R: TableRow, T: ColumnValue> Column<R, T> {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, marker: PhantomData }
    }

    /// The name in the schema, which may differ from the field of the row type.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Matches rows with exactly this value.
    pub fn equals(&self, value: &T) -> Condition {
        Condition::new(self.name, Function::Equal, value.to_datum())
    }

    /// A row with only this value, to update one column.
    pub fn row(&self, value: &T) -> Row {
        Row::new().set(self.name, value.to_datum())
    }
}

impl<R: TableRow, T: AtomValue> Column<R, BTreeSet<T>> {
    /// Adds members to the set.
    pub fn insert(&self, members: impl IntoIterator<Item = T>) -> Mutation {
        Mutation::new(self.name, Mutator::Insert, members.into_iter().collect::<BTreeSet<T>>().to_datum())
    }

    /// Removes members from the set.
    pub fn remove(&self, members: impl IntoIterator<Item = T>) -> Mutation {
        Mutation::new(self.name, Mutator::Delete, members.into_iter().collect::<BTreeSet<T>>().to_datum())
    }

    /// Matches rows with this member.
    pub fn includes(&self, member: &T) -> Condition {
        Condition::new(self.name, Function::Includes, member.to_atom())
    }
}

impl<R: TableRow, K: AtomValue, V: AtomValue> Column<R, BTreeMap<K, V>> {
    /// Adds pairs; an existing key keeps its value.
    pub fn insert(&self, pairs: impl IntoIterator<Item = (K, V)>) -> Mutation {
        Mutation::new(self.name, Mutator::Insert, pairs.into_iter().collect::<BTreeMap<K, V>>().to_datum())
    }

    /// Removes pairs by key, whatever their values; missing ones are ignored.
    pub fn remove(&self, keys: impl IntoIterator<Item = K>) -> Mutation {
        Mutation::new(self.name, Mutator::Delete, keys.into_iter().collect::<BTreeSet<K>>().to_datum())
    }

    /// Matches rows with this pair.
    pub fn includes(&self, key: K, value: V) -> Condition {
        Condition::new(self.name, Function::Includes, BTreeMap::from([(key, value)]).to_datum())
    }
}

// Not derived: a column is Copy even if its types are not.
impl<R, T> Clone for Column<R, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, T> Copy for Column<R, T> {}

impl<R: TableRow, T> fmt::Debug for Column<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", R::TABLE, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::northbound::{LogicalSwitch, LogicalSwitchPort};
    use ovsdb::datum::Atom;

    #[test]
    fn a_value_of_the_wrong_type_is_reported_with_its_location_and_both_types() {
        let uuid = Uuid::from_bytes([7; 16]);
        let row = Row::new().set("tag", Atom::String("seven".into()));
        let error = LogicalSwitchPort::from_values(uuid, &row.0).unwrap_err();
        assert_eq!(error.column, "tag");
        let message = error.to_string();
        for word in ["Logical_Switch_Port.tag", &uuid.to_string(), "one integer or none", "seven"] {
            assert!(message.contains(word), "{message}");
        }
    }

    #[test]
    fn a_large_value_is_truncated_in_the_message() {
        let many = Datum::set((0..1000).map(|number| Atom::String(format!("é{number}").as_str().into())));
        let row = Row::new().set("name", many);
        let message = LogicalSwitchPort::from_values(Uuid::ZERO, &row.0).unwrap_err().to_string();
        assert!(message.len() < 300, "{message}");
    }

    #[test]
    fn columns_know_their_names_and_types() {
        let port = Uuid::from_bytes([1; 16]);
        assert_eq!(
            LogicalSwitch::ports.insert([port]),
            Mutation::new("ports", Mutator::Insert, Datum::One(Atom::Uuid(port)))
        );
        assert_eq!(LogicalSwitchPort::kind.equals(&"router".to_owned()), Condition::equals("type", "router"));
        assert_eq!(
            LogicalSwitch::other_config.remove(["subnet".to_owned()]),
            Mutation::new("other_config", Mutator::Delete, Datum::One(Atom::String("subnet".into())))
        );
        assert_eq!(format!("{:?}", LogicalSwitchPort::kind), "Logical_Switch_Port.type");
    }
}
