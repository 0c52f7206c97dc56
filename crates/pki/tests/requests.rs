//! Which requests of nodes are granted: a good one, each rule violated once, and garbage.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use pki::{
    Certificate, ChassisRequest, DenialReason, Domain, Grant, KnownNode, NodeCertificate, Policy, Record, Revoked,
    Rules, Verdict, create_authority_of, issue_chassis, judge,
};
use proptest::prelude::*;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType};

const ACCOUNT: &str = "system:serviceaccount:ovn-kubernetes:ovnkube-node";
const CHASSIS: &str = "5f0c1a9e-0000-4000-8000-000000000001";

fn moment(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// Everything that a judgement depends on; as created, the request is granted.
struct Case {
    rules: Rules,
    request: ChassisRequest,
    nodes: BTreeMap<String, KnownNode>,
    record: Record,
    revoked: Revoked,
    now: Timestamp,
}

fn parameters() -> CertificateParams {
    let mut parameters = CertificateParams::new(vec!["n1".to_owned(), "ovnkube-node".to_owned()]).unwrap();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, CHASSIS);
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
    parameters
}

fn pem_with(algorithm: &'static rcgen::SignatureAlgorithm, change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
    let mut parameters = parameters();
    change(&mut parameters);
    let pair = KeyPair::generate_for(algorithm).unwrap();
    parameters.serialize_request(&pair).unwrap().pem().unwrap().into_bytes()
}

fn pem(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
    pem_with(&rcgen::PKCS_ECDSA_P256_SHA256, change)
}

fn node(uid: &str, chassis: Option<&str>) -> KnownNode {
    KnownNode { uid: uid.into(), chassis: chassis.map(str::to_owned) }
}

impl Case {
    fn good() -> Self {
        let usages = ["digital signature", "client auth", "server auth"];
        let request = ChassisRequest {
            name: "ovn-chassis-abc".into(),
            uid: "r1".into(),
            created: moment(0),
            username: ACCOUNT.into(),
            node: Some("n1".into()),
            node_uid: Some("u1".into()),
            usages: usages.map(str::to_owned).to_vec(),
            request: pem(|_| {}),
        };
        let nodes = [("n1", node("u1", Some(CHASSIS))), ("n2", node("u2", Some("other")))];
        Self {
            rules: Rules::new("ovn-kubernetes"),
            request,
            nodes: nodes.map(|(name, node)| (name.to_owned(), node)).into(),
            record: Record::default(),
            revoked: Revoked::default(),
            now: moment(1),
        }
    }

    fn verdict(&self) -> Verdict {
        judge(&self.rules, &self.request, &self.nodes, &self.record, &self.revoked, self.now)
    }

    /// Records a certificate for a chassis.
    fn issued(&mut self, chassis: &str, node: &str, uid: &str, issued: i64) -> NodeCertificate {
        let certificate = NodeCertificate::new(&certificate(&self.grant(chassis, node, uid)), moment(issued));
        self.record.add(&self.grant(chassis, node, uid), certificate.clone());
        certificate
    }

    fn grant(&self, chassis: &str, node: &str, uid: &str) -> Grant {
        let Verdict::Sign(grant) = Self::good().verdict() else { panic!("{:?}", self.verdict()) };
        Grant { chassis: chassis.into(), node: node.into(), node_uid: uid.into(), ..grant }
    }
}

fn certificate(grant: &Grant) -> Certificate {
    let policy = Policy::default();
    let authority = create_authority_of(Domain::Nodes, &policy, moment(0)).unwrap();
    issue_chassis(&authority, &policy, &grant.chassis, &grant.names, &grant.public_key, "r1", moment(10)).unwrap()
}

