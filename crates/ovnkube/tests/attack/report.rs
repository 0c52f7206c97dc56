//! The generated sections of `docs/security.md`.

use std::fmt::Write as _;

/// Whether an attempt concerns what belongs to the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The account must be able to do it.
    Own,
    /// It must not.
    Foreign,
    /// Documented only: a tenant's rights are the administrator's decision.
    Tenant,
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    text: String,
    /// Scope, description, and whether it took effect.
    pub(crate) attempts: Vec<(Scope, String, bool)>,
}

impl Report {
    pub(crate) fn heading(&mut self, text: &str) {
        write!(self.text, "\n### {text}\n").unwrap();
    }

    pub(crate) fn paragraph(&mut self, text: &str) {
        write!(self.text, "\n{text}\n").unwrap();
    }

    pub(crate) fn table(&mut self, columns: &[&str]) {
        let rules = vec!["---"; columns.len()];
        write!(self.text, "\n| {} |\n|{}|\n", columns.join(" | "), rules.join("|")).unwrap();
    }

    pub(crate) fn row(&mut self, cells: &[&str]) {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        writeln!(self.text, "| {} |", cells.join(" | ")).unwrap();
    }

    pub(crate) fn append(&mut self, other: Self) {
        self.text += &other.text;
        self.attempts.extend(other.attempts);
    }

    /// Compares the tables with a section of the document, or writes them there. `test` is the test program that writes it.
    pub(crate) fn compare_with_document(&self, section: &str, test: &str) {
        let begin = format!(
            "<!-- {section}: begin; written by `cargo test -p ovnkube --test {test}` with ATTACK_WRITE_GOLDEN=1 -->\n"
        );
        let end = format!("<!-- {section}: end -->");
        let path = format!("{}/../../docs/security.md", env!("CARGO_MANIFEST_DIR"));
        let document = std::fs::read_to_string(&path).unwrap();
        let (head, rest) = document.split_once(&begin).unwrap_or_else(|| panic!("{path}: no {begin}"));
        let (found, tail) = rest.split_once(&end).unwrap_or_else(|| panic!("{path}: no {end}"));
        let expected = format!("{}\n", self.text);
        if std::env::var_os("ATTACK_WRITE_GOLDEN").is_some() {
            std::fs::write(&path, format!("{head}{begin}{expected}{end}{tail}")).unwrap();
            return;
        }
        assert_eq!(
            expected, found,
            "if intended, run the test with ATTACK_WRITE_GOLDEN=1 and review the diff of docs/security.md"
        );
    }
}
