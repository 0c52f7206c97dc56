//! Number of nodes in the cluster, from a list of one object whose metadata says how many more there are.

use std::time::Duration;

use kubernetes::Api;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::sleep;

/// Intervals and probes depend on the number, and need not follow it quickly.
const REFRESH: Duration = Duration::from_secs(600);
const RETRY: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct List {
    metadata: Metadata,
    items: Vec<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    remaining_item_count: usize,
}

fn count(body: &[u8]) -> Result<usize, serde_json::Error> {
    serde_json::from_slice(body).map(|list: List| list.items.len() + list.metadata.remaining_item_count)
}

/// Updates the number every 10 minutes. Never returns.
pub(crate) async fn follow(api: Api, size: &watch::Sender<Option<usize>>) {
    loop {
        let response = api.get("/api/v1/nodes?limit=1").await.map_err(|error| error.to_string());
        let counted = response.and_then(|body| count(&body).map_err(|error| error.to_string()));
        let pause = match counted {
            Ok(nodes) => {
                size.send_if_modified(|before| before.replace(nodes) != Some(nodes));
                REFRESH
            }
            Err(error) => {
                tracing::debug!(error, "cannot count the nodes; retrying in 10s");
                RETRY
            }
        };
        sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_items_are_counted() {
        let count = |body: &str| count(body.as_bytes()).ok();
        assert_eq!(count(r#"{"metadata":{"remainingItemCount":499},"items":[{"metadata":{}}]}"#), Some(500));
        assert_eq!(count(r#"{"metadata":{"resourceVersion":"7"},"items":[{}]}"#), Some(1));
        assert_eq!(count("{}"), None);
    }
}
