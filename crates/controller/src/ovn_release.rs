//! Whether ovn-northd is of a release with known vulnerabilities. Each node agent checks its ovn-controller.

use std::time::Duration;

use ovn_schema::release::{Release, warning};
use ovsdb::client::Client;
use ovsdb::operation::Condition;
use ovsdb::transaction::Transaction;
use tokio::time::sleep;

/// northd writes its version when it starts; until then the database has that of the former one.
const DELAY: Duration = Duration::from_secs(10);
/// Attempts before the check gives up: without northd nothing works, which others report.
const ATTEMPTS: usize = 6;
/// The key of `NB_Global.options`.
const KEY: &str = "northd_internal_version";

/// Checks once, and logs what is unsafe.
pub(crate) fn check(northbound: &Client) {
    let client = northbound.clone();
    tokio::spawn(async move {
        for _ in 0..ATTEMPTS {
            sleep(DELAY).await;
            match written(&client).await {
                Some(release) => {
                    if let Some(warning) = warning("ovn-northd", release) {
                        tracing::warn!(release = %release, "{warning}");
                    }
                    return;
                }
                None => tracing::debug!("ovn-northd's release is not known yet; checking again in {DELAY:?}"),
            }
        }
    });
}

/// Selected, not monitored: the column changes with every northd's start, and nothing else needs it.
async fn written(client: &Client) -> Option<Release> {
    let global = client.snapshot().table("NB_Global")?.iter().next()?.uuid;
    let mut transaction = Transaction::new();
    let read = transaction.select("NB_Global", vec![Condition::uuid(global)], &["options"]);
    let outcome = client.transact(&transaction).await.ok()?;
    // As OVSDB writes a map: ["map", [[key, value], …]].
    let pairs = outcome.rows(read)?.first()?.get("options")?.get(1)?.as_array()?;
    pairs.iter().find(|pair| pair[0] == KEY)?[1].as_str()?.parse().ok()
}
