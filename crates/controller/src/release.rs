//! Hands the northbound database over to another controller: the first transaction of `topology::release`, fenced, and the
//! second one when every node has applied the first and its flow cache has expired.
//!
//! The first transaction requires the sequence value that was read, and removes it: a commit of our leader before it makes it
//! fail (it is planned again), and a commit after it fails.

use std::path::PathBuf;
use std::time::Duration;

use kubernetes::{Api, ApiError};
use ovsdb::client::{CallError, Client, SequenceCell};
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::{Condition, Function, Mutation, Mutator};
use ovsdb::replica::Snapshot;
use ovsdb::transaction::Transaction;
use remotes::DatabaseAccess;
use tokio::time::timeout;
use topology::release::{Release, release};

use crate::{databases, leader_lock};

/// Timeout of a database request.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(30);
/// After this time a command says what it waits for.
const SILENT_WAIT: Duration = Duration::from_secs(2);
/// Most attempts, if a leader commits meanwhile.
const ATTEMPTS: usize = 5;
/// Interval of Lease reads while checking whether its holder is alive.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long all nodes may take to apply the first transaction. One that takes longer is most likely down.
const NODES_TIMEOUT: Duration = Duration::from_secs(60);
/// Open vSwitch keeps a cached flow for ten seconds after its last packet (`other_config:max-idle`), and checks twice a second.
const FLOW_CACHE_TIME: Duration = Duration::from_secs(12);

/// Arguments of `ovnkube release`.
#[derive(Debug, Clone)]
pub struct ReleaseOptions {
    /// The database to hand over.
    pub northbound: DatabaseAccess,
    /// The kubeconfig of the cluster with the Lease; none as in [`crate::Options`].
    pub kubeconfig: Option<PathBuf>,
    /// Namespace and name of the Lease.
    pub lease: (String, String),
    /// Only report what would be done.
    pub dry_run: bool,
    /// Release although an ovnkube controller leads.
    pub force: bool,
    /// Also remove rows for which the other controller has nothing in place.
    pub remove_unreplaced: bool,
}

/// Why the database was not released.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// The kubeconfig or in-cluster configuration is unusable.
    #[error(transparent)]
    Kubernetes(#[from] kubernetes::ConfigError),
    /// The Lease cannot be read.
    #[error(
        "cannot read Lease {lease}: {error}; so it is unknown whether a controller leads; hint: make the API reachable, or \
         stop all controllers and use --force"
    )]
    Lease {
        /// As `namespace/name`.
        lease: String,
        /// The API's error.
        error: String,
    },
    /// An ovnkube controller leads; its identity.
    #[error(
        "controller {0} leads and would write its rows again; hint: stop all ovnkube controllers first, or use --force to \
         fence it: it then exits, because the database has another controller's network"
    )]
    Leads(String),
    /// The database is not connected, or a request timed out.
    #[error("cannot reach the northbound database: {0}")]
    Unreachable(String),
    /// The server refused a transaction.
    #[error("the northbound database refused the release: {0}")]
    Refused(String),
    /// An ovnkube controller adopted the database again before the release was complete; its identity.
    #[error(
        "controller {0} took over the database again before the QoS rules were removed; hint: stop all ovnkube controllers and \
         run this again"
    )]
    TakenBack(String),
    /// A controller commits all the time.
    #[error("a controller committed during each of {ATTEMPTS} attempts; hint: stop all ovnkube controllers")]
    Busy,
}

/// Releases the database, or with `dry_run` reports what would be done, and the error that would prevent it. Writes nothing
/// if the release has `unreplaced` owners, unless `remove_unreplaced` is set. `progress` gets a line for each long wait.
pub async fn release_database(
    options: &ReleaseOptions,
    progress: impl Fn(&str),
) -> Result<(Release, Option<ReleaseError>), ReleaseError> {
    let remotes = remotes::resolve(&options.northbound, options.kubeconfig.as_deref()).await;
    let access = DatabaseAccess { remotes, ..options.northbound.clone() };
    let client = databases::northbound(&access, &tokio::sync::watch::channel(None).1);
    connected(&client, &access, &progress).await?;
    let leader = if options.force { Ok(()) } else { check_leader(options, &client).await };
    let conflict = match leader {
        Err(error) if !options.dry_run => return Err(error),
        leader => leader.err(),
    };
    release_now(options, &client, &progress).await.map(|release| (release, conflict))
}

