//! OVN's central part: the northbound and southbound databases and ovn-northd.

use crate::error::{Error, Result, make_dir};
use crate::machine::Machine;
use crate::pki::{Authority, Identity};
use crate::ready::Ready;
use crate::site::{Component, Extras, Site, side_by_side};
use crate::spec::{Databases, Ovn};
use crate::underlay::{CONTROL, bracketed, database_name};

/// Raft members of each database.
pub const MEMBERS: u32 = 3;

/// One of the two databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// What the network should be.
    Northbound,
    /// What the nodes shall do.
    Southbound,
}

impl Database {
    /// `nb` or `sb`.
    pub fn short(self) -> &'static str {
        match self {
            Self::Northbound => "nb",
            Self::Southbound => "sb",
        }
    }

    /// The schema's name.
    pub fn schema(self) -> &'static str {
        match self {
            Self::Northbound => "OVN_Northbound",
            Self::Southbound => "OVN_Southbound",
        }
    }

    /// The port for clients.
    pub fn port(self) -> u16 {
        match self {
            Self::Northbound => 6641,
            Self::Southbound => 6642,
        }
    }

    fn raft_port(self) -> u16 {
        self.port() + 2
    }

    /// The name of a member's component; member 0 stands for the standalone server.
    pub fn component(self, member: u32) -> String {
        if member == 0 { self.short().to_owned() } else { format!("{}-{member}", self.short()) }
    }

    /// The command socket of a server, on its machine, where OVN's users look for it.
    pub fn control_socket(self) -> String {
        format!("/run/ovn/ovn{}_db.ctl", self.short())
    }
}

const BOTH: [Database; 2] = [Database::Northbound, Database::Southbound];

/// The words that make an OVS program use this identity.
fn tls_options(authority: &Authority, identity: &Identity) -> Vec<String> {
    vec![
        format!("--private-key={}", identity.key.display()),
        format!("--certificate={}", identity.certificate.display()),
        format!("--ca-cert={}", authority.certificate.display()),
    ]
}

/// The machine of a member.
fn machine_of(databases: Databases, member: u32) -> String {
    match databases {
        Databases::Standalone => CONTROL.to_owned(),
        Databases::Raft => database_name(member),
    }
}

fn members(databases: Databases) -> Vec<u32> {
    match databases {
        Databases::Standalone => vec![0],
        Databases::Raft => (1..=MEMBERS).collect(),
    }
}

/// OVN's certificates, if the lab uses TLS.
pub(crate) fn certificates(site: &Site, ovn: &Ovn) -> Result<Option<(Authority, Identity)>> {
    if !ovn.tls {
        return Ok(None);
    }
    let authority = Authority::create(&site.dir().join("pki/ovn"), "ovn-ca")?;
    let mut addresses = Vec::new();
    for member in members(ovn.databases) {
        addresses
            .extend(site.plan.addresses(&machine_of(ovn.databases, member)).iter().map(|address| address.address()));
    }
    // As in production, all of OVN shares one leaf.
    let identity = authority.issue("ovn", "ovn", None, &[CONTROL, "db-1", "db-2", "db-3"], &addresses)?;
    Ok(Some((authority, identity)))
}

/// Starts databases and ovn-northd; returns when a change of NB is seen to reach SB, if there is a northd.
pub(crate) fn start(site: &Site, ovn: &Ovn) -> Result<()> {
    let certificates = certificates(site, ovn)?;
    let options = certificates.as_ref().map_or_else(Vec::new, |(authority, identity)| tls_options(authority, identity));
    let central = Central { site, ovn, options };
    if ovn.databases == Databases::Raft {
        for member in 1..=MEMBERS {
            site.add_attached_machine(&database_name(member), Extras::default())?;
        }
    }
    central.publish()?;
    site.progress.step("OVN databases", || {
        side_by_side(
            BOTH.iter()
                .map(|database| -> Box<dyn FnOnce() -> Result<()> + Send + '_> {
                    Box::new(|| central.start_database(*database))
                })
                .collect(),
        )
    })?;
    central.initialize()?;
    if ovn.northds == 0 {
        // Somebody else will start one; what needs a northd must not be waited for.
        return Ok(());
    }
    site.progress.step("ovn-northd", || central.start_northds())
}

/// Loses all files of a database and creates it anew, empty, at the same addresses; returns when it serves again.
pub(crate) fn recreate(site: &Site, ovn: &Ovn, database: Database) -> Result<()> {
    let central = Central { site, ovn, options: Vec::new() };
    let members = members(ovn.databases);
    for member in &members {
        crate::fault::kill(&site.ledger.read(), &database.component(*member))?;
        let file = database_file(database);
        site.machine(&machine_of(ovn.databases, *member))?.run(&["rm", &file])?;
    }
    for member in members {
        let machine = site.machine(&machine_of(ovn.databases, member))?;
        central.create_file(&machine, database, member, &database_file(database))?;
        site.restart(&database.component(member))?;
        central.await_member(&machine, database, member)?;
    }
    Ok(())
}

fn database_file(database: Database) -> String {
    format!("/var/lib/ovn/ovn{}.db", database.short())
}

