//! `ovnkube ovsdb watch`.

use std::future::pending;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use anyhow::bail;
use ovsdb::client::Status;
use ovsdb::replica::{Change, Changes, RowView};
use ovsdb::schema::TableSchema;
use serde_json::{Map, Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::connect::{Access, Choice, UUID};
use super::value;
use crate::cli::{Output, Watch};

/// Default limit of connecting.
const CONNECT: Duration = Duration::from_secs(30);

pub(super) async fn run(watch: &Watch) -> anyhow::Result<()> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let started = Instant::now();
    let limit = watch.timeout.map(|seconds| Duration::from_secs(seconds.into()));
    let timeout = async {
        match limit {
            Some(limit) => tokio::time::sleep_until((started + limit).into()).await,
            None => pending().await,
        }
    };
    let mut printer = Printer { output: watch.output, choice: None, printed: 0 };
    let ended = tokio::select! {
        biased;
        followed = follow(watch, limit.unwrap_or(CONNECT), &mut printer) => return followed,
        _ = interrupted.recv() => false,
        _ = terminated.recv() => false,
        () = timeout => true,
    };
    if let (true, Some(count), Some(seconds)) = (ended, watch.count, watch.timeout) {
        let seen = printer.printed;
        bail!("{seen} of {count} changes within {seconds} s; hint: give a longer --timeout");
    }
    Ok(())
}

/// Prints until the count is reached, or stdout is closed.
async fn follow(watch: &Watch, limit: Duration, printer: &mut Printer) -> anyhow::Result<()> {
    let access = Access::new(&watch.server, limit)?;
    let schema = access.schema(&watch.database).await?;
    let choice = Choice::new(&schema, &watch.tables, &watch.columns)?;
    let client = access.open(&watch.database, choice.monitors()).await?;
    printer.choice = Some(choice);
    let mut subscription = client.subscribe();
    let mut status = client.status();
    status.mark_unchanged();
    let mut connected = true;
    // The first batch is the initial rows, which do not count as changes.
    let present = subscription.take();
    if let (Some(changes), false) = (present, watch.changes_only)
        && !printer.print(&changes, true, u64::MAX)?
    {
        return Ok(());
    }
    let enough = watch.count.unwrap_or(u64::MAX);
    loop {
        tokio::select! {
            changes = subscription.next() => {
                if !printer.print(&changes, false, enough)? || printer.printed >= enough {
                    return Ok(());
                }
            }
            Ok(()) = status.changed() => {
                let now = status.borrow_and_update().clone();
                if now.connected != connected {
                    connected = now.connected;
                    console::eprint_line(format_args!("{}", value::escape(&status_line(&now))));
                }
            }
        }
    }
}

fn status_line(status: &Status) -> String {
    match (status.connected, &status.remote, &status.last_error) {
        (true, Some(remote), _) => format!("note: reconnected to {remote}"),
        (true, None, _) => "note: reconnected".to_owned(),
        (false, _, Some(error)) => format!("warning: connection lost ({error}); reconnecting"),
        (false, _, None) => "warning: connection lost; reconnecting".to_owned(),
    }
}

struct Printer {
    output: Output,
    /// Set when the schema is known.
    choice: Option<Choice>,
    /// Number of changes.
    printed: u64,
}

impl Printer {
    /// False if stdout is closed.
    fn print(&mut self, changes: &Changes, present: bool, enough: u64) -> anyhow::Result<bool> {
        let Some(choice) = &self.choice else { return Ok(true) };
        let mut stdout = io::stdout().lock();
        for change in &changes.changes {
            let Some(table) = changes.snapshot.table_at(change.table) else { continue };
            let Some(view) = ChangeView::new(change, table.schema(), choice) else { continue };
            if !present && self.printed >= enough {
                break;
            }
            let line = match self.output {
                Output::Json => view.json(present).to_string(),
                Output::Table => view.text(present),
            };
            match writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(false),
                Err(error) => bail!("cannot write to stdout: {error}"),
                Ok(()) => self.printed += u64::from(!present),
            }
        }
        Ok(true)
    }
}

/// A change, restricted to the selected columns.
struct ChangeView<'a> {
    table: &'a TableSchema,
    before: Option<RowView<'a>>,
    after: Option<RowView<'a>>,
    /// The columns to show; of a modification, those that changed.
    columns: Vec<&'a str>,
    change: &'a Change,
}

impl<'a> ChangeView<'a> {
    /// None if no selected column changed.
    fn new(change: &'a Change, table: &'a TableSchema, choice: &'a Choice) -> Option<Self> {
        let view = |row: &'a Option<_>| row.as_ref().map(|row| RowView { uuid: change.uuid, row, schema: table });
        let (before, after) = (view(&change.before), view(&change.after));
        // Every line has the uuid anyway.
        let mut columns: Vec<&str> = choice.shown(table).into_iter().filter(|column| *column != UUID).collect();
        if let (Some(before), Some(after)) = (&before, &after) {
            columns.retain(|column| before.get(column) != after.get(column));
            if columns.is_empty() {
                return None;
            }
        }
        Some(Self { table, before, after, columns, change })
    }

    fn json(&self, present: bool) -> Value {
        let what = match (&self.before, &self.after) {
            _ if present => "present",
            (None, _) => "insert",
            (_, None) => "delete",
            _ => "modify",
        };
        let mut line = Map::new();
        line.insert("change".into(), json!(what));
        line.insert("table".into(), json!(self.table.name));
        line.insert("uuid".into(), json!(self.change.uuid.to_string()));
        for (key, row) in [("old", &self.before), ("new", &self.after)] {
            if let Some(row) = row {
                line.insert(key.into(), Value::Object(value::json_row(row, &self.columns)));
            }
        }
        Value::Object(line)
    }

    fn text(&self, present: bool) -> String {
        let (sign, row) = match (&self.before, &self.after) {
            (_, Some(row)) if present => ("=", row),
            (None, Some(row)) => ("+", row),
            (Some(_), Some(row)) => ("~", row),
            (Some(row), None) => ("-", row),
            (None, None) => return String::new(),
        };
        let name = value::text(row, "name");
        let space = if name.is_empty() { "" } else { " " };
        let mut line = format!("{sign} {}{space}{name} {}", self.table.name, self.change.uuid);
        for column in &self.columns {
            match (&self.before, &self.after) {
                (Some(before), Some(after)) => {
                    if let (Some(old), Some(new)) = (before.get(column), after.get(column)) {
                        line.push_str(&format!("  {column}: {}", value::change(&old, &new)));
                    }
                }
                (None, Some(row)) if *column != "name" && !value::text(row, column).is_empty() => {
                    line.push_str(&format!("  {column}={}", value::text(row, column)));
                }
                _ => {}
            }
        }
        value::escape(&line)
    }
}
