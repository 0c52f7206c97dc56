//! OVN central: the northbound and southbound databases and ovn-northd.

use crate::error::{Error, Result, create_dir};
use crate::machine::Machine;
use crate::pki::{Authority, Identity};
use crate::ready::Ready;
use crate::spec::{Databases, LabSpec, Ovn};
use crate::supervisor::{Component, MachineOptions, Supervisor, run_parallel};
use crate::underlay::{CONTROL, bracketed, database_name, node_name};

pub(crate) const MEMBERS: u32 = 3;

/// One of OVN's two central databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// Logical networks, written by the controller.
    Northbound,
    /// Logical flows, bindings and chassis, written by northd and ovn-controllers.
    Southbound,
}

impl Database {
    /// `nb` or `sb`, as in file and component names.
    pub fn short(self) -> &'static str {
        match self {
            Self::Northbound => "nb",
            Self::Southbound => "sb",
        }
    }

    /// As in OVSDB requests, such as `OVN_Northbound`.
    pub fn schema(self) -> &'static str {
        match self {
            Self::Northbound => "OVN_Northbound",
            Self::Southbound => "OVN_Southbound",
        }
    }

    /// TCP port for clients; raft members use another.
    pub fn port(self) -> u16 {
        match self {
            Self::Northbound => 6641,
            Self::Southbound => 6642,
        }
    }

    fn raft_port(self) -> u16 {
        self.port() + 2
    }

    /// The component that runs a raft member; member 0 is the standalone server.
    pub fn component(self, member: u32) -> String {
        if member == 0 { self.short().to_owned() } else { format!("{}-{member}", self.short()) }
    }

    /// The `ovn-appctl` socket of a server, at its usual path on its machine.
    pub fn control_socket(self) -> String {
        format!("/run/ovn/ovn{}_db.ctl", self.short())
    }
}

const DATABASES: [Database; 2] = [Database::Northbound, Database::Southbound];

fn tls_options(authority: &Authority, identity: &Identity) -> Vec<String> {
    vec![
        format!("--private-key={}", identity.key.display()),
        format!("--certificate={}", identity.certificate.display()),
        format!("--ca-cert={}", authority.certificate.display()),
    ]
}

/// The machine of a raft member.
fn machine_of(databases: Databases, member: u32) -> String {
    match databases {
        Databases::Standalone => CONTROL.to_owned(),
        Databases::Raft | Databases::Machines => database_name(member),
        Databases::Pods | Databases::ActiveBackup => node_name(member),
    }
}

fn members(spec: &LabSpec, databases: Databases) -> Vec<u32> {
    match databases {
        Databases::Standalone => vec![0],
        Databases::Raft | Databases::Machines => (1..=MEMBERS).collect(),
        Databases::Pods | Databases::ActiveBackup => (1..=spec.control_planes).collect(),
    }
}

/// OVN's certificates; `None` without TLS, and if ovnkube creates them.
fn certificates(supervisor: &Supervisor, ovn: &Ovn) -> Result<Option<(Authority, Identity)>> {
    if !ovn.tls || supervisor.spec.has_signer() {
        return Ok(None);
    }
    let authority = Authority::create(&supervisor.dir().join("pki/ovn"), "ovn-ca")?;
    let mut addresses = Vec::new();
    for member in members(&supervisor.spec, ovn.databases) {
        addresses.extend(
            supervisor.plan.addresses(&machine_of(ovn.databases, member)).iter().map(|address| address.address()),
        );
    }
    // As in production, all OVN programs share one certificate; scrapers of metrics check the names `ovn` and
    // `ovnkube-node`.
    let identity =
        authority.issue("ovn", "ovn", None, &["ovn", "ovnkube-node", CONTROL, "db-1", "db-2", "db-3"], &addresses)?;
    Ok(Some((authority, identity)))
}

