//! The servers of a client, as they are now: the configured ones, or the latest list of who follows the members.

use tokio::sync::watch;

use crate::client::config::Config;
use crate::client::remote::Remote;

/// The current servers, and their changes.
#[derive(Debug)]
pub(crate) struct RemoteList {
    current: Vec<Remote>,
    updates: Option<watch::Receiver<Option<Vec<Remote>>>>,
}

impl RemoteList {
    pub(crate) fn new(config: &Config) -> Self {
        Self { current: config.remotes.clone(), updates: config.remote_updates.clone() }
    }

    /// The servers now; waits for nothing.
    pub(crate) fn current(&mut self) -> Vec<Remote> {
        if let Some(updates) = &mut self.updates
            && let Some(list) = updates.borrow_and_update().as_ref().filter(|list| !list.is_empty())
        {
            self.current.clone_from(list);
        }
        self.current.clone()
    }

    /// Waits for another list. Cancel-safe; never returns if there will be none.
    pub(crate) async fn changed(&mut self) {
        let changed = match &mut self.updates {
            // Not `changed`, which marks the list as seen: only `current` does.
            Some(updates) => {
                updates.has_changed().is_ok() && {
                    let mut waiting = updates.clone();
                    waiting.changed().await.is_ok()
                }
            }
            None => false,
        };
        if !changed {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until a server is no longer listed. Cancel-safe.
    pub(crate) async fn removed(&mut self, remote: &Remote) {
        loop {
            self.changed().await;
            if !self.current().contains(remote) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(text: &str) -> Remote {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn an_empty_list_replaces_nothing_and_a_listed_server_stays() {
        let (sender, updates) = watch::channel(None);
        let mut config = Config::new(vec![remote("tcp:a:1")], "T");
        config.remote_updates = Some(updates);
        let mut list = RemoteList::new(&config);
        assert_eq!(list.current(), [remote("tcp:a:1")]);
        for empty in [None, Some(Vec::new())] {
            sender.send_replace(empty);
            list.changed().await;
            assert_eq!(list.current(), [remote("tcp:a:1")]);
        }
        sender.send_replace(Some(vec![remote("tcp:b:1"), remote("tcp:a:1")]));
        // Cancelled: the next wait sees the same list.
        list.changed().await;
        list.changed().await;
        let gone = remote("tcp:a:1");
        {
            let removed = list.removed(&gone);
            tokio::pin!(removed);
            tokio::select! {
                biased;
                () = &mut removed => panic!("a server that is listed was given up"),
                () = tokio::task::yield_now() => {}
            }
            sender.send_replace(Some(vec![remote("tcp:b:1")]));
            removed.await;
        }
        assert_eq!(list.current(), [remote("tcp:b:1")]);
    }
}
