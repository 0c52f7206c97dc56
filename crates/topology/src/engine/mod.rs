//! The engine: the one writer's mind, without any I/O. Whatever carries it (a runtime with real servers, or a simulation)
//! feeds it what happened and does what it says.
//!
//! ```text
//!  objects ──observe──▶ Store ──▶ Queue ──next()──▶ Transaction ──(carrier commits)──▶ committed() ──▶ Effects
//!  nodes' progress ──progress()──▶ what rests is freed           refused() ──▶ the guilty one is parked, the rest again
//! ```
//!
//! One transaction is in flight at a time; what arrives meanwhile is the next batch. A standby's engine only observes:
//! leading begins with [`Engine::promote`], from the objects and one snapshot, and ends with [`Engine::demote`].

mod admin;
mod batch;
mod effect;
mod farewell;
mod follow_up;
mod host_ports;
mod leftovers;
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
use ovn_schema::Feature;
use ovsdb::replica::Snapshot;

pub use batch::Next;
pub use effect::{Effect, Measure, ObjectRef, PatchOutcome, RestoredRow, Stage};
pub use observe::Observed;
pub(crate) use seed::RESTING;

use self::batch::Batch;
use self::farewell::Question;
use self::follow_up::Patching;
use self::leftovers::Leftovers;
use self::node_network::NodeNetworks;
use self::progress::Progress;
use self::queue::Queue;
use self::repair::Disturbed;
use self::services::NodeBound;
use crate::allocation::{Allocator, KnownNode};
use crate::contribution::Aliases;
use crate::desired::{Given, denials};
use crate::identity::{Name, ObjectKey, Owner, PodKey};
use crate::ledger::Ledger;
use crate::refusal::Refusal;
use crate::settings::ClusterSettings;
use crate::store::Store;

/// So many objects go into one transaction at most: large enough to be fast, small enough that nobody waits long.
pub const BATCH: usize = 200;

/// The mind of the controller.
#[derive(Debug, Clone)]
pub struct Engine {
    settings: Arc<ClusterSettings>,
    store: Store,
    /// Since when a new pod waits for its network.
    pending_pods: BTreeMap<Arc<PodKey>, Duration>,
    /// Chassis whose removal was requested and did not succeed yet. Kept while another instance leads: the northbound
    /// database may have forgotten them meanwhile.
    unremoved: BTreeSet<Box<str>>,
    leading: Option<Leading>,
    effects: Vec<Effect>,
    /// How often a namespace was asked about.
    asked: u64,
    /// How many objects go into one transaction at most.
    batch: usize,
}

/// What only the leader knows.
#[derive(Debug, Clone)]
struct Leading {
    allocator: Allocator,
    ledger: Ledger,
    aliases: Aliases,
    /// Rows of another controller that go when ours replace them.
    leftovers: Leftovers,
    queue: Queue,
    in_flight: Option<Batch>,
    disturbed: Disturbed,
    /// How many objects the next transaction may have: less after one that was refused as a whole.
    limit: usize,
    /// After one that was refused, and nobody knows whose fault it is: also what belongs together goes one by one.
    singly: bool,
    parked: BTreeMap<Owner, Refusal>,
    /// Who was warned of what: that it is over is told as well.
    warned: BTreeMap<Owner, &'static str>,
    /// Pods that wait for something of their node.
    waiting: BTreeMap<Name, BTreeSet<Arc<PodKey>>>,
    /// Selectors that are wanted anew: pods may have left them meanwhile.
    gathering: BTreeSet<Name>,
    /// Services whose rows depend on nodes.
    node_bound: NodeBound,
    /// Namespaces that the API was asked about.
    questions: BTreeMap<Name, Question>,
    patching: BTreeMap<Owner, Patching>,
    /// When annotations are sent again.
    retries: BTreeSet<(Duration, Owner)>,
    node_networks: NodeNetworks,
    progress: Progress,
    /// Since when it leads, until everything was reviewed once.
    reviewing: Option<Duration>,
}

impl Engine {
    /// Knows nothing yet and leads nothing.
    pub fn new(settings: ClusterSettings) -> Self {
        Self {
            settings: Arc::new(settings),
            store: Store::default(),
            pending_pods: BTreeMap::new(),
            unremoved: BTreeSet::new(),
            leading: None,
            effects: Vec::new(),
            asked: 0,
            batch: BATCH,
        }
    }