/// Starts the databases and ovn-northd; returns when a change of NB has reached SB (with a northd).
pub(crate) fn start(supervisor: &Supervisor, ovn: &Ovn) -> Result<()> {
    let certificates = certificates(supervisor, ovn)?;
    let options = certificates.as_ref().map_or_else(Vec::new, |(authority, identity)| tls_options(authority, identity));
    let central = Central { supervisor, ovn, options };
    if matches!(ovn.databases, Databases::Raft | Databases::Machines) {
        for member in 1..=MEMBERS {
            supervisor.add_addressed_machine(&database_name(member), MachineOptions::default())?;
        }
    }
    central.publish()?;
    if ovn.databases.in_pods() || ovn.databases == Databases::Machines {
        return Ok(());
    }
    supervisor.progress.step("OVN databases", || {
        run_parallel(
            DATABASES
                .iter()
                .map(|database| -> Box<dyn FnOnce() -> Result<()> + Send + '_> {
                    Box::new(|| central.start_database(*database))
                })
                .collect(),
        )
    })?;
    central.initialize()?;
    if ovn.northds == 0 {
        // The program under test starts northd, so nothing that needs one can be waited for.
        return Ok(());
    }
    supervisor.progress.step("ovn-northd", || central.start_northds())
}

/// Deletes all files of a database and recreates it, empty, at the same addresses; returns when it serves again.
pub(crate) fn recreate(supervisor: &Supervisor, ovn: &Ovn, database: Database) -> Result<()> {
    let central = Central { supervisor, ovn, options: Vec::new() };
    let members = members(&supervisor.spec, ovn.databases);
    for member in &members {
        crate::fault::kill(&supervisor.record_file.read(), &database.component(*member))?;
        let file = database_file(database);
        supervisor.machine(&machine_of(ovn.databases, *member))?.run(&["rm", &file])?;
    }
    for member in members {
        let machine = supervisor.machine(&machine_of(ovn.databases, member))?;
        central.create_file(&machine, database, member, &database_file(database))?;
        supervisor.restart(&database.component(member))?;
        central.await_member(&machine, database, member)?;
    }
    Ok(())
}

fn database_file(database: Database) -> String {
    format!("/var/lib/ovn/ovn{}.db", database.short())
}

struct Central<'a> {
    supervisor: &'a Supervisor,
    ovn: &'a Ovn,
    options: Vec<String>,
}

