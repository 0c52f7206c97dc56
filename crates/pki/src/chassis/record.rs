//! The record of issued certificates: ConfigMap `ovn-chassis`, a key for each chassis.
//!
//! ```json
//! {"node":"n1","nodeUid":"…","certificates":[{"fingerprint":"…","notAfter":"…","issued":"…","issuer":"…"}],"former":[…]}
//! ```
//!
//! **Invariant.** A certificate leaves the record only when it has expired or is revoked: another one cannot be revoked any more.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::certificate::{Certificate, Fingerprint};
use crate::chassis::judge::Grant;
use crate::chassis::revoked::Revoked;
use crate::stored::Issuance;

/// A certificate of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCertificate {
    /// Identifies it.
    pub fingerprint: Fingerprint,
    /// End of its validity.
    pub not_after: Timestamp,
    /// When it was issued.
    pub issued: Timestamp,
    /// Subject of its CA.
    pub issuer: String,
}

/// A chassis that belongs to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Name of the Node.
    pub node: String,
    /// Its UID.
    pub node_uid: String,
    /// The certificates that have not expired, oldest first.
    pub certificates: Vec<NodeCertificate>,
}

#[derive(Deserialize, Serialize)]
struct EntryText {
    #[serde(flatten)]
    holder: ClaimText,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    former: Vec<ClaimText>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClaimText {
    node: String,
    node_uid: String,
    #[serde(default)]
    certificates: Vec<CertificateText>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificateText {
    fingerprint: String,
    not_after: String,
    issued: String,
    #[serde(default)]
    issuer: String,
}

/// The content of the ConfigMap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    claims: BTreeMap<String, Claim>,
    /// Nodes that held a chassis before, while they have certificates that nobody has revoked.
    former: BTreeMap<String, Vec<Claim>>,
    /// Values that cannot be read, and why; they stay as they are.
    damaged: BTreeMap<String, (String, String)>,
}

impl NodeCertificate {
    /// The entry of a certificate that was issued at a time.
    pub fn new(certificate: &Certificate, issued: Timestamp) -> Self {
        let (fingerprint, not_after) = (certificate.fingerprint, certificate.not_after);
        Self { fingerprint, not_after, issued, issuer: certificate.issuer.clone() }
    }
}

impl Record {
    /// Parses the data of the ConfigMap. A value that cannot be read affects no other.
    pub fn parse<'a>(data: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut record = Self::default();
        for (chassis, text) in data {
            match entry(text) {
                Ok((claim, former)) => {
                    record.claims.insert(chassis.to_owned(), claim);
                    if !former.is_empty() {
                        record.former.insert(chassis.to_owned(), former);
                    }
                }
                Err(why) => _ = record.damaged.insert(chassis.to_owned(), (text.to_owned(), why)),
            }
        }
        record
    }

    /// The data of the ConfigMap.
    pub fn data(&self) -> BTreeMap<String, String> {
        let text = |chassis: &String, claim: &Claim| {
            let former = self.former.get(chassis).into_iter().flatten().map(Claim::text).collect();
            // Texts can always be written as JSON.
            serde_json::to_string(&EntryText { holder: claim.text(), former }).unwrap_or_default()
        };
        let claims = self.claims.iter().map(|(chassis, claim)| (chassis.clone(), text(chassis, claim)));
        let damaged = self.damaged.iter().map(|(chassis, (text, _))| (chassis.clone(), text.clone()));
        claims.chain(damaged).collect()
    }

    /// All chassis and their nodes.
    pub fn claims(&self) -> impl Iterator<Item = (&str, &Claim)> {
        self.claims.iter().map(|(chassis, claim)| (chassis.as_str(), claim))
    }

    /// All chassis with their nodes, also with those that held them before.
    pub fn holders(&self) -> impl Iterator<Item = (&str, &Claim)> {
        let former =
            self.former.iter().flat_map(|(chassis, former)| former.iter().map(|claim| (chassis.as_str(), claim)));
        self.claims().chain(former)
    }

    /// To whom a chassis belongs; why that cannot be read.
    pub fn claim(&self, chassis: &str) -> Result<Option<&Claim>, &str> {
        match self.damaged.get(chassis) {
            Some((_, why)) => Err(why),
            None => Ok(self.claims.get(chassis)),
        }
    }

    /// Chassis whose value cannot be read, and why.
    pub fn damaged(&self) -> impl Iterator<Item = (&str, &str)> {
        self.damaged.iter().map(|(chassis, (_, why))| (chassis.as_str(), why.as_str()))
    }

