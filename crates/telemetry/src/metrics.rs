//! The metrics registry of a role, with the metrics that every role has.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::process::ProcessCollector;

/// Content type of [`Metrics::text`].
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Registry of `/metrics`; clones share it.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Mutex<Registry>>);

impl Metrics {
    /// With `ovnkube_build_info` and the process metrics.
    #[must_use]
    pub fn new(role: &str, version: &str, commit: &str) -> Self {
        let mut registry = Registry::default();
        let build =
            Info::new(vec![("version", version.to_owned()), ("commit", commit.to_owned()), ("role", role.to_owned())]);
        registry.register("ovnkube_build", "Version and commit of this process, and its role", build);
        registry.register_collector(Box::new(ProcessCollector::default()));
        Self(Arc::new(Mutex::new(registry)))
    }

    /// Access for a role to register its metrics.
    pub fn with<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut self.lock())
    }

    /// All metrics in the OpenMetrics text format.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.lock())?;
        Ok(text)
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        // A registration that panicked cannot leave the registry inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[test]
    fn built_in_and_registered_metrics_are_exposed() {
        let metrics = Metrics::new("controller", "1.2.3", "abc");
        let commits: Counter = Counter::default();
        metrics.with(|registry| {
            registry.sub_registry_with_prefix("ovnkube_controller").register(
                "commits",
                "Transactions that succeeded",
                commits.clone(),
            );
        });
        commits.inc();
        let text = metrics.text().unwrap();
        for line in [
            "ovnkube_build_info{version=\"1.2.3\",commit=\"abc\",role=\"controller\"} 1\n",
            "ovnkube_controller_commits_total 1\n",
            "# TYPE process_open_fds gauge\n",
            "process_start_time_seconds ",
            "process_resident_memory_bytes ",
            "process_cpu_seconds_total ",
        ] {
            assert!(text.contains(line), "{line:?} is missing in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
