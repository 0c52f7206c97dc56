//! "Did you mean …?" for misspelt names.

/// The candidate that was probably meant, if one is similar enough.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    // Names are short: a long one is not a typo, and costs time.
    if name.is_empty() || name.len() > 64 {
        return None;
    }
    candidates
        .into_iter()
        .map(|candidate| (distance(&name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 2.max(candidate.len() / 3) || name.contains(candidate))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, candidate)| *distance < candidate.len())
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance, in characters.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_names_are_suggested() {
        let keys = ["level", "format", "bind-address"];
        assert_eq!(nearest("bind-adress", keys), Some("bind-address"));
        assert_eq!(nearest("LEVEL", keys), Some("level"));
        assert_eq!(nearest("lvel", keys), Some("level"));
        // The name that users know from the Go implementation.
        assert_eq!(nearest("loglevel", keys), Some("level"));
        assert_eq!(nearest("kubeconfig", keys), None);
        assert_eq!(nearest("", keys), None);
    }

    #[test]
    fn distance_counts_letters() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }
}