#[test]
fn a_good_request_gets_what_it_asks_for() {
    for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519] {
        let mut case = Case::good();
        case.request.request = pem_with(algorithm, |_| {});
        let Verdict::Sign(grant) = case.verdict() else { panic!("{:?}", case.verdict()) };
        assert_eq!((grant.chassis.as_str(), grant.node.as_str(), grant.node_uid.as_str()), (CHASSIS, "n1", "u1"));
        let policy = Policy::default();
        let authority = create_authority_of(Domain::Nodes, &policy, moment(0)).unwrap();
        let issue = |request: &str| {
            issue_chassis(&authority, &policy, CHASSIS, &grant.names, &grant.public_key, request, moment(10)).unwrap()
        };
        let certificate = issue("r1");
        assert_eq!(certificate.subject, format!("CN={CHASSIS}"));
        assert_eq!(certificate.names, ["n1", "ovnkube-node"]);
        assert!(certificate.has_public_key(&grant.public_key) && !certificate.is_ca);
        assert_eq!(certificate.not_before, authority.certificate.not_before, "clocks of nodes may be behind");
        assert!(certificate.is_accepted_by(&authority.certificate, &[], moment(20)), "{certificate:?}");
        assert_ne!(issue("r2").fingerprint, certificate.fingerprint, "the serial number is that of the request");
    }
}

#[test]
fn certificates_of_nodes_end_with_their_ca() {
    let policy = Policy::default();
    let authority = create_authority_of(Domain::Nodes, &policy, moment(0)).unwrap();
    let Verdict::Sign(grant) = Case::good().verdict() else { panic!() };
    let late = authority.certificate.not_after.as_second() - 1_800_000_000 - 60;
    let certificate =
        issue_chassis(&authority, &policy, CHASSIS, &grant.names, &grant.public_key, "r", moment(late)).unwrap();
    assert_eq!(certificate.not_after, authority.certificate.not_after);
}

