//! Result of a run, as one line of JSON.

use std::fmt;
use std::time::Duration;

/// Result of a run.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) mode: &'static str,
    pub(crate) rows: u64,
    pub(crate) batches: u64,
    /// Sent when writing, received when reading.
    pub(crate) bytes: u64,
    pub(crate) time: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, rows, batches, bytes, .. } = self;
        // Avoid an infinite rate, which JSON cannot represent.
        let seconds = self.time.as_secs_f64().max(1e-9);
        let rate = *rows as f64 / seconds;
        write!(
            f,
            r#"{{"mode":"{mode}","rows":{rows},"batches":{batches},"bytes":{bytes},"seconds":{seconds:.6},"rows_per_second":{rate:.1}}}"#
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_one_line_of_json() {
        let report = Report { mode: "write", rows: 1000, batches: 10, bytes: 5, time: Duration::from_millis(500) };
        let line = r#"{"mode":"write","rows":1000,"batches":10,"bytes":5,"seconds":0.500000,"rows_per_second":2000.0}"#;
        assert_eq!(report.to_string(), line);
        let instant = Report { time: Duration::ZERO, ..report };
        assert!(!instant.to_string().contains("inf"));
    }
}
