//! Alerts whose fault needs one member, relay or controller, but no cluster: they run as programs on one machine with a real API
//! server, and Prometheus scrapes them. All faults happen at the same time, each to another program.

use std::time::Duration;

use lab::{Kubernetes, Lab, LabSpec, MovedClock, Program};
use serde_json::Value;

use crate::coverage::PROGRAMS;
use crate::site::{LIMIT, Member, Site, endpoint, host, until};
use crate::watch::AlertWatch;

const COMPRESSION: u32 = 60;
const IMAGE: &str = "/usr/share/ovn";
const OLD_SCHEMA: &str = "/var/lib/site/old";
const PKI: &str = "/var/lib/site/pki";
const RELAY: &str = "127.0.1.20:9106";
const CONTROLLER: &str = "127.0.1.21:9102";
/// Services whose load balancers have longer names than the changed schema accepts.
const LONG: &str = "a-service-with-a-long-name-that-is-refused";

/// All programs of the test, each member with a fault of its own.
struct Programs {
    site: Site,
    watch: AlertWatch,
    /// Its control socket is deleted.
    silent: Member,
    /// Its disk is slow, and so is its server when it writes.
    on_slow_disk: Member,
    /// Another image.
    other_image: Member,
    /// Created without TLS.
    plain: Member,
    /// Its clock jumps.
    astray: Member,
    clock: MovedClock,
    /// The southbound database of the relay and the controller.
    upstream: Member,
    /// The controller's northbound database.
    north: Member,
    /// The active server and its backup.
    pair: [Member; 2],
}

impl Programs {
    fn start() -> Self {
        let targets = [1, 3, 4, 5, 7, 8, 9, 10].map(|number| format!("{}:9104", host(number)));
        let others = [format!("{}:9105", host(6)), RELAY.into(), CONTROLLER.into()];
        let targets: Vec<String> = targets.into_iter().chain(others).collect();
        let number = targets.len();
        let spec =
            LabSpec::for_test("programs").unwrap().kubernetes(Kubernetes::default()).scraping(COMPRESSION, targets);
        let site = Site { lab: Lab::start(spec).unwrap() };
        let watch = AlertWatch::new(site.lab.prometheus().unwrap());
        let alone = |number: u32, database| {
            let namespace = format!("alone-{number}");
            site.namespace(&namespace);
            Member::new(number, database, &namespace, &[number])
        };
        site.namespace("pair");
        let of_pair = |number| {
            let own = site.endpoint(number);
            let form = ["--form", "active-backup", "--nb-endpoints-service", "ovnkube-nb"];
            Member::new(number, "nb", "pair", &[number]).with(&form).with(&["--host", &own, "--listen", &own])
        };
        let programs = Self {
            silent: alone(1, "nb"),
            on_slow_disk: alone(3, "nb"),
            other_image: alone(4, "nb"),
            plain: alone(5, "nb"),
            upstream: alone(6, "sb"),
            north: alone(7, "nb"),
            astray: alone(10, "nb"),
            clock: site.lab.moved_clock("control").unwrap(),
            pair: [8, 9].map(of_pair),
            site,
            watch,
        };
        programs.prepare();
        programs.serve_all();
        programs.watch.await_targets(number);
        programs
    }

    fn shell(&self, script: &str) -> String {
        self.site.machine().run(&["sh", "-c", script]).unwrap()
    }

    /// A small disk that can be frozen, an older schema, certificates.
    fn prepare(&self) {
        self.site.lab.own_disk("control", &self.on_slow_disk.data(), 200).unwrap();
        let mut schema = self.schema();
        schema["version"] = "6.0.0".into();
        self.write_schema(&schema);
        self.shell(&format!(
            "mkdir -p {PKI} && cd {PKI} && openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out crt -days 2 -subj /CN=ovn 2>/dev/null"
        ));
    }

    fn schema(&self) -> Value {
        serde_json::from_str(&self.shell(&format!("cat {IMAGE}/ovn-nb.ovsschema"))).unwrap()
    }

    fn write_schema(&self, schema: &Value) {
        let mut schema = schema.clone();
        schema.as_object_mut().unwrap().remove("cksum");
        let write = format!("mkdir -p {OLD_SCHEMA} && cat > {OLD_SCHEMA}/ovn-nb.ovsschema");
        self.site.machine().run_with_input(&["sh", "-c", &write], &schema.to_string()).unwrap();
    }