impl Central<'_> {
    fn scheme(&self) -> &'static str {
        if self.ovn.tls { "ssl" } else { "tcp" }
    }

    /// Records the addresses of the databases before they run: the environment of every machine contains them.
    fn publish(&self) -> Result<()> {
        let local = |database| self.join(|member| Ok(self.local(database, member)));
        let remote = |database| {
            self.join(|member| {
                let address = self.supervisor.plan.primary(&machine_of(self.ovn.databases, member))?;
                Ok(format!("{}:{}:{}", self.scheme(), bracketed(address), Database::port(database)))
            })
        };
        let (nb, sb) = (Database::Northbound, Database::Southbound);
        let (northbound, southbound) = (local(nb)?, local(sb)?);
        let (northbound_remote, southbound_remote) = (remote(nb)?, remote(sb)?);
        self.supervisor.record_file.change(|record| {
            let endpoints = &mut record.endpoints;
            endpoints.northbound = Some(northbound);
            endpoints.southbound = Some(southbound);
            endpoints.northbound_remote = Some(northbound_remote);
            endpoints.southbound_remote = Some(southbound_remote);
        })
    }

    fn join(&self, remote: impl Fn(u32) -> Result<String>) -> Result<String> {
        Ok(members(&self.supervisor.spec, self.ovn.databases)
            .into_iter()
            .map(remote)
            .collect::<Result<Vec<_>>>()?
            .join(","))
    }

    /// The unix socket of a server: the path is valid on the host and on every machine.
    fn local(&self, database: Database, member: u32) -> String {
        let run = self.supervisor.machine_dir(&machine_of(self.ovn.databases, member)).join("run");
        format!("unix:{}", run.join(format!("ovn/ovn{}_db.sock", database.short())).display())
    }

    fn start_database(&self, database: Database) -> Result<()> {
        match self.ovn.databases {
            Databases::Standalone => self.start_server(database, 0),
            Databases::Pods | Databases::ActiveBackup | Databases::Machines => Ok(()),
            Databases::Raft => {
                self.start_server(database, 1)?;
                run_parallel(
                    (2..=MEMBERS)
                        .map(|member| -> Box<dyn FnOnce() -> Result<()> + Send + '_> {
                            Box::new(move || self.start_server(database, member))
                        })
                        .collect(),
                )
            }
        }
    }

    fn start_server(&self, database: Database, member: u32) -> Result<()> {
        let machine = self.supervisor.machine(&machine_of(self.ovn.databases, member))?;
        let file = database_file(database);
        self.create_file(&machine, database, member, &file)?;
        create_dir(&self.supervisor.machine_dir(&machine.name).join("run/ovn"))?;
        let any = if self.supervisor.spec.family.has_v6() { "[::]" } else { "0.0.0.0" };
        let socket = format!("/run/ovn/ovn{}_db.sock", database.short());
        let mut args = vec![
            "ovsdb-server".to_owned(),
            "-vconsole:info".into(),
            "-vsyslog:off".into(),
            "-vfile:off".into(),
            format!("--pidfile=/run/ovn/ovn{}_db.pid", database.short()),
            format!("--unixctl={}", database.control_socket()),
            format!("--remote=punix:{socket}"),
            format!("--remote=p{}:{}:{any}", self.scheme(), database.port()),
        ];
        args.extend(self.options.clone());
        args.push(file);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let socket_path = self.supervisor.machine_dir(&machine.name).join(socket.trim_start_matches('/'));
        self.supervisor.start(Component::new(
            database.component(member),
            &machine.name,
            Ready::Path(socket_path),
            &args,
        ))?;
        self.await_member(&machine, database, member)
    }

    /// Returns when a raft member has joined and knows a leader. Only while a cluster is built, where each member joins
    /// the members before it. Not a [`Component`]'s ready command: a restarted member may have to run without a quorum.
    fn await_member(&self, machine: &Machine, database: Database, member: u32) -> Result<()> {
        if member > 0 {
            let socket = format!("unix:/run/ovn/ovn{}_db.sock", database.short());
            machine.run(&["ovsdb-client", "--timeout=60", "wait", &socket, database.schema(), "connected"])?;
        }
        Ok(())
    }

    fn create_file(&self, machine: &Machine, database: Database, member: u32, file: &str) -> Result<()> {
        let schema = format!("/usr/share/ovn/ovn-{}.ovsschema", database.short());
        machine.run(&["mkdir", "-p", "/var/lib/ovn"])?;
        let raft = |member: u32| -> Result<String> {
            Ok(format!(
                "{}:{}:{}",
                self.scheme(),
                bracketed(self.supervisor.plan.primary(&database_name(member))?),
                database.raft_port()
            ))
        };
        match member {
            0 => machine.run(&["ovsdb-tool", "create", file, &schema])?,
            1 => {
                let timer = format!("--election-timer={}", self.ovn.election_timer);
                machine.run(&["ovsdb-tool", &timer, "create-cluster", file, &schema, &raft(1)?])?
            }
            _ => machine.run(&["ovsdb-tool", "join-cluster", file, database.schema(), &raft(member)?, &raft(1)?])?,
        };
        Ok(())
    }

    /// Creates the global row of each database, and the directory that northd needs.
    fn initialize(&self) -> Result<()> {
        create_dir(&self.supervisor.machine_dir(CONTROL).join("run/ovn"))?;
        let control = self.supervisor.machine(CONTROL)?;
        control.run(&["ovn-nbctl", "--timeout=60", "init"])?;
        control.run(&["ovn-sbctl", "--timeout=60", "init"])?;
        Ok(())
    }

    fn start_northds(&self) -> Result<()> {
        let control = self.supervisor.machine(CONTROL)?;
        let endpoints = self.supervisor.record_file.read().endpoints.clone();
        let missing = || Error::Invalid("the database addresses are not recorded".into());
        let northbound = format!("--ovnnb-db={}", endpoints.northbound_remote.ok_or_else(missing)?);
        let southbound = format!("--ovnsb-db={}", endpoints.southbound_remote.ok_or_else(missing)?);
        for index in 1..=self.ovn.northds {
            let name = if self.ovn.northds == 1 { "northd".to_owned() } else { format!("northd-{index}") };
            let socket = format!("/run/ovn/{name}.ctl");
            let unixctl = format!("--unixctl={socket}");
            let pidfile = format!("--pidfile=/run/ovn/{name}.pid");
            let mut args = vec![
                "ovn-northd",
                "-vconsole:info",
                "-vsyslog:off",
                "-vfile:off",
                &unixctl,
                &pidfile,
                &northbound,
                &southbound,
            ];
            args.extend(self.options.iter().map(String::as_str));
            let socket_path = self.supervisor.machine_dir(CONTROL).join(socket.trim_start_matches('/'));
            self.supervisor.start(Component::new(name, CONTROL, Ready::Path(socket_path), &args))?;
        }
        // Returns when northd has copied nb_cfg to SB.
        control.run(&["ovn-nbctl", "--timeout=60", "--wait=sb", "sync"])?;
        Ok(())
    }
}
