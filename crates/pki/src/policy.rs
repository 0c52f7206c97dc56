//! Lifetimes, and when certificates are renewed.

use std::time::Duration;

const DAY: u64 = 24 * 60 * 60;

/// Lifetimes of certificates and delays of a rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// How long a CA is valid.
    pub ca_lifetime: Duration,
    /// Age at which a CA is replaced.
    pub ca_renew_after: Duration,
    /// How long the certificate of the control plane is valid.
    pub leaf_lifetime: Duration,
    /// Age at which it is replaced.
    pub leaf_renew_after: Duration,
    /// How long a changed Secret or ConfigMap may need to reach every process. kubelet needs up to two minutes.
    pub distribution_delay: Duration,
    /// How long a Node is gone until its certificates are revoked.
    pub revoke_deleted_after: Duration,
    /// DNS names of the certificate.
    pub names: Vec<String>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            ca_lifetime: Duration::from_secs(3650 * DAY),
            ca_renew_after: Duration::from_secs(3285 * DAY),
            leaf_lifetime: Duration::from_secs(180 * DAY),
            leaf_renew_after: Duration::from_secs(90 * DAY),
            distribution_delay: Duration::from_secs(600),
            revoke_deleted_after: Duration::from_secs(600),
            names: vec!["ovn".into()],
        }
    }
}

/// Lifetimes that do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A renewal after the end, or at once.
    #[error(
        "the {of} would be renewed at an age of {renew_after:?}, but is valid for {lifetime:?}: its renewal (--{option}-renew-after) must be \
         earlier than its end (--{option}-lifetime), and later than zero"
    )]
    Renewal {
        /// CA or certificate.
        of: &'static str,
        /// Start of the names of its options.
        option: &'static str,
        /// Age at which it is renewed.
        renew_after: Duration,
        /// How long it is valid.
        lifetime: Duration,
    },
    /// A certificate would outlive the CA that issued it.
    #[error(
        "the certificate lives for {leaf:?}, but the CA only for {left:?} after its renewal: shorten the certificate's lifetime, or renew the CA earlier"
    )]
    LeafOutlivesCa {
        /// Lifetime of the certificate.
        leaf: Duration,
        /// What remains of a CA when it is renewed.
        left: Duration,
    },
    /// No time for overlapping trust.
    #[error(
        "the distribution delay of {delay:?} must be shorter than what remains after each renewal ({least:?}): a new CA signs only after it"
    )]
    Delay {
        /// As configured.
        delay: Duration,
        /// The shortest remaining time.
        least: Duration,
    },
    /// A setting has another form than a number with a unit.
    #[error("{0:?} is not a duration: write a number with a unit, such as 90d, 12h, 10m or 30s")]
    NotADuration(String),
}

impl Policy {
    /// Whether the lifetimes fit together.
    pub fn check(&self) -> Result<(), PolicyError> {
        for (of, option, renew_after, lifetime) in [
            ("CA", "ca", self.ca_renew_after, self.ca_lifetime),
            ("certificate", "leaf", self.leaf_renew_after, self.leaf_lifetime),
        ] {
            if renew_after.is_zero() || renew_after >= lifetime {
                return Err(PolicyError::Renewal { of, option, renew_after, lifetime });
            }
        }
        let left = self.ca_lifetime - self.ca_renew_after;
        if self.leaf_lifetime > left {
            return Err(PolicyError::LeafOutlivesCa { leaf: self.leaf_lifetime, left });
        }
        let least = left.min(self.leaf_lifetime - self.leaf_renew_after).min(self.leaf_renew_after);
        if self.distribution_delay >= least {
            return Err(PolicyError::Delay { delay: self.distribution_delay, least });
        }
        Ok(())
    }
}

/// Parses a duration such as `90d`, `12h`, `10m` or `30s`.
pub fn parse_duration(text: &str) -> Result<Duration, PolicyError> {
    let invalid = || PolicyError::NotADuration(text.to_owned());
    let unit = text.chars().last().ok_or_else(invalid)?;
    let seconds = match unit {
        'd' => DAY,
        'h' => 3600,
        'm' => 60,
        's' => 1,
        _ => return Err(invalid()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| invalid())?;
    // A hundred years: beyond it, dates of certificates get another form.
    let total = number.checked_mul(seconds).filter(|total| *total <= 36500 * DAY).ok_or_else(invalid)?;
    Ok(Duration::from_secs(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_consistent() {
        let policy = Policy::default();
        assert_eq!(policy.check(), Ok(()));
        assert_eq!(policy.ca_lifetime, parse_duration("3650d").unwrap());
    }

    #[test]
    fn lifetimes_must_fit_together() {
        let short = |text: &str| parse_duration(text).unwrap();
        let policy = Policy { leaf_renew_after: short("180d"), ..Policy::default() };
        assert!(matches!(policy.check(), Err(PolicyError::Renewal { of: "certificate", .. })));
        let policy = Policy { ca_renew_after: short("0s"), ..Policy::default() };
        assert!(matches!(policy.check(), Err(PolicyError::Renewal { of: "CA", .. })));
        let policy = Policy { ca_renew_after: short("3600d"), ..Policy::default() };
        assert!(matches!(policy.check(), Err(PolicyError::LeafOutlivesCa { .. })));
        let policy = Policy { distribution_delay: short("90d"), ..Policy::default() };
        assert!(matches!(policy.check(), Err(PolicyError::Delay { .. })));
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7200)));
        for bad in ["", "s", "10", "1.5h", "-3d", "99999999999999999999s", "36501d", "3w", "3 d", "é"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