    fn serve_all(&self) {
        let raft = [&self.silent, &self.on_slow_disk, &self.other_image, &self.plain, &self.upstream, &self.north];
        raft.iter().chain(&[&self.pair[0], &self.pair[1]]).for_each(|member| self.site.serve(member));
        self.serve_astray();
        raft.iter().chain(&[&self.astray]).for_each(|member| self.site.await_member(member));
        let upstream = format!("tcp:{}:6642", host(self.upstream.number));
        let relay = Program::new("relay", env!("CARGO_BIN_EXE_ovnkube"))
            .arguments([
                "db",
                "relay",
                "--upstream",
                &upstream,
                "--listen",
                "127.0.1.20",
                "--run-dir",
                "/run/site/relay",
            ])
            .arguments(["--metrics-bind-address", RELAY]);
        self.shell("mkdir -p /run/site/relay");
        self.site.lab.run(&relay).unwrap();
        let controller = Program::new("controller", env!("CARGO_BIN_EXE_ovnkube"))
            .arguments(["controller", "--identity", "controller", "--sb-address", &upstream])
            .arguments(["--nb-address", &format!("tcp:{}:6641", host(self.north.number))])
            .arguments(["--metrics-bind-address", CONTROLLER])
            .environment("OVNKUBE_KUBERNETES_SERVICE_CIDRS", "10.96.0.0/16");
        self.site.lab.run(&controller).unwrap();
        until("the pair works", || (self.active().is_some() && self.is_replicating()).then_some(()));
    }

    fn serve_astray(&self) {
        let member = &self.astray;
        self.shell(&format!("mkdir -p {} {}", member.data(), member.run()));
        let program = member.program_as(member.component(), &format!("{}:9104", host(member.number)));
        self.site.lab.run(&self.clock.of(program).unwrap()).unwrap();
    }

    /// The number of the active server of the pair.
    fn active(&self) -> Option<u32> {
        let active = self.watch.prometheus.query("ovn_db_active == 1").unwrap();
        let instance = active.first()?.0["instance"].as_str()?.to_owned();
        [8, 9].into_iter().find(|number| instance.starts_with(&format!("{}:", host(*number))))
    }

    fn is_replicating(&self) -> bool {
        self.watch.query("max(ovn_db_replicating)") == Some(1.0)
    }

    /// Starts a member again, with other arguments.
    fn restart_with(&self, member: &Member, arguments: &[&str]) {
        self.site.stop(member);
        self.site.serve(&member.clone().with(arguments));
    }

    /// Runs in the background until the file `/run/over` exists.
    fn repeat(&self, script: &str) {
        self.shell(&format!("(while [ ! -e /run/over ]; do {script}; done) >/dev/null 2>&1 &"));
    }
}

#[test]
#[ignore = "takes about five minutes: make test-alerts"]
fn alerts_of_single_programs_fire_and_resolve() {
    let programs = Programs::start();
    one_fault_each(&programs);
    no_active_server(&programs);
    programs.watch.assert_complete(PROGRAMS);
}

