//! The wish that a role ends: awaited by everything that runs in it.

use std::sync::Arc;

use tokio::sync::watch;

/// Tells when the role shall end. Clone it into every task that runs until then.
#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<bool>);

/// The other end: asks for the shutdown. When every clone is dropped, that asks for it too.
#[derive(Debug, Clone)]
pub struct ShutdownTrigger(Arc<watch::Sender<bool>>);

impl Shutdown {
    /// A shutdown that is asked for by hand, for tests and for parts that end before the process does.
    #[must_use]
    pub fn by_hand() -> (ShutdownTrigger, Self) {
        let (sender, receiver) = watch::channel(false);
        (ShutdownTrigger(Arc::new(sender)), Self(receiver))
    }

    /// Returns once the shutdown was asked for, at once if it already was. Works in any async runtime.
    pub async fn wait(&self) {
        // An error means that nobody is left who could ask: there is nothing to wait for.
        let _ = self.0.clone().wait_for(|asked| *asked).await;
    }

    /// Whether the shutdown was asked for.
    #[must_use]
    pub fn requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

impl ShutdownTrigger {
    /// Asks for the shutdown.
    pub fn request(&self) {
        self.0.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_clone_hears_of_it_and_late_ones_too() {
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
