//! A plan as text: changes by object, number of rows, refused objects.

use ovsdb::datum::Datum;
use reachability::preview::{RowChange, label_columns};

use super::report::{ObjectRemark, Report, Row};
use crate::commands::ovsdb::{grid, value};

/// Members shown of a set or map.
const MOST: usize = 12;

/// Formats a plan.
pub(super) fn text(report: &Report, colour: bool) -> String {
    let mut text = String::new();
    for object in report.objects.iter().flatten() {
        text.push_str(&paint(&value::escape(&capital(&object.shown)), BOLD, colour));
        text.push('\n');
        // Equal rows, such as the bands of meters, are shown once.
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
    push_remarks(&mut text, "Refused", &report.refused, colour);
    push_remarks(&mut text, "Warnings", &report.warnings, colour);
    if !report.not_part_of_the_network.is_empty() {
        let kinds: Vec<String> = report
            .not_part_of_the_network
            .iter()
            .map(|(kind, count)| format!("{count} {}", value::escape(kind)))
            .collect();
        text.push_str(&format!("\nNot part of the network: {}\n", kinds.join(", ")));
    }
    if !report.hints.is_empty() {
        text.push('\n');
    }
    for hint in &report.hints {
        text.push_str(&format!("hint: {}\n", value::escape(hint)));
    }
    text
}

/// The line of a row, and those of its columns.
fn shown(row: &Row, colour: bool) -> [String; 2] {
    let (sign, code) = match row.difference.change {
        RowChange::Added => ('+', GREEN),
        RowChange::Changed => ('~', YELLOW),
        RowChange::Removed => ('-', RED),
    };
    let line = paint(&format!("{sign} {} {}", row.table, value::escape(&row.name)), code, colour);
    let mut columns = String::new();
    for column in &row.difference.columns {
        let said = match row.difference.change {
            RowChange::Removed => continue,
            RowChange::Added if label_columns(&row.table).contains(&column.name.as_str()) => continue,
            // A map may be empty without the ownership keys.
            RowChange::Added if column.new.is_empty() => continue,
            RowChange::Added => members(&column.new),
            RowChange::Changed => value::change(&column.old, &column.new),
        };
        columns.push_str(&format!("      {}: {}\n", column.name, value::escape(&said)));
    }
    [line, columns]
}

/// A value; only the first members of a large one.
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

fn push_remarks(text: &mut String, heading: &str, all: &[ObjectRemark], colour: bool) {
    if all.is_empty() {
        return;
    }
    text.push_str(&format!("\n{}\n", paint(heading, BOLD, colour)));
    for remark in all {
        let who = paint(&format!("! {} {}", remark.kind, value::escape(&remark.name)), RED, colour);
        text.push_str(&format!("  {who} ({}): {}\n", remark.reason, value::escape(&remark.message)));
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
