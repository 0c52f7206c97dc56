//! Certificates of deleted Nodes: random lives of Nodes, gaps in what the signer sees, and signers that stop halfway, compared with an
//! oracle that knows the history.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use pki::{Absences, Fingerprint, Grant, KnownNode, NodeCertificate, Record, Revoked};
use proptest::prelude::*;

/// Seconds.
const GRACE: u64 = 100;
const LONGEST_GAP: u64 = 120;
const LIFETIME: u64 = 2000;

#[derive(Debug, Clone)]
enum Event {
    Delete(usize),
    /// With a new UID.
    Create(usize),
    /// With the UID that it had: from a backup of etcd.
    Restore(usize),
    /// The node gets a certificate for a chassis, if it may.
    Issue(usize, usize),
    Wait(u64),
    /// A look of the signer.
    Look(Look),
    /// Another signer leads.
    Restart,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Look {
    Complete,
    /// The list of Nodes failed.
    Failed,
    /// The signer stops after it has revoked.
    Halfway,
}

/// What the oracle knows of a look: when, and the recorded UIDs of which no Node exists; none if it failed.
type Seen = (u64, Option<BTreeSet<String>>);

struct World {
    start: Instant,
    now: u64,
    uids: usize,
    nodes: BTreeMap<String, KnownNode>,
    former: BTreeMap<String, String>,
    record: BTreeMap<String, String>,
    revoked: String,
    absences: Absences,
    /// UID of its Node, by certificate.
    issued: Vec<(String, NodeCertificate)>,
    /// Since the signer leads.
    history: Vec<Seen>,
}

fn moment(seconds: u64) -> Timestamp {
    Timestamp::from_second(1_900_000_000 + i64::try_from(seconds).unwrap()).unwrap()
}

impl World {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            now: 0,
            uids: 0,
            nodes: BTreeMap::new(),
            former: BTreeMap::new(),
            record: BTreeMap::new(),
            revoked: String::new(),
            absences: Absences::default(),
            issued: Vec::new(),
            history: Vec::new(),
        }
    }

    /// As it is in the ConfigMap.
    fn record(&self) -> Record {
        Record::parse(self.record.iter().map(|(chassis, text)| (chassis.as_str(), text.as_str())))
    }

    fn happen(&mut self, event: &Event) {
        match *event {
            Event::Delete(node) => {
                if let Some(known) = self.nodes.remove(&name(node)) {
                    self.former.insert(name(node), known.uid);
                }
            }
            Event::Create(node) => {
                self.uids += 1;
                let new = KnownNode { uid: format!("u{}", self.uids), chassis: None };
                self.nodes.entry(name(node)).or_insert(new);
            }
            Event::Restore(node) => {
                if let Some(uid) = self.former.get(&name(node)) {
                    let before = KnownNode { uid: uid.clone(), chassis: None };
                    self.nodes.entry(name(node)).or_insert(before);
                }
            }
            Event::Issue(node, chassis) => self.issue(&name(node), &format!("c{chassis}")),
            Event::Wait(seconds) => self.now += seconds,
            Event::Look(look) => self.look(look),
            Event::Restart => {
                self.absences = Absences::default();
                self.history.clear();
            }
        }
    }

    fn issue(&mut self, node: &str, chassis: &str) {
        let Some(known) = self.nodes.get(node) else { return };
        let mut record = self.record();
        let exists = |uid: &str| self.nodes.values().any(|node| node.uid == uid);
        if record.claim(chassis).unwrap().is_some_and(|held| held.node_uid != known.uid && exists(&held.node_uid)) {
            return;
        }
        let certificate = NodeCertificate {
            fingerprint: Fingerprint::from_hex(&format!("{:064x}", self.issued.len())).unwrap(),
            not_after: moment(self.now + LIFETIME),
            issued: moment(self.now),
            issuer: "CN=ca".into(),
        };
        let grant = Grant {
            chassis: chassis.into(),
            node: node.into(),
            node_uid: known.uid.clone(),
            names: BTreeSet::new(),
            public_key: Vec::new(),
        };
        record.add(&grant, certificate.clone());
        // As the signer does before it writes.
        record.prune(&BTreeSet::new(), &Revoked::parse(&self.revoked), moment(self.now));
        self.record = record.data();
        self.issued.push((grant.node_uid, certificate));
    }

    /// As the role does.
    fn look(&mut self, look: Look) {
        let now = self.start + Duration::from_secs(self.now);
        let mut record = self.record();
        let complete = (look != Look::Failed).then_some(&self.nodes);
        let deleted = self.absences.look(&record, complete, Duration::from_secs(GRACE), now);
        let before = Revoked::parse(&self.revoked);
        let mut text = Revoked::without_expired(&self.revoked, moment(self.now));
        for (chassis, claim) in record.unrevoked(&deleted, &before, moment(self.now)) {
            text = claim.certificates.iter().fold(text, |text, one| Revoked::add(&text, one, chassis));
        }
        self.revoked = text;
        let exists = |uid: &str| self.nodes.values().any(|node| node.uid == uid);
        let recorded = record.holders().map(|(_, claim)| claim.node_uid.clone());
        let uids = complete.map(|_| recorded.filter(|uid| !exists(uid)).collect());
        self.history.push((self.now, uids));
        self.compare(&before);
        if look != Look::Halfway {
            record.prune(&deleted, &Revoked::parse(&self.revoked), moment(self.now));
            self.record = record.data();
        }
    }

    /// Exactly the certificates of Nodes that were absent in each look of the grace period are revoked.
    fn compare(&self, before: &Revoked) {
        let after = Revoked::parse(&self.revoked);
        for (uid, certificate) in self.issued.iter().filter(|(_, one)| one.not_after > moment(self.now)) {
            let (was, is) = (before.contains(certificate.fingerprint), after.contains(certificate.fingerprint));
            let due = self.absent_for(uid).is_some_and(|seconds| seconds >= GRACE);
            assert_eq!(
                is,
                was || due,
                "{} of {uid} at {}: {:?}",
                certificate.fingerprint.hex(),
                self.now,
                self.history
            );
        }
    }

    /// For how long a UID has been absent without a gap, up to now.
    fn absent_for(&self, uid: &str) -> Option<u64> {
        let mut since = None;
        for (time, uids) in self.history.iter().rev() {
            let is_absent = uids.as_ref().is_some_and(|uids| uids.contains(uid));
            if !is_absent || since.is_some_and(|later: u64| later - time > LONGEST_GAP) {
                break;
            }
            since = Some(*time);
        }
        since.map(|since| self.now - since)
    }

    /// Nothing is forgotten before it is revoked.
    fn check(&self) {
        let (record, revoked) = (self.record(), Revoked::parse(&self.revoked));
        for (uid, certificate) in self.issued.iter().filter(|(_, one)| one.not_after > moment(self.now)) {
            let is_recorded = record.of_node(uid).any(|one| one == certificate);
            assert!(is_recorded || revoked.contains(certificate.fingerprint), "{uid}: {certificate:?} is forgotten");
        }
    }
}

