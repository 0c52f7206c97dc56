//! Members of databases on the control machine of a lab.

use std::time::Duration;

use lab::{Kubernetes, Lab, LabSpec, Machine, Program};
use serde_json::Value;

/// Long enough for several checks of a manager, 30 s apart, on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(240);

pub(crate) struct Site {
    pub(crate) lab: Lab,
}

/// One member: its directories and its address are those of its number.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) number: u32,
    pub(crate) database: &'static str,
    /// Each namespace has its own record, so that a test can have several clusters.
    pub(crate) namespace: String,
    pub(crate) peers: String,
    pub(crate) extra: Vec<String>,
}

impl Member {
    pub(crate) fn new(number: u32, database: &'static str, namespace: &str, peers: &[u32]) -> Self {
        let peers: Vec<String> = peers.iter().map(|number| host(*number)).collect();
        Self { number, database, namespace: namespace.into(), peers: peers.join(","), extra: Vec::new() }
    }

    /// Adds arguments of `ovnkube db serve`.
    pub(crate) fn with(mut self, arguments: &[&str]) -> Self {
        self.extra.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    pub(crate) fn component(&self) -> String {
        format!("{}-m{}", self.database, self.number)
    }

    pub(crate) fn data(&self) -> String {
        format!("/var/lib/site/m{}", self.number)
    }

    pub(crate) fn run(&self) -> String {
        format!("/run/site/m{}", self.number)
    }

    pub(crate) fn file(&self) -> String {
        format!("{}/ovn{}_db.db", self.data(), self.database)
    }

    pub(crate) fn control(&self) -> String {
        format!("{}/ovn{}_db.ctl", self.run(), self.database)
    }

    pub(crate) fn schema(&self) -> &'static str {
        if self.database == "nb" { "OVN_Northbound" } else { "OVN_Southbound" }
    }

    fn program(&self) -> Program {
        let mut given = self.extra.iter().skip_while(|argument| *argument != "--host");
        // Other members find it at the address that this one gives; a name is none to listen on.
        let address = given.nth(1).filter(|host| host.parse::<std::net::IpAddr>().is_ok());
        let address = address.cloned().unwrap_or_else(|| host(self.number));
        let metrics = format!("{address}:{}", if self.database == "nb" { 9104 } else { 9105 });
        self.program_as(self.component(), &metrics)
    }

    pub(crate) fn program_as(&self, name: String, metrics: &str) -> Program {
        let (address, data, run) = (host(self.number), self.data(), self.run());
        let mut arguments: Vec<String> = ["db", "serve", self.database].map(str::to_owned).to_vec();
        let options = [
            ("--data-dir", data.as_str()),
            ("--run-dir", &run),
            ("--namespace", &self.namespace),
            ("--metrics-bind-address", metrics),
        ];
        arguments.extend(options.iter().flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()]));
        let given = |name: &str| self.extra.iter().any(|argument| argument == name);
        if !given("--host") {
            arguments.extend(["--host".to_owned(), address]);
        }
        if !given("--listen") {
            arguments.extend(["--listen".to_owned(), host(self.number)]);
        }
        if !given("--peers") && !given("--peers-service") {
            arguments.extend(["--peers".to_owned(), self.peers.clone()]);
        }
        arguments.extend(self.extra.clone());
        Program::new(name, env!("CARGO_BIN_EXE_ovnkube"))
            .arguments(arguments)
            .environment("POD_NAME", format!("member-{}", self.number))
            // Events are about this pod; the API accepts them although it does not exist.
            .environment("POD_UID", format!("uid-of-member-{}", self.number))
    }
}

pub(crate) fn host(number: u32) -> String {
    format!("127.0.1.{number}")
}

/// The address of [`Site::endpoint`].
pub(crate) fn endpoint(number: u32) -> String {
    format!("10.98.0.{number}")
}

impl Site {
    pub(crate) fn start(purpose: &str) -> Self {
        let spec = LabSpec::for_test(purpose).unwrap().kubernetes(Kubernetes::default());
        Self { lab: Lab::start(spec).unwrap() }
    }

    pub(crate) fn machine(&self) -> Machine {
        self.lab.machine("control").unwrap()
    }

    pub(crate) fn namespace(&self, name: &str) {
        self.lab.kubectl(&["create", "namespace", name]).unwrap();
    }

