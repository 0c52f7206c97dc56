//! Serves the requests of nodes: judges them, records what is issued, and only then hands it out.
//!
//! ```text
//!   requests ─▶ own Node (GET) ─▶ judge ─▶ issue ─▶ ConfigMap ovn-chassis, one write for all ─▶ approve, certificate
//!                                     └─▶ deny                └─▶ conflict: judge again
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kubernetes::{Api, ApiError, Observed, Watch, watch};

use crate::chassis::{
    Absences, ChassisRequest, Denial, Grant, KnownNode, NodeCertificate, Record, Rules, Verdict, judge,
};
use crate::issue::{Authority, IssueError, issue_chassis};
use crate::policy::Policy;
use crate::signer::metrics::Metrics;
use crate::signer::mirror::Mirror;
use crate::signer::notices::Notices;
use crate::signer::requests::{self, Pending};
use crate::signer::store::{Objects, Store};

/// Events that are taken over at once.
const BATCH: usize = 256;
/// Requests that are judged before the record is written.
const PASS: usize = 64;

/// Deleted Nodes that are looked up before their certificates are revoked, at once.
const MOST_DELETED: usize = 20;

/// Watches requests and Nodes, while this signer leads.
pub(super) struct ChassisSigner {
    api: Api,
    rules: Rules,
    request_events: Watch<(String, Pending)>,
    node_events: Watch<(String, KnownNode)>,
    requests: Mirror<Pending>,
    nodes: Mirror<KnownNode>,
    absences: Absences,
    /// Recorded, but not handed out yet, by the UID of the request.
    undelivered: BTreeMap<String, Issue>,
    /// UIDs of requests with an answer that the watch has not shown yet.
    answered: BTreeSet<String>,
    /// Why requests wait, as logged last, by name.
    waiting: BTreeMap<String, String>,
}

/// A certificate for a request.
#[derive(Debug, Clone)]
struct Issue {
    grant: Grant,
    entry: NodeCertificate,
    pem: String,
}

/// Why requests were not served.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServeError {
    #[error("cannot read Node {0}: {1}")]
    Node(String, ApiError),
    #[error("cannot write ConfigMap ovn-chassis: {0}")]
    Record(ApiError),
    #[error("cannot answer CertificateSigningRequest {0}: {1}")]
    Answer(String, ApiError),
    #[error(transparent)]
    Issue(#[from] IssueError),
}

/// Why nothing was revoked.
#[derive(Debug, thiserror::Error)]
#[error("cannot look up Node {0}, whose certificates are to be revoked: {1}")]
pub(super) struct LookupError(String, ApiError);

/// What serving needs of the signer.
pub(super) struct Context<'a> {
    pub(super) policy: &'a Policy,
    pub(super) store: &'a Store,
    pub(super) metrics: &'a Metrics,
    pub(super) notices: &'a Notices,
}