    /// The certificates of a Node, by its UID.
    pub fn of_node<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = &'a NodeCertificate> {
        let of = self.holders().filter(move |(_, claim)| claim.node_uid == uid);
        of.flat_map(|(_, claim)| &claim.certificates)
    }

    /// Of the newest certificates of all nodes, the one that expires first. Revoked ones do not count.
    pub fn first_to_expire(&self, revoked: &Revoked) -> Option<&NodeCertificate> {
        let is_trusted = |one: &&NodeCertificate| !revoked.contains(one.fingerprint);
        let certificates = self.claims.values().map(|claim| claim.certificates.iter().filter(is_trusted));
        let newest = certificates.filter_map(|of_node| of_node.max_by_key(|one| one.not_after));
        newest.min_by_key(|one| one.not_after)
    }

    /// Adds a certificate. One of a Node that does not exist any more loses the chassis ([`crate::judge`] has checked that).
    pub fn add(&mut self, grant: &Grant, certificate: NodeCertificate) {
        let new = || Claim { node: grant.node.clone(), node_uid: grant.node_uid.clone(), certificates: Vec::new() };
        let claim = self.claims.entry(grant.chassis.clone()).or_insert_with(new);
        if claim.node_uid != grant.node_uid {
            let before = std::mem::replace(claim, new());
            if !before.certificates.is_empty() {
                self.former.entry(grant.chassis.clone()).or_default().push(before);
            }
        }
        claim.certificates.push(certificate);
    }

    /// The certificates of Nodes, by their UIDs, that have neither expired nor been revoked.
    pub fn unrevoked(&self, uids: &BTreeSet<String>, revoked: &Revoked, now: Timestamp) -> Vec<(&str, Claim)> {
        let is_trusted = |one: &&NodeCertificate| one.not_after > now && !revoked.contains(one.fingerprint);
        let of = self.holders().filter(|(_, claim)| uids.contains(&claim.node_uid));
        let trusted = of.map(|(chassis, claim)| {
            let certificates = claim.certificates.iter().filter(is_trusted).cloned().collect();
            (chassis, Claim { certificates, ..claim.clone() })
        });
        trusted.filter(|(_, claim)| !claim.certificates.is_empty()).collect()
    }

    /// Removes certificates that have expired, and the chassis of deleted Nodes, by their UIDs, whose certificates are all
    /// revoked. Returns whether something changed.
    pub fn prune(&mut self, deleted: &BTreeSet<String>, revoked: &Revoked, now: Timestamp) -> bool {
        let before = self.clone();
        let is_done = |claim: &Claim| {
            deleted.contains(&claim.node_uid) && claim.certificates.iter().all(|one| revoked.contains(one.fingerprint))
        };
        for claim in self.claims.values_mut().chain(self.former.values_mut().flatten()) {
            claim.certificates.retain(|certificate| certificate.not_after > now);
        }
        for former in self.former.values_mut() {
            former.retain(|claim| !claim.certificates.is_empty() && !is_done(claim));
        }
        self.former.retain(|_, former| !former.is_empty());
        self.claims.retain(|chassis, claim| self.former.contains_key(chassis) || !is_done(claim));
        *self != before
    }

    /// For the plan of the nodes' CA.
    pub fn issuances(&self) -> Vec<Issuance> {
        let of = |claim: &Claim| -> Vec<Issuance> {
            let newest = claim.certificates.iter().map(|certificate| certificate.issued).max();
            let issuance = |one: &NodeCertificate| Issuance {
                issuer: one.issuer.clone(),
                not_after: one.not_after,
                newest: Some(one.issued) == newest,
            };
            claim.certificates.iter().map(issuance).collect()
        };
        let former = self.former.values().flatten().flat_map(of);
        // What a node had before it lost its chassis is nobody's newest.
        let former = former.map(|issuance| Issuance { newest: false, ..issuance });
        self.claims.values().flat_map(of).chain(former).collect()
    }
}

impl Claim {
    fn text(&self) -> ClaimText {
        let certificates = self.certificates.iter().map(|one| CertificateText {
            fingerprint: one.fingerprint.hex(),
            not_after: one.not_after.to_string(),
            issued: one.issued.to_string(),
            issuer: one.issuer.clone(),
        });
        ClaimText { node: self.node.clone(), node_uid: self.node_uid.clone(), certificates: certificates.collect() }
    }
}

fn entry(text: &str) -> Result<(Claim, Vec<Claim>), String> {
    let EntryText { holder, former } = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let former = former.into_iter().map(claim).collect::<Result<_, String>>()?;
    Ok((claim(holder)?, former))
}

