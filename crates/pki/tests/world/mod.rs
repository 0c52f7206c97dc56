//! A store like the API server's, two signers, and what may have reached the programs. The world has either the control plane's
//! CA, or the nodes' CA with three nodes.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use pki::{
    Authority, AuthoritySet, Bundle, Certificate, Data, Domain, Fingerprint, Grant, Issued, Leaf, NodeCertificate,
    Observed, Plan, Policy, Record, Requests, Seen, Stored, Write, apply, create_authority_of, issue_chassis,
    issue_leaf, plan,
};
use rcgen::PublicKeyData as _;

/// Distribution delay, in seconds.
pub(crate) const DELAY: i64 = 60;
const START: i64 = 1_900_000_000;

/// What an administrator does by hand.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Edit {
    DeleteCa,
    DamageCa,
    /// From an older backup.
    RestoreCa,
    DeleteLeaf,
    DamageLeaf,
    DamageBundle,
    AddForeignCa,
    RequestCa,
    RequestLeaf,
    RequestRetire,
}

/// A stored object and its resourceVersion.
type Object<T> = (u64, Option<T>);

#[derive(Debug, Default)]
struct Signer {
    skew: i64,
    seen: Seen,
    leaf: Option<Object<(Data, Option<String>)>>,
    bundle: Option<Object<String>>,
    record: Option<Object<Record>>,
}

/// A node, which renews its certificate when it has learned that another CA signs.
#[derive(Debug)]
struct Node {
    name: String,
    public_key: Vec<u8>,
    certificate: Option<Certificate>,
    renew_at: i64,
}

/// A published version, and when it was replaced.
#[derive(Debug)]
struct Version<T> {
    content: T,
    until: Option<i64>,
}

pub(crate) struct World {
    domain: Domain,
    policy: Policy,
    nodes: Vec<Node>,
    record: Object<Record>,
    /// The first CA of the bundle, and since when it is the first.
    announced: Option<(Fingerprint, i64)>,
    retire_requested: bool,
    now: i64,
    start: Instant,
    versions: u64,
    ca: Object<(Data, Requests)>,
    bundle: Object<String>,
    leaf: Object<(Data, Option<String>)>,
    signers: [Signer; 2],
    bundles: Vec<Version<Bundle>>,
    leaves: Vec<Version<Leaf>>,
    backup: Option<Data>,
}

