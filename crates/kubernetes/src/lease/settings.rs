//! Settings of leader election.

use std::time::Duration;

/// Name of the Lease, identity of this process, and timing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSettings {
    /// Namespace of the Lease; it must exist.
    pub namespace: String,
    /// One per role and cluster; all candidates must use the same.
    pub name: String,
    /// Unique to this process, or to this pod if a restarted container may take its Lease again at once.
    pub identity: String,
    /// How long other processes wait for a renewal before they take over.
    pub duration: Duration,
    /// How long one renewal may take before it is retried; less than `duration`.
    pub renew_deadline: Duration,
    /// Interval of renewals; less than `renew_deadline`.
    pub retry_period: Duration,
}

/// Settings under which two processes, or none, could hold the Lease.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid settings of Lease {lease}: {problem}")]
pub struct LeaseSettingsError {
    /// `namespace/name`.
    pub lease: String,
    /// What is wrong, and what is allowed.
    pub problem: String,
}

impl LeaseSettings {
    /// The defaults of client-go: a duration of 15 s, renewed every 2 s; a renewal may take 10 s.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// Rejects settings under which two processes could hold the Lease.
    pub fn check(&self) -> Result<(), LeaseSettingsError> {
        let problem = if self.namespace.is_empty() || self.name.is_empty() || self.identity.is_empty() {
            "namespace, name and identity must not be empty".to_owned()
        } else if self.duration < Duration::from_secs(1) || self.duration > Duration::from_secs(60) {
            format!("the duration ({:?}) must be from 1 s to 60 s", self.duration)
        } else if self.renew_deadline >= self.duration {
            format!(
                "the renew deadline ({:?}) must be less than the duration ({:?})",
                self.renew_deadline, self.duration
            )
        } else if self.retry_period >= self.renew_deadline || self.retry_period.is_zero() {
            format!(
                "the retry period ({:?}) must be more than 0 and less than the renew deadline ({:?})",
                self.retry_period, self.renew_deadline
            )
        } else {
            return Ok(());
        };
        Err(LeaseSettingsError { lease: format!("{}/{}", self.namespace, self.name), problem })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_allow_two_holders_are_rejected() {
        let good = LeaseSettings::new("ns", "name", "me");
        assert_eq!(good.check(), Ok(()));
        let seconds = Duration::from_secs;
        for bad in [
            LeaseSettings { identity: String::new(), ..good.clone() },
            LeaseSettings { duration: seconds(0), ..good.clone() },
            LeaseSettings { duration: seconds(61), ..good.clone() },
            LeaseSettings { renew_deadline: seconds(15), ..good.clone() },
            LeaseSettings { retry_period: seconds(10), ..good.clone() },
            LeaseSettings { retry_period: seconds(0), ..good.clone() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
