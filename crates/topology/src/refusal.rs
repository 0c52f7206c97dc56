//! Why an object cannot have what it asks for.

use std::fmt;

/// So many problems of one object are told at once: an Event has no room for more.
const MOST_TOLD: usize = 5;

/// Why an object is parked: what it has stays as it is, and somebody is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// In one word, for the Event's reason.
    pub reason: &'static str,
    /// What is wrong, and what to do about it: for whoever may see the object, and therefore without names of objects
    /// in other namespaces.
    pub message: String,
    /// What only administrators may read: it is logged, and stands in no Event.
    pub detail: Option<String>,
}

impl Refusal {
    /// A refusal.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), detail: None }
    }

    /// All of them in one, under the first one's reason: each of an object's problems is to be seen at once.
    pub(crate) fn of_all(refusals: Vec<Self>) -> Option<Self> {
        let mut known: Vec<Self> = Vec::new();
        for refusal in refusals {
            if !known.contains(&refusal) {
                known.push(refusal);
            }
        }
        let more = known.len().saturating_sub(MOST_TOLD);
        known.truncate(MOST_TOLD);
        let details: Vec<String> = known.iter().filter_map(|refusal| refusal.detail.clone()).collect();
        let mut messages: Vec<String> = known.iter().map(|refusal| refusal.message.clone()).collect();
        if more > 0 {
            messages.push(format!("and {more} more"));
        }
        let first = known.first()?;
        let detail = (!details.is_empty()).then(|| details.join("; "));
        Some(Self::new(first.reason, messages.join("; ")).with_detail(detail))
    }

    /// With something for administrators only.
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

/// An object that is in somebody's way, as its neighbours may know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InTheWay {
    /// For the refused object's namespace.
    pub(crate) shown: String,
    /// For administrators, if that says more.
    pub(crate) detail: Option<String>,
}

/// Names an object of a namespace to an object of another, or the same, namespace.
pub(crate) fn in_the_way(kind: &str, namespace: &str, name: &dyn fmt::Display, reader: &str) -> InTheWay {
    if namespace == reader {
        return InTheWay { shown: format!("{kind} {name}"), detail: None };
    }
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    let detail = Some(format!("it is {kind} {name}"));
    InTheWay { shown: format!("{article} {kind} of another namespace"), detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_are_told_at_once() {
        let refusals: Vec<Refusal> = [1, 2, 1, 3, 4, 5, 6, 7]
            .map(|number| {
                Refusal::new("AddressTaken", number.to_string()).with_detail((number < 3).then(|| "x".into()))
            })
            .into();
        let all = Refusal::of_all(refusals).unwrap();
        assert_eq!((all.message.as_str(), all.detail.as_deref()), ("1; 2; 3; 4; 5; and 2 more", Some("x; x")));
        assert_eq!(Refusal::of_all(Vec::new()), None);
    }

    #[test]
    fn objects_of_other_namespaces_are_named_to_administrators_only() {
        let own = in_the_way("pod", "shop", &"shop/web", "shop");
        assert_eq!((own.shown.as_str(), own.detail), ("pod shop/web", None));
        let InTheWay { shown, detail } = in_the_way("pod", "bank", &"bank/vault", "shop");
        let refusal = Refusal::new("AddressTaken", format!("10.0.0.5 is the address of {shown}")).with_detail(detail);
        assert_eq!(refusal.message, "10.0.0.5 is the address of a pod of another namespace");
        assert_eq!(refusal.to_string(), format!("{} (it is pod bank/vault)", refusal.message));
    }
}
