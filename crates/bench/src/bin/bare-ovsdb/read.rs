//! Reading: one monitor request, and its reply counted and thrown away.

use std::time::Instant;

use crate::framing::error_in;
use crate::options::ReadOptions;
use crate::report::Report;
use crate::session::{HEAD, Session, excerpt};

pub(crate) fn run(options: &ReadOptions) -> Result<Report, String> {
    let request = request(options);
    let mut session = Session::open(&options.remote, options.timeout)?;
    let start = Instant::now();
    session.send(request.as_bytes())?;
    let reply = session.reply(HEAD)?;
    let time = start.elapsed();
    // A refusal is short and was kept whole; in a long reply there are rows, and no error.
    let whole = reply.bytes == reply.kept.len() as u64;
    if let Some(error) = error_in(&reply.kept).filter(|_| whole) {
        let problem = excerpt(error);
        return Err(format!("the server refused the monitor: {problem}: check --database and --tables"));
    }
    Ok(Report { mode: "read", rows: reply.opened_at_4, batches: 1, bytes: reply.bytes, time })
}

/// All columns of each table, once: a table without a list of columns means all.
fn request(options: &ReadOptions) -> String {
    let tables: Vec<String> = options.tables.iter().map(|table| format!("\"{table}\":{{}}")).collect();
    format!(r#"{{"id":1,"method":"monitor","params":["{}","bare",{{{}}}]}}"#, options.database, tables.join(","))
}
