//! The connectivity matrix: who reaches whom, measured by real packets, beside what the objects of the API say.
//!
//! Between the pods of the example application, its Services, the nodes and the outside. A pair that the policy denies
//! is also shown to pass while there is no policy, before and after.

mod cluster;
mod names;
mod probe;
mod show;
mod ways;

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::deployment::POLICY;
use crate::error::{Error, Result};
use crate::record::Record;
use crate::underlay::CONTROL;
use crate::view;
use cluster::Cluster;
pub use cluster::sandbox_network;
use probe::Way;

/// How long a change of the policy may take to reach the packets. Generous: it only ends what would hang for ever.
const CHANGE_LIMIT: Duration = Duration::from_secs(60);
/// So many ways are tried at once.
const AT_ONCE: usize = 8;

/// A way that was tried.
#[derive(Debug, Clone, Serialize)]
pub struct Tried {
    /// What kind of way it is.
    pub kind: String,
    /// `IPv4` or `IPv6`.
    pub family: &'static str,
    /// Where it begins.
    pub from: String,
    /// Where it ends.
    pub to: String,
    /// Whether the objects of the API let it pass.
    pub expected: bool,
    /// Whether it passed.
    pub passed: bool,
    /// What was answered, or why nothing was.
    pub said: String,
}

impl Tried {
    /// Whether it is as the API says.
    pub fn is_right(&self) -> bool {
        self.expected == self.passed
    }
}

/// All ways that were tried.
#[derive(Debug, Clone, Serialize)]
pub struct Matrix {
    /// One by one.
    pub ways: Vec<Tried>,
}

impl Matrix {
    /// Measures a lab that has our network and the example application. The application's policy is taken away for a
    /// while and is there again at the end.
    pub fn measure(record: &Record) -> Result<Self> {
        let cluster = Cluster::look(record)?;
        let planned = ways::plan(&cluster);
        let (guarded, open): (Vec<Planned>, Vec<Planned>) = planned.into_iter().partition(|way| way.guarded);
        let denied: Vec<&Planned> = guarded.iter().filter(|way| !way.expected).collect();
        if denied.is_empty() || open.is_empty() {
            return Err(Error::Invalid(
                "the example application is not complete: it needs pods of `web`, `store`, `client` and `stranger`"
                    .into(),
            ));
        }
        let mut ways = try_all(&open, "", None);
        let policy = Policy { record };
        policy.remove()?;
        await_change(&denied, true);
        ways.extend(try_all(&guarded, ", before the policy", Some(true)));
        policy.apply()?;
        await_change(&denied, false);
        ways.extend(try_all(&guarded, ", under the policy", None));
        policy.remove()?;
        await_change(&denied, true);
        ways.extend(try_all(&guarded, ", after its removal", Some(true)));
        policy.apply()?;
        await_change(&denied, false);
        Ok(Self { ways })
    }

    /// The ways that are not as the API says.
    pub fn wrong(&self) -> Vec<&Tried> {
        self.ways.iter().filter(|way| !way.is_right()).collect()
    }
}

/// A way to try.
#[derive(Debug, Clone)]
struct Planned {
    kind: &'static str,
    v6: bool,
    from: String,
    to: String,
    way: Way,
    /// What the API says while the policy is there.
    expected: bool,
    /// Whether the policy is about it.
    guarded: bool,
}

impl Planned {
    fn attempt(&self, phase: &str, expected: Option<bool>) -> Tried {
        let expected = expected.unwrap_or(self.expected);
        let answer = if expected { self.way.passes() } else { self.way.passes_at_once() };
        let passed = answer.is_ok();
        Tried {
            kind: format!("{}{phase}", self.kind),
            family: if self.v6 { "IPv6" } else { "IPv4" },
            from: self.from.clone(),
            to: self.to.clone(),
            expected,
            passed,
            said: answer.unwrap_or_else(|why| why),
        }
    }
}

fn try_all(planned: &[Planned], phase: &str, expected: Option<bool>) -> Vec<Tried> {
    at_once(planned, |way| way.attempt(phase, expected))
}

/// Waits until a change of the policy is seen by packets: nothing else tells that it has arrived. If it does not
/// arrive, the matrix says what is wrong.
fn await_change(denied: &[&Planned], passes: bool) {
    let deadline = Instant::now() + CHANGE_LIMIT;
    let mut waiting = denied.to_vec();
    while !waiting.is_empty() && Instant::now() < deadline {
        // Silence may also be a datapath that stands still: it counts when it is met twice.
        let seen = at_once(&waiting, |way| (0..2).any(|_| way.way.passes_at_once().is_ok()));
        waiting = waiting.into_iter().zip(seen).filter(|(_, seen)| *seen != passes).map(|(way, _)| way).collect();
    }
}

/// Does something with each, some of them side by side.
fn at_once<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let mut answers = Vec::new();
    for some in all.chunks(AT_ONCE) {
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
        let control = view::machine(self.record, CONTROL)?;
        control.run_with_input(&["kubectl", "apply", "-f", "-"], POLICY).map(|_| ())
    }

    fn remove(&self) -> Result<()> {
        let control = view::machine(self.record, CONTROL)?;
        control.run_with_input(&["kubectl", "delete", "--ignore-not-found", "-f", "-"], POLICY).map(|_| ())
    }
}
