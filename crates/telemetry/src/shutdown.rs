//! Shutdown signal for all tasks of a role.

use std::sync::Arc;

use tokio::sync::watch;

/// Receives the request to shut down. Clone it into every task.
#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<bool>);

/// Requests the shutdown; dropping all clones requests it too.
#[derive(Debug, Clone)]
pub struct ShutdownTrigger(Arc<watch::Sender<bool>>);

impl Shutdown {
    /// A separate shutdown, for tests and for parts that end before the process.
    #[must_use]
    pub fn by_hand() -> (ShutdownTrigger, Self) {
        let (sender, receiver) = watch::channel(false);
        (ShutdownTrigger(Arc::new(sender)), Self(receiver))
    }

    /// Returns once the shutdown is requested. Works in any async runtime.
    pub async fn wait(&self) {
        // An error means that all triggers were dropped.
        let _ = self.0.clone().wait_for(|asked| *asked).await;
    }

    /// True from the first signal, or the first call of [`ShutdownTrigger::request`], on.
    #[must_use]
    pub fn requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

impl ShutdownTrigger {
    /// Asks the role to end; further calls change nothing.
    pub fn request(&self) {
        self.0.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_clones_receive_the_request_even_late_ones() {
        let (trigger, shutdown) = Shutdown::by_hand();
        let early = shutdown.clone();
        let waiting = tokio::spawn(async move { early.wait().await });
        assert!(!shutdown.requested());
        trigger.request();
        waiting.await.unwrap();
        shutdown.wait().await;
        assert!(shutdown.requested());
    }

    #[tokio::test]
    async fn a_lost_trigger_counts_as_a_request() {
        let (trigger, shutdown) = Shutdown::by_hand();
        drop(trigger);
        shutdown.wait().await;
        assert!(shutdown.requested());
    }
}
