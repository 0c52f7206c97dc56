//! Which lease, as whom, and at what pace.

use std::time::Duration;

/// Which lease, as whom, and at what pace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSettings {
    /// The Lease's namespace; it must exist.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// Who we are. Unique to this process, or to this pod if a restarted container may take its lease back at once.
    pub identity: String,
    /// How long others wait for a renewal before they take over, if nothing else tells them about the holder.
    pub duration: Duration,
    /// How long one renewal may take before it is sent again; less than `duration`.
    pub renew_deadline: Duration,
    /// How often it renews; less than `renew_deadline`.
    pub retry_period: Duration,
}

/// Settings under which two could hold a lease at once, or nobody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the lease {lease} cannot be used: {problem}")]
pub struct LeaseSettingsError {
    /// Its namespace and name.
    pub lease: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl LeaseSettings {
    /// With the pace of client-go: a lease of 15 s, renewed every 2 s; a renewal may take 10 s.
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

    /// Refuses what would let two hold the lease at once.
    pub fn check(&self) -> Result<(), LeaseSettingsError> {
        let problem = if self.namespace.is_empty() || self.name.is_empty() || self.identity.is_empty() {
            "namespace, name and identity must not be empty".to_owned()
        } else if self.duration < Duration::from_secs(1) || self.duration > Duration::from_secs(60) {
            format!("its duration is {:?} and must be 1 s to 60 s", self.duration)
        } else if self.renew_deadline >= self.duration {
            format!(
                "its renew deadline ({:?}) must be less than its duration ({:?})",
                self.renew_deadline, self.duration
            )
        } else if self.retry_period >= self.renew_deadline || self.retry_period.is_zero() {
            format!(
                "its retry period ({:?}) must be more than 0 and less than its renew deadline ({:?})",
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
    fn only_settings_that_keep_two_holders_apart_pass() {
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
