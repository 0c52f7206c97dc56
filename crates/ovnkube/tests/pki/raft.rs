//! A rotation of the CA over three raft members, each of which gets each file at another time, under writes: no member loses the
//! quorum, and no write fails. Then every member is restarted, in the middle of a rotation.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use lab::tcp_forwarder::TcpForwarder;
use lab::{Database, Databases, Family, Lab, LabSpec, Ovn};
use ovsdb::client::{Client, Config, TableMonitor};
use ovsdb::transaction::{Row, Transaction};

use crate::site::{LIMIT, Pki, create, until};

const MEMBERS: [u32; 3] = [1, 2, 3];

/// Writes through whichever member leads. A client's own files are always those of `pki`.
struct Writer {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    thread: JoinHandle<(BTreeSet<String>, Vec<String>)>,
}

impl Writer {
    fn start(remotes: &str, pki: &Pki, purpose: &'static str) -> Self {
        let (stop, count) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let mut config = Config::new(ovsdb::client::Remote::parse_list(remotes).unwrap(), "OVN_Northbound")
            .monitor(TableMonitor::new("Address_Set").columns(&["name"]));
        config.tls = Some(pki.tls());
        config.backoff.longest = Duration::from_millis(200);
        let (stopped, counted) = (stop.clone(), count.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let client = Client::start(config);
                client.connected(LIMIT).await.unwrap();
                let (mut acknowledged, mut failed) = (BTreeSet::new(), Vec::new());
                let mut number = 0;
                while !stopped.load(Ordering::Relaxed) {
                    let name = format!("{purpose}-{number}");
                    number += 1;
                    let mut transaction = Transaction::new();
                    transaction.insert("Address_Set", Row::new().text("name", &name));
                    match client.transact(&transaction).await {
                        Ok(_) => {
                            acknowledged.insert(name);
                            counted.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => {
                            failed.push(format!("{name}: {error}"));
                            let _ = client.connected(LIMIT).await;
                        }
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                (acknowledged, failed)
            })
        });
        Self { stop, count, thread }
    }

    /// Waits for some more writes.
    fn await_writes(&self) {
        let enough = self.count.load(Ordering::Relaxed) + 5;
        until("more writes", || match self.count.load(Ordering::Relaxed) {
            now if now >= enough => Ok(()),
            now => Err(format!("{now} of {enough}")),
        });
    }

