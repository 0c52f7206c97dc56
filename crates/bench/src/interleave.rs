//! Interleaved comparison: A, B, A, B, …, so that a slow minute of the machine affects all contenders.

use std::fmt;
use std::num::NonZeroUsize;
use std::time::Instant;

use crate::table::number;
use crate::{Figure, Goal};

/// Default number of runs per contender.
pub const RUNS: NonZeroUsize = match NonZeroUsize::new(5) {
    Some(runs) => runs,
    None => NonZeroUsize::MIN,
};

/// A name and a function; one run returns its measurement, in any unit.
pub type Contender<'a, E> = (&'a str, Box<dyn FnMut() -> Result<f64, E> + 'a>);

/// Measurements of one contender; at least one.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    name: String,
    /// In ascending order.
    values: Vec<f64>,
}

/// Runs the contenders in turn, `runs` times each, and returns their samples in the same order. The
/// first failure ends the comparison.
pub fn interleave<E>(runs: NonZeroUsize, contenders: &mut [Contender<'_, E>]) -> Result<Vec<Sample>, E> {
    let mut values = vec![Vec::with_capacity(runs.get()); contenders.len()];
    for _ in 0..runs.get() {
        for ((_, run), values) in contenders.iter_mut().zip(&mut values) {
            values.push(run()?);
        }
    }
    let named = contenders.iter().zip(values);
    Ok(named.map(|((name, _), values)| Sample::sorted(name, values)).collect())
}

/// Wall-clock seconds of `work`.
pub fn timed<E>(work: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Ratio of the medians as a figure. Print both samples as well, for their spread.
pub fn ratio(name: &str, of: &Sample, over: &Sample, goal: Option<Goal>) -> Figure {
    let figure = Figure::new(name, of.median() / over.median(), "×");
    match goal {
        Some(goal) => figure.with_goal(goal),
        None => figure,
    }
}

impl Sample {
    fn sorted(name: &str, mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { name: name.to_owned(), values }
    }

    /// What was measured, as it is printed.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many runs the median is of.
    pub fn runs(&self) -> usize {
        self.values.len()
    }

    /// Median; the mean of the two middle values if their number is even.
    pub fn median(&self) -> f64 {
        let middle = self.values.len() / 2;
        let at = |index: usize| self.values.get(index).copied().unwrap_or(f64::NAN);
        if self.values.len() % 2 == 1 { at(middle) } else { f64::midpoint(at(middle.wrapping_sub(1)), at(middle)) }
    }

    /// The smallest value.
    pub fn min(&self) -> f64 {
        self.values.first().copied().unwrap_or(f64::NAN)
    }

    /// The largest value.
    pub fn max(&self) -> f64 {
        self.values.last().copied().unwrap_or(f64::NAN)
    }

    /// The median, under the contender's name.
    pub fn figure(&self, unit: &str) -> Figure {
        Figure::new(&self.name, self.median(), unit)
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (median, min, max) = (number(self.median()), number(self.min()), number(self.max()));
        write!(f, "{}: median {median} (spread {min}–{max}, {} runs)", self.name, self.runs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn sample(values: &[f64]) -> Sample {
        Sample::sorted("x", values.to_vec())
    }

    #[test]
    fn contenders_take_turns() {
        let order = RefCell::new(String::new());
        let turn = |sign: char, value: f64| {
            let order = &order;
            move || {
                order.borrow_mut().push(sign);
                Ok::<f64, String>(value)
            }
        };
        let mut contenders: Vec<Contender<'_, String>> =
            vec![("a", Box::new(turn('a', 3.0))), ("b", Box::new(turn('b', 2.0)))];
        let samples = interleave(RUNS, &mut contenders).expect("no run fails");
        assert_eq!(*order.borrow(), "ababababab");
        assert_eq!(
            samples.iter().map(|sample| (sample.name(), sample.runs())).collect::<Vec<_>>(),
            [("a", 5), ("b", 5)]
        );
        let figure = ratio("a over b", &samples[0], &samples[1], Some(Goal::AtMost(1.1)));
        assert!((figure.value() - 1.5).abs() < f64::EPSILON);
        assert!(!figure.ok());
    }

    #[test]
    fn a_failing_run_ends_the_comparison() {
        let mut left = 2;
        let mut contenders: [Contender<'_, &str>; 1] = [(
            "a",
            Box::new(|| {
                left -= 1;
                if left == 0 { Err("gone") } else { Ok(1.0) }
            }),
        )];
        assert_eq!(interleave(RUNS, &mut contenders), Err("gone"));
    }

    #[test]
    fn medians_and_spreads() {
        let odd = sample(&[9.0, 1.0, 5.0]);
        assert_eq!((odd.median(), odd.min(), odd.max()), (5.0, 1.0, 9.0));
        assert_eq!(sample(&[4.0, 1.0]).median(), 2.5);
        assert_eq!(odd.to_string(), "x: median 5.000 (spread 1.000–9.000, 3 runs)");
    }

    #[test]
    fn a_ratio_to_zero_is_not_ok() {
        assert!(!ratio("x", &sample(&[1.0]), &sample(&[0.0]), None).ok());
    }

    #[test]
    fn timed_passes_failure_on() {
        assert_eq!(timed(|| Err("no")), Err("no"));
        assert!(timed(|| Ok::<(), &str>(())).expect("it works") >= 0.0);
    }
}
