//! What a manager checks while its server runs, and what it does about it.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crate::assess;
use crate::control::{self, CommandError};
use crate::directory::{CONVERSION_LIMIT, DataDirectory};
use crate::finding::{Finding, FindingKind, Severity, Source};
use crate::former;
use crate::inspect;
use crate::kind::Kind;
use crate::leadership::Leaders;
use crate::maintenance::{self, Action, silence_limit};
use crate::manager::{Manager, Next, Server};
use crate::names;
use crate::node_listener::{ListenerProblem, NodeListener};
use crate::record::RemovedServer;
use crate::server_config;
use crate::status::ClusterStatus;
use crate::version::{MemberVersion, SchemaStep, Version, raft_bugs, schema_finding, schema_step};

/// What changes slowly is checked once in this many checks of the cluster.
const SLOW_PERIOD: u32 = 6;
/// A server that is busy with a large transaction replies late.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(4);
/// A server that has not replied for this long is reported.
const NO_REPLY: Duration = Duration::from_secs(15);
/// A compaction of a large file on a slow disk takes this long at most.
const COMPACTION_LIMIT: Duration = Duration::from_secs(60);
/// A round of checks that takes longer hangs. It may contain a compaction for the disk, another one for a lost file, a conversion
/// of the schema, and about thirty requests to the server, the API, the name server and other members, each within its limit.
pub(crate) const ROUND_LIMIT: Duration =
    Duration::from_secs(2 * COMPACTION_LIMIT.as_secs() + CONVERSION_LIMIT.as_secs() + 30 * COMMAND_TIMEOUT.as_secs());
/// The schema is converted when that was possible in so many checks in a row: a member that has just restarted with another
/// image records it a moment later.
const CONVERTIBLE_CHECKS: u32 = 2;
/// A list without this member is reported after so many checks: endpoints appear after their pod.
const ABSENT_CHECKS: u32 = 3;

impl Manager {
    /// One round over the running server; returns what the manager does next.
    pub(crate) async fn check(&mut self, server: &mut Server) -> Next {
        let kind = self.options.kind;
        let control = server.control.clone();
        let slow = server.checks.is_multiple_of(SLOW_PERIOD);
        self.check_clock();
        self.check_nodes();
        if slow {
            self.check_disk(Some(&control)).await;
        }
        let status = match command(&control, "cluster/status", &[kind.schema()]).await {
            Ok(text) => ClusterStatus::parse(&text),
            Err(error) => {
                self.check_silence(server, &error);
                return Next::GoOn;
            }
        };
        if !server.trims_memory {
            // Freed memory is returned to the host after each compaction.
            let trims = command(&control, "ovsdb-server/memory-trim-on-compaction", &["on"]).await;
            server.trims_memory = trims.is_ok();
        }
        server.replied = Instant::now();
        server.checks = server.checks.wrapping_add(1);
        self.metrics.set_status(&status);
        self.status.set_raft(&status, kubernetes::timestamp);
        let memory = command(&control, "memory/show", &[]).await.ok();
        self.status.clients = memory.as_deref().and_then(inspect::sessions);
        self.findings.set(Source::Start, Vec::new());
        self.findings.set(Source::Cluster, self.cluster_findings(&status));
        if status.has_failed() {
            return self.check_failed().await;
        }
        if slow {
            self.check_file(server).await;
            self.check_process(server, &status);
            self.check_size(&control).await;
            self.check_members(&status).await;
            self.check_schema(server, &status).await;
            self.check_leaders(&control, &status).await;
        }
        if (slow || self.findings.has(FindingKind::NoQuorum)) && self.is_replaced(&status).await {
            tracing::warn!(
                database = kind.name(),
                "the cluster was replaced, or this server was removed from it; joining it"
            );
            return Next::Rejoin;
        }
        let by_size = self.nodes.value().map(maintenance::election_timer);
        let wanted = self.options.election_timer.or(by_size).unwrap_or(status.election_timer);
        for action in maintenance::actions(&status, wanted, &self.members, self.options.gone_after, Instant::now()) {
            self.act(&control, &action).await;
        }
        if let Some(action) = former::removal(&status, &kind.file(&self.options.data_directory), &mut self.files).await
        {
            self.act(&control, &action).await;
        }
        if slow && status.is_leader() {
            self.forget_returned(&status).await;
        }
        Next::GoOn
    }