async fn release_now(
    options: &ReleaseOptions,
    client: &Client,
    progress: &impl Fn(&str),
) -> Result<Release, ReleaseError> {
    for _ in 0..ATTEMPTS {
        let snapshot = client.snapshot();
        let release = release(&snapshot);
        if options.dry_run || !release.unreplaced.is_empty() && !options.remove_unreplaced {
            return Ok(release);
        }
        let (transaction, guard) = guarded(&release.transaction, databases::cell(&snapshot), &snapshot);
        if transaction.is_empty() && release.last.is_empty() {
            return Ok(release);
        }
        let mut changes = client.subscribe();
        match client.transact_within(&transaction, DATABASE_TIMEOUT).await {
            Ok(_) => {
                if !release.last.is_empty() {
                    remove_last(&release.last, client, &snapshot, progress).await?;
                }
                return Ok(release);
            }
            Err(CallError::Refused(refusal)) if guard.is_some() && refusal.position == guard => {
                // A leader committed meanwhile: wait until the replica shows it.
                let _ = timeout(POLL_INTERVAL, changes.next()).await;
            }
            Err(error) => return Err(failed(error)),
        }
    }
    Err(ReleaseError::Busy)
}

/// Commits the second transaction, unless an ovnkube controller has taken over meanwhile: then the rows are in use.
async fn remove_last(
    last: &Transaction,
    client: &Client,
    snapshot: &Snapshot,
    progress: &impl Fn(&str),
) -> Result<(), ReleaseError> {
    wait_for_nodes(client, snapshot, progress).await?;
    if let Some(writer) = databases::writer(&client.snapshot()) {
        return Err(ReleaseError::TakenBack(writer));
    }
    client.transact_within(last, DATABASE_TIMEOUT).await.map_err(failed)?;
    Ok(())
}

fn failed(error: CallError) -> ReleaseError {
    match error {
        CallError::Refused(refusal) => ReleaseError::Refused(refusal.to_string()),
        error => ReleaseError::Unreachable(error.to_string()),
    }
}

/// Waits until every node has applied the last commit, and older flows have left its cache.
async fn wait_for_nodes(client: &Client, snapshot: &Snapshot, progress: &impl Fn(&str)) -> Result<(), ReleaseError> {
    let Some(global) = snapshot.table("NB_Global").and_then(|table| table.iter().next()) else { return Ok(()) };
    let mut next = Transaction::new();
    let by_one = Mutation::new("nb_cfg", Mutator::Add, Datum::from(Atom::Integer(1)));
    next.mutate("NB_Global", vec![Condition::uuid(global.uuid)], vec![by_one]);
    let read = next.select("NB_Global", vec![Condition::uuid(global.uuid)], &["nb_cfg"]);
    let outcome = client.transact_within(&next, DATABASE_TIMEOUT).await.map_err(failed)?;
    let nb_cfg = outcome.rows(read).and_then(|rows| rows.first()?.get("nb_cfg")?.as_i64());
    let nb_cfg =
        nb_cfg.ok_or_else(|| ReleaseError::Refused("the server did not return NB_Global.nb_cfg".to_owned()))?;
    progress("removed all but QoS rules; waiting until every node has applied this");
    let mut reached = Transaction::new();
    let at_least = Condition::new("hv_cfg", Function::GreaterOrEqual, Datum::from(Atom::Integer(nb_cfg)));
    reached.require_within("NB_Global", global.uuid, vec![at_least], NODES_TIMEOUT);
    match client.transact_within(&reached, NODES_TIMEOUT + DATABASE_TIMEOUT).await {
        Ok(_) => {}
        Err(CallError::Refused(_)) => progress(&format!(
            "warning: a node has not applied it within {NODES_TIMEOUT:?}, so its ovn-controller is most likely down; the release \
             goes on, and its node ports may lose packets for some seconds when its ovn-controller is back"
        )),
        Err(error) => return Err(failed(error)),
    }
    progress(&format!("waiting {FLOW_CACHE_TIME:?} more until cached flows of Open vSwitch have expired"));
    tokio::time::sleep(FLOW_CACHE_TIME).await;
    Ok(())
}

