//! Selection of objects to list and watch.

use std::fmt::Write;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that need no escape in a query.
const IN_QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// All or selected objects of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    path: String,
    query: String,
    page: u32,
    absent_retry: Duration,
    silence: Duration,
    metadata_only: bool,
}

impl Resource {
    /// All objects of a type: `Resource::all("/api/v1", "pods")`, `Resource::all("/apis/k8s.ovn.org/v1", "egressips")`.
    pub fn all(group: &str, plural: &str) -> Self {
        Self::at(format!("{group}/{plural}"))
    }

    /// The objects of one namespace.
    pub fn inside(group: &str, namespace: &str, plural: &str) -> Self {
        Self::at(format!("{group}/namespaces/{namespace}/{plural}"))
    }

    /// By the path of the collection, such as `/api/v1/pods`.
    pub fn at(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            query: String::new(),
            page: 500,
            absent_retry: Duration::from_secs(30),
            silence: Duration::from_secs(95),
            metadata_only: false,
        }
    }

    /// Adds a label selector: `app=web,tier!=test`.
    #[must_use]
    pub fn labels(self, selector: &str) -> Self {
        self.query("labelSelector", selector)
    }

    /// Adds a field selector: `metadata.name=x`, `spec.nodeName=n1`.
    #[must_use]
    pub fn fields(self, selector: &str) -> Self {
        self.query("fieldSelector", selector)
    }

    /// Adds a query parameter.
    #[must_use]
    pub fn query(mut self, key: &str, value: &str) -> Self {
        self.query.push('&');
        self.query.push_str(key);
        self.query.push('=');
        self.query.extend(utf8_percent_encode(value, IN_QUERY));
        self
    }

    /// Requests metadata only, without spec and status (`PartialObjectMetadata`): a small part of a Node.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    pub(crate) fn list_accept(&self) -> &'static str {
        match self.metadata_only {
            true => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
            false => "application/json",
        }
    }

    pub(crate) fn watch_accept(&self) -> &'static str {
        match self.metadata_only {
            true => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
            false => "application/json",
        }
    }

    /// Objects per page of a list; default 500.
    #[must_use]
    pub fn page(mut self, objects: u32) -> Self {
        self.page = objects.max(1);
        self
    }

    /// How often to check for a type that the cluster does not have; default 30 s.
    #[must_use]
    pub fn absent_retry(mut self, every: Duration) -> Self {
        self.absent_retry = every;
        self
    }

    /// A watch without data for this long is considered dead; default 95 s. The server sends a bookmark about every
    /// minute.
    #[must_use]
    pub fn silence(mut self, after: Duration) -> Self {
        self.silence = after;
        self
    }

    /// Path of the collection, such as `/api/v1/pods`, without the query.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn absent_wait(&self) -> Duration {
        self.absent_retry
    }

    pub(crate) fn longest_silence(&self) -> Duration {
        self.silence
    }

    /// Path of a page; the first has no continue token.
    pub(crate) fn list_path(&self, next: Option<&str>) -> String {
        let mut path = format!("{}?limit={}{}", self.path, self.page, self.query);
        if let Some(next) = next {
            path.push_str("&continue=");
            path.extend(utf8_percent_encode(next, IN_QUERY));
        }
        path
    }

    /// Path of a watch from a version on, which the server ends after `lasting`.
    pub(crate) fn watch_path(&self, version: &str, lasting: Duration) -> String {
        let mut path = format!("{}?watch=1&allowWatchBookmarks=true{}", self.path, self.query);
        // Writing into a string cannot fail.
        let _ = write!(path, "&timeoutSeconds={}&resourceVersion=", lasting.as_secs());
        path.extend(utf8_percent_encode(version, IN_QUERY));
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_built_and_escaped() {
        let pods = Resource::all("/api/v1", "pods").labels("app in (a,b)").page(0);
        assert_eq!(pods.list_path(None), "/api/v1/pods?limit=1&labelSelector=app%20in%20%28a%2Cb%29");
        assert_eq!(
            pods.list_path(Some("a+b=")),
            "/api/v1/pods?limit=1&labelSelector=app%20in%20%28a%2Cb%29&continue=a%2Bb%3D"
        );
        let lease = Resource::inside("/apis/coordination.k8s.io/v1", "ns", "leases").fields("metadata.name=x");
        assert_eq!(
            lease.watch_path("17", Duration::from_secs(300)),
            "/apis/coordination.k8s.io/v1/namespaces/ns/leases?watch=1&allowWatchBookmarks=true\
             &fieldSelector=metadata.name%3Dx&timeoutSeconds=300&resourceVersion=17"
        );
    }
}