fn claim(parsed: ClaimText) -> Result<Claim, String> {
    let time = |text: &str| text.parse::<Timestamp>().map_err(|error| format!("{text:?}: {error}"));
    let certificate = |one: CertificateText| {
        let fingerprint = Fingerprint::from_hex(&one.fingerprint);
        let fingerprint = fingerprint.ok_or_else(|| format!("{:?} is not a SHA-256 in hex", one.fingerprint))?;
        let (not_after, issued) = (time(&one.not_after)?, time(&one.issued)?);
        Ok(NodeCertificate { fingerprint, not_after, issued, issuer: one.issuer })
    };
    let certificates = parsed.certificates.into_iter().map(certificate).collect::<Result<_, String>>()?;
    Ok(Claim { node: parsed.node, node_uid: parsed.node_uid, certificates })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::issue::tests::{authority, leaf, moment};

    fn grant(chassis: &str, uid: &str) -> Grant {
        let (node, names) = ("n1".to_owned(), BTreeSet::new());
        Grant { chassis: chassis.into(), node, node_uid: uid.into(), names, public_key: Vec::new() }
    }

    fn parse(data: &BTreeMap<String, String>) -> Record {
        Record::parse(data.iter().map(|(chassis, text)| (chassis.as_str(), text.as_str())))
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_keeps_what_it_cannot_read() {
        let mut record = Record::parse([("odd", "{\"node\":")]);
        let certificate = NodeCertificate::new(&leaf(&authority(0), 0).certificate, moment(0));
        record.add(&grant("c1", "u1"), certificate.clone());
        assert_eq!(parse(&record.data()), record);
        assert_eq!(record.data()["odd"], "{\"node\":");
        assert!(record.claim("odd").is_err() && record.claim("c2") == Ok(None));
        assert_eq!(record.of_node("u1").collect::<Vec<_>>(), [&certificate]);
        for bad in ["{}", "[]", "null", r#"{"node":"n","nodeUid":"u","certificates":[{"fingerprint":"x"}]}"#] {
            assert!(Record::parse([("c", bad)]).claim("c").is_err(), "{bad}");
        }
    }

    #[test]
    fn what_has_expired_or_is_revoked_is_removed() {
        let (old, new) = (leaf(&authority(0), 0).certificate, leaf(&authority(0), 1000).certificate);
        let mut record = Record::default();
        let newer = NodeCertificate::new(&new, moment(1000));
        record.add(&grant("c1", "u1"), NodeCertificate::new(&old, moment(0)));
        record.add(&grant("c1", "u1"), newer.clone());
        let newest: Vec<bool> = record.issuances().iter().map(|issued| issued.newest).collect();
        assert_eq!(newest, [false, true]);
        let (nobody, u1) = (BTreeSet::new(), BTreeSet::from(["u1".to_owned()]));
        let (none, revoked) = (Revoked::default(), Revoked::parse(&Revoked::add("", &newer, "n1")));
        assert!(!record.prune(&nobody, &none, moment(2000)));
        assert_eq!(record.unrevoked(&u1, &revoked, moment(0))[0].1.certificates.len(), 1, "one is revoked");
        assert!(record.prune(&nobody, &none, old.not_after));
        assert_eq!(record.of_node("u1").collect::<Vec<_>>(), [&newer]);
        assert!(!record.prune(&u1, &none, moment(2000)), "nothing is forgotten before it is revoked");
        assert!(!record.prune(&nobody, &revoked, moment(2000)), "an existing Node keeps its chassis");
        assert!(record.prune(&u1, &revoked, moment(2000)));
        assert_eq!(record, Record::default());
    }

    #[test]
    fn the_node_that_loses_its_certificate_first_has_no_newer_one() {
        let certificate = |age| NodeCertificate::new(&leaf(&authority(0), age).certificate, moment(age));
        let mut record = Record::default();
        let (first, second) = (certificate(1000), certificate(2000));
        record.add(&grant("c1", "u1"), certificate(0));
        record.add(&grant("c1", "u1"), certificate(3000));
        record.add(&grant("c2", "u2"), second.clone());
        record.add(&grant("c3", "u3"), first.clone());
        assert_eq!(record.first_to_expire(&Revoked::default()), Some(&first));
        let revoked = Revoked::parse(&first.fingerprint.hex());
        assert_eq!(record.first_to_expire(&revoked), Some(&second), "c3 has none that is trusted");
        assert_eq!(Record::default().first_to_expire(&revoked), None);
    }

    #[test]
    fn a_chassis_changes_its_node_and_the_former_ones_certificates_are_remembered() {
        let certificate = |age| NodeCertificate::new(&leaf(&authority(0), age).certificate, moment(age));
        let (first, second) = (certificate(0), certificate(1000));
        let mut record = Record::default();
        record.add(&grant("c1", "u1"), first.clone());
        record.add(&grant("c1", "u2"), second.clone());
        assert_eq!(record.claim("c1").unwrap().unwrap().certificates, [second]);
        assert_eq!((record.of_node("u1").count(), record.of_node("u2").count()), (1, 1));
        assert_eq!(parse(&record.data()), record);
        let newest: Vec<bool> = record.issuances().iter().map(|issued| issued.newest).collect();
        assert_eq!(newest, [true, false]);
        let u1 = BTreeSet::from(["u1".to_owned()]);
        assert!(!record.prune(&u1, &Revoked::default(), moment(1000)));
        assert!(record.prune(&u1, &Revoked::parse(&first.fingerprint.hex()), moment(1000)));
        assert_eq!((record.of_node("u1").count(), record.of_node("u2").count()), (0, 1));
    }
}
