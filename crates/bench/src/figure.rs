//! `Figure`: a measured value with its unit and an optional goal.

use std::fmt;

use serde::{Serialize, Serializer};

/// Bound that a figure is compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// Upper bound, inclusive.
    AtMost(f64),
    /// Lower bound, inclusive.
    AtLeast(f64),
}

impl Goal {
    /// Whether the value meets the goal; NaN never does.
    pub fn is_met_by(self, value: f64) -> bool {
        match self {
            Goal::AtMost(limit) => value <= limit,
            Goal::AtLeast(limit) => value >= limit,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Goal::AtMost(limit) => write!(f, "<= {limit}"),
            Goal::AtLeast(limit) => write!(f, ">= {limit}"),
        }
    }
}

impl Serialize for Goal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A measured value.
///
/// `ok` is computed, so it cannot disagree with the goal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    name: String,
    value: f64,
    unit: String,
    goal: Option<Goal>,
    ok: bool,
}

impl Figure {
    /// Without a goal; `ok` unless it is NaN.
    pub fn new(name: impl Into<String>, value: f64, unit: impl Into<String>) -> Self {
        Self { name: name.into(), value, unit: unit.into(), goal: None, ok: value.is_finite() }
    }

    /// A value that is not finite misses every goal.
    #[must_use]
    pub fn with_goal(self, goal: Goal) -> Self {
        let ok = self.value.is_finite() && goal.is_met_by(self.value);
        Self { goal: Some(goal), ok, ..self }
    }

    /// Unique within a file of figures.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// In the unit of [`Figure::unit`].
    pub fn value(&self) -> f64 {
        self.value
    }

    /// Such as `s` or `MB`.
    pub fn unit(&self) -> &str {
        &self.unit
    }

    /// None: the figure is for information.
    pub fn goal(&self) -> Option<Goal> {
        self.goal
    }

    /// Whether the goal is met.
    pub fn ok(&self) -> bool {
        self.ok
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_decides_whether_a_figure_is_ok() {
        let figure = |value| Figure::new("x", value, "ms");
        assert!(figure(10.0).with_goal(Goal::AtMost(10.0)).ok());
        assert!(!figure(10.1).with_goal(Goal::AtMost(10.0)).ok());
        assert!(figure(10.0).with_goal(Goal::AtLeast(10.0)).ok());
        assert!(!figure(9.9).with_goal(Goal::AtLeast(10.0)).ok());
        assert!(figure(9.9).ok());
    }

    #[test]
    fn nan_is_never_ok() {
        for value in [f64::NAN, f64::INFINITY] {
            assert!(!Figure::new("x", value, "ms").ok());
            assert!(!Figure::new("x", value, "ms").with_goal(Goal::AtLeast(1.0)).ok());
        }
    }

    #[test]
    fn a_goal_is_displayed_with_its_comparison() {
        assert_eq!(Goal::AtMost(10.0).to_string(), "<= 10");
        assert_eq!(Goal::AtLeast(0.95).to_string(), ">= 0.95");
    }
}
