//! Mutations: changes relative to the current value.

use super::fault::Fault;
use super::layout::{Column, Layout};
use super::names::Names;
use super::value::{Bounds, admit_set, admit_within, check_atoms};
use crate::datum::{Atom, AtomicType, Datum};
use crate::operation::{Mutation, Mutator};
use crate::schema::{BaseType, ColumnType};

/// A mutation with resolved column and checked value.
#[derive(Debug)]
pub(crate) struct Step<'a> {
    position: usize,
    kind: &'a ColumnType,
    change: Change,
}

#[derive(Debug)]
enum Change {
    Compute(Mutator, Atom),
    Insert(Datum),
    /// Atoms of a set, or pairs of a map.
    Delete(Datum),
    /// Pairs of a map by key.
    DeleteKeys(Datum),
}

/// Resolves all mutations of an operation.
pub(crate) fn read<'a>(
    layout: &'a Layout,
    table: usize,
    mutations: &[Mutation],
    names: &mut Names<'_>,
) -> Result<Vec<Step<'a>>, Fault> {
    mutations.iter().map(|mutation| Step::read(layout, table, mutation, names)).collect()
}

impl<'a> Step<'a> {
    fn read(layout: &'a Layout, table: usize, mutation: &Mutation, names: &mut Names<'_>) -> Result<Self, Fault> {
        let column = layout.require_column(table, &mutation.column)?;
        let position = match column {
            Column::Schema(position) if layout.is_mutable(table, column) => position,
            _ => return Err(Fault::constraint(format!("Cannot mutate immutable column {}.", mutation.column))),
        };
        let kind = layout.column_type(table, column);
        let change = Change::read(mutation, kind, names)?;
        Ok(Self { position, kind, change })
    }

    /// Applies it to the values of one row.
    pub(crate) fn apply(&self, values: &mut [Datum]) -> Result<(), Fault> {
        let field = &mut values[self.position];
        *field = self.change.apply(field, self.kind)?;
        Ok(())
    }
}

impl Change {
    fn read(mutation: &Mutation, kind: &ColumnType, names: &mut Names<'_>) -> Result<Self, Fault> {
        let mismatch = || {
            Fault::syntax(format!("{:?} may not be applied to column {}.", mutation.mutator.name(), mutation.column))
        };
        let value = &mutation.value;
        match mutation.mutator {
            Mutator::Insert | Mutator::Delete if kind.is_scalar() => Err(mismatch()),
            Mutator::Insert => Ok(Self::Insert(admit_within(value, kind, Bounds { min: 0, max: kind.max }, names)?)),
            Mutator::Delete => match admit_within(value, kind, Bounds::ANY, names) {
                Err(_) if kind.is_map() => Ok(Self::DeleteKeys(admit_set(value, &kind.key, Bounds::ANY, names)?)),
                read => Ok(Self::Delete(read?)),
            },
            mutator => {
                let computes = match kind.key.atomic {
                    AtomicType::Integer => !kind.is_map(),
                    AtomicType::Real => !kind.is_map() && mutator != Mutator::Modulo,
                    _ => false,
                };
                if !computes {
                    return Err(mismatch());
                }
                // The operand need not satisfy the constraints of the column.
                match admit_set(value, &BaseType::of(kind.key.atomic), Bounds::ONE, names)? {
                    Datum::One(atom) => Ok(Self::Compute(mutator, atom)),
                    _ => Err(mismatch()),
                }
            }
        }
    }

    fn apply(&self, field: &Datum, kind: &ColumnType) -> Result<Datum, Fault> {
        let changed = match self {
            Self::Compute(mutator, operand) => return compute(*mutator, operand, field, kind),
            // An existing key keeps its value.
            Self::Insert(value) if kind.is_map() => Datum::map(value.pairs().iter().chain(field.pairs()).cloned()),
            Self::Insert(value) => Datum::set(field.atoms().chain(value.atoms())),
            Self::Delete(value) if kind.is_map() => keep_pairs(field, |pair| value.get(&pair.0) != Some(&pair.1)),
            Self::Delete(value) => Datum::set(field.atoms().filter(|atom| !value.contains(atom))),
            Self::DeleteKeys(keys) => keep_pairs(field, |pair| !keys.contains(&pair.0)),
        };
        if !Bounds::of(kind).allow(changed.len()) {
            return Err(Fault::constraint(format!("Attempted to store {} elements", changed.len())));
        }
        Ok(changed)
    }
}

