//! A plan for people: what would change, object by object; how many rows; who would be refused, and why.

use ovsdb::datum::Datum;
use topology::preview::{Fate, told_by_label};

use super::report::{Report, Row, Told};
use crate::commands::ovsdb::{grid, value};

/// A set or map of more members is cut.
const MOST: usize = 12;

/// The whole plan as text.
pub(super) fn text(report: &Report, colour: bool) -> String {
    let mut text = String::new();
    for object in report.objects.iter().flatten() {
        text.push_str(&paint(&value::tame(&capital(&object.shown)), BOLD, colour));
        text.push('\n');
        // Rows that look the same, such as the bands of meters, are told once.
        let mut rows: Vec<([String; 2], usize)> = Vec::new();
        for row in object.rows.iter().map(|row| shown(row, colour)) {
            match rows.last_mut() {
                Some((last, times)) if *last == row => *times += 1,
                _ => rows.push((row, 1)),
            }
        }
        for ([line, columns], times) in rows {
            let times = if times == 1 { String::new() } else { format!(" ({times} times)") };
            text.push_str(&format!("  {line}{times}\n{columns}"));
        }
        text.push('\n');
    }
    if report.changes {
        let rows: Vec<Vec<String>> = report
            .counts
            .iter()
            .map(|(table, count)| {
                let numbers = [count.added, count.changed, count.removed].map(|number| number.to_string());
                std::iter::once(table.clone()).chain(numbers).collect()
            })
            .collect();
        text.push_str(&grid::render(&["table", "added", "changed", "removed"], &rows, false));
    } else {
        text.push_str("Nothing would change.\n");
    }
    push_told(&mut text, "Refused", &report.refused, colour);
    push_told(&mut text, "Warnings", &report.warnings, colour);
    if !report.not_part_of_the_network.is_empty() {
        let kinds: Vec<String> = report
            .not_part_of_the_network
            .iter()
            .map(|(kind, count)| format!("{count} {}", value::tame(kind)))
            .collect();
        text.push_str(&format!("\nNot part of the network: {}\n", kinds.join(", ")));
    }
    if !report.hints.is_empty() {
        text.push('\n');
    }
    for hint in &report.hints {
        text.push_str(&format!("hint: {}\n", value::tame(hint)));
    }
    text
}

/// A row's line, and those of its columns.
fn shown(row: &Row, colour: bool) -> [String; 2] {
    let (sign, code) = match row.difference.fate {
        Fate::Added => ('+', GREEN),
        Fate::Changed => ('~', YELLOW),
        Fate::Removed => ('-', RED),
    };
    let line = paint(&format!("{sign} {} {}", row.table, value::tame(&row.name)), code, colour);
    let mut columns = String::new();
    for column in &row.difference.columns {
        let said = match row.difference.fate {
            Fate::Removed => continue,
            Fate::Added if told_by_label(&row.table).contains(&column.name.as_str()) => continue,
            // What is left of a map when the marks are taken out may be nothing.
            Fate::Added if column.new.is_empty() => continue,
            Fate::Added => members(&column.new),
            Fate::Changed => value::change(&column.old, &column.new),
        };
        columns.push_str(&format!("      {}: {}\n", column.name, value::tame(&said)));
    }
    [line, columns]
}

/// A value, the first members of a large one.
fn members(datum: &Datum) -> String {
    let more = datum.len().saturating_sub(MOST);
    if more == 0 {
        return datum.to_string();
    }
    let few = match datum {
        Datum::Map(pairs) => Datum::map(pairs.iter().take(MOST).cloned()),
        _ => Datum::set(datum.atoms().take(MOST)),
    };
    format!("{few} and {more} more")
}

fn push_told(text: &mut String, heading: &str, all: &[Told], colour: bool) {
    if all.is_empty() {
        return;
    }
    text.push_str(&format!("\n{}\n", paint(heading, BOLD, colour)));
    for told in all {
        let who = paint(&format!("! {} {}", told.kind, value::tame(&told.name)), RED, colour);
        text.push_str(&format!("  {who} ({}): {}\n", told.reason, value::tame(&told.message)));
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

const GREEN: &str = "32";
const YELLOW: &str = "33";
const RED: &str = "31";
const BOLD: &str = "1";

fn paint(text: &str, code: &str, colour: bool) -> String {
    if colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}