    pub(crate) fn check_clock(&mut self) {
        let found = self.clock.check(Instant::now(), SystemTime::now());
        self.findings.set(Source::Clock, found);
    }

    /// A server without a reply: just started, busy, or its control socket is gone. The check of the `daemon` crate detects a hang.
    fn check_silence(&mut self, server: &Server, error: &CommandError) {
        let socket = &server.control;
        tracing::debug!(database = self.options.kind.name(), %error, "ovsdb-server does not reply; checking again in 5s");
        if server.replied.elapsed() < NO_REPLY {
            return;
        }
        let why = if socket.exists() {
            "it reads a large file or is busy; wait, and look at its CPU use and the disk"
        } else if server.checks == 0 {
            "it has not created its control socket yet; it reads a large file, or the disk does not answer"
        } else {
            "its control socket was deleted, so that it cannot be checked or stopped gracefully; restart the pod"
        };
        // Values of a server that cannot be asked are no longer true.
        self.metrics.clear_status();
        self.status.clear_server();
        let (path, limit) = (socket.display(), NO_REPLY.as_secs());
        let message = format!("the server has not replied at {path} for more than {limit} s: {why}");
        self.findings.set(Source::Cluster, vec![Finding::new(FindingKind::NoReply, message)]);
    }

    /// A server that gave up after an I/O error is restarted as soon as that can help.
    async fn check_failed(&mut self) -> Next {
        self.check_disk(None).await;
        if [FindingKind::DiskFull, FindingKind::DirectoryNotWritable].into_iter().any(|kind| self.findings.has(kind)) {
            return Next::GoOn;
        }
        let database = self.options.kind.name();
        tracing::warn!(
            database,
            "ovsdb-server gave up after an I/O error, and its data directory can be written; restarting it"
        );
        Next::Restart
    }

    fn cluster_findings(&self, status: &ClusterStatus) -> Vec<Finding> {
        let mut found = assess::cluster(status);
        if self.options.tls.is_some() && status.address.starts_with("tcp:") {
            let message = format!(
                "this member is {} in the cluster, so that members talk to each other without TLS although it is configured; a \
                 new cluster uses it: `ovnkube db backup`, then `restore --force`, in a maintenance window",
                status.address
            );
            found.push(Finding::new(FindingKind::RaftPlaintext, message));
        }
        found
    }

    /// The disk of the data directory; `control` is the socket of a running server.
    pub(crate) async fn check_disk(&mut self, control: Option<&Path>) {
        let found = self.disk.check(&self.options, control, &self.metrics, &mut self.status).await;
        self.findings.set(Source::Disk, found);
    }

    /// CPU, memory, speed and ports of the server.
    fn check_process(&mut self, server: &mut Server, status: &ClusterStatus) {
        let timer = Duration::from_millis(status.election_timer);
        let usage = server.process.sample(&server.warnings.take(), Some(timer));
        self.metrics.set_usage(&usage);
        self.status.set_usage(&usage);
        let mut found = assess::usage(&usage);
        found.extend(server.process.lost_ports(&self.options.server_ports()));
        self.findings.set(Source::Process, found);
    }

    /// Whether nodes can connect.
    fn check_nodes(&mut self) {
        let problem = self.listener.as_ref().and_then(NodeListener::problem);
        let found = problem.map(|problem| match problem {
            ListenerProblem::Port(error) => {
                let text = format!("the manager cannot listen on port {}, for nodes: {error}", self.options.port);
                assess::failure(&text).unwrap_or_else(|| Finding::new(FindingKind::PortInUse, format!("{text}; check --listen and --port")))
            }
            ListenerProblem::Files(error) => Finding::new(
                FindingKind::NodesShutOut,
                format!(
                    "the port for nodes is closed: {error}; check ConfigMap ovn-node-ca, which the signer (ovnkube-pki) writes, and \
                     --node-authorities"
                ),
            ),
        });
        self.findings.set(Source::Nodes, found.into_iter().collect());
    }