/// Name, rule, and how it is violated.
type Violation = (&'static str, DenialReason, fn(&mut Case));

#[test]
fn each_rule_denies_what_violates_it() {
    use DenialReason as Reason;
    let violations: Vec<Violation> = vec![
        ("another account", Reason::WrongRequester, |case| {
            case.request.username = "system:serviceaccount:ovn-kubernetes:ovnkube-master".into();
        }),
        ("the account of another namespace", Reason::WrongRequester, |case| {
            case.request.username = "system:serviceaccount:tenant:ovnkube-node".into();
        }),
        ("a token of no node", Reason::WrongRequester, |case| case.request.node = None),
        ("a token of an empty node", Reason::WrongRequester, |case| case.request.node = Some(String::new())),
        ("a node that does not exist", Reason::NodeUnknown, |case| case.request.node = Some("n9".into())),
        ("an earlier node of the name", Reason::NodeUnknown, |case| case.request.node_uid = Some("u0".into())),
        ("another usage", Reason::UsageNotAllowed, |case| case.request.usages.push("cert sign".into())),
        ("no PEM", Reason::RequestInvalid, |case| case.request.request = b"hello".to_vec()),
        ("half a request", Reason::RequestInvalid, |case| case.request.request.truncate(200)),
        ("another PEM block", Reason::RequestInvalid, |case| {
            case.request.request = KeyPair::generate().unwrap().public_key_pem().into_bytes();
        }),
        ("a huge request", Reason::RequestInvalid, |case| {
            case.request.request = pem(|parameters| {
                let name = |number: usize| SanType::DnsName(format!("n{number}").try_into().unwrap());
                parameters.subject_alt_names = (0..5000).map(name).collect();
            });
        }),
        ("a weak RSA key", Reason::KeyWeak, |case| case.request.request = WEAK.into()),
        ("the key of somebody else", Reason::ProofInvalid, |case| {
            // Another key in an otherwise unchanged request.
            let der = |pem: &[u8]| rustls_der(pem);
            let (mut one, other) = (der(&case.request.request), der(&pem(|_| {})));
            let start = one.windows(4).position(|bytes| bytes == [0x03, 0x42, 0x00, 0x04]).unwrap();
            one[start + 4..start + 68].copy_from_slice(&other[start + 4..start + 68]);
            case.request.request = to_pem(&one);
        }),
        ("a CA", Reason::ExtensionNotAllowed, |case| {
            case.request.request =
                pem(|parameters| parameters.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained));
        }),
        ("a key usage of CAs", Reason::ExtensionNotAllowed, |case| {
            case.request.request = pem(|parameters| parameters.key_usages.push(KeyUsagePurpose::KeyCertSign));
        }),
        ("code signing", Reason::ExtensionNotAllowed, |case| {
            case.request.request =
                pem(|parameters| parameters.extended_key_usages.push(ExtendedKeyUsagePurpose::CodeSigning));
        }),
        ("an unknown extension", Reason::ExtensionNotAllowed, |case| {
            let extension = rcgen::CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99], vec![5, 0]);
            case.request.request = pem(|parameters| parameters.custom_extensions.push(extension));
        }),
        ("another chassis", Reason::ChassisMismatch, |case| {
            case.request.request = pem(|parameters| parameters.distinguished_name.push(DnType::CommonName, "other"));
        }),
        ("no common name", Reason::ChassisMismatch, |case| {
            case.request.request = pem(|parameters| parameters.distinguished_name = rcgen::DistinguishedName::new());
        }),
        ("an organisation", Reason::ChassisMismatch, |case| {
            case.request.request =
                pem(|parameters| parameters.distinguished_name.push(DnType::OrganizationName, "ovnkube"));
        }),
        ("a chassis with a slash", Reason::ChassisInvalid, |case| chassis(case, "a/b")),
        ("a chassis with two dots", Reason::ChassisInvalid, |case| chassis(case, "..a")),
        ("a chassis with one dot", Reason::ChassisInvalid, |case| chassis(case, ".")),
        ("a long chassis", Reason::ChassisInvalid, |case| chassis(case, &"a".repeat(65))),
        ("the name of another node", Reason::NameNotAllowed, |case| {
            case.request.request = names(&["n2", "ovnkube-node"]);
        }),
        ("a third name", Reason::NameNotAllowed, |case| {
            case.request.request = names(&["n1", "n2", "ovnkube-node"]);
        }),
        ("a name is missing", Reason::NameNotAllowed, |case| case.request.request = names(&["n1"])),
        ("an address", Reason::NameNotAllowed, |case| {
            case.request.request = names(&["n1", "ovnkube-node", "192.0.2.1"]);
        }),
        ("a chassis that another node holds", Reason::ChassisHeld, |case| {
            case.issued(CHASSIS, "n2", "u2", 0);
        }),
        ("a chassis that another node announces", Reason::ChassisAmbiguous, |case| {
            case.nodes.insert("n3".into(), node("u3", Some(CHASSIS)));
        }),
        ("a damaged record", Reason::RecordDamaged, |case| case.record = Record::parse([(CHASSIS, "{")])),
        ("no chassis announced in time", Reason::ChassisUnknown, |case| {
            case.nodes.insert("n1".into(), node("u1", None));
            case.now = moment(601);
        }),
        ("too many in an hour", Reason::TooManyCertificates, |case| {
            for number in 0..20 {
                case.issued(&format!("c{number}"), "n1", "u1", 100);
            }
            case.now = moment(200);
        }),
        ("too many valid ones", Reason::TooManyCertificates, |case| {
            for _ in 0..40 {
                case.issued(CHASSIS, "n1", "u1", 0);
            }
            case.now = moment(3700);
        }),
    ];
    let tried: BTreeSet<DenialReason> = violations.iter().map(|(_, reason, _)| *reason).collect();
    assert_eq!(tried, DenialReason::ALL.into());
    for (name, reason, violate) in violations {
        let mut case = Case::good();
        violate(&mut case);
        match case.verdict() {
            Verdict::Deny(denial) => {
                assert_eq!(denial.reason, reason, "{name}: {}", denial.message);
                assert!(denial.message.contains(';'), "{name}: the remedy is missing: {}", denial.message);
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

fn chassis(case: &mut Case, id: &str) {
    case.request.request = pem(|parameters| parameters.distinguished_name.push(DnType::CommonName, id));
    case.nodes.insert("n1".into(), node("u1", Some(id)));
}

fn names(names: &[&str]) -> Vec<u8> {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    pem(|parameters| parameters.subject_alt_names = CertificateParams::new(names).unwrap().subject_alt_names)
}

fn rustls_der(pem: &[u8]) -> Vec<u8> {
    use rustls_pki_types::pem::PemObject as _;
    rustls_pki_types::CertificateSigningRequestDer::from_pem_slice(pem).unwrap().to_vec()
}

fn to_pem(der: &[u8]) -> Vec<u8> {
    use base64::Engine as _;
    let text = base64::prelude::BASE64_STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n").into_bytes()
}

#[test]
fn a_request_waits_until_its_node_announces_a_chassis() {
    let mut case = Case::good();
    case.nodes.insert("n1".into(), node("u1", None));
    assert!(matches!(case.verdict(), Verdict::Wait(reason) if reason.contains("n1")));
    case.rules.patience = Duration::from_secs(1);
    assert!(matches!(case.verdict(), Verdict::Deny(_)));
}

#[test]
fn a_chassis_stays_with_its_node_and_is_free_when_that_is_gone() {
    let mut case = Case::good();
    case.issued(CHASSIS, "n1", "u1", 0);
    // Now another Node announces the same one.
    case.nodes.insert("n3".into(), node("u3", Some(CHASSIS)));
    assert!(matches!(case.verdict(), Verdict::Sign(_)), "the holder renews: {:?}", case.verdict());
    let mut case = Case::good();
    case.issued(CHASSIS, "n2", "u0", 0);
    assert!(matches!(case.verdict(), Verdict::Sign(_)), "Node n2 is another one now: {:?}", case.verdict());
    case.issued(CHASSIS, "n8", "u8", 0);
    assert!(matches!(case.verdict(), Verdict::Sign(_)), "Node n8 does not exist: {:?}", case.verdict());
}

#[test]
fn revoked_certificates_do_not_count() {
    let mut case = Case::good();
    let text = (0..40).fold(String::new(), |text, _| Revoked::add(&text, &case.issued(CHASSIS, "n1", "u1", 0), "n1"));
    case.now = moment(3700);
    assert!(matches!(case.verdict(), Verdict::Deny(_)));
    case.revoked = Revoked::parse(&text);
    assert!(matches!(case.verdict(), Verdict::Sign(_)), "{:?}", case.verdict());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_is_denied(bytes in prop::collection::vec(any::<u8>(), 0..400), as_pem in any::<bool>()) {
        let mut case = Case::good();
        case.request.request = if as_pem { to_pem(&bytes) } else { bytes };
        prop_assert!(matches!(case.verdict(), Verdict::Deny(_)));
    }

    /// What is signed covers all of a request but its signature, so nothing of it can be changed.
    #[test]
    fn a_changed_request_is_denied(place in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<Option<prop::sample::Index>>()) {
        let mut case = Case::good();
        let before = rustls_der(&case.request.request);
        let mut der = before.clone();
        let place = place.index(der.len());
        der[place] = byte;
        der.truncate(cut.map_or(der.len(), |cut| cut.index(before.len())));
        prop_assume!(der != before);
        case.request.request = to_pem(&der);
        prop_assert!(matches!(case.verdict(), Verdict::Deny(_)), "byte {place} is {byte}: {:?}", case.verdict());
    }
}

/// RSA with 1024 bits, otherwise like a good request.
const WEAK: &[u8] = include_bytes!("requests/rsa1024.pem");
