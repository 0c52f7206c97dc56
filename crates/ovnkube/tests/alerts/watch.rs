//! What a lab's Prometheus says about alerts: which fired since the last fault was over, and which are active.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use lab::prometheus::{Alert, Prometheus};

use crate::coverage;

/// Limit of every wait. Generous: it only ends what would wait forever.
pub(crate) const LIMIT: Duration = Duration::from_secs(240);

pub(crate) struct AlertWatch {
    pub(crate) prometheus: Prometheus,
    fired: RefCell<BTreeSet<String>>,
    /// When the last fault was over: what fires later belongs to the next one.
    quiet_since: Cell<Instant>,
}

impl AlertWatch {
    pub(crate) fn new(prometheus: Prometheus) -> Self {
        Self { prometheus, fired: RefCell::default(), quiet_since: Cell::new(Instant::now()) }
    }

    /// What fired until now belongs to no fault.
    pub(crate) fn restart(&self) {
        self.quiet_since.set(Instant::now());
    }

    /// The value of an expression with one result.
    pub(crate) fn query(&self, expression: &str) -> Option<f64> {
        self.prometheus.query(expression).unwrap().first().map(|(_, value)| *value)
    }

    /// Waits until Prometheus scrapes this many targets.
    pub(crate) fn await_targets(&self, number: usize) {
        until("all targets are scraped", || self.query("sum(up)") == Some(number as f64));
    }

    /// Waits until all of these alerts have fired.
    pub(crate) fn fires(&self, alerts: &[&str]) {
        let began = Instant::now();
        self.prometheus.await_firing(alerts, self.quiet_since.get(), LIMIT).unwrap();
        println!("{alerts:?} fired after {:?}", began.elapsed());
        self.fired.borrow_mut().extend(alerts.iter().map(ToString::to_string));
    }

    /// Waits until none of these alerts is active.
    pub(crate) fn resolves(&self, alerts: &[&str]) {
        let began = Instant::now();
        self.prometheus.await_resolved(alerts, LIMIT).unwrap();
        println!("{alerts:?} resolved after {:?}", began.elapsed());
        self.restart();
    }

    /// Asserts that no alert of these is active.
    pub(crate) fn assert_inactive(&self, alerts: &[&str]) {
        let active = self.prometheus.alerts().unwrap();
        let active: Vec<&str> = active.iter().map(Alert::name).filter(|name| alerts.contains(name)).collect();
        assert_eq!(active, Vec::<&str>::new(), "active without a fault");
    }

    /// Asserts that the faults of this test were those that `coverage` says.
    pub(crate) fn assert_complete(&self, test: &str) {
        let fired = self.fired.borrow();
        let expected: BTreeSet<String> = coverage::of_test(test).into_iter().map(str::to_owned).collect();
        assert_eq!(*fired, expected);
    }
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, done: impl Fn() -> bool) {
    let waited = lab::poll(LIMIT, || done().then_some(()).ok_or(()));
    assert!(waited.is_ok(), "not so after {LIMIT:?}: {what}");
}
