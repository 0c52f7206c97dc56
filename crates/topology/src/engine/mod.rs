//! The engine: the controller's reconciler, without I/O and without a clock. Its driver (the control loop, or a
//! simulation) feeds it events, commits its transactions and runs its effects.
//!
//! ```text
//!  objects ──observe──▶ Store ──▶ Queue ──next()──▶ Transaction ──(driver commits)──▶ committed() ──▶ Effects
//!  nb_cfg of chassis ──progress()──▶ quarantines end             refused() ──▶ the offending owner is parked, the rest retried
//! ```
//!
//! One transaction is in flight at a time; events that arrive meanwhile form the next batch. A standby's engine only
//! observes: leading begins with [`Engine::promote`], from the objects and one snapshot, and ends with [`Engine::demote`].

mod admin;
mod batch;
mod effect;
mod follow_up;
mod host_ports;
mod leftovers;
mod namespace_check;
mod node_network;
mod observe;
mod progress;
mod queue;
mod record;
mod repair;
mod seed;
mod selectors;
mod services;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use netmodel::SubnetPoolError;
use objects::{Name, ObjectKey, PodKey};
use ovn_schema::Feature;
use ovsdb::replica::Snapshot;

pub use batch::Next;
pub use effect::{Effect, Measure, ObjectRef, PatchOutcome, RestoredRow, Stage};
pub use observe::Observed;
pub(crate) use seed::QUARANTINE_PREFIX;

use self::batch::Batch;
use self::follow_up::PendingPatch;
use self::leftovers::Leftovers;
use self::namespace_check::NamespaceCheck;
use self::node_network::NodeNetworks;
use self::progress::Progress;
use self::queue::Queue;
use self::repair::Drift;
use self::services::NodeBound;
use crate::allocation::{Allocator, KnownNode};
use crate::contribution::Aliases;
use crate::desired::{Inputs, denials};
use crate::identity::Owner;
use crate::ledger::Ledger;
use crate::refusal::Refusal;
use crate::settings::ClusterSettings;
use crate::store::Store;

/// Most owners in one transaction: large enough for throughput, small enough for latency.
pub const BATCH: usize = 200;

/// Sans-I/O reconciler: object facts in, transactions and effects out.
#[derive(Debug, Clone)]
pub struct Engine {
    settings: Arc<ClusterSettings>,
    store: Store,
    /// New pods without a network, and since when.
    pending_pods: BTreeMap<Arc<PodKey>, Duration>,
    /// Chassis whose removal was requested and did not succeed yet. Kept while another instance leads: the northbound
    /// database may no longer list them.
    unremoved: BTreeSet<Box<str>>,
    leading: Option<Leading>,
    effects: Vec<Effect>,
    /// Number of namespace checks so far.
    checks_sent: u64,
    /// Most owners in one transaction.
    batch: usize,
}

/// State that only the leader has; rebuilt at each promotion.
#[derive(Debug, Clone)]
struct Leading {
    allocator: Allocator,
    ledger: Ledger,
    aliases: Aliases,
    /// Rows of another controller that are removed when ours replace them.
    leftovers: Leftovers,
    queue: Queue,
    in_flight: Option<Batch>,
    drift: Drift,
    /// Most owners in the next transaction: fewer after a refused one.
    limit: usize,
    /// Set after a refused transaction whose offending owner is unknown: even AdminNetworkPolicies go one by one.
    one_by_one: bool,
    parked: BTreeMap<Owner, Refusal>,
    /// Reasons of warnings that are not resolved yet.
    warned: BTreeMap<Owner, &'static str>,
    /// Pods that wait for their node, by node.
    waiting: BTreeMap<Name, BTreeSet<Arc<PodKey>>>,
    /// Selectors that came into use: their members must be compared with the pods.
    stale_members: BTreeSet<Name>,
    /// Services whose rows depend on nodes.
    node_bound: NodeBound,
    /// Deletions that wait for an answer about their namespace.
    namespace_checks: BTreeMap<Name, NamespaceCheck>,
    patching: BTreeMap<Owner, PendingPatch>,
    /// When failed patches are retried.
    retries: BTreeSet<(Duration, Owner)>,
    node_networks: NodeNetworks,
    progress: Progress,
    /// When leading began; none once the resync is complete.
    resync_since: Option<Duration>,
    /// Whether rows were missing when leading began.
    lacked_rows: bool,
}

impl Engine {
    /// A standby without objects.
    pub fn new(settings: ClusterSettings) -> Self {
        Self {
            settings: Arc::new(settings),
            store: Store::default(),
            pending_pods: BTreeMap::new(),
            unremoved: BTreeSet::new(),
            leading: None,
            effects: Vec::new(),
            checks_sent: 0,
            batch: BATCH,
        }
    }

    /// With another batch size: small ones reveal what depends on being committed together.
    #[must_use]
    pub fn with_batch(mut self, objects: usize) -> Self {
        self.batch = objects.max(1);
        self
    }

