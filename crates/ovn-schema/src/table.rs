//! What every row type is: a table's name, its columns, and the way to the database's values and back.

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

/// A row of one table. Its identity is not part of it: two rows with the same values are equal.
pub trait TableRow: Clone + fmt::Debug + Default + Eq + Hash + Send + Sync + 'static {
    /// The table's name.
    const TABLE: &'static str;
    /// The columns that we know, in the order of their declaration. The server may have more, or lack some.
    const COLUMNS: &'static [&'static str];
    /// What of it a server must have.
    const DECLARATION: TableDeclaration;

    /// All columns.
    fn to_row(&self) -> Row;

    /// The columns that are not the default: for an insert, or where a server may lack the others.
    fn to_sparse_row(&self) -> Row;

    /// Reads a row from its columns; one that is not there has its default.
    fn read<D: Borrow<Datum>>(uuid: Uuid, column: impl FnMut(&'static str) -> Option<D>) -> Result<Self, ReadError>;

    /// Reads a row from values by name.
    fn from_values(uuid: Uuid, values: &RowValues) -> Result<Self, ReadError> {
        Self::read(uuid, |column| values.get(column))
    }
}

/// A column whose value has another shape than declared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{table}.{column} of row {row} must be {expected}, not {found}")]
pub struct ReadError {
    /// The table.
    pub table: &'static str,
    /// The row's identity.
    pub row: Uuid,
    /// The column.
    pub column: &'static str,
    /// What it should have been.
    pub expected: Shape,
    /// What it was.
    pub found: String,
}

/// Reads one column; what `tables!` makes for each field.
pub(crate) fn read_column<T: ColumnValue>(
    table: &'static str,
    row: Uuid,
    column: &'static str,
    datum: Option<&Datum>,
) -> Result<T, ReadError> {
    let Some(datum) = datum else { return Ok(T::default()) };
    T::from_datum(datum).ok_or_else(|| ReadError { table, row, column, expected: T::SHAPE, found: shortened(datum) })
}

/// A message shall not be as long as the largest set.
fn shortened(datum: &Datum) -> String {
    const LONGEST: usize = 80;
    let text = format!("{datum:?}");
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// A table as declared.
#[derive(Debug, Clone, Copy)]
pub struct TableDeclaration {
    /// Its name.
    pub name: &'static str,
    /// What is off where the server lacks it.
    pub feature: Feature,
    /// Its columns.
    pub columns: &'static [ColumnDeclaration],
    /// Reads values as the row type and writes them again: for code that goes over all tables.
    pub rewrite: fn(Uuid, &RowValues) -> Result<Rewritten, ReadError>,
}

/// A row that went through its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewritten {
    /// All columns.
    pub full: Row,
    /// Those that are not the default.
    pub sparse: Row,
}

/// Reads values as a row type and writes them again.
pub(crate) fn rewrite<R: TableRow>(uuid: Uuid, values: &RowValues) -> Result<Rewritten, ReadError> {
    let row = R::from_values(uuid, values)?;
    Ok(Rewritten { full: row.to_row(), sparse: row.to_sparse_row() })
}

/// A column as declared.
#[derive(Debug, Clone, Copy)]
pub struct ColumnDeclaration {
    /// Its name.
    pub name: &'static str,
    /// What it must look like.
    pub shape: Shape,
    /// What is off where the server lacks it; the table's feature, unless it says otherwise.
    pub feature: Option<Feature>,
    /// Whether OVN or Open vSwitch tell something in it, so that we only read it.
    pub observed: bool,
    /// Strings that we write into it, where the server allows some only.
    pub choices: &'static [Choice],
}

/// A string that a column must allow.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    /// The string.
    pub word: &'static str,
    /// What is off where the server does not allow it; the column's feature, unless it says otherwise.
    pub feature: Option<Feature>,
}

impl ColumnDeclaration {
    pub(crate) const fn new(name: &'static str, shape: Shape) -> Self {
        Self { name, shape, feature: None, observed: false, choices: &[] }
    }

    /// All that is off where a server lacks it, in a table of this feature: its own, and those of its choices.
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

/// A column by its type: mutations and conditions that cannot name what is not there.
pub struct Column<R, T> {
    name: &'static str,
    marker: PhantomData<fn() -> (R, T)>,
}

impl<R: TableRow, T: ColumnValue> Column<R, T> {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, marker: PhantomData }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The rows that have exactly this value.
    pub fn equals(&self, value: &T) -> Condition {
        Condition::new(self.name, Function::Equal, value.to_datum())
    }

    /// A row with this value alone, for an update of one column.
    pub fn row(&self, value: &T) -> Row {
        Row::new().set(self.name, value.to_datum())
    }
}

impl<R: TableRow, T: AtomValue> Column<R, BTreeSet<T>> {
    /// Adds members.
    pub fn insert(&self, members: impl IntoIterator<Item = T>) -> Mutation {
        Mutation::new(self.name, Mutator::Insert, members.into_iter().collect::<BTreeSet<T>>().to_datum())
    }

    /// Takes members out.
    pub fn remove(&self, members: impl IntoIterator<Item = T>) -> Mutation {
        Mutation::new(self.name, Mutator::Delete, members.into_iter().collect::<BTreeSet<T>>().to_datum())
    }

    /// The rows that have this member.
    pub fn includes(&self, member: &T) -> Condition {
        Condition::new(self.name, Function::Includes, member.to_atom())
    }
}

impl<R: TableRow, K: AtomValue, V: AtomValue> Column<R, BTreeMap<K, V>> {
    /// Adds pairs; a key that is there already keeps its value.
    pub fn insert(&self, pairs: impl IntoIterator<Item = (K, V)>) -> Mutation {
        Mutation::new(self.name, Mutator::Insert, pairs.into_iter().collect::<BTreeMap<K, V>>().to_datum())
    }

    /// Takes keys out, whatever their values.
    pub fn remove(&self, keys: impl IntoIterator<Item = K>) -> Mutation {
        Mutation::new(self.name, Mutator::Delete, keys.into_iter().collect::<BTreeSet<K>>().to_datum())
    }

    /// The rows that have this pair.
    pub fn includes(&self, key: K, value: V) -> Condition {
        Condition::new(self.name, Function::Includes, BTreeMap::from([(key, value)]).to_datum())
    }
}

// By hand, because a column can be copied whatever its types are.
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
    fn a_wrong_value_is_told_with_table_row_column_and_both_shapes() {
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
    fn a_large_wrong_value_makes_no_large_message() {
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