async fn connected(client: &Client, access: &DatabaseAccess, progress: &impl Fn(&str)) -> Result<(), ReleaseError> {
    let mut status = client.status();
    let mut wait = std::pin::pin!(async { status.wait_for(|status| status.connected).await.is_ok() });
    let connected = match timeout(SILENT_WAIT, &mut wait).await {
        Ok(connected) => connected,
        Err(_) => {
            let servers = access.remotes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            let rest = DATABASE_TIMEOUT.saturating_sub(SILENT_WAIT);
            progress(&format!("connecting to the northbound database at {servers}; giving up in {rest:?}"));
            timeout(rest, wait).await == Ok(true)
        }
    };
    if connected {
        return Ok(());
    }
    let why = client.status().borrow().last_error.clone();
    Err(ReleaseError::Unreachable(why.unwrap_or_else(|| format!("no connection within {DATABASE_TIMEOUT:?}"))))
}

/// The transaction with its guard and the removal of the sequence value; and the index of the guard.
fn guarded(transaction: &Transaction, cell: Option<SequenceCell>, snapshot: &Snapshot) -> (Transaction, Option<usize>) {
    let mut guarded = Transaction::new();
    let value = cell.as_ref().and_then(|cell| cell.value_in(snapshot));
    let (Some(cell), Some(value)) = (cell, value) else {
        guarded.append(transaction);
        return (guarded, None);
    };
    let pair = Datum::map([(Atom::String(cell.key.as_str().into()), Atom::String(value.as_str().into()))]);
    let condition = Condition::new(&cell.column, Function::Includes, pair.clone());
    let guard = guarded.require(&cell.table, cell.uuid, vec![condition]);
    guarded.append(transaction);
    let forget = vec![Mutation::new(&cell.column, Mutator::Delete, pair)];
    guarded.without_owner().mutate(&cell.table, vec![Condition::uuid(cell.uuid)], forget);
    (guarded, Some(guard))
}

/// An error if an ovnkube controller leads: its session holds the leader lock, or, should it have lost its session just now,
/// it wrote the last sequence value and renews the Lease. The other controller may hold a Lease of the same name, so only
/// the writer counts as holder. Renewals are observed, not computed from clocks.
async fn check_leader(options: &ReleaseOptions, client: &Client) -> Result<(), ReleaseError> {
    let snapshot = client.snapshot();
    let value = databases::cell(&snapshot).and_then(|cell| cell.value_in(&snapshot));
    let Some(writer) = value.as_deref().and_then(|value| value.split('/').next()) else { return Ok(()) };
    let free = client.lock(leader_lock::LOCK).await.map_err(|error| ReleaseError::Unreachable(error.to_string()))?;
    if !free {
        return Err(ReleaseError::Leads(writer.to_owned()));
    }
    // Not kept: a controller that starts to lead now makes the transaction fail.
    client.unlock(leader_lock::LOCK).await.map_err(|error| ReleaseError::Unreachable(error.to_string()))?;
    let api = Api::from_kubeconfig(options.kubeconfig.as_deref(), None).await?;
    let (namespace, name) = &options.lease;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
    let mut renewed: Option<String> = None;
    let mut since = tokio::time::Instant::now();
    loop {
        let failed = |error: String| ReleaseError::Lease { lease: format!("{namespace}/{name}"), error };
        let text = match api.get(&path).await {
            Ok(text) => text,
            Err(ApiError::NotFound(_)) => return Ok(()),
            Err(error) => return Err(failed(error.to_string())),
        };
        let lease: serde_json::Value = serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
        let spec = &lease["spec"];
        if spec["holderIdentity"].as_str() != Some(writer) {
            return Ok(());
        }
        let now = spec["renewTime"].as_str().unwrap_or_default().to_owned();
        if renewed.as_ref().is_some_and(|before| *before != now) {
            return Err(ReleaseError::Leads(writer.to_owned()));
        }
        if renewed.is_none() {
            since = tokio::time::Instant::now();
        }
        renewed = Some(now);
        let duration = Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or(1));
        if since.elapsed() > duration {
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
