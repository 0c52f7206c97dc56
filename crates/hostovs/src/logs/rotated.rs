//! Names of rotated files, and their order.

/// Age of a rotated file among those of its log: greater is older.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// `x.log.N`: greater numbers are older.
    Number(u64),
    /// `x.log-20261120`: smaller dates are older.
    Date(std::cmp::Reverse<String>),
}

/// Whether a file was rotated from a log, by its name; compressed files cannot be read and have no rank.
#[must_use]
pub fn rank(log: &str, name: &str) -> Option<Rank> {
    let rest = name.strip_prefix(log)?;
    if let Some(number) = rest.strip_prefix('.') {
        return number.parse().ok().map(Rank::Number);
    }
    let date = rest.strip_prefix('-')?;
    let is_date = date.len() >= 6 && date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    is_date.then(|| Rank::Date(std::cmp::Reverse(date.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotated_files_are_ordered_oldest_first() {
        let order = |names: &[&'static str]| {
            let mut ranked: Vec<_> = names.iter().filter_map(|name| Some((rank("x.log", name)?, *name))).collect();
            ranked.sort_by(|one, other| other.cmp(one));
            ranked.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
        };
        assert_eq!(
            order(&["x.log.1", "x.log.10", "x.log.2", "x.log", "x.log.3.gz", "y.log.1"]),
            ["x.log.10", "x.log.2", "x.log.1"]
        );
        assert_eq!(
            order(&["x.log-20261120", "x.log-20261119", "x.log-old", "x.log-20261118.gz"]),
            ["x.log-20261119", "x.log-20261120"]
        );
    }
}
