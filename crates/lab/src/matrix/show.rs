//! The matrix for people: one line for each kind of way, green where all are as the API says, and each wrong one by name.

use console::table::{self, Cell, Tone};

use super::{Matrix, Tried};

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];

impl Matrix {
    /// The table, and below it what is wrong.
    pub fn table(&self, colour: bool) -> String {
        let mut kinds: Vec<&str> = Vec::new();
        for way in &self.ways {
            if !kinds.contains(&way.kind.as_str()) {
                kinds.push(&way.kind);
            }
        }
        let rows = kinds.iter().map(|kind| {
            let [v4, v6] = FAMILIES.map(|family| self.cell(kind, family));
            let expected = self.ways.iter().any(|way| way.kind == *kind && way.expected);
            [Cell::plain(kind), Cell::plain(if expected { "pass" } else { "denied" }), v4, v6]
        });
        let mut text = table::render(["WAY", "THE API SAYS", "IPV4", "IPV6"], rows.collect(), colour);
        for way in self.wrong() {
            let (seen, expected) = (word(way.passed), word(way.expected));
            text.push_str(&format!(
                "wrong: {} {}, {} to {}: {seen}, but {expected} by the API ({})\n",
                way.family, way.kind, way.from, way.to, way.said
            ));
        }
        text
    }

    fn cell(&self, kind: &str, family: &str) -> Cell {
        let ways: Vec<&Tried> = self.ways.iter().filter(|way| way.kind == kind && way.family == family).collect();
        let right = ways.iter().filter(|way| way.is_right()).count();
        match ways.len() {
            0 => Cell::plain("-"),
            all if all == right => Cell::new(format!("✔ {right}"), Tone::Good),
            all => Cell::new(format!("✘ {right} of {all}"), Tone::Bad),
        }
    }
}

fn word(passes: bool) -> &'static str {
    if passes { "passes" } else { "does not pass" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        let way = |expected, passed| Tried {
            kind: "pod → service".into(),
            family: "IPv4",
            from: "client on n1".into(),
            to: "web".into(),
            expected,
            passed,
            said: "web-1".into(),
        };
        let good = Matrix { ways: vec![way(true, true)] };
        assert_eq!(
            good.table(false),
            "WAY            THE API SAYS  IPV4  IPV6\npod → service  pass          ✔ 1   -\n"
        );
        let bad = Matrix { ways: vec![way(true, true), way(true, false)] };
        assert!(bad.table(false).contains("✘ 1 of 2"), "{}", bad.table(false));
        assert!(bad.table(false).contains("client on n1 to web: does not pass, but passes by the API"));
    }
}
