//! Evaluation of conditions.

use super::fault::Fault;
use super::layout::{Column, Layout};
use super::names::Names;
use super::store::Row;
use super::value::{Bounds, admit_within};
use crate::datum::{Atom, AtomicType, Datum};
use crate::operation::{Condition, Function};
use crate::schema::ColumnType;
use crate::uuid::Uuid;

/// A condition with resolved column and checked value.
#[derive(Debug)]
pub(crate) struct Clause {
    column: Column,
    function: Function,
    value: Datum,
}

/// Resolves all conditions of an operation.
pub(crate) fn read(
    layout: &Layout,
    table: usize,
    conditions: &[Condition],
    names: &mut Names<'_>,
) -> Result<Vec<Clause>, Fault> {
    conditions.iter().map(|condition| Clause::read(layout, table, condition, names)).collect()
}

impl Clause {
    fn read(layout: &Layout, table: usize, condition: &Condition, names: &mut Names<'_>) -> Result<Self, Fault> {
        let column = layout.require_column(table, &condition.column)?;
        let kind = layout.column_type(table, column);
        let bounds = match condition.function {
            Function::Equal | Function::NotEqual => Bounds::of(kind),
            Function::Includes | Function::Excludes if kind.is_scalar() => Bounds::ONE,
            Function::Includes => Bounds { min: 0, max: kind.max },
            Function::Excludes => Bounds::ANY,
            Function::Less | Function::LessOrEqual | Function::GreaterOrEqual | Function::Greater => {
                if !is_comparable(kind) {
                    let (function, column) = (condition.function.name(), &condition.column);
                    return Err(Fault::syntax(format!("{function:?} may not be applied to column {column}")));
                }
                Bounds::ONE
            }
        };
        let value = admit_within(&condition.value, kind, bounds, names)?;
        Ok(Self { column, function: condition.function, value })
    }

    /// The only row that can match, if it compares `_uuid`.
    pub(crate) fn only_row(&self) -> Option<Uuid> {
        match (&self.value, self.column, self.function) {
            (Datum::One(Atom::Uuid(uuid)), Column::Identity, Function::Equal | Function::Includes) => Some(*uuid),
            _ => None,
        }
    }

    /// Whether a row matches.
    pub(crate) fn holds(&self, uuid: Uuid, row: &Row) -> bool {
        let field = self.column.of(uuid, row);
        let field = field.as_ref();
        match self.function {
            Function::Equal => *field == self.value,
            Function::NotEqual => *field != self.value,
            Function::Includes => common(&self.value, field) == self.value.len(),
            Function::Excludes => common(&self.value, field) == 0,
            Function::Less | Function::LessOrEqual | Function::GreaterOrEqual | Function::Greater => {
                self.compares(field)
            }
        }
    }

    /// An absent optional value is neither less nor greater.
    fn compares(&self, field: &Datum) -> bool {
        let (Datum::One(field), Datum::One(value)) = (field, &self.value) else { return false };
        match self.function {
            Function::Less => field < value,
            Function::LessOrEqual => field <= value,
            Function::Greater => field > value,
            _ => field >= value,
        }
    }
}

/// Whether the column holds at most one number.
fn is_comparable(kind: &ColumnType) -> bool {
    !kind.is_map() && kind.max == Some(1) && matches!(kind.key.atomic, AtomicType::Integer | AtomicType::Real)
}

/// Number of atoms or pairs that both values have.
fn common(one: &Datum, other: &Datum) -> usize {
    match one {
        Datum::Map(pairs) => pairs.iter().filter(|(key, value)| other.get(key) == Some(value)).count(),
        _ => one.atoms().filter(|atom| other.contains(atom)).count(),
    }
}
