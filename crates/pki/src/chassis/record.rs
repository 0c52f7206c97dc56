//! The record of issued certificates: ConfigMap `ovn-chassis`, a key for each chassis.
//!
//! ```json
//! {"node":"n1","nodeUid":"…","certificates":[{"fingerprint":"…","notAfter":"…","issued":"…","issuer":"…"}]}
//! ```

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::certificate::{Certificate, Fingerprint};
use crate::chassis::judge::{Grant, KnownNode};
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
            match claim(text) {
                Ok(claim) => _ = record.claims.insert(chassis.to_owned(), claim),
                Err(why) => _ = record.damaged.insert(chassis.to_owned(), (text.to_owned(), why)),
            }
        }
        record
    }

    /// The data of the ConfigMap.
    pub fn data(&self) -> BTreeMap<String, String> {
        let claims = self.claims.iter().map(|(chassis, claim)| (chassis.clone(), claim.text()));
        let damaged = self.damaged.iter().map(|(chassis, (text, _))| (chassis.clone(), text.clone()));
        claims.chain(damaged).collect()
    }

    /// All chassis and their nodes.
    pub fn claims(&self) -> impl Iterator<Item = (&str, &Claim)> {
        self.claims.iter().map(|(chassis, claim)| (chassis.as_str(), claim))
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
        self.claims.values().filter(move |claim| claim.node_uid == uid).flat_map(|claim| &claim.certificates)
    }

    /// Adds a certificate. One of a Node that does not exist any more loses the chassis ([`crate::judge`] has checked that).
    pub fn add(&mut self, grant: &Grant, certificate: NodeCertificate) {
        let new = || Claim { node: grant.node.clone(), node_uid: grant.node_uid.clone(), certificates: Vec::new() };
        let claim = self.claims.entry(grant.chassis.clone()).or_insert_with(new);
        if claim.node_uid != grant.node_uid {
            *claim = new();
        }
        claim.certificates.push(certificate);
    }

    /// Removes certificates that have expired, and the chassis of Nodes that do not exist. Returns whether something changed.
    pub fn prune(&mut self, nodes: &BTreeMap<String, KnownNode>, now: Timestamp) -> bool {
        let before = self.clone();
        self.claims.retain(|_, claim| nodes.get(&claim.node).is_some_and(|node| node.uid == claim.node_uid));
        for claim in self.claims.values_mut() {
            claim.certificates.retain(|certificate| certificate.not_after > now);
        }
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
        self.claims.values().flat_map(of).collect()
    }
}

impl Claim {
    fn text(&self) -> String {
        let certificates = self.certificates.iter().map(|one| CertificateText {
            fingerprint: one.fingerprint.hex(),
            not_after: one.not_after.to_string(),
            issued: one.issued.to_string(),
            issuer: one.issuer.clone(),
        });
        let text = ClaimText {
            node: self.node.clone(),
            node_uid: self.node_uid.clone(),
            certificates: certificates.collect(),
        };
        // Texts can always be written as JSON.
        serde_json::to_string(&text).unwrap_or_default()
    }
}

fn claim(text: &str) -> Result<Claim, String> {
    let parsed: ClaimText = serde_json::from_str(text).map_err(|error| error.to_string())?;
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
    fn what_has_expired_or_has_no_node_is_removed() {
        let (old, new) = (leaf(&authority(0), 0).certificate, leaf(&authority(0), 1000).certificate);
        let mut record = Record::default();
        record.add(&grant("c1", "u1"), NodeCertificate::new(&old, moment(0)));
        record.add(&grant("c1", "u1"), NodeCertificate::new(&new, moment(1000)));
        let newest: Vec<bool> = record.issuances().iter().map(|issued| issued.newest).collect();
        assert_eq!(newest, [false, true]);
        let node = |uid: &str| BTreeMap::from([("n1".to_owned(), KnownNode { uid: uid.into(), chassis: None })]);
        assert!(!record.prune(&node("u1"), moment(2000)));
        assert!(record.prune(&node("u1"), old.not_after));
        assert_eq!(record.of_node("u1").count(), 1);
        assert!(record.clone().prune(&BTreeMap::new(), moment(0)));
        assert!(record.prune(&node("u2"), moment(0)), "a new Node of the same name");
        assert_eq!(record.claims().count(), 0);
    }

    #[test]
    fn a_chassis_changes_its_node() {
        let certificate = NodeCertificate::new(&leaf(&authority(0), 0).certificate, moment(0));
        let mut record = Record::default();
        record.add(&grant("c1", "u1"), certificate.clone());
        record.add(&grant("c1", "u2"), certificate);
        assert_eq!((record.of_node("u1").count(), record.of_node("u2").count()), (0, 1));
    }
}
