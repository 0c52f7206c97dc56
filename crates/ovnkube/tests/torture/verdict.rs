//! Compares what a member has with what was acknowledged. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// What one member has at the end.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// Names of all switches and ports, one for each row.
    pub(crate) names: Vec<String>,
    /// The counter that every batch increments.
    pub(crate) counter: i64,
}

/// Differences from what was acknowledged; none if all is well.
pub(crate) fn differences(contents: &Contents, expected: &BTreeSet<String>, batches: u64) -> Vec<String> {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for name in &contents.names {
        *counts.entry(name).or_default() += 1;
    }
    let mut problems = Vec::new();
    let lost: Vec<&str> = expected.iter().map(String::as_str).filter(|name| !counts.contains_key(name)).collect();
    let duplicated: Vec<&str> = counts.iter().filter(|(_, count)| **count > 1).map(|(name, _)| *name).collect();
    let unexpected: Vec<&str> = counts.keys().copied().filter(|name| !expected.contains(*name)).collect();
    for (what, names) in [
        ("acknowledged writes lost", lost),
        ("rows duplicated", duplicated),
        ("rows that were deleted or never acknowledged", unexpected),
    ] {
        if !names.is_empty() {
            let some: Vec<&str> = names.iter().copied().take(5).collect();
            problems.push(format!("{} {what}: {}, …", names.len(), some.join(", ")));
        }
    }
    if i64::try_from(batches).is_ok_and(|batches| batches != contents.counter) {
        problems.push(format!("{batches} batches were acknowledged, but {} took effect", contents.counter));
    }
    problems
}

/// What is missing if fewer faults, or fewer kinds of them, were injected than required: `faults`, and each of `kinds` once
/// before any is repeated.
pub(crate) fn too_few(counts: &BTreeMap<&'static str, u32>, kinds: usize, faults: usize) -> Option<String> {
    let total: usize = counts.values().map(|count| *count as usize).sum();
    let required = kinds.min(faults);
    (counts.len() < required || total < faults).then(|| {
        format!(
            "{total} faults of {} kinds were injected; {faults} of {required} kinds are required: {counts:?}",
            counts.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lost_duplicated_and_resurrected_rows_are_found() {
        let expected = BTreeSet::from_iter(names(&["a", "b"]));
        let contents = |list: &[&str], counter| Contents { names: names(list), counter };
        assert_eq!(differences(&contents(&["a", "b"], 2), &expected, 2), Vec::<String>::new());
        let found = |list: &[&str], counter| differences(&contents(list, counter), &expected, 2).join("\n");
        assert!(found(&["a"], 2).contains("1 acknowledged writes lost: b"));
        assert!(found(&["a", "b", "b"], 2).contains("1 rows duplicated: b"));
        assert!(found(&["a", "b", "c"], 2).contains("1 rows that were deleted or never acknowledged: c"));
        assert!(found(&["a", "b"], 3).contains("2 batches were acknowledged, but 3 took effect"));
    }

    #[test]
    fn a_run_without_enough_faults_fails() {
        let counts = BTreeMap::from([("a", 1), ("b", 1)]);
        assert_eq!(too_few(&counts, 2, 2), None);
        assert_eq!(too_few(&counts, 10, 2), None, "two were asked for");
        assert!(too_few(&counts, 10, 5).unwrap().contains("5 of 5 kinds are required"));
        // Every kind, but fewer faults than asked for: the time was over.
        assert!(too_few(&counts, 2, 3).unwrap().contains("2 faults of 2 kinds were injected; 3 of 2 kinds"));
        assert_eq!(too_few(&BTreeMap::from([("a", 2), ("b", 1)]), 2, 3), None);
        // As many as asked for, but the same again.
        assert!(too_few(&BTreeMap::from([("a", 2)]), 2, 2).is_some());
        assert!(too_few(&BTreeMap::new(), 1, 1).is_some());
    }
}