    /// Whether it was promoted.
    pub fn is_leading(&self) -> bool {
        self.leading.is_some()
    }

    /// Whether every kind of object has been listed: only then may it lead.
    pub fn is_complete(&self) -> bool {
        self.store.is_complete()
    }

    /// The facts of all objects.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The cluster-wide settings.
    pub fn settings(&self) -> &ClusterSettings {
        &self.settings
    }

    /// Replaces the settings, such as the server's features; takes effect with the next promotion.
    pub fn set_settings(&mut self, settings: ClusterSettings) {
        self.settings = Arc::new(settings);
    }

    /// Allocated subnets, node IDs and addresses, while leading.
    pub fn allocator(&self) -> Option<&Allocator> {
        self.leading.as_ref().map(|leading| &leading.allocator)
    }

    /// Rows and members of every owner, while leading.
    pub fn ledger(&self) -> Option<&Ledger> {
        self.leading.as_ref().map(|leading| &leading.ledger)
    }

    /// The inputs of [`crate::desired::desired`], while leading.
    pub fn inputs(&self) -> Option<Inputs<'_>> {
        let leading = self.leading.as_ref()?;
        Some(Inputs {
            settings: &self.settings,
            store: &self.store,
            allocator: &leading.allocator,
            aliases: &leading.aliases,
        })
    }

    /// Parked owners, and why.
    pub fn parked(&self) -> impl Iterator<Item = (&Owner, &Refusal)> {
        self.leading.iter().flat_map(|leading| &leading.parked)
    }

    /// Number of queued owners.
    pub fn backlog(&self) -> usize {
        self.leading.as_ref().map_or(0, |leading| leading.queue.len())
    }

    /// The effects since the last call.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Begins to lead. The snapshot must contain everything that former leaders committed, and they must be fenced.
    /// Allocations are restored from records and rows, and every owner, of objects and of rows, is queued for the resync.
    /// `adopt` takes over the rows of another controller.
    pub fn promote(&mut self, snapshot: &Snapshot, adopt: bool, now: Duration) -> Result<(), SubnetPoolError> {
        let mut allocator = Allocator::new(&self.settings)?;
        self.store.decide_chassis(|node, chassis| seed::chassis_of(node, snapshot).as_deref() == Some(chassis));
        let mut removals = seed::quarantined(&mut allocator, snapshot);
        let mut aliases = seed::aliases(snapshot);
        crate::former_identities::find(&self.store, snapshot, &mut aliases);
        let adopted = adopt.then(|| crate::adopt::adopt(&self.settings, &self.store, snapshot, &mut aliases));
        let seed::Seeded { ledger, ports } = seed::ledger(snapshot, adopted.as_ref());
        let doubtful = self.freeze_unreadable(&ledger);
        self.fix_unreadable(&ledger, snapshot);
        let queue = self.full_queue(&ledger, now);
        let lacked_rows = queue.has_traffic();
        let mut leading = Leading {
            allocator,
            ledger,
            aliases,
            leftovers: Leftovers::new(adopted.map(crate::adopt::Adopted::into_leftovers).unwrap_or_default()),
            queue,
            in_flight: None,
            drift: Drift::default(),
            limit: self.batch,
            one_by_one: false,
            parked: BTreeMap::new(),
            warned: BTreeMap::new(),
            waiting: BTreeMap::new(),
            stale_members: BTreeSet::new(),
            node_bound: NodeBound::default(),
            namespace_checks: BTreeMap::new(),
            patching: BTreeMap::new(),
            retries: BTreeSet::new(),
            node_networks: NodeNetworks::default(),
            progress: Progress::default(),
            resync_since: Some(now),
            lacked_rows,
        };
        removals.extend(seed::orphaned_chassis(&leading.ledger, &self.store, snapshot));
        removals.extend(progress::former_chassis(&leading.ledger, &self.store, snapshot));
        for (name, replaced) in progress::without_node(&self.store, snapshot) {
            // A former leader may have failed to remove it, and no other instance retries.
            if replaced {
                removals.insert(name);
            } else {
                leading.progress.watch_orphan(name, now);
            }
        }
        for name in removals.into_iter().chain(self.unremoved.iter().cloned()) {
            leading.progress.schedule_removal(name, now);
        }
        self.restore_allocations(&mut leading, snapshot, &ports);
        self.leading = Some(leading);
        for key in doubtful {
            self.check_namespace(Owner::Policy(key.clone()), &key.namespace);
        }
        Ok(())
    }

    /// Whether the database still lacks rows that it lacked when leading began: it may have been lost, or restored from a backup.
    /// What is computed from it meanwhile would cut pods off.
    pub fn lacks_rows(&self) -> bool {
        self.leading.as_ref().is_some_and(|leading| leading.lacked_rows && leading.resync_since.is_some())
    }

    /// Keeps the rows, and the selectors that they name, of policies that are invalid, and of policies that were deleted
    /// with their namespace while its ports still exist. Returns those whose namespace must be checked.
    fn freeze_unreadable(&mut self, ledger: &Ledger) -> Vec<Arc<ObjectKey>> {
        let mut doubtful = Vec::new();
        self.store.recompile_all(self.settings.features.has(Feature::AclTiers));
        for owner in ledger.owners() {
            let Owner::Policy(key) = owner else { continue };
            let Some(entry) = ledger.entry(owner) else { continue };
            let names = || entry.names().iter().cloned();
            match self.store.policy(key) {
                Some(policy) => {
                    let ours = denials(policy).iter().any(|row| entry.rows().contains(row));
                    if policy.broken.is_some() && !policy.last_valid && ours {
                        self.store.freeze(owner, names());
                    }
                }
                None => {
                    self.store.freeze(owner, names());
                    self.store.linger(owner);
                    if self.store.is_active(&key.namespace) {
                        doubtful.push(key.clone());
                    }
                }
            }
        }
        doubtful
    }

    /// A queue of every owner, of objects and of rows. Owners without rows come first; the others are resynced behind them,
    /// in dependency order.
    fn full_queue(&self, ledger: &Ledger, now: Duration) -> Queue {
        let mut queue = Queue::default();
        let namespaces = self.store.namespaces().map(|namespace| Owner::Namespace(namespace.name.clone()));
        let nodes = self.store.nodes().map(|node| Owner::Node(node.name.clone()));
        let services = self.store.services().map(|service| Owner::Service(service.key.clone()));
        let policies = self.store.policies().map(|policy| Owner::Policy(policy.key.clone()));
        let selectors = self.store.selectors().map(|words| Owner::Selector(words.clone()));
        let others = services.chain(selectors).chain(policies).chain(self.store.admin_owners());
        for owner in [Owner::Cluster].into_iter().chain(nodes).chain(namespaces).chain(others) {
            if ledger.entry(&owner).is_none() {
                queue.push(owner, now);
            }
        }
        // Their order must never be wrong: all are reconciled together.
        let admin = ledger.owners().filter(|owner| matches!(owner, Owner::AdminPolicy(_)));
        for owner in admin {
            queue.push(owner.clone(), now);
        }
        // The ledger and the store have the same order.
        let mut known =
            ledger.owners().filter_map(|owner| if let Owner::Pod(key) = owner { Some(key) } else { None }).peekable();
        let mut namespace: Option<&Name> = None;
        for pod in self.store.pods() {
            if namespace != Some(&pod.key.namespace) {
                namespace = Some(&pod.key.namespace);
                let owner = Owner::Namespace(pod.key.namespace.clone());
                if ledger.entry(&owner).is_none() {
                    queue.push(owner, now);
                }
            }
            while known.next_if(|key| **key < pod.key).is_some() {}
            // A pod without rows that wants no port needs no turn.
            if pod.wants_port().is_some() && known.peek().is_none_or(|key| **key != pod.key) {
                queue.push(Owner::Pod(pod.key.clone()), now);
            }
        }
        queue.resync(ledger.owners().cloned().collect(), now);
        queue
    }

    /// Restores allocations from the database and from records before anything new is allocated: oldest objects first, so
    /// that of two claims the same one always wins.
    fn restore_allocations(&self, leading: &mut Leading, snapshot: &Snapshot, ports: &seed::Ports) {
        let mut nodes: Vec<_> = self.store.nodes().collect();
        nodes.sort_by(|one, two| (&one.created, &one.name).cmp(&(&two.created, &two.name)));
        for node in &nodes {
            let known = seed::known_node(node, snapshot, &leading.aliases);
            if !known.subnets.is_empty() {
                leading.allocator.restore_node(node, &known);
            }
        }
        let mut pods: Vec<_> = self.store.pods().filter(|pod| pod.wants_port().is_some()).collect();
        pods.sort_by(|one, two| (&one.created, &one.key).cmp(&(&two.created, &two.key)));
        for pod in &pods {
            if let Some(known) = ports.get(&seed::port_of(pod, &leading.aliases)) {
                let _ = leading.allocator.allocate_pod(pod, Some(known));
            }
        }
        // What rows of deleted objects still have is not free for objects that merely claim it.
        let Leading { allocator, ledger, .. } = &mut *leading;
        seed::quarantine_orphaned(allocator, ledger, snapshot, ports);
        // First the nodes with complete annotations: what is chosen for others must not be theirs. A refusal is reported when
        // the object has its turn.
        let nothing = KnownNode::default();
        nodes.sort_by_key(|node| leading.allocator.recorded(node, &nothing).is_none());
        for node in nodes.iter().filter(|node| node.subnets.valid().is_some()) {
            if leading.allocator.node(&node.name).is_none() {
                let _ = leading.allocator.allocate_node(node, &nothing);
            }
        }
        for pod in pods.iter().filter(|pod| pod.network.is_some()) {
            let _ = leading.allocator.allocate_pod(pod, None);
        }
    }

    /// Stops leading: drops the leader's state, pending effects included. The next leader resolves what was in flight.
    pub fn demote(&mut self) {
        self.leading = None;
        self.effects.clear();
    }
}