fn name(node: usize) -> String {
    format!("n{node}")
}

fn event() -> impl Strategy<Value = Event> {
    let look = prop_oneof![6 => Just(Look::Complete), 1 => Just(Look::Failed), 1 => Just(Look::Halfway)];
    prop_oneof![
        2 => (0..3usize).prop_map(Event::Delete),
        2 => (0..3usize).prop_map(Event::Create),
        1 => (0..3usize).prop_map(Event::Restore),
        3 => (0..3usize, 0..2usize).prop_map(|(node, chassis)| Event::Issue(node, chassis)),
        6 => prop_oneof![8 => 1..60u64, 1 => 100..140u64, 1 => Just(LIFETIME)].prop_map(Event::Wait),
        8 => look.prop_map(Event::Look),
        1 => Just(Event::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn certificates_of_deleted_nodes_are_revoked_and_no_others(events in prop::collection::vec(event(), 0..120)) {
        let mut world = World::new();
        for event in &events {
            world.happen(event);
            world.check();
        }
        // In the end, nothing of a Node that does not exist is left.
        for _ in 0..12 {
            world.happen(&Event::Wait(10));
            world.happen(&Event::Look(Look::Complete));
        }
        let exists = |uid: &str| world.nodes.values().any(|node| node.uid == uid);
        let record = world.record();
        prop_assert!(record.holders().all(|(_, claim)| exists(&claim.node_uid)), "{record:?}");
    }
}

#[test]
fn a_node_that_returns_within_the_grace_keeps_its_certificates() {
    let mut world = World::new();
    let looks = |world: &mut World, seconds: u64| {
        for _ in 0..seconds / 10 {
            world.happen(&Event::Wait(10));
            world.happen(&Event::Look(Look::Complete));
        }
    };
    for event in [Event::Create(0), Event::Create(1), Event::Issue(0, 0), Event::Issue(1, 1), Event::Delete(0)] {
        world.happen(&event);
    }
    looks(&mut world, GRACE);
    world.happen(&Event::Restore(0));
    looks(&mut world, 2 * GRACE);
    assert_eq!((world.revoked.as_str(), world.record.len()), ("", 2));
    // An outage in the middle of the grace period.
    world.happen(&Event::Delete(0));
    looks(&mut world, GRACE);
    world.happen(&Event::Look(Look::Failed));
    looks(&mut world, GRACE);
    assert_eq!(world.revoked, "");
    // Another machine with its name.
    world.happen(&Event::Create(0));
    looks(&mut world, 20);
    assert_eq!((Revoked::parse(&world.revoked).len(), world.record.len()), (1, 1));
}
