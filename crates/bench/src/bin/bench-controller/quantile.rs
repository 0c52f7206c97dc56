//! Quantiles of many measurements.

/// Sorted measurements.
#[derive(Debug, Clone)]
pub(crate) struct Quantiles(Vec<f64>);

impl Quantiles {
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// The value that this share of all is at or below; NaN without measurements.
    pub(crate) fn at(&self, share: f64) -> f64 {
        let place = (self.0.len() as f64 * share).ceil() as usize;
        self.0.get(place.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn median(&self) -> f64 {
        self.at(0.5)
    }

    /// Prints a summary to stderr, as progress.
    pub(crate) fn print(&self, name: &str, unit: &str) {
        eprintln!(
            "  {name} ({unit}): p50 {:.2}, p90 {:.2}, p99 {:.2} (spread {:.2}–{:.2}, {} measurements)",
            self.median(),
            self.at(0.9),
            self.at(0.99),
            self.at(0.0),
            self.at(1.0),
            self.0.len()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_ranks() {
        let hundred = Quantiles::of((1..=100).rev().map(f64::from).collect());
        assert_eq!((hundred.median(), hundred.at(0.99), hundred.at(1.0), hundred.at(0.0)), (50.0, 99.0, 100.0, 1.0));
        assert!(Quantiles::of(Vec::new()).median().is_nan());
    }
}
