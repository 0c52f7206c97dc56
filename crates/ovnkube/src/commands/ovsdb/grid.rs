//! Tables whose columns are known only at run time.

use super::value::escape;

/// Width to which cells are truncated on a terminal, in characters.
const WIDEST: usize = 40;

/// Formats rows under their headings; truncates cells if `cut`.
pub(in crate::commands) fn render(headings: &[&str], rows: &[Vec<String>], cut: bool) -> String {
    // A uuid has 36 characters and is not truncated.
    let cell = |text: &str| {
        let text = escape(text);
        if cut && text.chars().count() > WIDEST { text.chars().take(WIDEST - 1).chain(['…']).collect() } else { text }
    };
    let mut all: Vec<Vec<String>> = vec![headings.iter().map(|heading| heading.to_uppercase()).collect()];
    all.extend(rows.iter().map(|row| row.iter().map(|text| cell(text)).collect()));
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let mut text = String::new();
    for row in &all {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.push_str(&" ".repeat(width - cell.chars().count() + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_truncated_on_request() {
        let rows = vec![vec!["a".to_owned(), "x".repeat(50)], vec!["lon\u{1b}ger".to_owned(), String::new()]];
        let whole = render(&["name", "b"], &rows, false);
        assert_eq!(whole, format!("NAME          B\na             {}\nlon\\u{{1b}}ger\n", "x".repeat(50)));
        assert!(render(&["name", "b"], &rows, true).contains(&format!("{}…\n", "x".repeat(39))));
    }
}
