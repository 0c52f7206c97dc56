//! The objects of a watch, by name.

use std::collections::{BTreeMap, BTreeSet};

use kubernetes::Observed;

/// What a watch has shown so far.
#[derive(Debug)]
pub(super) struct Mirror<T> {
    what: &'static str,
    uid: fn(&T) -> &str,
    /// The objects.
    pub(super) objects: BTreeMap<String, T>,
    /// During a list: objects that it has not shown yet.
    unlisted: BTreeSet<String>,
    /// Whether a list is complete.
    pub(super) is_listed: bool,
    /// Whether nothing has happened since then that may hide an object.
    is_current: bool,
    is_relisting: bool,
    /// Names of objects that exist and cannot be read.
    unreadable: BTreeSet<String>,
}

impl<T> Mirror<T> {
    /// `what` is for logs, `uid` returns the UID of an object.
    pub(super) fn new(what: &'static str, uid: fn(&T) -> &str) -> Self {
        Self {
            what,
            uid,
            objects: BTreeMap::new(),
            unlisted: BTreeSet::new(),
            is_listed: false,
            is_current: false,
            is_relisting: false,
            unreadable: BTreeSet::new(),
        }
    }

    /// All objects, if they are known: not before a list is complete, nor while the watch fails, nor if one cannot be read.
    pub(super) fn complete(&self) -> Option<&BTreeMap<String, T>> {
        (self.is_listed && self.is_current && self.unreadable.is_empty()).then_some(&self.objects)
    }

    /// Takes an event over.
    pub(super) fn apply(&mut self, event: Observed<(String, T)>) {
        let resource = self.what;
        match event {
            Observed::Relisting => {
                self.unlisted = self.objects.keys().cloned().collect();
                self.unreadable.clear();
                self.is_current = false;
                self.is_relisting = true;
            }
            Observed::Upsert((name, object)) => {
                self.unlisted.remove(&name);
                self.unreadable.remove(&name);
                self.objects.insert(name, object);
            }
            // Another object with its name may be known already.
            Observed::Deleted(identity) => {
                self.unreadable.remove(&identity.name);
                let is_same = |object: &T| (self.uid)(object) == identity.uid;
                if self.objects.get(&identity.name).is_some_and(is_same) {
                    self.objects.remove(&identity.name);
                }
            }
            Observed::Listed => {
                for name in std::mem::take(&mut self.unlisted) {
                    self.objects.remove(&name);
                }
                (self.is_listed, self.is_current, self.is_relisting) = (true, true, false);
            }
            Observed::Malformed { object, error } => {
                tracing::warn!(resource, name = object.name, error, "ignoring an object that cannot be read");
                self.unlisted.remove(&object.name);
                self.unreadable.insert(object.name);
            }
            Observed::Failed(error) => {
                self.is_current = false;
                tracing::warn!(resource, error, "watch failed; retrying, requests of nodes may wait");
            }
            Observed::Resumed => {
                self.is_current = !self.is_relisting;
                tracing::info!(resource, "watch works again");
            }
            Observed::Absent => {
                self.is_current = false;
                tracing::warn!(resource, "the API server does not have this resource; checking again");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kubernetes::Identity;

    use super::*;

    #[test]
    fn a_list_removes_what_it_does_not_show() {
        let mut mirror = Mirror::new("things", |uid: &String| uid);
        let show = |name: &str| Observed::Upsert((name.to_owned(), "u".to_owned()));
        for event in [Observed::Relisting, show("a"), show("b"), Observed::Listed, Observed::Relisting] {
            assert!(!mirror.is_listed || mirror.objects.len() == 2);
            mirror.apply(event);
        }
        mirror.apply(show("b"));
        mirror.apply(show("c"));
        mirror.apply(Observed::Listed);
        assert_eq!(mirror.objects.keys().collect::<Vec<_>>(), ["b", "c"]);
        let deleted =
            |uid: &str| Observed::Deleted(Identity { name: "b".into(), uid: uid.into(), ..Identity::default() });
        mirror.apply(deleted("former"));
        assert_eq!(mirror.objects.len(), 2, "there is a new one of that name");
        mirror.apply(deleted("u"));
        assert_eq!(mirror.objects.len(), 1);
    }

    #[test]
    fn objects_are_complete_after_a_list_and_while_the_watch_works() {
        let mut mirror = Mirror::new("things", |uid: &String| uid);
        let show = || Observed::Upsert(("a".to_owned(), "u".to_owned()));
        let malformed = || Observed::Malformed {
            object: Identity { name: "a".into(), ..Identity::default() },
            error: "no UID".into(),
        };
        for (event, is_complete) in [
            (Observed::Relisting, false),
            (show(), false),
            (Observed::Failed("cut off in the middle of the list".into()), false),
            (Observed::Relisting, false),
            (Observed::Listed, true),
            (malformed(), false),
            (show(), true),
            (Observed::Failed("connection refused".into()), false),
            (Observed::Resumed, true),
            (Observed::Relisting, false),
            (malformed(), false),
            (Observed::Listed, false),
            (Observed::Relisting, false),
            (Observed::Resumed, false),
            (Observed::Listed, true),
            (Observed::Absent, false),
        ] {
            let said = format!("{event:?}");
            mirror.apply(event);
            assert_eq!(mirror.complete().is_some(), is_complete, "{said}");
        }
    }
}
