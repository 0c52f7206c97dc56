//! Pairs of map columns that several owners contribute to, as members.
//!
//! A pair is counted like a member of a set, as the text `key=value`: a changed value is one removed and one added member.
//! Two owners never add the same key with different values.

use std::collections::BTreeSet;

use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::{Mutation, Mutator};
use ovsdb::replica::RowView;

/// Whether several owners contribute to a map column.
pub(crate) fn is_counted(table: &str, column: &str) -> bool {
    (table, column) == ("Chassis_Template_Var", "variables")
}

/// The member that stands for a pair.
pub(crate) fn member(key: &str, value: &str) -> Atom {
    Atom::String(format!("{key}={value}").as_str().into())
}

/// The pair that a member stands for.
pub fn pair(member: &Atom) -> (Atom, Atom) {
    let text = member.to_string();
    let (key, value) = text.split_once('=').unwrap_or((&text, ""));
    (Atom::String(key.into()), Atom::String(value.into()))
}

/// Whether a map contains the pair of a member.
pub(crate) fn holds(held: &Datum, member: &Atom) -> bool {
    let (key, value) = pair(member);
    held.get(&key) == Some(&value)
}

/// Mutations that remove keys and add pairs. OVSDB replaces a value only if its key is deleted first.
pub(crate) fn mutations(
    column: &str,
    held: Option<&Datum>,
    removed: impl Iterator<Item = Atom>,
    added: Vec<(Atom, Atom)>,
) -> Vec<Mutation> {
    let there = |key: &Atom| held.is_some_and(|held| held.contains(key));
    let replaced = added.iter().map(|(key, _)| key.clone());
    let gone: BTreeSet<Atom> = removed.chain(replaced).filter(there).collect();
    let mut mutations = Vec::new();
    if !gone.is_empty() {
        mutations.push(Mutation::new(column, Mutator::Delete, Datum::set(gone)));
    }
    if !added.is_empty() {
        mutations.push(Mutation::new(column, Mutator::Insert, Datum::map(added)));
    }
    mutations
}

/// Mutations from the row's map to the wanted one; equal pairs are not written.
pub(crate) fn difference(view: RowView<'_>, column: &str, wanted: &Datum) -> Vec<Mutation> {
    let held = view.get(column);
    let held = held.as_deref();
    let removed = held.into_iter().flat_map(Datum::atoms).filter(|key| wanted.get(key).is_none());
    let added = wanted.pairs().iter().filter(|(key, value)| held.and_then(|held| held.get(key)) != Some(value));
    mutations(column, held, removed, added.cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_survives_conversion_to_a_member() {
        for (key, value) in [("V", "10.0.0.1"), ("B", "10.0.0.1:80,10.0.0.2:80"), ("E", ""), ("Q", "a=b")] {
            let (again, value_again) = pair(&member(key, value));
            assert_eq!((again.to_string(), value_again.to_string()), (key.to_owned(), value.to_owned()));
        }
    }

    #[test]
    fn replacing_a_value_deletes_its_key_first() {
        let text = |text: &str| Atom::String(text.into());
        let held = Datum::map([(text("a"), text("1")), (text("b"), text("2")), (text("c"), text("3"))]);
        let made = mutations("m", Some(&held), [text("c"), text("d")].into_iter(), vec![(text("a"), text("9"))]);
        assert_eq!(made.len(), 2);
        assert_eq!(made[0].value, Datum::set([text("a"), text("c")]));
        assert_eq!(made[1].value, Datum::map([(text("a"), text("9"))]));
    }
}
