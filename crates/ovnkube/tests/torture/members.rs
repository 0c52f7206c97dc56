//! Three raft members of the northbound database, each run by `ovnkube db serve` on a machine of its own. Their record is
//! in a real API server, and their addresses in an EndpointSlice, as in a cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use database::status::ClusterStatus;
use lab::directories::Directories;
use lab::{Databases, Kubernetes, Lab, LabSpec, Machine, Ovn, Program};
use ovsdb::client::control_command;
use serde_json::json;

use crate::fault::{Point, Target};
use crate::writer::runtime;

/// Limit of every wait. Generous: the machine may be busy.
pub(crate) const LIMIT: Duration = Duration::from_secs(180);
const COMMAND_LIMIT: Duration = Duration::from_secs(5);
pub(crate) const COUNT: usize = 3;
/// Open vSwitch 3.5 and 4.0 have all of [`Point::ALL`].
const FEWEST_POINTS: usize = 13;
const SCHEMA: &str = "OVN_Northbound";
const SERVICE: &str = "ovnkube-db";
const NAMESPACE: &str = "ovn-kubernetes";
const DATA: &str = "/var/lib/ovn";

pub(crate) struct Members {
    pub(crate) lab: Lab,
    directory: PathBuf,
    hosts: Vec<String>,
    /// The last number of the next new address.
    next_address: u32,
    runtime: tokio::runtime::Runtime,
}

/// Polls until `look` returns a value; panics after `limit`.
pub(crate) fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    lab::poll(limit, || look().ok_or(())).unwrap_or_else(|()| panic!("{what}: not within {limit:?}"))
}

impl Members {
    /// Starts the lab and the members; returns when all three form one cluster.
    pub(crate) fn start() -> Self {
        let ovn = Ovn { databases: Databases::Machines, northds: 0, ..Ovn::default() };
        let spec = LabSpec::for_test("torture").unwrap().ovn(ovn).kubernetes(Kubernetes::default());
        let lab = Lab::start(spec).unwrap();
        let directory = Directories::from_environment().unwrap().lab(lab.name());
        let host = |member: usize| {
            let record = lab.record();
            record.machine(&machine(member)).unwrap().addresses[0].split('/').next().unwrap().to_owned()
        };
        let hosts = (0..COUNT).map(host).collect();
        let mut members = Self { lab, directory, hosts, next_address: 100, runtime: runtime() };
        members.lab.kubectl(&["create", "namespace", NAMESPACE]).unwrap();
        members.publish_addresses();
        (0..COUNT).for_each(|member| members.start_manager(member));
        members.await_whole();
        members
    }

