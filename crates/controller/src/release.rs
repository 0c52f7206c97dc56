//! Leaves the northbound database to another controller: what `topology::release` decides, in one transaction behind the
//! fence, and what goes last in a second one, when every node has carried the first out and forgotten the packets before it.
//!
//! The first requires the sequence value that was read and removes it: whatever a leader of ours commits before it makes
//! it fail (it is decided anew), and whatever one commits after it fails.

use std::path::PathBuf;
use std::time::Duration;

use kubernetes::{Api, ApiError};
use ovsdb::client::{CallError, Client, SequenceCell};
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::{Condition, Function, Mutation, Mutator};
use ovsdb::replica::Snapshot;
use ovsdb::transaction::Transaction;
use topology::release::{Release, release};

use crate::options::DatabaseAccess;
use crate::{databases, leader_lock};

/// How long the database may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the decision is made anew because a leader committed meanwhile.
const ATTEMPTS: usize = 5;
/// How often the Lease is read while it is found out whether its holder is alive.
const LOOK: Duration = Duration::from_secs(1);

/// How long all nodes may take to carry the first transaction out. One that takes longer is most likely down.
const NODES: Duration = Duration::from_secs(60);
/// Open vSwitch keeps a cached flow for ten seconds after its last packet (`other_config:max-idle`), and looks twice a second.
const CACHED: Duration = Duration::from_secs(12);

/// What a release is told.
#[derive(Debug, Clone)]
pub struct ReleaseOptions {
    /// Where the northbound database is.
    pub northbound: DatabaseAccess,
    /// How to reach the API that has the Lease.
    pub kubeconfig: Option<PathBuf>,
    /// The Lease's namespace and name.
    pub lease: (String, String),
    /// Only say what would be done.
    pub dry_run: bool,
    /// Do it although a controller of ours leads.
    pub force: bool,
    /// Remove also what the other controller has nothing in place for.
    pub remove_unreplaced: bool,
}

/// Why the database was not released.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// The API cannot be used.
    #[error(transparent)]
    Kubernetes(#[from] kubernetes::ConfigError),
    /// The Lease cannot be read.
    #[error(
        "cannot read Lease {lease}: {error}; without it, nobody knows whether a controller leads; hint: make the API \
         reachable, or stop all controllers and use --force"
    )]
    Lease {
        /// Its namespace and name.
        lease: String,
        /// What went wrong.
        error: String,
    },
    /// A controller of ours leads.
    #[error(
        "controller {0} leads and would write its rows again; hint: stop all ovnkube controllers first, or use --force to \
         fence it off: it then ends, because the network is not its own any more"
    )]
    Leads(String),
    /// The database cannot be reached.
    #[error("the northbound database cannot be reached: {0}")]
    Unreachable(String),
    /// The database refused it.
    #[error("the northbound database refused the release: {0}")]
    Refused(String),
    /// A controller of ours adopted the database before the release was complete.
    #[error(
        "controller {0} has taken the database back before its last rules were removed; hint: stop all ovnkube controllers and \
         run this again"
    )]
    TakenBack(String),
    /// Somebody commits all the time.
    #[error(
        "a controller committed while the release was decided, {ATTEMPTS} times; hint: stop all ovnkube controllers"
    )]
    Busy,
}

/// Releases the database, or says what that would take. Nothing is done if the other controller has nothing in place for
/// something of ours (`unreplaced`), unless that is to be removed as well. A dry run also says who would refuse it. What takes
/// long is said to `progress`.
pub async fn release_database(
    options: &ReleaseOptions,
    progress: impl Fn(&str),
) -> Result<(Release, Option<ReleaseError>), ReleaseError> {
    let client = databases::northbound(&options.northbound);
    connected(&client).await?;
    let leader = if options.force { Ok(()) } else { check_leader(options, &client).await };
    let in_the_way = match leader {
        Err(error) if !options.dry_run => return Err(error),
        leader => leader.err(),
    };
    release_now(options, &client, &progress).await.map(|release| (release, in_the_way))
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
        match client.transact_within(&transaction, PATIENCE).await {
            Ok(_) => {
                if !release.last.is_empty() {
                    remove_last(&release.last, client, &snapshot, progress).await?;
                }
                return Ok(release);
            }
            Err(CallError::Refused(refusal)) if guard.is_some() && refusal.place == guard => {
                // A leader committed meanwhile: the replica shows it soon.
                let _ = tokio::time::timeout(LOOK, changes.next()).await;
            }
            Err(error) => return Err(failed(error)),
        }
    }
    Err(ReleaseError::Busy)
}