    /// The acknowledged names, and the failures.
    fn stop(self) -> (BTreeSet<String>, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

struct Members {
    lab: Lab,
    /// The files of each member, which it finds in the place of the lab's.
    pki: [Pki; 3],
}

impl Members {
    fn start() -> Self {
        // A busy machine must not be the cause of an election.
        let ovn = Ovn { databases: Databases::Raft, northds: 0, election_timer: 5000, ..Ovn::default() };
        let lab = Lab::start(LabSpec::for_test("pki-raft").unwrap().family(Family::V4).ovn(ovn)).unwrap();
        let shared = Pki::of(&lab);
        let pki = MEMBERS.map(|member| {
            let own = Pki(shared.path(&format!("db-{member}")));
            std::fs::create_dir_all(&own.0).unwrap();
            for file in ["ca.crt", "ovn.crt", "ovn.key"] {
                std::fs::copy(shared.path(file), own.path(file)).unwrap();
            }
            let machine = lab.machine(&format!("db-{member}")).unwrap();
            let (own_path, place) = (own.0.display().to_string(), shared.0.display().to_string());
            machine.run(&["mount", "--bind", &own_path, &place]).unwrap();
            own
        });
        Self { lab, pki }
    }

    fn control(&self, member: u32, command: &str) -> Result<String, String> {
        let machine = self.lab.machine(&format!("db-{member}")).unwrap();
        let words = ["ovn-appctl", "-t", "/run/ovn/ovnnb_db.ctl", command, "OVN_Northbound"];
        machine.run(&words).map_err(|error| error.to_string())
    }

    /// The terms of all members, each with a leader and connections to both others.
    fn terms(&self) -> Result<BTreeSet<String>, String> {
        let mut terms = BTreeSet::new();
        for member in MEMBERS {
            let status = self.control(member, "cluster/status")?;
            let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim();
            // A connection that is not established is in parentheses.
            let connections = line("Connections:").split_whitespace().filter(|word| !word.contains('(')).count();
            if line("Leader:") == "unknown" || line("Status:") != "cluster member" || connections != 4 {
                return Err(status);
            }
            terms.insert(line("Term:").to_owned());
        }
        Ok(terms)
    }

    fn await_complete(&self) {
        until("all members are connected", || self.terms().map(drop));
    }

    /// The certificate that a member shows to a new client.
    fn shown(&self, member: u32) -> String {
        let machine = self.lab.machine(&format!("db-{member}")).unwrap();
        let show =
            "echo | timeout 10 openssl s_client -connect localhost:6641 2>/dev/null | openssl x509 -noout -issuer";
        machine.run(&["sh", "-c", show]).unwrap_or_default()
    }

    fn restart(&self, member: u32) {
        let component = Database::Northbound.component(member);
        self.lab.kill(&component).unwrap();
        self.lab.restart(&component).unwrap();
        self.await_complete();
    }
}

#[test]
fn a_rotation_of_the_ca_costs_raft_members_no_quorum_and_no_write() {
    let members = Members::start();
    let forwarders = MEMBERS.map(|member| {
        let machine = members.lab.machine(&format!("db-{member}")).unwrap();
        let target = "127.0.0.1:6641".parse().unwrap();
        TcpForwarder::start(machine, target, None).unwrap()
    });
    let remotes = forwarders.each_ref().map(|forwarder| format!("ssl:{}", forwarder.address())).join(",");
    let client = Pki::of(&members.lab);
    let next = create(&client.path("next"), "next-ca");
    let (old_ca, new_ca) = (client.read("ca.crt"), next.read("ca.crt"));
    let both = [&old_ca[..], &new_ca[..]].concat();
    let former = Pki(client.path("former"));
    std::fs::create_dir_all(&former.0).unwrap();
    for file in ["ovn.crt", "ovn.key"] {
        std::fs::copy(client.path(file), former.path(file)).unwrap();
    }
    std::fs::write(former.path("ca.crt"), &both).unwrap();
    members.await_complete();
    let terms = members.terms().unwrap();

    let writer = Writer::start(&remotes, &client, "steady");
    writer.await_writes();
    // Both CAs everywhere, then the new certificate on one member after the other.
    for pki in members.pki.iter().chain([&client]) {
        pki.replace("ca.crt", &both);
    }
    for (member, pki) in MEMBERS.iter().zip(&members.pki) {
        pki.replace_identity(&next);
        until("the new certificate", || {
            let shown = members.shown(*member);
            if shown.contains("next-ca") { Ok(()) } else { Err(format!("member {member} shows {shown:?}")) }
        });
        writer.await_writes();
    }
    client.replace_identity(&next);
    let (acknowledged, failed) = writer.stop();
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(members.terms().unwrap(), terms, "no election");

    // Mixed: one member still has the former certificate, one only the new CA. Every connection between members is made again.
    let writer = Writer::start(&remotes, &client, "restarts");
    members.pki[0].replace_identity(&former);
    members.restart(1);
    members.restart(2);
    members.pki[0].replace_identity(&next);
    members.restart(3);
    members.restart(1);
    writer.await_writes();
    let (more, _) = writer.stop();

    // The former CA is retired. Members that are not restarted refuse it as well.
    for pki in members.pki.iter().chain([&client]) {
        pki.replace("ca.crt", &new_ca);
    }
    let ask = |remote: &str, pki: &Pki, more: &[&str]| {
        let file = |file: &str| pki.path(file).display().to_string();
        std::process::Command::new(env!("CARGO_BIN_EXE_ovnkube"))
            .args(["ovsdb", "dump", remote, "OVN_Northbound", "Address_Set", "--columns", "name", "--timeout", "10"])
            .args(["-p", &file("ovn.key"), "-c", &file("ovn.crt"), "-C", &file("ca.crt")])
            .args(more)
            .output()
            .unwrap()
    };
    for forwarder in &forwarders {
        let remote = format!("ssl:{}", forwarder.address());
        let accepted = ask(&remote, &client, &["--no-leader-only"]);
        assert!(accepted.status.success(), "{accepted:?}");
        let refused = ask(&remote, &former, &["--no-leader-only"]);
        assert!(!refused.status.success(), "a certificate of the retired CA was accepted at {remote}");
    }
    members.restart(2);
    let found = String::from_utf8(ask(&remotes, &client, &[]).stdout).unwrap();
    let rows: BTreeSet<String> = found.lines().map(|line| line.trim().to_owned()).collect();
    assert!(acknowledged.is_subset(&rows) && more.is_subset(&rows), "acknowledged writes are lost");
}
