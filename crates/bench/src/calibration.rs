//! Calibration: a fixed workload, so that figures of different machines can be compared.
//!
//! The work is JSON and hashing, as in an OVSDB client: a document of port rows is
//! parsed, serialized and hashed. It must never change: older figures are in its units.
//! Rows have their own type: `serde_json::Value` depends on features that another crate may enable.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{BenchError, Figure, thread_cpu_seconds};

/// Rows of the document, and rounds per measurement: together some
/// hundredths of a second.
const ROWS: u32 = 1_000;
const ROUNDS: u32 = 20;
/// Number of measurements; the fastest one counts.
const MEASUREMENTS: u32 = 5;
/// SHA-256 of the document, which proves that the work is unchanged.
const DOCUMENT: &str = "77be482654621730c98333362de01877606444a266ade669989fe236a77bde00";

/// CPU seconds of the fixed work on this thread; measured once per process. For release builds.
pub fn calibration() -> Result<Figure, BenchError> {
    Ok(Figure::new("calibration CPU seconds", cached()?, "s"))
}

/// CPU seconds in units of the calibration, independent of the machine's speed.
pub fn per_calibration(cpu_seconds: f64) -> Result<f64, BenchError> {
    Ok(cpu_seconds / cached()?)
}

fn cached() -> Result<f64, BenchError> {
    static SECONDS: OnceLock<f64> = OnceLock::new();
    if let Some(seconds) = SECONDS.get() {
        return Ok(*seconds);
    }
    let measured = measure(ROUNDS, MEASUREMENTS)?;
    Ok(*SECONDS.get_or_init(|| measured))
}

fn measure(rounds: u32, measurements: u32) -> Result<f64, BenchError> {
    let document = document().map_err(|error| not_json(&error))?;
    let mut fastest = f64::INFINITY;
    for _ in 0..measurements {
        let before = thread_cpu_seconds()?;
        for _ in 0..rounds {
            work(&document)?;
        }
        fastest = fastest.min(thread_cpu_seconds()? - before);
    }
    if fastest > 0.0 && fastest.is_finite() {
        Ok(fastest)
    } else {
        Err(BenchError::Calibration { problem: "no CPU time was measured".to_owned() })
    }
}

/// One round: parse, serialize, hash. Checking the hash prevents the compiler from removing work.
fn work(document: &str) -> Result<(), BenchError> {
    let parsed: Document = serde_json::from_str(document).map_err(|error| not_json(&error))?;
    let written = serde_json::to_string(&parsed).map_err(|error| not_json(&error))?;
    match fingerprint(&written) {
        hash if hash == DOCUMENT => Ok(()),
        hash => Err(BenchError::Calibration { problem: format!("the document's hash is {hash}") }),
    }
}

fn not_json(error: &serde_json::Error) -> BenchError {
    BenchError::Calibration { problem: error.to_string() }
}

fn fingerprint(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Port rows as in a monitor reply.
fn document() -> Result<String, serde_json::Error> {
    let map = |pairs: &[(&str, String)]| {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
        ("map".to_owned(), pairs.collect())
    };
    let row = |n: u32| {
        let (high, low, namespace) = (n / 250, n % 250 + 3, format!("namespace-{}", n % 17));
        let address = format!("0a:58:0a:80:{high:02x}:{low:02x} 10.128.{high}.{low}");
        let new = PortRow {
            name: format!("{namespace}_pod-{n}"),
            addresses: address.clone(),
            port_security: address,
            external_ids: map(&[("namespace", namespace), ("pod", "true".to_owned())]),
            options: map(&[("iface-id-ver", format!("{n:08x}-0000-4000-8000-000000000000"))]),
            up: !n.is_multiple_of(3),
            tag: n,
        };
        (format!("{n:08x}-1111-4111-8111-111111111111"), RowUpdate { new })
    };
    serde_json::to_string(&(0..ROWS).map(row).collect::<Document>())
}

type Document = BTreeMap<String, RowUpdate>;

#[derive(Serialize, Deserialize)]
struct RowUpdate {
    new: PortRow,
}

#[derive(Serialize, Deserialize)]
struct PortRow {
    name: String,
    addresses: String,
    port_security: String,
    external_ids: (String, Vec<(String, String)>),
    options: (String, Vec<(String, String)>),
    up: bool,
    tag: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calibration_document_has_not_changed() {
        assert_eq!(fingerprint(&document().expect("JSON")), DOCUMENT);
    }

    #[test]
    fn other_work_is_refused() {
        let error = work("{}").expect_err("another document").to_string();
        assert!(error.contains("hash"), "{error}");
    }

    #[test]
    fn cpu_time_is_converted_to_calibration_units() {
        let unit = calibration().expect("a calibration");
        assert!(unit.ok() && unit.value() > 0.0, "{unit:?}");
        let twice = per_calibration(unit.value() * 2.0).expect("a calibration");
        assert!((twice - 2.0).abs() < 1e-9, "measured once, so the unit stands still: {twice}");
    }
}
