//! The connectivity matrix: reachability measured with real packets, compared with what the API objects allow.
//!
//! Between the pods of the example application, its Services, the nodes and the outside. A connection that the
//! NetworkPolicy denies is also shown to pass without the policy, before and after.

mod checks;
mod cluster;
mod connection;
mod dns;
mod show;

use std::time::{Duration, Instant};

use netmodel::Family;
use serde::Serialize;

use crate::deployment::POLICY;
use crate::error::{Error, Result};
use crate::inspect;
use crate::record::Record;
use crate::underlay::CONTROL;
use cluster::Cluster;
pub use cluster::sandbox_network;
use connection::Connection;

/// How long a policy change may take to be in effect. Generous: it only ends what would hang forever.
const CHANGE_LIMIT: Duration = Duration::from_secs(60);
/// Number of connections that are tested in parallel.
const PARALLEL: usize = 8;

/// The result of one connection test.
#[derive(Debug, Clone, Serialize)]
pub struct CheckResult {
    /// `pod → service`, `host → own pod`, …
    pub kind: String,
    /// Family of the addresses that are used.
    pub family: Family,
    /// Client, as in the table: `web on n1`.
    pub from: String,
    /// Server, as in the table.
    pub to: String,
    /// Whether the API objects allow it.
    pub expected: bool,
    /// Whether an answer came back.
    pub passed: bool,
    /// The answer, or the error.
    #[serde(rename = "said")]
    pub detail: String,
}

impl CheckResult {
    pub(crate) fn is_as_expected(&self) -> bool {
        self.expected == self.passed
    }
}

/// Result of all connections of a lab.
#[derive(Debug, Clone, Serialize)]
pub struct Matrix {
    /// One result per connection and phase.
    #[serde(rename = "ways")]
    pub checks: Vec<CheckResult>,
}

impl Matrix {
    /// Measures a lab with ovnkube and the example application. Deletes the application's NetworkPolicy temporarily and
    /// restores it.
    pub fn measure(record: &Record) -> Result<Self> {
        let cluster = Cluster::read(record)?;
        let checks = checks::plan(&cluster);
        let (guarded, open): (Vec<Check>, Vec<Check>) = checks.into_iter().partition(|check| check.guarded);
        let denied: Vec<&Check> = guarded.iter().filter(|check| !check.expected).collect();
        if denied.is_empty() || open.is_empty() {
            return Err(Error::Invalid(
                "the example application is not complete: it needs pods of `web`, `store`, `client` and `stranger`"
                    .into(),
            ));
        }
        let mut checks = try_all(&open, "", None);
        let policy = Policy { record };
        policy.remove()?;
        await_change(&denied, true);
        checks.extend(try_all(&guarded, ", before the policy", Some(true)));
        policy.apply()?;
        await_change(&denied, false);
        checks.extend(try_all(&guarded, ", under the policy", None));
        policy.remove()?;
        await_change(&denied, true);
        checks.extend(try_all(&guarded, ", after its removal", Some(true)));
        policy.apply()?;
        await_change(&denied, false);
        Ok(Self { checks })
    }

    /// Results that differ from what the API objects allow.
    pub fn wrong(&self) -> Vec<&CheckResult> {
        self.checks.iter().filter(|check| !check.is_as_expected()).collect()
    }
}

/// A connection with what the API objects say about it.
#[derive(Debug, Clone)]
struct Check {
    kind: &'static str,
    family: Family,
    from: String,
    to: String,
    connection: Connection,
    /// Whether it should pass while the policy exists.
    expected: bool,
    /// Whether the policy selects its target.
    guarded: bool,
}

impl Check {
    fn attempt(&self, phase: &str, expected: Option<bool>) -> CheckResult {
        let expected = expected.unwrap_or(self.expected);
        let answer = if expected { self.connection.passes() } else { self.connection.passes_first_try() };
        let passed = answer.is_ok();
        CheckResult {
            kind: format!("{}{phase}", self.kind),
            family: self.family,
            from: self.from.clone(),
            to: self.to.clone(),
            expected,
            passed,
            detail: answer.unwrap_or_else(|why| why),
        }
    }
}

fn try_all(checks: &[Check], phase: &str, expected: Option<bool>) -> Vec<CheckResult> {
    in_parallel(checks, |check| check.attempt(phase, expected))
}

/// Waits until a policy change is in effect, which only packets show. If that does not happen, the results show it.
fn await_change(denied: &[&Check], passes: bool) {
    let deadline = Instant::now() + CHANGE_LIMIT;
    let mut waiting = denied.to_vec();
    while !waiting.is_empty() && Instant::now() < deadline {
        // No answer may also be a stalled datapath: count it only if it happens twice.
        let seen = in_parallel(&waiting, |check| (0..2).any(|_| check.connection.passes_first_try().is_ok()));
        waiting = waiting.into_iter().zip(seen).filter(|(_, seen)| *seen != passes).map(|(check, _)| check).collect();
    }
}

/// Runs `work` for each item, some of them in parallel.
fn in_parallel<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let mut answers = Vec::new();
    for some in all.chunks(PARALLEL) {
        std::thread::scope(|scope| {
            let threads: Vec<_> = some.iter().map(|one| scope.spawn(|| work(one))).collect();
            answers.extend(threads.into_iter().filter_map(|thread| thread.join().ok()));
        });
    }
    answers
}

struct Policy<'a> {
    record: &'a Record,
}

impl Policy<'_> {
    fn apply(&self) -> Result<()> {
        let control = inspect::machine(self.record, CONTROL)?;
        control.run_with_input(&["kubectl", "apply", "-f", "-"], POLICY).map(|_| ())
    }

    fn remove(&self) -> Result<()> {
        let control = inspect::machine(self.record, CONTROL)?;
        control.run_with_input(&["kubectl", "delete", "--ignore-not-found", "-f", "-"], POLICY).map(|_| ())
    }
}