fn one_fault_each(programs: &Programs) {
    let alerts = [
        "OvnkubeDatabaseNoReply",
        "OvnkubeDatabaseServerOverloaded",
        "OvnkubeDatabaseSlowDisk",
        "OvnkubeDatabaseSchemaNotCurrent",
        "OvnkubeDatabaseAdvice",
        "OvnkubeDatabaseClockJump",
        "OvnkubeDatabaseBackupNotReplicating",
        "OvnkubeRelayDisconnected",
        "OvnkubeTransactionsRefused",
    ];
    programs.watch.resolves(&alerts);
    let Programs { site, .. } = programs;
    programs.shell(&format!("rm {}", programs.silent.control()));
    let disk = programs.on_slow_disk.data();
    let disk = site.lab.slow_disk("control", &disk, Duration::from_secs(3)).unwrap();
    // The server itself writes, so one step takes as long as the disk.
    let socket = format!("unix:{}/ovnnb_db.sock", programs.on_slow_disk.run());
    programs.repeat(&format!("ovn-nbctl --timeout=20 --db={socket} set NB_Global . name=$(date +%s%N); sleep 1"));
    programs.restart_with(&programs.other_image, &["--schema-dir", OLD_SCHEMA]);
    let [key, certificate] = ["key", "crt"].map(|file| format!("{PKI}/{file}"));
    let tls = ["--nb-client-privkey", &key, "--nb-client-cert", &certificate, "--nb-client-cacert", &certificate];
    programs.restart_with(&programs.plain, &tls);
    programs.clock.set(3600).unwrap();
    let active = programs.active().unwrap();
    programs.shell(&format!(
        "nft 'add table inet test; add chain inet test input {{ type filter hook input priority 0; }}; \
         add rule inet test input ip daddr {} tcp dport 6641 drop'",
        endpoint(active)
    ));
    site.stop(&programs.upstream);
    refused_transactions(programs);
    programs.watch.fires(&alerts);

    programs.shell("touch /run/over");
    disk.heal().unwrap();
    programs.restart_with(&programs.silent, &[]);
    programs.restart_with(&programs.other_image, &[]);
    programs.shell("nft delete table inet test");
    site.serve(&programs.upstream);
    // The finding lasts for ten minutes; a new process has seen no jump.
    site.stop(&programs.astray);
    programs.serve_astray();
    new_cluster_with_tls(programs, &tls);
    accepted_transactions(programs);
    programs.watch.resolves(&alerts);
}

/// Somebody converts the northbound database to a schema of their own, which limits the names of load balancers. A refused object
/// is tried again when it changes, so there is a new one every few seconds, until the alert fires.
fn refused_transactions(programs: &Programs) {
    let mut schema = programs.schema();
    schema["tables"]["Load_Balancer"]["columns"]["name"]["type"] =
        serde_json::json!({"key": {"type": "string", "maxLength": 60}});
    programs.write_schema(&schema);
    convert(programs, &format!("{OLD_SCHEMA}/ovn-nb.ovsschema"));
    let create = format!("create service clusterip {LONG}-$(date +%s) --tcp=80");
    programs.repeat(&format!("kubectl {create}; sleep 3"));
}

/// The schema of the image again; what was refused is tried again when it changes.
fn accepted_transactions(programs: &Programs) {
    convert(programs, &format!("{IMAGE}/ovn-nb.ovsschema"));
    programs.shell("kubectl label service --all again=true");
}

fn convert(programs: &Programs, schema: &str) {
    let server = format!("unix:{}/ovnnb_db.sock", programs.north.run());
    programs.site.machine().run(&["ovsdb-client", "--timeout=30", "convert", &server, schema]).unwrap();
}

/// What the finding's message says: backup, then `restore --force`.
fn new_cluster_with_tls(programs: &Programs, tls: &[&str]) {
    let member = &programs.plain;
    let file = format!("{}/copy", member.run());
    for (number, words) in [["backup", file.as_str(), ""], ["restore", &file, "--force"]].iter().enumerate() {
        let (data, run, host) = (member.data(), member.run(), host(member.number));
        let name = format!("command-{number}");
        let program = Program::new(&name, env!("CARGO_BIN_EXE_ovnkube"))
            .environment("OVNKUBE_OVNNORTH_ADDRESS", format!("ssl:{host}:6641"))
            .environment("POD_NAME", format!("member-{}", member.number))
            .arguments(["db", words[0], "nb"])
            .arguments(words[1..].iter().copied().filter(|word| !word.is_empty()))
            .arguments(["--host", &host, "--namespace", &member.namespace, "--data-dir", &data, "--run-dir", &run])
            .arguments(tls.iter().copied());
        programs.site.lab.run(&program).unwrap();
        let status = programs.site.lab.wait_end(&name, LIMIT).unwrap();
        assert!(status.success(), "{}", programs.site.lab.log(&name).unwrap());
    }
}

/// Without the API server no Lease can be renewed, so the active server becomes read-only.
fn no_active_server(programs: &Programs) {
    let alerts = ["OvnkubeDatabaseNoActiveServer"];
    programs.watch.assert_inactive(&alerts);
    let paused = programs.site.lab.pause("kube-apiserver").unwrap();
    programs.watch.fires(&alerts);
    paused.resume().unwrap();
    programs.watch.resolves(&alerts);
}