impl ChassisSigner {
    pub(super) fn start(api: &Api, namespace: &str) -> Self {
        Self {
            api: api.clone(),
            rules: Rules::new(namespace),
            request_events: watch(api, requests::requests(), requests::pending),
            node_events: watch(api, requests::nodes(), requests::node),
            requests: Mirror::new("certificatesigningrequests", |pending| &pending.request.uid),
            nodes: Mirror::new("nodes", |node| &node.uid),
            absences: Absences::default(),
            undelivered: BTreeMap::new(),
            answered: BTreeSet::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// Waits until requests or Nodes change, and returns whether open requests may be concerned. Can be cancelled.
    pub(super) async fn changed(&mut self) -> bool {
        let (mut requests, mut nodes) = (Vec::new(), Vec::new());
        let count = tokio::select! {
            count = self.request_events.next_batch(&mut requests, BATCH) => count,
            count = self.node_events.next_batch(&mut nodes, BATCH) => count,
        };
        if count == 0 {
            // The task of a watch has panicked.
            std::future::pending::<()>().await;
        }
        let changed: BTreeSet<&String> = nodes.iter().filter_map(upserted).collect();
        let of_changed = |request: &ChassisRequest| request.node.as_ref().is_some_and(|node| changed.contains(node));
        let is_concerned = !requests.is_empty() || !self.nodes.is_listed || self.open_requests().any(of_changed);
        requests.into_iter().for_each(|event| self.requests.apply(event));
        for event in nodes {
            if matches!(event, Observed::Failed(_) | Observed::Absent) {
                self.absences.interrupt();
            }
            self.nodes.apply(event);
        }
        let open: BTreeSet<&String> = self.requests.objects.values().filter_map(Pending::open_uid).collect();
        self.answered.retain(|uid| open.contains(uid));
        self.undelivered.retain(|uid, _| open.contains(uid));
        is_concerned
    }

    fn open_requests(&self) -> impl Iterator<Item = &ChassisRequest> {
        let open = self.requests.objects.values().filter(|pending| !pending.is_finished);
        open.map(|pending| &pending.request).filter(|request| !self.answered.contains(&request.uid))
    }

    /// Whether a request can be judged now.
    pub(super) fn has_work(&self) -> bool {
        self.is_ready() && self.open_requests().next().is_some()
    }

    /// Requests without an answer.
    pub(super) fn open(&self) -> usize {
        self.open_requests().count()
    }

    fn is_ready(&self) -> bool {
        self.requests.is_listed && self.nodes.is_listed
    }

    /// The Nodes cannot be read: who is absent must be seen anew.
    pub(super) fn interrupted(&mut self) {
        self.absences.interrupt();
    }

    /// UIDs of Nodes in the record that have been deleted for the grace period. Each is looked up once more: what the watch shows may
    /// be old.
    pub(super) async fn deleted(&mut self, record: &Record, grace: Duration) -> Result<BTreeSet<String>, LookupError> {
        let absent = self.absences.look(record, self.nodes.complete(), grace, Instant::now());
        let names: BTreeMap<&str, &str> =
            record.holders().map(|(_, claim)| (claim.node_uid.as_str(), claim.node.as_str())).collect();
        let mut deleted = BTreeSet::new();
        for uid in absent.into_iter().take(MOST_DELETED) {
            // No Node has another name.
            let name = names.get(uid.as_str()).filter(|name| is_object_name(name));
            let exists = match name {
                None => false,
                Some(name) => match requests::current_node(&self.api, name).await {
                    Ok(node) => node.is_some_and(|node| node.uid == uid),
                    Err(error) => {
                        self.absences.interrupt();
                        return Err(LookupError((*name).to_owned(), error));
                    }
                },
            };
            if exists {
                self.absences.interrupt();
            } else {
                deleted.insert(uid);
            }
        }
        Ok(deleted)
    }

    /// Why nothing is signed yet, once for each cause and request.
    pub(super) fn wait(&mut self, why: &str) {
        let waiting: BTreeMap<_, _> =
            self.open_requests().map(|request| (request.name.clone(), why.to_owned())).collect();
        for (request, reason) in &waiting {
            if self.waiting.get(request) != Some(reason) {
                tracing::info!(request, reason, "request of a node waits");
            }
        }
        self.waiting = waiting;
    }

    /// Serves some requests with the CA that signs. Returns whether others remain that can be served at once.
    pub(super) async fn serve(
        &mut self,
        context: &Context<'_>,
        authority: &Authority,
        objects: &Objects,
        now: Timestamp,
    ) -> Result<bool, ServeError> {
        let open: Vec<ChassisRequest> = self.open_requests().cloned().collect();
        let (mut record, revoked) = (objects.record(), objects.revoked());
        let (mut issued, mut denied, mut waiting) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut is_changed = false;
        for request in open {
            if issued.len() + denied.len() >= PASS {
                break;
            }
            if let Some(issue) = self.undelivered.get(&request.uid) {
                if record.of_node(&issue.grant.node_uid).any(|one| *one == issue.entry) {
                    issued.push((request, issue.clone()));
                    continue;
                }
                self.undelivered.remove(&request.uid);
            }
            self.refresh_node(&request).await?;
            match judge(&self.rules, &request, &self.nodes.objects, &record, &revoked, now) {
                Verdict::Sign(grant) => {
                    let issue = issue(context.policy, authority, &request, grant, now)?;
                    record.add(&issue.grant, issue.entry.clone());
                    is_changed = true;
                    issued.push((request, issue));
                }
                Verdict::Deny(denial) => denied.push((request, denial)),
                Verdict::Wait(reason) => {
                    if self.waiting.get(&request.name) != Some(&reason) {
                        tracing::info!(request = request.name, reason, "request of a node waits");
                    }
                    waiting.insert(request.name, reason);
                }
            }
        }
        self.waiting = waiting;
        if is_changed {
            record.prune(&BTreeSet::new(), &revoked, now);
            match context.store.write_record(&record, objects).await {
                Ok(_) => {}
                Err(ApiError::Conflict(error) | ApiError::AlreadyExists(error)) => {
                    tracing::info!(error, "another client changed ConfigMap ovn-chassis; judging the requests again");
                    return Ok(true);
                }
                Err(error) => return Err(ServeError::Record(error)),
            }
            for (request, issue) in &issued {
                self.undelivered.insert(request.uid.clone(), issue.clone());
            }
        }
        let remain = issued.len() + denied.len() >= PASS;
        self.answer(context, issued, denied).await?;
        Ok(remain)
    }

    /// Reads the Node of a request: what the watch has shown may be older than the request. A request that waits for its Node to
    /// announce a chassis is judged when the watch shows that.
    async fn refresh_node(&mut self, request: &ChassisRequest) -> Result<(), ServeError> {
        let Some(name) = request.node.as_ref().filter(|name| is_object_name(name)) else { return Ok(()) };
        let is_silent = self.nodes.objects.get(name).is_some_and(|node| node.chassis.is_none());
        if is_silent && self.waiting.contains_key(&request.name) {
            return Ok(());
        }
        match requests::current_node(&self.api, name).await {
            Ok(Some(node)) => _ = self.nodes.objects.insert(name.clone(), node),
            Ok(None) => _ = self.nodes.objects.remove(name),
            Err(error) => return Err(ServeError::Node(name.clone(), error)),
        }
        Ok(())
    }

    /// One answer that cannot be written does not prevent the others; the first failure is returned.
    async fn answer(
        &mut self,
        context: &Context<'_>,
        issued: Vec<(ChassisRequest, Issue)>,
        denied: Vec<(ChassisRequest, Denial)>,
    ) -> Result<(), ServeError> {
        let mut failure = None;
        for (request, issue) in issued {
            let message = message(&issue);
            match requests::grant(&self.api, &request, &message, &issue.pem).await {
                Ok(true) => {
                    context.metrics.chassis_issued();
                    context.notices.chassis_issued(&issue.grant, &issue.entry, &message);
                }
                Ok(false) => {}
                // Changed meanwhile: judged again.
                Err(ApiError::Conflict(_)) => continue,
                Err(error) => {
                    failure.get_or_insert(ServeError::Answer(request.name, error));
                    continue;
                }
            }
            self.finish(&request);
        }
        for (request, denial) in denied {
            match requests::deny(&self.api, &request, denial.reason.text(), &denial.message).await {
                Ok(true) => {
                    context.metrics.chassis_denied(denial.reason);
                    let node = request.node.as_ref().and_then(|name| Some((name, self.nodes.objects.get(name)?)));
                    context.notices.chassis_denied(&request, node, &denial);
                }
                Ok(false) => {}
                // Changed meanwhile: judged again.
                Err(ApiError::Conflict(_)) => continue,
                Err(error) => {
                    failure.get_or_insert(ServeError::Answer(request.name, error));
                    continue;
                }
            }
            self.finish(&request);
        }
        failure.map_or(Ok(()), Err)
    }

    /// The watch shows it later.
    fn finish(&mut self, request: &ChassisRequest) {
        self.undelivered.remove(&request.uid);
        self.answered.insert(request.uid.clone());
    }
}

impl Pending {
    fn open_uid(&self) -> Option<&String> {
        (!self.is_finished).then_some(&self.request.uid)
    }
}

fn upserted<T>(event: &Observed<(String, T)>) -> Option<&String> {
    match event {
        Observed::Upsert((name, _)) => Some(name),
        _ => None,
    }
}

fn issue(
    policy: &Policy,
    authority: &Authority,
    request: &ChassisRequest,
    grant: Grant,
    now: Timestamp,
) -> Result<Issue, IssueError> {
    let Grant { chassis, names, public_key, .. } = &grant;
    let certificate = issue_chassis(authority, policy, chassis, names, public_key, &request.uid, now)?;
    Ok(Issue { entry: NodeCertificate::new(&certificate, now), pem: certificate.pem(), grant })
}

fn message(issue: &Issue) -> String {
    let (grant, entry) = (&issue.grant, &issue.entry);
    format!(
        "chassis {} of node {}, valid until {}, SHA-256 {}",
        grant.chassis,
        grant.node,
        entry.not_after,
        entry.fingerprint.hex()
    )
}

/// Whether a text can be the name of a Node; what users write must not become another path.
fn is_object_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
}