struct Central<'a> {
    site: &'a Site,
    ovn: &'a Ovn,
    options: Vec<String>,
}

impl Central<'_> {
    fn scheme(&self) -> &'static str {
        if self.ovn.tls { "ssl" } else { "tcp" }
    }

    /// Tells where the databases will be, before they are: everything that enters a machine wants to know.
    fn publish(&self) -> Result<()> {
        let local = |database| self.join(|member| Ok(self.local(database, member)));
        let remote = |database| {
            self.join(|member| {
                let address = self.site.plan.primary(&machine_of(self.ovn.databases, member))?;
                Ok(format!("{}:{}:{}", self.scheme(), bracketed(address), Database::port(database)))
            })
        };
        let (nb, sb) = (Database::Northbound, Database::Southbound);
        let (northbound, southbound) = (local(nb)?, local(sb)?);
        let (northbound_remote, southbound_remote) = (remote(nb)?, remote(sb)?);
        self.site.ledger.change(|record| {
            let endpoints = &mut record.endpoints;
            endpoints.northbound = Some(northbound);
            endpoints.southbound = Some(southbound);
            endpoints.northbound_remote = Some(northbound_remote);
            endpoints.southbound_remote = Some(southbound_remote);
        })
    }

    fn join(&self, remote: impl Fn(u32) -> Result<String>) -> Result<String> {
        Ok(members(self.ovn.databases).into_iter().map(remote).collect::<Result<Vec<_>>>()?.join(","))
    }

    /// The unix socket of a server, by a path that holds on the host and on every machine.
    fn local(&self, database: Database, member: u32) -> String {
        let run = self.site.machine_dir(&machine_of(self.ovn.databases, member)).join("run");
        format!("unix:{}", run.join(format!("ovn/ovn{}_db.sock", database.short())).display())
    }

    fn start_database(&self, database: Database) -> Result<()> {
        match self.ovn.databases {
            Databases::Standalone => self.start_server(database, 0),
            Databases::Raft => {
                self.start_server(database, 1)?;
                side_by_side(
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
        let machine = self.site.machine(&machine_of(self.ovn.databases, member))?;
        let file = database_file(database);
        self.create_file(&machine, database, member, &file)?;
        make_dir(&self.site.machine_dir(&machine.name).join("run/ovn"))?;
        let any = if self.site.spec.family.has_v6() { "[::]" } else { "0.0.0.0" };
        let socket = format!("/run/ovn/ovn{}_db.sock", database.short());
        let mut words = vec![
            "ovsdb-server".to_owned(),
            "-vconsole:info".into(),
            "-vsyslog:off".into(),
            "-vfile:off".into(),
            format!("--pidfile=/run/ovn/ovn{}_db.pid", database.short()),
            format!("--unixctl={}", database.control_socket()),
            format!("--remote=punix:{socket}"),
            format!("--remote=p{}:{}:{any}", self.scheme(), database.port()),
        ];
        words.extend(self.options.clone());
        words.push(file);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let appears = self.site.machine_dir(&machine.name).join(socket.trim_start_matches('/'));
        self.site.start(Component::new(database.component(member), &machine.name, Ready::Path(appears), &words))?;
        self.await_member(&machine, database, member)
    }

    /// Returns at the moment when a raft member has joined and knows a leader.
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
                bracketed(self.site.plan.primary(&database_name(member))?),
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

    /// Makes the one row of settings in each database, and the folder that a northd, whoever starts it, needs.
    fn initialize(&self) -> Result<()> {
        make_dir(&self.site.machine_dir(CONTROL).join("run/ovn"))?;
        let control = self.site.machine(CONTROL)?;
        control.run(&["ovn-nbctl", "--timeout=60", "init"])?;
        control.run(&["ovn-sbctl", "--timeout=60", "init"])?;
        Ok(())
    }

    fn start_northds(&self) -> Result<()> {
        let control = self.site.machine(CONTROL)?;
        let endpoints = self.site.ledger.read().endpoints.clone();
        let missing = || Error::Invalid("the databases were not published".into());
        let northbound = format!("--ovnnb-db={}", endpoints.northbound_remote.ok_or_else(missing)?);
        let southbound = format!("--ovnsb-db={}", endpoints.southbound_remote.ok_or_else(missing)?);
        for index in 1..=self.ovn.northds {
            let name = if self.ovn.northds == 1 { "northd".to_owned() } else { format!("northd-{index}") };
            let socket = format!("/run/ovn/{name}.ctl");
            let unixctl = format!("--unixctl={socket}");
            let pidfile = format!("--pidfile=/run/ovn/{name}.pid");
            let mut words = vec![
                "ovn-northd",
                "-vconsole:info",
                "-vsyslog:off",
                "-vfile:off",
                &unixctl,
                &pidfile,
                &northbound,
                &southbound,
            ];
            words.extend(self.options.iter().map(String::as_str));
            let appears = self.site.machine_dir(CONTROL).join(socket.trim_start_matches('/'));
            self.site.start(Component::new(name, CONTROL, Ready::Path(appears), &words))?;
        }
        // Returns when northd has copied NB's sequence number to SB.
        control.run(&["ovn-nbctl", "--timeout=60", "--wait=sb", "sync"])?;
        Ok(())
    }
}