    /// With other batches: small ones show what depends on being committed together.
    #[must_use]
    pub fn with_batch(mut self, objects: usize) -> Self {
        self.batch = objects.max(1);
        self
    }

    /// Whether it leads.
    pub fn is_leading(&self) -> bool {
        self.leading.is_some()
    }

    /// Whether every kind of object has been listed: only then may it lead.
    pub fn is_complete(&self) -> bool {
        self.store.is_complete()
    }

    /// The facts.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// What the administrator said.
    pub fn settings(&self) -> &ClusterSettings {
        &self.settings
    }

    /// The server turned out to have other features: what is wanted may change with the next promotion.
    pub fn set_settings(&mut self, settings: ClusterSettings) {
        self.settings = Arc::new(settings);
    }

    /// Who has which subnet, number and address, while leading.
    pub fn allocator(&self) -> Option<&Allocator> {
        self.leading.as_ref().map(|leading| &leading.allocator)
    }

    /// Which rows and members every owner has, while leading.
    pub fn ledger(&self) -> Option<&Ledger> {
        self.leading.as_ref().map(|leading| &leading.ledger)
    }

    /// Everything that desired states depend on, while leading.
    pub fn given(&self) -> Option<Given<'_>> {
        let leading = self.leading.as_ref()?;
        Some(Given {
            settings: &self.settings,
            store: &self.store,
            allocator: &leading.allocator,
            aliases: &leading.aliases,
        })
    }

    /// Objects that are parked, and why.
    pub fn parked(&self) -> impl Iterator<Item = (&Owner, &Refusal)> {
        self.leading.iter().flat_map(|leading| &leading.parked)
    }

    /// How many owners wait for their turn.
    pub fn backlog(&self) -> usize {
        self.leading.as_ref().map_or(0, |leading| leading.queue.len())
    }

    /// What is to be done outside, since this was asked last.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Begins to lead: the snapshot holds everything that a former leader committed, and nothing of it can change any
    /// more. What is given is honoured from annotations first and from the database then; every owner, of objects and
    /// of rows, is looked at once. `adopt` takes over the rows of another controller by their names.
    pub fn promote(&mut self, snapshot: &Snapshot, adopt: bool, now: Duration) -> Result<(), SubnetPoolError> {
        let mut allocator = Allocator::new(&self.settings)?;
        self.store.decide_chassis(|node, chassis| seed::chassis_of(node, snapshot).as_deref() == Some(chassis));
        let mut leaving = seed::resting(&mut allocator, snapshot);
        let mut aliases = seed::aliases(snapshot);
        let adopted = adopt.then(|| crate::adopt::adopt(&self.settings, &self.store, snapshot, &mut aliases));
        let seed::Seeded { ledger, ports } = seed::ledger(snapshot, adopted.as_ref());
        let doubtful = self.keep_frozen(&ledger);
        self.keep_fixed(&ledger, snapshot);
        let queue = self.everybody(&ledger, now);
        let mut leading = Leading {
            allocator,
            ledger,
            aliases,
            leftovers: Leftovers::new(adopted.map(crate::adopt::Adopted::into_leftovers).unwrap_or_default()),
            queue,
            in_flight: None,
            disturbed: Disturbed::default(),
            limit: self.batch,
            singly: false,
            parked: BTreeMap::new(),
            warned: BTreeMap::new(),
            waiting: BTreeMap::new(),
            gathering: BTreeSet::new(),
            node_bound: NodeBound::default(),
            questions: BTreeMap::new(),
            patching: BTreeMap::new(),
            retries: BTreeSet::new(),
            node_networks: NodeNetworks::default(),
            progress: Progress::default(),
            reviewing: Some(now),
        };
        leaving.extend(seed::chassis_of_the_gone(&leading.ledger, &self.store, snapshot));
        leaving.extend(progress::former_chassis(&leading.ledger, &self.store, snapshot));
        for (name, replaced) in progress::without_node(&self.store, snapshot) {
            // A former leader may have failed to remove it, and nobody else would try again.
            if replaced {
                leaving.insert(name);
            } else {
                leading.progress.chassis_fades(name, now);
            }
        }
        for name in leaving.into_iter().chain(self.unremoved.iter().cloned()) {
            leading.progress.chassis_leaves(name, now);
        }
        self.claim_what_stands(&mut leading, snapshot, &ports);
        self.leading = Some(leading);
        for key in doubtful {
            self.ask_about_namespace(Owner::Policy(key.clone()), &key.namespace);
        }
        Ok(())
    }

    /// Policies whose rows stay as the database has them want the selectors that these rows name: those that cannot be
    /// understood, and those that went with their namespace while ports of it are still there.
    /// Returns those of which it must be asked how they went.
    fn keep_frozen(&mut self, ledger: &Ledger) -> Vec<Arc<ObjectKey>> {
        let mut doubtful = Vec::new();
        self.store.reread_all(self.settings.features.has(Feature::AclTiers));
        for owner in ledger.owners() {
            let Owner::Policy(key) = owner else { continue };
            let Some(entry) = ledger.entry(owner) else { continue };
            let names = || entry.names().iter().cloned();
            match self.store.policy(key) {
                Some(policy) => {
                    let ours = denials(policy).iter().any(|row| entry.rows().contains(row));
                    if policy.broken.is_some() && !policy.last_good && ours {
                        self.store.freeze(owner, names());
                    }
                }
                None => {
                    self.store.freeze(owner, names());
                    self.store.linger(owner);
                    if self.store.is_alive(&key.namespace) {
                        doubtful.push(key.clone());
                    }
                }
            }
        }
        doubtful
    }

    /// A queue of every owner, of objects and of rows. Those who have nothing yet come first; those who have something are
    /// only looked at, in the order in which they must be made.
    fn everybody(&self, ledger: &Ledger, now: Duration) -> Queue {
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
        // Which of these is asked first must not be wrong for a moment: all are looked at together.
        let admin = ledger.owners().filter(|owner| matches!(owner, Owner::AdminPolicy(_)));
        for owner in admin {
            queue.push(owner.clone(), now);
        }
        // Both are in the same order.
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
            // Who has nothing and wants nothing needs no turn, and those behind it need not wait.
            if pod.wants_port().is_some() && known.peek().is_none_or(|key| **key != pod.key) {
                queue.push(Owner::Pod(pod.key.clone()), now);
            }
        }
        queue.review(ledger.owners().cloned().collect(), now);
        queue
    }

    /// Honours what annotations and the database say, before anything new is given: oldest objects first, so that of
    /// two that claim one thing it is always the same that gets it.
    fn claim_what_stands(&self, leading: &mut Leading, snapshot: &Snapshot, ports: &seed::Ports) {
        let mut nodes: Vec<_> = self.store.nodes().collect();
        nodes.sort_by(|one, two| (&one.created, &one.name).cmp(&(&two.created, &two.name)));
        for node in &nodes {
            let known = seed::known_node(node, snapshot, &leading.aliases);
            if !known.subnets.is_empty() {
                leading.allocator.keep_known_node(node, &known);
            }
        }
        let mut pods: Vec<_> = self.store.pods().filter(|pod| pod.wants_port().is_some()).collect();
        pods.sort_by(|one, two| (&one.created, &one.key).cmp(&(&two.created, &two.key)));
        for pod in &pods {
            if let Some(known) = ports.get(&seed::port_of(pod, &leading.aliases)) {
                let _ = leading.allocator.settle_pod(pod, Some(known));
            }
        }
        // What somebody else's rows still have is not free for those who only say that it is theirs.
        let Leading { allocator, ledger, .. } = &mut *leading;
        seed::rest_of_the_gone(allocator, ledger, snapshot, ports);
        // Those first whose annotations say everything: what is chosen for others must not be theirs. A refusal is told when
        // the object has its turn.
        let nothing = KnownNode::default();
        nodes.sort_by_key(|node| leading.allocator.what_stands(node, &nothing).is_none());
        for node in nodes.iter().filter(|node| node.subnets.valid().is_some()) {
            if leading.allocator.node(&node.name).is_none() {
                let _ = leading.allocator.settle_node(node, &nothing);
            }
        }
        for pod in pods.iter().filter(|pod| pod.network.is_some()) {
            let _ = leading.allocator.settle_pod(pod, None);
        }
    }

    /// Stops leading: what only the leader knows is forgotten, what was in flight is somebody else's to find out.
    pub fn demote(&mut self) {
        self.leading = None;
        self.effects.clear();
    }
}
