//! Counters of calls, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::ApiError;

/// Verb of a call, as in Kubernetes' metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads one page of objects.
    List,
    /// Opens a watch; its later events are not calls.
    Watch,
    /// Creates an object.
    Post,
    /// Replaces an object.
    Put,
    /// Changes parts of an object.
    Patch,
    /// Deletes an object.
    Delete,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// 2xx: executed.
    Success,
    /// 4xx: not executed.
    Refused,
    /// 5xx, or a response that cannot be parsed.
    Server,
    /// No response in time.
    Timeout,
    /// No connection, or it was cut off.
    Transport,
}

impl Verb {
    /// In the order of declaration.
    pub const ALL: [Self; 7] = [Self::Get, Self::List, Self::Watch, Self::Post, Self::Put, Self::Patch, Self::Delete];

    /// Label value in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Post => "post",
            Self::Put => "put",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

impl Outcome {
    /// In the order of declaration.
    pub const ALL: [Self; 5] = [Self::Success, Self::Refused, Self::Server, Self::Timeout, Self::Transport];

    /// Label value in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "2xx",
            Self::Refused => "4xx",
            Self::Server => "5xx",
            Self::Timeout => "timeout",
            Self::Transport => "transport",
        }
    }

    pub(crate) fn of<T>(result: &Result<T, ApiError>) -> Self {
        match result {
            Ok(_) => Self::Success,
            Err(ApiError::Timeout { .. }) => Self::Timeout,
            Err(ApiError::Transport(_)) => Self::Transport,
            Err(ApiError::Server { .. } | ApiError::Unreadable(_)) => Self::Server,
            Err(_) => Self::Refused,
        }
    }
}

/// Calls by verb and outcome since the `Api` was created; clones of the `Api` share them.
#[derive(Debug, Default)]
pub struct Calls([[AtomicU64; Outcome::ALL.len()]; Verb::ALL.len()]);

impl Calls {
    /// Number of calls of this verb with this outcome.
    pub fn count(&self, verb: Verb, outcome: Outcome) -> u64 {
        self.0[verb as usize][outcome as usize].load(Ordering::Relaxed)
    }

    /// All counters, zeros included.
    pub fn iter(&self) -> impl Iterator<Item = (Verb, Outcome, u64)> + '_ {
        Verb::ALL
            .into_iter()
            .flat_map(move |verb| Outcome::ALL.map(|outcome| (verb, outcome, self.count(verb, outcome))))
    }

    pub(crate) fn add(&self, verb: Verb, outcome: Outcome) {
        self.0[verb as usize][outcome as usize].fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_and_outcomes_are_counted_separately() {
        let calls = Calls::default();
        calls.add(Verb::Get, Outcome::Success);
        calls.add(Verb::Get, Outcome::Success);
        calls.add(Verb::Delete, Outcome::of::<()>(&Err(ApiError::NotFound(String::new()))));
        assert_eq!(calls.count(Verb::Get, Outcome::Success), 2);
        assert_eq!(calls.count(Verb::Delete, Outcome::Refused), 1);
        assert_eq!(calls.iter().map(|(_, _, count)| count).sum::<u64>(), 3);
        assert_eq!(calls.iter().count(), Verb::ALL.len() * Outcome::ALL.len());
    }
}
