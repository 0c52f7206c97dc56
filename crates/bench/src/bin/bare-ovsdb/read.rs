//! Reading: one monitor request, whose reply is counted and discarded.

use std::time::Instant;

use crate::framing::error_in;
use crate::options::{Method, ReadOptions, TableColumns};
use crate::report::Report;
use crate::session::{HEAD, Session, excerpt};

pub(crate) fn run(options: &ReadOptions) -> Result<Report, String> {
    let request = request(options);
    let mut session = Session::open(&options.remote, options.timeout)?;
    let start = Instant::now();
    session.send(request.as_bytes())?;
    let reply = session.reply(HEAD)?;
    let time = start.elapsed();
    // An error reply is short and was kept whole; a long reply has rows and no error.
    let whole = reply.bytes == reply.kept.len() as u64;
    if let Some(error) = error_in(&reply.kept).filter(|_| whole) {
        let problem = excerpt(error);
        return Err(format!("the server refused the monitor: {problem}: check --database and --tables"));
    }
    Ok(Report {
        mode: "read",
        rows: reply.framer.opened_at(options.method.depth()),
        batches: 1,
        bytes: reply.bytes,
        time,
    })
}

/// Each table once. One without columns means all, and the server's own `_version` beside them.
fn request(options: &ReadOptions) -> String {
    let ReadOptions { database, method, .. } = options;
    let tables: Vec<String> = options.tables.iter().map(table).collect();
    let tables = tables.join(",");
    let since = match method {
        Method::Monitor | Method::MonitorCond => "",
        Method::MonitorCondSince => r#","00000000-0000-0000-0000-000000000000""#,
    };
    format!(r#"{{"id":1,"method":"{}","params":["{database}","bare",{{{tables}}}{since}]}}"#, method.name())
}

fn table(table: &TableColumns) -> String {
    let TableColumns { table, columns } = table;
    if columns.is_empty() {
        return format!(r#""{table}":{{}}"#);
    }
    let columns: Vec<String> = columns.iter().map(|column| format!(r#""{column}""#)).collect();
    format!(r#""{table}":[{{"columns":[{}]}}]"#, columns.join(","))
}
