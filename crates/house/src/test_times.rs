//! The slowest tests of a `cargo test` run, from the times at which its output arrives.
//!
//! libtest prints a line when a test ends, and (on stable Rust) no durations. Its schedule is known, though: it starts
//! the tests of a program in the order of their names, as many at once as there are threads, and the next one whenever
//! one ends. The time at which a test started therefore follows from the times at which others ended.
//!
//! ```text
//!  running 3 tests      t0   a and b start (two threads)
//!  test b ... ok        t1   b took t1 - t0; c starts
//!  test a ... ok        t2   a took t2 - t0
//!  test c ... ok        t3   c took t3 - t1
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::time::Duration;

/// One test and how long it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestTime {
    /// As cargo announces it, such as `tests/oracle.rs (target/debug/deps/oracle-0123)`.
    pub program: String,
    /// With its module path.
    pub test: String,
    /// Wall-clock time.
    pub took: Duration,
}

/// Collects times from the lines of a `cargo test` run.
#[derive(Debug)]
pub struct TestTimes {
    threads: usize,
    /// Of the next program only, if it announces another number.
    announced: Option<usize>,
    program: String,
    running: Option<Run>,
    times: Vec<TestTime>,
}

/// A test program that runs.
#[derive(Debug)]
struct Run {
    began: Duration,
    threads: usize,
    /// Names and times of ended tests, in the order of their ends.
    ended: Vec<(String, Duration, bool)>,
}

impl TestTimes {
    /// `threads`: how many tests a program runs at once.
    pub fn new(threads: usize) -> Self {
        Self { threads: threads.max(1), announced: None, program: String::new(), running: None, times: Vec::new() }
    }

    /// Takes one line, which arrived at `now` (since any fixed time).
    pub fn line(&mut self, line: &str, now: Duration) {
        let line = line.trim();
        if let Some(program) = line.strip_prefix("Running ").or_else(|| line.strip_prefix("Doc-tests ")) {
            program.clone_into(&mut self.program);
        } else if line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test")) {
            self.end_program();
            let threads = self.announced.take().unwrap_or(self.threads);
            self.running = Some(Run { began: now, threads, ended: Vec::new() });
        } else if let Some(threads) = line.strip_prefix("test threads: ") {
            self.announced = threads.parse().ok().filter(|threads| *threads > 0);
        } else if line.starts_with("test result: ") {
            self.end_program();
        } else if let Some((test, outcome)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
            && let Some(run) = &mut self.running
        {
            let test = test.strip_suffix(" - should panic").unwrap_or(test);
            run.ended.push((test.to_owned(), now, outcome.starts_with("ignored")));
        }
    }

    /// Reconstructs the schedule of the program that ran.
    fn end_program(&mut self) {
        let Some(Run { began, threads, ended }) = self.running.take() else { return };
        let mut waiting: Vec<&str> = ended.iter().map(|(test, ..)| test.as_str()).collect();
        waiting.sort_unstable();
        let mut waiting = VecDeque::from(waiting);
        let mut started: BTreeMap<&str, Duration> = BTreeMap::new();
        for test in waiting.drain(..threads.min(waiting.len())) {
            started.insert(test, began);
        }
        for (test, end, ignored) in &ended {
            // Out of the assumed order: it cannot have started later than now.
            let start = started.remove(test.as_str()).unwrap_or(*end);
            waiting.retain(|other| other != test);
            if let Some(next) = waiting.pop_front() {
                started.insert(next, *end);
            }
            if !ignored {
                let took = end.saturating_sub(start);
                self.times.push(TestTime { program: self.program.clone(), test: test.clone(), took });
            }
        }
    }

    /// Adds the tests of another run.
    pub fn add(&mut self, mut other: Self) {
        other.end_program();
        self.times.append(&mut other.times);
    }

    /// The slowest tests, slowest first; ends the program that runs.
    pub fn slowest(&mut self, count: usize) -> Vec<TestTime> {
        self.end_program();
        let mut times = self.times.clone();
        times.sort_by(|one, other| other.took.cmp(&one.took).then_with(|| one.test.cmp(&other.test)));
        times.truncate(count);
        times
    }

    /// The slowest tests as text; empty if no test ran.
    pub fn summary(&mut self, count: usize) -> String {
        let total = self.slowest(usize::MAX).len();
        let mut text = String::new();
        for (index, TestTime { program, test, took }) in self.slowest(count).iter().enumerate() {
            if index == 0 {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "\nslowest of {total} tests:");
            }
            let program = program.split(" (").next().unwrap_or(program);
            let _ = writeln!(text, "{:8.1} s  {test}  ({program})", took.as_secs_f64());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(threads: usize, lines: &[(&str, u64)]) -> TestTimes {
        let mut times = TestTimes::new(threads);
        for (line, seconds) in lines {
            times.line(line, Duration::from_secs(*seconds));
        }
        times
    }

    fn slowest(times: &mut TestTimes) -> Vec<(String, u64)> {
        times.slowest(10).into_iter().map(|time| (time.test, time.took.as_secs())).collect()
    }

    #[test]
    fn durations_follow_from_the_schedule() {
        let lines = [
            ("     Running tests/a.rs (target/debug/deps/a-1)", 1),
            ("running 4 tests", 2),
            ("test b ... ok", 5),
            ("test a - should panic ... ok", 12),
            ("test d ... FAILED", 13),
            ("test c ... ok", 25),
            ("test result: FAILED. 3 passed; 1 failed", 25),
        ];
        // b ends after 3 s, then c starts; a after 10 s, then d starts.
        let mut two = times(2, &lines);
        assert_eq!(slowest(&mut two), [("c", 20), ("a", 10), ("b", 3), ("d", 1)].map(|(t, s)| (t.to_owned(), s)));
        assert!(two.summary(1).contains("    20.0 s  c  (tests/a.rs)"), "{}", two.summary(1));
        assert!(two.summary(1).contains("slowest of 4 tests"));
    }

    #[test]
    fn one_thread_runs_one_test_after_the_other() {
        let lines = [("running 2 tests", 0), ("test a ... ok", 4), ("test b ... ok", 5)];
        assert_eq!(slowest(&mut times(1, &lines)), [("a".to_owned(), 4), ("b".to_owned(), 1)]);
    }

    #[test]
    fn a_program_may_announce_another_number_of_threads() {
        let lines = [
            ("test threads: 2", 0),
            ("running 2 tests", 0),
            ("test a ... ok", 4),
            ("test b ... ok", 5),
            ("test result: ok. 2 passed", 5),
            ("running 2 tests", 10),
            ("test c ... ok", 14),
            ("test d ... ok", 15),
        ];
        let times = slowest(&mut times(1, &lines));
        assert_eq!(times, [("b", 5), ("a", 4), ("c", 4), ("d", 1)].map(|(t, s)| (t.to_owned(), s)));
    }

    #[test]
    fn ignored_tests_and_other_lines_take_no_time() {
        let lines = [
            ("   Doc-tests ovsdb", 0),
            ("running 3 tests", 0),
            ("test a ... ignored, needs a server", 0),
            ("test b has been running for over 60 seconds", 60),
            ("a line of a program: test x ... not libtest's", 61),
            ("test b ... ok", 70),
            ("test c ... ok", 71),
            ("test result: ok. 2 passed", 71),
            ("test late ... ok", 99),
        ];
        assert_eq!(slowest(&mut times(1, &lines)), [("b".to_owned(), 70), ("c".to_owned(), 1)]);
        assert_eq!(times(4, &[]).summary(10), "");
    }
}
