//! What a member must know from the API before it may become active.
//!
//! A member with all its data starts without the API. It may be the copy of a week ago, or of a database that was replaced
//! meanwhile: until the API has named the active server and the recorded database, it is not a candidate. That costs nothing:
//! becoming active needs the Lease, and so the API.

use crate::active_backup::manager::Member;
use crate::active_backup::marker::Marker;
use crate::record::Record;
use crate::store::StoreError;

/// What the record says about the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Confirmation {
    /// The file belongs to the recorded database; or the record cannot be read until an administrator repairs it.
    Confirmed,
    /// It does not: the file has to be prepared again.
    Refuted,
    /// The API does not answer.
    Unknown,
}

/// Compares the record with the marker of the file. Pure.
fn compare(read: &Result<Option<Record>, StoreError>, marker: &Marker) -> Confirmation {
    match read {
        Ok(Some(record)) if record.cluster_id == marker.database_id => Confirmation::Confirmed,
        Ok(_) => Confirmation::Refuted,
        Err(StoreError::Record(_)) => Confirmation::Confirmed,
        Err(StoreError::Api(_) | StoreError::Malformed(_)) => Confirmation::Unknown,
    }
}

impl Member {
    /// Asks the API for the record and the active server.
    pub(super) async fn confirm(&mut self) -> Confirmation {
        let database = self.options.kind.name();
        match remotes::published(&self.api, &self.access).await {
            Ok(published) => self.published = published.and_then(|servers| servers.into_iter().next()),
            Err(error) => {
                tracing::debug!(database, %error, "cannot read which server is active; retrying");
                return Confirmation::Unknown;
            }
        }
        compare(&self.store.read(self.options.kind).await, &self.marker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_recorded_database_is_confirmed() {
        let marker = Marker { database_id: "d1".into(), complete: true };
        let record = |id: &str| Ok(Some(Record::new(id.to_owned(), "n1")));
        assert_eq!(compare(&record("d1"), &marker), Confirmation::Confirmed);
        assert_eq!(compare(&record("d2"), &marker), Confirmation::Refuted);
        assert_eq!(compare(&Ok(None), &marker), Confirmation::Refuted);
        let unreachable = Err(StoreError::Api(kubernetes::ApiError::Unreadable("timed out".into())));
        assert_eq!(compare(&unreachable, &marker), Confirmation::Unknown);
    }
}