    /// Writes the addresses of all members, as Kubernetes does for pods.
    fn publish_addresses(&self) {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "ports": [],
            "metadata": {"name": SERVICE, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": SERVICE}},
            "endpoints": self.hosts.iter().map(|host| json!({"addresses": [host]})).collect::<Vec<_>>(),
        });
        self.lab.apply(&slice.to_string()).unwrap();
    }

    pub(crate) fn start_manager(&mut self, member: usize) {
        self.machine(member).run(&["mkdir", "-p", DATA]).unwrap();
        let program = self.command(&manager(member), "serve", member).arguments(["--peers-service", SERVICE]);
        self.lab.run(&program).unwrap();
    }

    /// A command of `ovnkube db` for a member, on its machine.
    fn command(&self, name: &str, command: &str, member: usize) -> Program {
        let certificate = |file: &str| self.directory.join("pki/ovn").join(file).display().to_string();
        Program::new(name, Path::new(env!("CARGO_BIN_EXE_ovnkube")))
            .on(&machine(member))
            .environment("OVNKUBE_METRICS_BIND_ADDRESS", "off")
            .environment("OVNKUBE_OVNNORTH_CLIENT_PRIVKEY", certificate("ovn.key"))
            .environment("OVNKUBE_OVNNORTH_CLIENT_CERT", certificate("ovn.crt"))
            .environment("OVNKUBE_OVNNORTH_CLIENT_CACERT", certificate("ca.crt"))
            .arguments(["db", command, "nb", "--host", &self.hosts[member], "--member", &machine(member)])
            .arguments(["--data-dir", DATA, "--namespace", NAMESPACE])
    }

    /// Gives the members in the file of a member, which does not run, other names: `OLD=NEW` of each.
    pub(crate) fn rename(&self, member: usize, renaming: &[String]) {
        let name = format!("rename-{}", machine(member));
        self.lab.run(&self.command(&name, "rename", member).arguments(renaming.iter().cloned())).unwrap();
        let status = self.lab.wait_end(&name, LIMIT).unwrap();
        assert!(status.success(), "{}", self.lab.log(&name).unwrap());
    }

    pub(crate) fn machine(&self, member: usize) -> Machine {
        self.lab.machine(&machine(member)).unwrap()
    }

    /// A file in `/run/ovn` of a member, seen from this host.
    fn run_file(&self, member: usize, name: &str) -> PathBuf {
        lab::machine_dir(&self.directory, &machine(member)).join("run/ovn").join(name)
    }

    /// The unix socket of a member, for clients.
    pub(crate) fn remote(&self, member: usize) -> String {
        format!("unix:{}", self.run_file(member, "ovnnb_db.sock").display())
    }

    /// Unix sockets of all members: a client reaches each of them whatever happens between them.
    pub(crate) fn remotes(&self) -> String {
        (0..COUNT).map(|member| self.remote(member)).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Runs a command of a server at its control socket.
    pub(crate) fn control(&self, member: usize, command: &str, arguments: &[&str]) -> Result<String, String> {
        let socket = self.run_file(member, "ovnnb_db.ctl");
        let run = async { tokio::time::timeout(COMMAND_LIMIT, control_command(&socket, command, arguments)).await };
        match self.block_on(run) {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err("no reply in time".into()),
        }
    }

    pub(crate) fn status(&self, member: usize) -> Option<ClusterStatus> {
        let text = self.control(member, "cluster/status", &[SCHEMA]).ok()?;
        Some(ClusterStatus::parse(&text))
    }

    pub(crate) fn compact(&self, member: usize) -> Result<String, String> {
        self.control(member, "ovsdb-server/compact", &[SCHEMA])
    }

    /// The leader with the highest term; a former one may not know yet that it is none.
    fn leader(&self) -> Option<usize> {
        let statuses = (0..COUNT).filter_map(|member| Some((member, self.status(member)?)));
        let leaders = statuses.filter(|(_, status)| status.is_member() && status.is_leader());
        leaders.max_by_key(|(_, status)| status.term).map(|(member, _)| member)
    }

    pub(crate) fn await_leader(&self) -> usize {
        until("a member leads", LIMIT, || self.leader())
    }

    /// The members that are not this one.
    pub(crate) fn others(member: usize) -> impl Iterator<Item = usize> {
        (0..COUNT).filter(move |other| *other != member)
    }

    pub(crate) fn target(&self, target: Target) -> usize {
        let leader = self.await_leader();
        match target {
            Target::Leader => leader,
            Target::Follower(index) => Self::others(leader).nth(index).unwrap_or(leader),
        }
    }

    /// Waits until all three are members of one cluster with a leader, and no other server is in its configuration.
    pub(crate) fn await_whole(&self) {
        let recovered = lab::poll(LIMIT, || self.is_whole().then_some(()).ok_or(()));
        assert!(recovered.is_ok(), "the members did not recover within {LIMIT:?}:\n{}", self.describe());
    }

    fn is_whole(&self) -> bool {
        let statuses: Vec<ClusterStatus> = (0..COUNT).filter_map(|member| self.status(member)).collect();
        let leader = statuses.iter().find(|status| status.is_leader());
        statuses.len() == COUNT
            && statuses.iter().all(|status| status.is_member() && status.has_leader())
            && leader.is_some_and(|leader| leader.servers.len() == COUNT && leader.alive(2000) == COUNT)
    }

    /// What each server says, for the report of a failure.
    pub(crate) fn describe(&self) -> String {
        let one = |member: usize| match self.control(member, "cluster/status", &[SCHEMA]) {
            Ok(text) => format!("{}:\n{text}", machine(member)),
            Err(error) => format!("{}: {error}\n", machine(member)),
        };
        (0..COUNT).map(one).collect()
    }

    /// The process of a server, by its machine's numbers; none while it does not run.
    pub(crate) fn server(&self, member: usize) -> Option<u32> {
        std::fs::read_to_string(self.run_file(member, "ovnnb_db.pid")).ok()?.trim().parse().ok()
    }

    pub(crate) fn await_server(&self, member: usize) -> u32 {
        until("the server runs", LIMIT, || self.server(member))
    }

    /// Waits until another process than this one is a member's server.
    pub(crate) fn await_new_server(&self, member: usize, former: u32) {
        until(&format!("{} has a new server", machine(member)), LIMIT, || {
            self.server(member).filter(|process| *process != former)
        });
    }

    /// Sends a signal to a process of a member's machine; false if it is gone.
    pub(crate) fn signal(&self, member: usize, process: u32, signal: &str) -> bool {
        self.machine(member).run(&["sh", "-c", &format!("kill -{signal} {process}")]).is_ok()
    }

    /// The state of a process, e.g. `T` if it is stopped.
    pub(crate) fn process_state(&self, member: usize, process: u32) -> String {
        let script = format!("cut -d' ' -f3 /proc/{process}/stat");
        self.machine(member).run(&["sh", "-c", &script]).unwrap_or_default().trim().to_owned()
    }

    /// Kills manager and server.
    pub(crate) fn kill(&self, member: usize) {
        let process = self.await_server(member);
        self.lab.kill(&manager(member)).unwrap();
        assert!(self.signal(member, process, "KILL"), "{} had no server to kill", machine(member));
        // Its successor writes the file again.
        let _ = std::fs::remove_file(self.run_file(member, "ovnnb_db.pid"));
    }

    /// Deletes the files of a member that does not run.
    pub(crate) fn lose_volume(&self, member: usize) {
        self.machine(member).run(&["sh", "-c", &format!("rm {DATA}/ovnnb_db.db && rm -rf {DATA}/*")]).unwrap();
    }

    /// Stops a member as Kubernetes stops a pod.
    pub(crate) fn terminate(&self, member: usize) {
        let status = self.lab.terminate(&manager(member), LIMIT).unwrap();
        assert!(status.success(), "{} ended with {status}", manager(member));
    }

    /// Gives the machine of a member that does not run another address.
    pub(crate) fn change_address(&mut self, member: usize) {
        let host = format!("10.99.0.{}", self.next_address);
        // Far fewer than 100 changes at a time are in use.
        self.next_address = if self.next_address < 199 { self.next_address + 1 } else { 100 };
        let script = format!("ip addr flush dev eth0 scope global && ip addr add {host}/24 dev eth0");
        self.machine(member).run(&["sh", "-c", &script]).unwrap();
        self.hosts[member] = host;
        self.publish_addresses();
    }

    pub(crate) fn host(&self, member: usize) -> &str {
        &self.hosts[member]
    }

    /// The points of `cluster/failure-test` that the servers have: at least [`FEWEST_POINTS`], or they are not found where
    /// they are looked for.
    pub(crate) fn points(&self) -> Vec<Point> {
        let files = "$(readlink -f $(command -v ovsdb-server)) $(ls /usr/lib/*/libovsdb*.so* 2>/dev/null)";
        let has = |point: &Point| {
            let script = format!("grep -qaP '\\x00{}\\x00' {files}", point.name());
            self.machine(0).run(&["sh", "-c", &script]).is_ok()
        };
        let points: Vec<Point> = Point::ALL.into_iter().filter(has).collect();
        assert!(
            points.len() >= FEWEST_POINTS,
            "only {points:?} of cluster/failure-test were found in {}",
            self.version()
        );
        points
    }

    /// The version of the servers.
    pub(crate) fn version(&self) -> String {
        self.machine(0).run(&["ovsdb-server", "--version"]).unwrap().lines().next().unwrap_or_default().to_owned()
    }

    /// `ovsdb-tool check-cluster` on the files of all members, which must not run.
    pub(crate) fn check_files(&self) -> Result<String, String> {
        let file = |member: usize| {
            let upper = lab::machine_dir(&self.directory, &machine(member)).join("upper");
            upper.join(DATA.trim_start_matches('/')).join("ovnnb_db.db").display().to_string()
        };
        let files: Vec<String> = (0..COUNT).map(file).collect();
        let mut command = vec!["ovsdb-tool", "check-cluster"];
        command.extend(files.iter().map(String::as_str));
        let checked = self.lab.machine("control").unwrap().run_within(LIMIT, &command);
        checked.map_err(|error| error.to_string())
    }

    /// The log of a member's manager, which has its server's lines, too.
    pub(crate) fn log(&self, member: usize) -> String {
        self.lab.log(&manager(member)).unwrap()
    }
}

pub(crate) fn machine(member: usize) -> String {
    format!("db-{}", member + 1)
}

fn manager(member: usize) -> String {
    format!("manager-{}", member + 1)
}
