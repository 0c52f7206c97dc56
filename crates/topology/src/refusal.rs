//! Why an object cannot be applied.

use std::fmt;

/// Limit of problems in one message: an Event has room for few.
const MAX_REPORTED: usize = 5;

/// Why an object is parked: its existing rows stay, and the problem is reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The Event's reason.
    pub reason: &'static str,
    /// The problem and its remedy. Readers of the object see it, so it must not name objects of other namespaces.
    pub message: String,
    /// For administrators only: logged, never in an Event.
    pub detail: Option<String>,
}

impl Refusal {
    /// Without detail.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), detail: None }
    }

    /// One refusal with all problems, under the reason of the first; None if there are none.
    pub(crate) fn merge(refusals: Vec<Self>) -> Option<Self> {
        let mut known: Vec<Self> = Vec::new();
        for refusal in refusals {
            if !known.contains(&refusal) {
                known.push(refusal);
            }
        }
        let more = known.len().saturating_sub(MAX_REPORTED);
        known.truncate(MAX_REPORTED);
        let details: Vec<String> = known.iter().filter_map(|refusal| refusal.detail.clone()).collect();
        let mut messages: Vec<String> = known.iter().map(|refusal| refusal.message.clone()).collect();
        if more > 0 {
            messages.push(format!("and {more} more"));
        }
        let first = known.first()?;
        let detail = (!details.is_empty()).then(|| details.join("; "));
        Some(Self::new(first.reason, messages.join("; ")).with_detail(detail))
    }

    /// Adds what only administrators may read.
    #[must_use]
    pub fn with_detail(mut self, detail: Option<String>) -> Self {
        self.detail = detail;
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.detail {
            Some(detail) => write!(f, "{} ({detail})", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Another object that has what this one requests, described for two audiences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// For readers of the refused object.
    pub(crate) shown: String,
    /// For administrators, if `shown` does not name it.
    pub(crate) detail: Option<String>,
}

/// Describes an object to readers of the namespace `reader`.
pub(crate) fn describe_conflict(kind: &str, namespace: &str, name: &dyn fmt::Display, reader: &str) -> Conflict {
    if namespace == reader {
        return Conflict { shown: format!("{kind} {name}"), detail: None };
    }
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    let detail = Some(format!("it is {kind} {name}"));
    Conflict { shown: format!("{article} {kind} of another namespace"), detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_refusals_become_one_message() {
        let refusals: Vec<Refusal> = [1, 2, 1, 3, 4, 5, 6, 7]
            .map(|number| {
                Refusal::new("AddressTaken", number.to_string()).with_detail((number < 3).then(|| "x".into()))
            })
            .into();
        let all = Refusal::merge(refusals).unwrap();
        assert_eq!((all.message.as_str(), all.detail.as_deref()), ("1; 2; 3; 4; 5; and 2 more", Some("x; x")));
        assert_eq!(Refusal::merge(Vec::new()), None);
    }

    #[test]
    fn objects_of_other_namespaces_are_named_in_the_detail_only() {
        let own = describe_conflict("pod", "shop", &"shop/web", "shop");
        assert_eq!((own.shown.as_str(), own.detail), ("pod shop/web", None));
        let Conflict { shown, detail } = describe_conflict("pod", "bank", &"bank/vault", "shop");
        let refusal = Refusal::new("AddressTaken", format!("10.0.0.5 is the address of {shown}")).with_detail(detail);
        assert_eq!(refusal.message, "10.0.0.5 is the address of a pod of another namespace");
        assert_eq!(refusal.to_string(), format!("{} (it is pod bank/vault)", refusal.message));
    }
}