fn timestamp(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

impl World {
    pub(crate) fn new(skews: [i64; 2]) -> Self {
        Self::of(Domain::ControlPlane, skews)
    }

    pub(crate) fn of(domain: Domain, skews: [i64; 2]) -> Self {
        let seconds = Duration::from_secs;
        let policy = Policy {
            ca_lifetime: seconds(4000),
            ca_renew_after: seconds(3000),
            leaf_lifetime: seconds(1000),
            leaf_renew_after: seconds(500),
            distribution_delay: seconds(DELAY.unsigned_abs()),
            names: vec!["ovn".into()],
            ..Policy::default()
        };
        policy.check().unwrap();
        let node = |number: usize| Node {
            name: format!("n{number}"),
            public_key: rcgen::KeyPair::generate().unwrap().subject_public_key_info(),
            certificate: None,
            renew_at: 0,
        };
        let nodes = if domain == Domain::Nodes { (1..=3).map(node).collect() } else { Vec::new() };
        Self {
            domain,
            policy,
            nodes,
            record: (0, None),
            announced: None,
            retire_requested: false,
            now: START,
            start: Instant::now(),
            versions: 0,
            ca: (0, None),
            bundle: (0, None),
            leaf: (0, None),
            signers: skews.map(|skew| Signer { skew, ..Signer::default() }),
            bundles: Vec::new(),
            leaves: Vec::new(),
            backup: None,
        }
    }

    pub(crate) fn tick(&mut self, seconds: i64) {
        self.now += seconds;
    }

    pub(crate) fn crash(&mut self, signer: usize) {
        self.signers[signer] = Signer { skew: self.signers[signer].skew, ..Signer::default() };
    }

    fn version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    /// One request of a signer: it reads certificate, bundle and CA, in this order, and then writes.
    pub(crate) fn request(&mut self, index: usize) {
        let signer = &mut self.signers[index];
        if signer.leaf.is_none() {
            signer.leaf = Some(self.leaf.clone());
            signer.record = Some(self.record.clone());
        } else if signer.bundle.is_none() {
            signer.bundle = Some(self.bundle.clone());
        } else {
            self.read_ca_and_write(index);
        }
    }

    fn observe(&mut self, index: usize) -> (Observed, Plan, [u64; 4]) {
        let signer = &mut self.signers[index];
        let leaf = signer.leaf.take().unwrap_or_else(|| self.leaf.clone());
        let bundle = signer.bundle.take().unwrap_or_else(|| self.bundle.clone());
        let record = signer.record.take().unwrap_or_else(|| self.record.clone());
        let observed = observed(self.domain, &self.ca, &bundle, &leaf, &record);
        let mono = self.start + Duration::from_secs((self.now - START).unsigned_abs());
        let ages = signer.seen.observe(&observed, mono);
        let plan = plan(&self.policy, &observed, &ages, timestamp(self.now + signer.skew));
        (observed, plan, [self.ca.0, bundle.0, leaf.0, record.0])
    }

    /// Returns whether something was planned. The write comes right after the last read: what another signer writes between the
    /// two has the same effect as what it writes before the read, since both carry the version that was read.
    fn read_ca_and_write(&mut self, index: usize) -> bool {
        let (observed, plan, [ca, bundle, leaf, record]) = self.observe(index);
        let Some(step) = plan.step else {
            if plan.may_issue && record == self.record.0 {
                self.serve(index, &observed);
            }
            return false;
        };
        let now = timestamp(self.now + self.signers[index].skew);
        match apply(&step, &self.policy, &observed, now).unwrap().unwrap() {
            Write::Authorities(set) if ca == self.ca.0 => {
                self.ca = (self.version(), Some((set.data(), set.requests)));
            }
            Write::Bundle(text) if bundle == self.bundle.0 => self.publish_bundle(text),
            Write::Leaf { pair, issued_for } if leaf == self.leaf.0 => self.publish_leaf(&pair, issued_for),
            _ => {}
        }
        true
    }

    /// Issues certificates to all nodes that need one. The first node sees new bundles late, the others at once.
    fn serve(&mut self, index: usize, observed: &Observed) {
        let now = timestamp(self.now + self.signers[index].skew);
        let signing = observed.authorities.present().unwrap().signing.clone();
        let (real, later) = (timestamp(self.now), timestamp(self.now + 20));
        let accepted = |certificate: &Certificate, bundle: &Bundle, now: Timestamp| {
            bundle.certificates.iter().any(|authority| certificate.is_accepted_by(authority, &[], now))
        };
        let (oldest, newest) = (self.bundles.first().unwrap(), self.bundles.last().unwrap());
        let announces = [oldest, newest, newest].map(|version| version.content.certificates[0].subject.clone());
        let trust = self.nodes.iter().filter_map(|node| node.certificate.as_ref());
        let trust = trust.into_iter().any(|certificate| accepted(certificate, &newest.content, later));
        let mut record = self.record.1.clone().unwrap_or_default();
        let mut changed = false;
        for (node, announced) in self.nodes.iter_mut().zip(announces) {
            let current = |certificate: &Certificate| certificate.issuer == announced && certificate.is_valid_at(real);
            if node.certificate.as_ref().is_some_and(current) && self.now < node.renew_at {
                continue;
            }
            let id = self.versions.to_string();
            let names = [node.name.clone()].into();
            let certificate =
                issue_chassis(&signing, &self.policy, &node.name, &names, &node.public_key, &id, now).unwrap();
            let grant = Grant {
                chassis: node.name.clone(),
                node: node.name.clone(),
                node_uid: node.name.clone(),
                names,
                public_key: node.public_key.clone(),
            };
            record.add(&grant, NodeCertificate::new(&certificate, now));
            node.certificate = Some(certificate);
            node.renew_at = self.now + 500;
            changed = true;
        }
        if changed {
            if !trust {
                self.bundles.drain(..self.bundles.len() - 1);
            }
            self.record = (self.version(), Some(record));
        }
    }

    fn publish_bundle(&mut self, text: String) {
        if let Some(last) = self.bundles.last_mut() {
            last.until.get_or_insert(self.now);
        }
        let content = Bundle::parse(&text);
        let first = content.certificates.first().map(|first| first.fingerprint);
        if first != self.announced.map(|(first, _)| first) {
            self.announced = first.map(|first| (first, self.now));
        }
        self.bundles.push(Version { content, until: None });
        self.bundle = (self.version(), Some(text));
    }

    fn publish_leaf(&mut self, pair: &Authority, issued_for: Option<String>) {
        // Without trust that could be lost, a certificate need not be accepted by those who have an older bundle. The clock
        // of a signer may be ahead, so it may see that trust end earlier.
        let now = timestamp(self.now + 20);
        let alive =
            |leaf: &Version<Leaf>| self.bundles.last().is_some_and(|bundle| bundle.content.accepts(&leaf.content, now));
        if !self.leaves.last().is_some_and(alive) {
            self.bundles.drain(..self.bundles.len().saturating_sub(1));
            self.leaves.clear();
        }
        if let Some(last) = self.leaves.last_mut() {
            last.until.get_or_insert(self.now);
        }
        let data = Leaf::data(pair);
        self.leaves.push(Version { content: Leaf::parse(&data, None).unwrap(), until: None });
        self.leaf = (self.version(), Some((data, issued_for)));
    }

    pub(crate) fn reconcile(&mut self, index: usize) {
        self.signers[index].leaf = None;
        self.signers[index].bundle = None;
        self.signers[index].record = None;
        for _ in 0..20 {
            if !self.read_ca_and_write(index) {
                return;
            }
        }
        panic!("signer {index} does not come to rest: {:?}", self.plan(index));
    }

    pub(crate) fn plan(&mut self, index: usize) -> Plan {
        self.observe(index).1
    }

    pub(crate) fn edit(&mut self, edit: Edit) {
        let version = self.version();
        match edit {
            Edit::DeleteCa => {
                self.backup = self.ca.1.take().map(|(data, _)| data).or(self.backup.take());
                self.ca.0 = version;
            }
            Edit::DamageCa => {
                if let Some((data, _)) = &mut self.ca.1 {
                    self.backup = Some(data.clone());
                    data.insert("tls.key".into(), b"-----BEGIN".to_vec());
                    self.ca.0 = version;
                }
            }
            Edit::RestoreCa => {
                if let Some(backup) = self.backup.clone() {
                    self.ca = (version, Some((backup, Requests::default())));
                }
            }
            Edit::DeleteLeaf => (self.leaf, self.record) = ((version, None), (version, None)),
            Edit::DamageLeaf => {
                if let Some((data, _)) = &mut self.leaf.1 {
                    data.remove("tls.key");
                    self.leaf.0 = version;
                }
            }
            Edit::DamageBundle => {
                if let Some(text) = self.bundle.1.clone() {
                    let half = &text[..text.len() / 2];
                    self.publish_bundle(format!("{text}{half}"));
                }
            }
            Edit::AddForeignCa => {
                if let Some(text) = self.bundle.1.clone() {
                    self.publish_bundle(format!("{text}{}", self.foreign().certificate.pem()));
                }
            }
            Edit::RequestCa => self.request_by(|requests| requests.rotate_ca = Some(version.to_string())),
            Edit::RequestLeaf => self.request_by(|requests| requests.rotate_leaf = Some(version.to_string())),
            Edit::RequestRetire => {
                self.retire_requested = true;
                self.request_by(|requests| requests.retire = Some(version.to_string()));
            }
        }
    }

    fn request_by(&mut self, change: impl Fn(&mut Requests)) {
        let version = self.version();
        if let (number, Some((_, requests))) = &mut self.ca {
            change(requests);
            *number = version;
        }
    }

    /// A CA that none of our signers created.
    fn foreign(&self) -> Authority {
        let mut parameters = rcgen::CertificateParams::default();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pair = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&pair).unwrap();
        Authority::from_pem(certificate.pem().as_bytes(), pair.serialize_pem().as_bytes()).unwrap()
    }

    /// An installation with hand-made certificates.
    pub(crate) fn bring_your_own(&mut self) {
        let foreign = self.foreign();
        self.publish_bundle(foreign.certificate.pem());
        let leaf = issue_leaf(&foreign, &self.policy, timestamp(self.now)).unwrap();
        self.publish_leaf(&leaf, None);
        let ours = create_authority_of(self.domain, &self.policy, timestamp(self.now)).unwrap();
        assert!(ours.certificate.is_ca_of(self.domain) && !foreign.certificate.is_ca_of(self.domain));
    }

    /// Every certificate that a program may use is accepted by every bundle that another one may have.
    pub(crate) fn check(&mut self) {
        let (horizon, now) = (self.now - DELAY, timestamp(self.now));
        self.bundles.retain(|version| version.until.is_none_or(|until| until > horizon));
        self.leaves.retain(|version| version.until.is_none_or(|until| until > horizon));
        // Nodes that do not renew in time are cut off on request, until they do.
        if self.retire_requested && self.announced.is_some_and(|(_, since)| self.now - since >= 3 * DELAY) {
            let newest = self.bundles.last().map(|version| &version.content);
            for node in &mut self.nodes {
                let is_trusted = |certificate: &Certificate| {
                    newest.is_some_and(|bundle| bundle.certificates.iter().any(|one| one.subject == certificate.issuer))
                };
                node.certificate = node.certificate.take().filter(is_trusted);
            }
        }
        for (node, certificate) in self.nodes.iter().filter_map(|node| Some((&node.name, node.certificate.as_ref()?))) {
            for bundle in self.bundles.iter().filter(|_| certificate.is_valid_at(now)) {
                let accepts = |authority: &Certificate| certificate.is_accepted_by(authority, &[], now);
                assert!(
                    bundle.content.certificates.iter().any(accepts),
                    "{}, the issuer of {node}, is not in the bundle that was replaced at {:?}; it is {}",
                    certificate.issuer,
                    bundle.until,
                    self.now,
                );
            }
        }
        for leaf in &self.leaves {
            let certificate = &leaf.content.pair.certificate;
            if !certificate.is_valid_at(now) {
                continue;
            }
            for bundle in &self.bundles {
                assert!(
                    bundle.content.accepts(&leaf.content, now),
                    "{} (replaced at {:?}) is not accepted by the bundle that was replaced at {:?}; it is {}",
                    certificate.issuer,
                    leaf.until,
                    bundle.until,
                    self.now,
                );
            }
        }
    }

    /// Without further edits everything becomes valid, and nothing remains to be done.
    pub(crate) fn settle(&mut self) {
        if matches!(self.observed().authorities, Stored::Unusable(_)) {
            self.edit(Edit::DeleteCa);
        }
        for _ in 0..100 {
            self.tick(5);
            for signer in [0, 1] {
                self.reconcile(signer);
                self.check();
            }
            if self.is_settled() {
                return;
            }
        }
        panic!("not settled: {:?}", self.plan(0));
    }

    fn is_settled(&self) -> bool {
        let observed = self.observed();
        let (Stored::Present(set), Stored::Present(bundle)) = (&observed.authorities, &observed.bundle) else {
            return false;
        };
        let now = timestamp(self.now);
        let signing = &set.signing.certificate;
        let is_current = |certificate: &Certificate| certificate.is_accepted_by(signing, &[], now);
        let issued = match self.domain {
            Domain::ControlPlane => observed.issued.leaf().is_some_and(|leaf| is_current(&leaf.pair.certificate)),
            Domain::Nodes => self.nodes.iter().all(|node| node.certificate.as_ref().is_some_and(is_current)),
        };
        set.next.is_none()
            && set.requests.rotate_ca.is_none()
            && bundle.unreadable.is_empty()
            && issued
            && bundle.certificates.first() == Some(signing)
            && set.trusted().all(|certificate| bundle.contains(certificate.fingerprint))
    }

    pub(crate) fn observed(&self) -> Observed {
        observed(self.domain, &self.ca, &self.bundle, &self.leaf, &self.record)
    }

    pub(crate) fn signing(&self) -> Fingerprint {
        self.observed().authorities.present().unwrap().signing.certificate.fingerprint
    }

    pub(crate) fn leaf(&self) -> Certificate {
        self.observed().issued.leaf().unwrap().pair.certificate.clone()
    }

    /// Issuers of the nodes' certificates.
    pub(crate) fn issuers(&self) -> Vec<String> {
        self.nodes.iter().filter_map(|node| Some(node.certificate.as_ref()?.issuer.clone())).collect()
    }

    /// Nodes that are switched off do not renew.
    pub(crate) fn switch_off_all_but_one(&mut self) {
        self.nodes.truncate(1);
    }

    pub(crate) fn bundle(&self) -> Vec<Fingerprint> {
        self.observed().bundle.present().unwrap().certificates.iter().map(|one| one.fingerprint).collect()
    }
}

fn observed(
    domain: Domain,
    ca: &Object<(Data, Requests)>,
    bundle: &Object<String>,
    leaf: &Object<(Data, Option<String>)>,
    record: &Object<Record>,
) -> Observed {
    fn stored<T>(parsed: Option<Result<T, String>>) -> Stored<T> {
        parsed.map_or(Stored::Missing, |parsed| parsed.map_or_else(Stored::Unusable, Stored::Present))
    }
    let issued = match domain {
        Domain::ControlPlane => Issued::Published(Box::new(stored(
            leaf.1.as_ref().map(|(data, request)| Leaf::parse(data, request.clone())),
        ))),
        Domain::Nodes => Issued::OnRequest(record.1.as_ref().map(Record::issuances).unwrap_or_default()),
    };
    Observed {
        authorities: stored(ca.1.as_ref().map(|(data, requests)| AuthoritySet::parse(data, requests.clone()))),
        bundle: stored(bundle.1.as_ref().map(|text| Ok(Bundle::parse(text)))),
        issued,
    }
}