/// The second transaction, unless a controller of ours has taken the database back meanwhile: then the rows are its own.
async fn remove_last(
    last: &Transaction,
    client: &Client,
    snapshot: &Snapshot,
    progress: &impl Fn(&str),
) -> Result<(), ReleaseError> {
    out_of_force(client, snapshot, progress).await?;
    if let Some(writer) = databases::writer(&client.snapshot()) {
        return Err(ReleaseError::TakenBack(writer));
    }
    client.transact_within(last, PATIENCE).await.map_err(failed)?;
    Ok(())
}

fn failed(error: CallError) -> ReleaseError {
    match error {
        CallError::Refused(refusal) => ReleaseError::Refused(refusal.to_string()),
        error => ReleaseError::Unreachable(error.to_string()),
    }
}

/// Waits until what was committed last is in force on every node, and no node has a cached flow of before.
async fn out_of_force(client: &Client, snapshot: &Snapshot, progress: &impl Fn(&str)) -> Result<(), ReleaseError> {
    let Some(global) = snapshot.table("NB_Global").and_then(|table| table.iter().next()) else { return Ok(()) };
    let mut next = Transaction::new();
    let by_one = Mutation::new("nb_cfg", Mutator::Add, Datum::from(Atom::Integer(1)));
    next.mutate("NB_Global", vec![Condition::uuid(global.uuid)], vec![by_one]);
    let read = next.select("NB_Global", vec![Condition::uuid(global.uuid)], &["nb_cfg"]);
    let outcome = client.transact_within(&next, PATIENCE).await.map_err(failed)?;
    let number = outcome.rows(read).and_then(|rows| rows.first()?.get("nb_cfg")?.as_i64());
    let number =
        number.ok_or_else(|| ReleaseError::Refused("the server did not return NB_Global.nb_cfg".to_owned()))?;
    progress("removed all but rules of QoS; waiting until every node has carried that out");
    let mut reached = Transaction::new();
    let at_least = Condition::new("hv_cfg", Function::GreaterOrEqual, Datum::from(Atom::Integer(number)));
    reached.require_within("NB_Global", global.uuid, vec![at_least], NODES);
    match client.transact_within(&reached, NODES + PATIENCE).await {
        Ok(_) => {}
        Err(CallError::Refused(_)) => progress(&format!(
            "warning: some node did not within {NODES:?}, so its ovn-controller is most likely down; the release goes on, and \
             that node's node ports may lose packets for some seconds when its ovn-controller is back"
        )),
        Err(error) => return Err(failed(error)),
    }
    progress(&format!("waiting {CACHED:?} more until Open vSwitch has forgotten flows that it cached before"));
    tokio::time::sleep(CACHED).await;
    Ok(())
}

async fn connected(client: &Client) -> Result<(), ReleaseError> {
    let mut status = client.status();
    let wait = async { status.wait_for(|status| status.connected).await.is_ok() };
    match tokio::time::timeout(PATIENCE, wait).await {
        Ok(true) => Ok(()),
        _ => {
            let why = client.status().borrow().last_error.clone();
            Err(ReleaseError::Unreachable(why.unwrap_or_else(|| format!("no answer within {PATIENCE:?}"))))
        }
    }
}

/// The transaction with its guard and the removal of the sequence value; and the guard's place.
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
    guarded.owned_by_nobody().mutate(&cell.table, vec![Condition::uuid(cell.uuid)], forget);
    (guarded, Some(guard))
}

/// An error if a controller of ours leads. Its session holds a lock in this very database; and it is the writer of the last
/// sequence value, and holds the Lease and renews it. The second is for one that has just lost its session, and needs the
/// Lease's right name. The other controller may hold a Lease of that name as well, so a holder who is not that writer does
/// not count. Whether it renews is observed, not read off clocks.
async fn check_leader(options: &ReleaseOptions, client: &Client) -> Result<(), ReleaseError> {
    let snapshot = client.snapshot();
    let value = databases::cell(&snapshot).and_then(|cell| cell.value_in(&snapshot));
    let Some(writer) = value.as_deref().and_then(|value| value.split('/').next()) else { return Ok(()) };
    let free = client.lock(leader_lock::LOCK).await.map_err(|error| ReleaseError::Unreachable(error.to_string()))?;
    if !free {
        return Err(ReleaseError::Leads(writer.to_owned()));
    }
    // Not kept: who starts to lead now is fenced off by the transaction itself.
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
        tokio::time::sleep(LOOK).await;
    }
}