/// The pairs of a map for which `keep` is true.
pub(crate) fn keep_pairs(field: &Datum, keep: impl Fn(&(Atom, Atom)) -> bool) -> Datum {
    Datum::map(field.pairs().iter().filter(|pair| keep(pair)).cloned())
}

/// Computes all atoms, then checks all, then their number: the server's order of errors.
fn compute(mutator: Mutator, operand: &Atom, field: &Datum, kind: &ColumnType) -> Result<Datum, Fault> {
    let atoms = field
        .atoms()
        .map(|atom| match (atom, operand) {
            (Atom::Integer(value), Atom::Integer(operand)) => integer(mutator, value, *operand).map(Atom::Integer),
            (Atom::Real(value), Atom::Real(operand)) => real(mutator, value, *operand).map(Atom::Real),
            (atom, _) => Ok(atom),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let computed = Datum::set(atoms);
    check_atoms(&computed, kind)?;
    if computed.len() < field.len() {
        return Err(Fault::constraint(format!("Result of {:?} contains duplicates.", mutator.name())));
    }
    Ok(computed)
}

fn integer(mutator: Mutator, value: i64, operand: i64) -> Result<i64, Fault> {
    let result = match mutator {
        Mutator::Add => value.checked_add(operand),
        Mutator::Subtract => value.checked_sub(operand),
        Mutator::Multiply => multiply(value, operand),
        _ if operand == 0 => return Err(Fault::domain("Division by zero.")),
        Mutator::Divide => value.checked_div(operand),
        _ => value.checked_rem(operand),
    };
    result.ok_or_else(|| out_of_range(mutator))
}

/// The server's own overflow test, which rejects some products that fit and wraps some that do not. A negative number
/// times zero crashes the real server (division by zero); here it is zero.
fn multiply(value: i64, operand: i64) -> Option<i64> {
    let overflows = match (value > 0, operand > 0) {
        (true, true) => value >= i64::MAX / operand,
        (true, false) => operand < i64::MIN / value,
        (false, true) => value < i64::MIN / operand,
        (false, false) => value != 0 && operand != 0 && operand < i64::MAX / operand,
    };
    (!overflows).then(|| value.wrapping_mul(operand))
}

fn real(mutator: Mutator, value: f64, operand: f64) -> Result<f64, Fault> {
    let result = match mutator {
        Mutator::Add => value + operand,
        Mutator::Subtract => value - operand,
        Mutator::Multiply => value * operand,
        _ if operand == 0.0 => return Err(Fault::domain("Division by zero.")),
        _ => value / operand,
    };
    if result.is_finite() { Ok(result) } else { Err(out_of_range(mutator)) }
}

fn out_of_range(mutator: Mutator) -> Fault {
    Fault::range(format!("Result of {:?} operation is out of range.", mutator.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflow_of_products_is_detected_as_in_the_server() {
        let max = i64::MAX;
        for (value, operand) in [(max, 1), (1, max), (max / 2, 2), (-2, -4_000_000_000), (i64::MIN, 2)] {
            assert_eq!(multiply(value, operand), None, "{value} * {operand}");
        }
        for (value, operand, product) in [
            (5, 0, 0),
            (-5, 0, 0),
            (-5, -2, 10),
            (-max, -1, max),
            (2, i64::MIN / 2, i64::MIN),
            (i64::MIN, -1, i64::MIN),
            (i64::MIN / 2, -3, i64::MIN / 2),
        ] {
            assert_eq!(multiply(value, operand), Some(product), "{value} * {operand}");
        }
    }
}