    /// Gives the machine an address for this number that an EndpointSlice accepts: it takes no loopback address.
    pub(crate) fn endpoint(&self, number: u32) -> String {
        self.machine().run(&["ip", "address", "replace", &format!("{}/32", endpoint(number)), "dev", "lo"]).unwrap();
        endpoint(number)
    }

    /// Starts the manager of a member.
    pub(crate) fn serve(&self, member: &Member) {
        self.machine().run(&["mkdir", "-p", &member.data(), &member.run()]).unwrap();
        self.lab.run(&member.program()).unwrap();
    }

    /// Stops a manager gracefully, and its server with it.
    pub(crate) fn stop(&self, member: &Member) {
        self.lab.terminate(&member.component(), LIMIT).unwrap();
    }

    pub(crate) fn appctl(&self, member: &Member, words: &[&str]) -> Result<String, String> {
        let control = member.control();
        let command = [&["ovn-appctl", "-t", &control], words].concat();
        self.machine().run(&command).map_err(|error| error.to_string())
    }

    /// A line of `cluster/status`, such as `Role`; empty without a server.
    pub(crate) fn raft(&self, member: &Member, key: &str) -> String {
        let text = self.appctl(member, &["cluster/status", member.schema()]).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{key}: ")));
        line.unwrap_or_default().to_owned()
    }

    pub(crate) fn is_leader(&self, member: &Member) -> bool {
        self.raft(member, "Role") == "leader"
    }

    /// What the manager writes for `ovnkube db status`.
    pub(crate) fn manager(&self, member: &Member) -> Value {
        let path = format!("{}/ovn{}_db.manager.json", member.run(), member.database);
        let text = self.machine().run(&["cat", &path]).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// The message of a finding, if it is there.
    pub(crate) fn finding(&self, member: &Member, name: &str) -> Option<String> {
        let manager = self.manager(member);
        let findings = manager["findings"].as_array()?;
        let finding = findings.iter().find(|finding| finding["name"] == name)?;
        finding["message"].as_str().map(str::to_owned)
    }

    pub(crate) fn await_finding(&self, member: &Member, name: &str) -> String {
        until(&format!("{} reports {name}", member.component()), || self.finding(member, name))
    }

    pub(crate) fn await_resolved(&self, member: &Member, name: &str) {
        until(&format!("{} no longer reports {name}", member.component()), || {
            (self.manager(member)["findings"].is_array() && self.finding(member, name).is_none()).then_some(())
        });
    }

    /// Waits until the server is a member with a leader.
    pub(crate) fn await_member(&self, member: &Member) {
        until(&format!("{} is a member", member.component()), || {
            let leader = self.raft(member, "Leader");
            let joined = self.raft(member, "Status") == "cluster member";
            (joined && !matches!(leader.as_str(), "" | "unknown")).then_some(())
        });
    }

    /// Output and exit status of `ovnkube db status nb`, with a member's own sockets.
    pub(crate) fn status(&self, member: &Member, words: &[&str]) -> (String, i32) {
        self.status_of(member, &format!("tcp:{}:6641", host(member.number)), words)
    }

    /// The same with the addresses of the northbound database.
    pub(crate) fn status_of(&self, member: &Member, address: &str, words: &[&str]) -> (String, i32) {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let name = format!("status-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let run = member.run();
        let program = Program::new(&name, env!("CARGO_BIN_EXE_ovnkube"))
            .arguments(["db", "status", member.database, "--run-dir", &run])
            .arguments(words.iter().copied())
            .environment("OVNKUBE_OVNNORTH_ADDRESS", address)
            .environment("OVNKUBE_OVNSOUTH_ADDRESS", address.replace("6641", "6642"));
        self.lab.run(&program).unwrap();
        let status = self.lab.wait_end(&name, LIMIT).unwrap();
        (self.lab.log(&name).unwrap(), status.code().unwrap_or(-1))
    }

    /// The sum of a file.
    pub(crate) fn sum(&self, path: &str) -> String {
        self.machine().run(&["sha256sum", path]).unwrap()
    }

    /// The value of `nb` or `sb` in the record of a namespace.
    pub(crate) fn record(&self, namespace: &str, database: &str) -> String {
        let path = format!("jsonpath={{.data.{database}}}");
        self.lab.kubectl(&["-n", namespace, "get", "configmap", "ovnkube-db", "-o", &path]).unwrap_or_default()
    }
}

/// Repeats until there is a result.
pub(crate) fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    lab::poll(LIMIT, || attempt().ok_or(())).unwrap_or_else(|()| panic!("not within {LIMIT:?}: {what}"))
}