    /// The number of nodes, which election timer and probes follow.
    async fn check_size(&mut self, control: &Path) {
        let nodes = match self.options.node_count {
            Some(nodes) => nodes,
            None => match self.store.count_nodes().await {
                Ok(nodes) => nodes,
                Err(_) => return,
            },
        };
        self.nodes.observe(maintenance::size_class(nodes));
        let probe = self.nodes.value().map_or(self.probe, maintenance::inactivity_probe);
        if probe == self.probe {
            return;
        }
        // A server that reads no file has no probe.
        let Some(path) = server_config::path(&self.options, &self.image) else { return };
        let database = self.options.kind.name();
        match server_config::change(&path, &self.options, probe, control).await {
            Ok(()) => {
                self.probe = probe;
                tracing::info!(database, probe, "changed the inactivity probe of clients");
            }
            Err(error) => {
                tracing::warn!(database, probe, %error, "cannot change the inactivity probe of clients; retrying in 30s");
            }
        }
    }

    /// The list of members, and their names.
    async fn check_members(&mut self, status: &ClusterStatus) {
        // Without the API the last list holds.
        let Ok(hosts) = self.store.hosts(&self.options.peers).await else { return };
        let addresses: Vec<String> = hosts.iter().map(|host| self.options.raft_address(host)).collect();
        let known = status.servers.iter().map(|server| server.address.as_str());
        self.members.observe(addresses, known, Instant::now());
        let mut found = Vec::new();
        let absent = !self.members.is_empty() && !self.members.contains(&self.options.address());
        self.absent_checks = if absent { self.absent_checks + 1 } else { 0 };
        if self.absent_checks >= ABSENT_CHECKS {
            let message = format!(
                "the list of members ({}) lacks this one ({}), so that others cannot join by it and may remove it as gone; \
                 correct --host, the selector of the Service, or --peers",
                hosts.join(", "),
                self.options.host
            );
            found.push(Finding::new(FindingKind::WrongMembers, message));
        }
        let works = status.is_member() && status.has_leader();
        let others = hosts.iter().filter(|host| **host != self.options.host);
        let all = std::iter::once(&self.options.host).chain(others);
        for (host, error) in names::unresolved(all.cloned()).await {
            found.push(assess::unresolved(&host, &error, host == self.options.host, works));
        }
        self.findings.set(Source::Members, found);
    }

    /// Records the versions of this member, and converts the database when all members have this image.
    async fn check_schema(&mut self, server: &Server, status: &ClusterStatus) {
        let mut found: Vec<Finding> =
            self.image.server.and_then(|release| raft_bugs(release, status.servers.len())).into_iter().collect();
        let database = server.client.schema().and_then(|schema| schema.version.parse::<Version>().ok());
        if let (Some(schema), Some(release), Some(database)) = (self.image.schema, self.image.server, database)
            && status.is_member()
        {
            self.status.schema = Some(database.to_string());
            let own = MemberVersion {
                member: self.options.member.clone(),
                schema: schema.to_string(),
                server: release.to_string(),
            };
            self.exchange_versions(status, &own).await;
            let step = schema_step(database, &own, status, &self.versions);
            found.extend(schema_finding(&step, database, &own.schema));
            self.convertible_checks = if step == SchemaStep::Convert { self.convertible_checks + 1 } else { 0 };
            if self.convertible_checks >= CONVERTIBLE_CHECKS
                && let Err(error) = DataDirectory::new(&self.options).convert().await
            {
                let step = SchemaStep::Wait(format!("{error}; retrying"));
                found.extend(schema_finding(&step, database, &own.schema));
            }
        }
        self.findings.set(Source::Version, found);
    }

