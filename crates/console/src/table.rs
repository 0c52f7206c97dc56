//! Tables with aligned columns; coloured only on a terminal without `NO_COLOR`.

use std::io::{self, IsTerminal as _};

/// Highlighting of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// The terminal's own colour.
    Plain,
    /// Green: as it should be.
    Good,
    /// Red: needs attention.
    Bad,
    /// Bold: titles of columns.
    Heading,
}

/// Text, and how it is highlighted on a terminal.
#[derive(Debug, Clone)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// Control characters, which could come from a peer, are escaped.
    pub fn new(text: impl AsRef<str>, tone: Tone) -> Self {
        let show = |c: char| -> String { if c.is_control() { c.escape_default().collect() } else { c.to_string() } };
        Self { text: text.as_ref().chars().map(show).collect(), tone }
    }

    /// A cell without highlighting.
    pub fn plain(text: impl AsRef<str>) -> Self {
        Self::new(text, Tone::Plain)
    }
}

/// Whether stdout is a terminal and `NO_COLOR` is unset.
pub fn colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Formats rows under their headings; each line ends without trailing spaces.
pub fn render<const N: usize>(headings: [&str; N], rows: Vec<[Cell; N]>, colour: bool) -> String {
    let mut all = vec![headings.map(|heading| Cell::new(heading, Tone::Heading))];
    all.extend(rows);
    let width = |column: usize| all.iter().map(|row| row[column].text.chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &all {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let padding = " ".repeat(width - cell.text.chars().count() + 2);
            let (on, off) = if colour { codes(cell.tone) } else { ("", "") };
            line.push_str(&format!("{on}{}{off}{padding}", cell.text));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn codes(tone: Tone) -> (&'static str, &'static str) {
    match tone {
        Tone::Plain => ("", ""),
        Tone::Good => ("\u{1b}[32m", "\u{1b}[0m"),
        Tone::Bad => ("\u{1b}[31m", "\u{1b}[0m"),
        Tone::Heading => ("\u{1b}[1m", "\u{1b}[0m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_without_trailing_spaces() {
        let rows = vec![[Cell::plain("a"), Cell::new("ok", Tone::Good)], [Cell::plain("longer"), Cell::plain("")]];
        assert_eq!(render(["NAME", "STATE"], rows, false), "NAME    STATE\na       ok\nlonger\n");
    }

    #[test]
    fn colour_does_not_shift_columns_and_control_characters_are_escaped() {
        let rows = vec![[Cell::new("\u{1b}[2J", Tone::Bad), Cell::plain("x")]];
        assert_eq!(
            render(["A", "B"], rows, true),
            "\u{1b}[1mA\u{1b}[0m          \u{1b}[1mB\u{1b}[0m\n\u{1b}[31m\\u{1b}[2J\u{1b}[0m  x\n"
        );
    }
}
