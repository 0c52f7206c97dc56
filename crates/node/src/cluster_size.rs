//! How many nodes the cluster has: asked seldom, by a list of one object whose answer says how many more there are.

use std::time::Duration;

use kubernetes::Api;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::sleep;

/// What depends on the number changes slowly with it.
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

/// Keeps the number up to date. Never ends.
pub(crate) async fn follow(api: Api, size: &watch::Sender<Option<usize>>) {
    loop {
        let answer = api.get("/api/v1/nodes?limit=1").await.map_err(|error| error.to_string());
        let counted = answer.and_then(|body| count(&body).map_err(|error| error.to_string()));
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
    fn the_rest_of_the_list_is_counted() {
        let count = |body: &str| count(body.as_bytes()).ok();
        assert_eq!(count(r#"{"metadata":{"remainingItemCount":499},"items":[{"metadata":{}}]}"#), Some(500));
        assert_eq!(count(r#"{"metadata":{"resourceVersion":"7"},"items":[{}]}"#), Some(1));
        assert_eq!(count("{}"), None);
    }
}