    /// Records this member's versions, reads those of all, and, as leader, removes those of servers that are gone.
    async fn exchange_versions(&mut self, status: &ClusterStatus, own: &MemberVersion) {
        let kind = self.options.kind;
        let Ok(mut versions) = self.store.member_versions(kind).await else {
            // A member may have got another image meanwhile.
            self.versions.clear();
            return;
        };
        if versions.get(&status.server) != Some(own) {
            match self.store.record_version(kind, &status.server, Some(own)).await {
                Ok(()) => versions.insert(status.server.clone(), own.clone()),
                Err(error) => {
                    tracing::warn!(database = kind.name(), %error, "cannot record the versions of this member; retrying");
                    None
                }
            };
        }
        if status.is_leader() {
            let is_member = |id: &str| status.servers.iter().any(|server| id.starts_with(&server.id));
            let gone: Vec<String> = versions.keys().filter(|id| !is_member(id)).cloned().collect();
            for id in gone {
                let _ = self.store.record_version(kind, &id, None).await;
                versions.remove(&id);
            }
        }
        self.versions = versions;
    }

    /// Hands the leadership over if another member leads the other database.
    async fn check_leaders(&mut self, control: &Path, status: &ClusterStatus) {
        let (kind, other) = (self.options.kind, self.options.kind.other());
        let leaders = if status.is_leader() {
            let socket = other.control_socket(&self.options.run_directory);
            let reply = command(&socket, "cluster/status", &[other.schema()]).await.unwrap_or_default();
            let beside = ClusterStatus::parse(&reply);
            let warned = self.findings.all().any(|finding| finding.kind.severity() != Severity::Advice);
            Leaders {
                members: status.servers.len(),
                leads: true,
                healthy: !warned && status.alive(silence_limit(status)) == status.servers.len(),
                leads_other: beside.is_leader(),
                other_healthy: beside.is_member() && beside.has_leader(),
            }
        } else {
            Leaders::default()
        };
        if !self.handover.decide(leaders, Instant::now()) {
            return;
        }
        let database = kind.name();
        match command(control, "cluster/failure-test", &["transfer-leadership"]).await {
            Ok(_) => {
                tracing::info!(database, "transferring raft leadership to the member that leads the {other} database");
            }
            Err(error) => tracing::warn!(database, %error, "cannot transfer raft leadership; retrying later"),
        }
    }

    /// A server whose removal did not succeed, and that is there again, must not join as a new one when it restarts.
    async fn forget_returned(&self, status: &ClusterStatus) {
        let alive = maintenance::alive_servers(status);
        if let Err(error) = self.store.forget_alive(self.options.kind, &alive).await {
            tracing::debug!(database = self.options.kind.name(), %error, "cannot check the recorded removals; retrying");
        }
    }

    async fn act(&self, control: &Path, action: &Action) {
        let (database, schema) = (self.options.kind.name(), self.options.kind.schema());
        match action {
            Action::Kick { server, address, reason } => {
                // First: by the record it knows that it was removed, should it return.
                let removed = RemovedServer { server: server.clone(), address: address.clone() };
                if let Err(error) = self.store.add_removed(self.options.kind, removed).await {
                    return tracing::warn!(database, server, %error, "cannot record the removal of a stale server; retrying");
                }
                match command(control, "cluster/kick", &[schema, server]).await {
                    Ok(_) => tracing::warn!(database, server, reason, "removed a stale server from the cluster"),
                    Err(error) => tracing::warn!(database, server, %error, "cannot remove a stale server; retrying"),
                }
            }
            Action::SetElectionTimer(timer) => {
                match command(control, "cluster/change-election-timer", &[schema, &timer.to_string()]).await {
                    Ok(_) => tracing::info!(database, timer, "changed the election timer"),
                    Err(error) => tracing::warn!(database, timer, %error, "cannot change the election timer; retrying"),
                }
            }
        }
    }
}

/// Compacts the file. The server writes a copy of the whole database meanwhile, and replies when that is done.
pub(crate) async fn compact(control: &Path, kind: Kind) -> Result<(), CommandError> {
    control::command(control, "ovsdb-server/compact", &[kind.schema()], COMPACTION_LIMIT).await.map(drop)
}

/// Runs a command of the server within [`COMMAND_TIMEOUT`].
pub(crate) async fn command(socket: &Path, command: &str, arguments: &[&str]) -> Result<String, CommandError> {
    control::command(socket, command, arguments, COMMAND_TIMEOUT).await
}
