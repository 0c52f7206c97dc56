//! A compromised pod that may send any frame: what of it arrives, and which ports of ovnkube it reaches. The results are
//! tables in `docs/security.md`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use lab::matrix::sandbox_network;
use lab::{Databases, Family, GatewayMode, Lab};
use serde_json::Value;

use crate::common::cluster_of;
use crate::report::{Report, Scope};
use crate::sniffer::{Place, Sniffer};
use crate::{node_credentials, pod_frames, pod_reach};
use lab::frames::Mac;

const LIMIT: Duration = Duration::from_secs(120);
/// How often each forged frame is sent: a busy switch may lose one.
const ROUNDS: usize = 3;

/// A pod or a machine with one address of each family.
#[derive(Clone)]
pub(crate) struct Station {
    pub(crate) place: Place,
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
    pub(crate) mac: Mac,
}

impl Station {
    pub(crate) fn addresses(&self) -> [IpAddr; 2] {
        [self.v4.into(), self.v6.into()]
    }
}

/// The attacker, and everybody who must not receive its forged frames.
pub(crate) struct Site {
    pub(crate) lab: Lab,
    pub(crate) attacker: Station,
    /// On the attacker's node.
    pub(crate) neighbour: Station,
    /// On the other node.
    pub(crate) remote: Station,
    pub(crate) own_node: Station,
    pub(crate) other_node: Station,
    pub(crate) outside: Station,
    /// The router port of the attacker's switch.
    pub(crate) gateway: (Mac, Ipv4Addr, Ipv6Addr),
}

/// The first address of each family.
fn split(addresses: impl Iterator<Item = IpAddr> + Clone) -> (Ipv4Addr, Ipv6Addr) {
    let v4 = addresses.clone().find_map(|address| match address {
        IpAddr::V4(v4) => Some(v4),
        IpAddr::V6(_) => None,
    });
    let v6 = addresses.into_iter().find_map(|address| match address {
        IpAddr::V6(v6) => Some(v6),
        IpAddr::V4(_) => None,
    });
    (v4.unwrap(), v6.unwrap())
}

/// As OVN-Kubernetes computes it.
fn mac_of(address: Ipv4Addr) -> Mac {
    let [a, b, c, d] = address.octets();
    [0x0a, 0x58, a, b, c, d]
}

impl Site {
    fn start() -> Self {
        let lab = cluster_of(2, "attack", Family::Dual, GatewayMode::Shared, Databases::Pods);
        let pod = |app: &str, node: &str| -> Station {
            let words = ["-n", "shop", "get", "pods", "-l", &format!("app={app}"), "-o", "json"];
            let pods: Value = serde_json::from_str(&lab.kubectl(&words).unwrap()).unwrap();
            let pods = pods["items"].as_array().unwrap();
            let pod = pods.iter().find(|pod| pod["spec"]["nodeName"] == node).unwrap();
            let machine = lab.machine(node).unwrap();
            let network = sandbox_network(&machine, pod["metadata"]["uid"].as_str().unwrap()).unwrap();
            let ips = pod["status"]["podIPs"].as_array().unwrap();
            let (v4, v6) = split(ips.iter().map(|ip| ip["ip"].as_str().unwrap().parse().unwrap()));
            Station {
                place: Place { name: format!("the pod {app} on {node}"), machine, network },
                v4,
                v6,
                mac: mac_of(v4),
            }
        };
        let machine = |name: &str, number: u8| Station {
            place: Place { name: name.to_owned(), machine: lab.machine(name).unwrap(), network: None },
            v4: Ipv4Addr::new(10, 99, 0, number),
            v6: format!("fd99::{number:x}").parse().unwrap(),
            mac: [0; 6],
        };
        let (attacker, neighbour, remote) = (pod("stranger", "n1"), pod("client", "n1"), pod("client", "n2"));
        let (own_node, other_node, outside) = (machine("n1", 11), machine("n2", 12), machine("outside", 254));
        let hop = |family: &str| -> IpAddr {
            let routes = attacker.place.run(&["ip", "-j", family, "route", "show", "default"]).unwrap();
            let routes: Value = serde_json::from_str(&routes).unwrap();
            routes[0]["gateway"].as_str().unwrap().parse().unwrap()
        };
        let (v4, v6) = split([hop("-4"), hop("-6")].into_iter());
        Self { lab, attacker, neighbour, remote, own_node, other_node, outside, gateway: (mac_of(v4), v4, v6) }
    }

    /// Sends controls, forged frames and controls again; returns for each attempt where it arrived.
    fn deliver(&self, attempts: &[pod_frames::Attempt]) -> Vec<Vec<String>> {
        let marks: Vec<Vec<u8>> = attempts.iter().flat_map(|attempt| attempt.marks.iter().cloned()).collect();
        let places = [&self.neighbour, &self.remote, &self.own_node, &self.other_node, &self.outside];
        let start = || -> Vec<Sniffer> { places.iter().map(|one| Sniffer::start(&one.place, &marks)).collect() };
        let number = |mark: &Vec<u8>| marks.iter().position(|one| one == mark).unwrap();
        let controls: Vec<&pod_frames::Attempt> =
            attempts.iter().filter(|attempt| attempt.scope == Scope::Own).collect();
        assert!(!controls.is_empty());
        let frames: Vec<Vec<u8>> = controls.iter().flat_map(|one| one.frames.iter().cloned()).collect();
        let await_controls = |sniffers: &[Sniffer]| {
            let missing = || -> Vec<String> {
                let missing = controls.iter().filter(|one| {
                    one.marks.iter().any(|mark| !sniffers.iter().any(|sniffer| sniffer.saw(number(mark))))
                });
                missing.map(|one| one.what.clone()).collect()
            };
            lab::poll(LIMIT, || {
                self.attacker.place.send(&frames);
                let missing = missing();
                if missing.is_empty() { Ok(()) } else { Err(missing) }
            })
            .unwrap_or_else(|missing| panic!("unforged frames do not arrive, so the test shows nothing: {missing:#?}"));
        };
        // The first packets of a path may be lost while neighbours resolve.
        await_controls(&start());
        let sniffers = start();
        let forged = attempts.iter().filter(|attempt| attempt.scope != Scope::Own);
        let forged: Vec<Vec<u8>> = forged.flat_map(|attempt| attempt.frames.iter().cloned()).collect();
        for _ in 0..ROUNDS {
            self.attacker.place.send(&forged);
        }
        await_controls(&sniffers);
        let arrived = |attempt: &pod_frames::Attempt| {
            let at = sniffers.iter().filter(|sniffer| attempt.marks.iter().any(|mark| sniffer.saw(number(mark))));
            at.map(|sniffer| sniffer.place.clone()).collect()
        };
        attempts.iter().map(arrived).collect()
    }

    /// The neighbours that OVN's routers have learned.
    fn learned(&self) -> String {
        self.lab.sbctl(&["--bare", "--columns=logical_port,ip,mac", "list", "MAC_Binding"]).unwrap()
    }
}

/// What a pod may send and reach is in `docs/security.md`; a change of it must be reviewed there. Whatever the document says,
/// no forged frame may arrive, and nothing that ovnkube listens on may serve a pod without authorization.
#[test]
fn no_forged_frame_of_a_pod_arrives_and_no_port_serves_it() {
    let site = Site::start();
    let mut report = Report::default();
    report.heading("Frames of a pod");
    report.paragraph(
        "A pod with raw sockets sends each of these, of both families; every pod, node and machine outside that could receive \
         them looks for them. Before and after, unforged frames of the same kinds arrive.",
    );
    report.table(&["attempt", "arrives at", "why"]);
    let attempts = pod_frames::attempts(&site);
    let arrived = site.deliver(&attempts);
    for (attempt, at) in attempts.iter().zip(&arrived) {
        // What is dropped for one receiver and not for another is several attempts.
        let at: Vec<&String> = at.iter().filter(|place| !attempt.passes_by.contains(&place.as_str())).collect();
        let text = at.iter().map(|place| place.as_str()).collect::<Vec<_>>().join(", ");
        println!("{}: {text}", attempt.what);
        report.row(&[&attempt.what, if text.is_empty() { "–" } else { &text }, attempt.why]);
        report.attempts.push((attempt.scope, format!("{}: arrives at {text}", attempt.what), !at.is_empty()));
    }
    let learned = site.learned();
    assert!(!learned.contains("02:00:00:00"), "a router learned a forged MAC: {learned}");
    let attacker = lab::frames::written(site.attacker.mac);
    let blocks = learned.split("\n\n").filter(|block| block.contains(&attacker));
    for block in blocks {
        let own = site.attacker.addresses().map(|address| address.to_string());
        let is_own = own.iter().any(|address| block.lines().any(|line| line == address)) || block.contains("fe80::");
        assert!(is_own, "a router learned a foreign address for the attacker: {block}");
    }
    for (station, device) in [(&site.neighbour, "eth0"), (&site.own_node, "ovn-k8s-mp0")] {
        let file = format!("/proc/sys/net/ipv6/conf/{device}/accept_ra");
        let accepts = station.place.run(&["cat", &file]).unwrap();
        assert_eq!(accepts.trim(), "0", "{} accepts router advertisements", station.place.name);
    }
    pod_reach::attack(&site, &mut report);
    node_credentials::attack(&site, &mut report);
    let of = |scope: Scope, done: bool| -> Vec<&String> {
        report.attempts.iter().filter(|(one, _, did)| *one == scope && *did == done).map(|(_, what, _)| what).collect()
    };
    assert_eq!(of(Scope::Foreign, true), Vec::<&String>::new(), "forged frames arrived, or a port served the pod");
    assert_eq!(of(Scope::Own, false), Vec::<&String>::new(), "controls failed");
    report.compare_with_document("pod attacks", "cluster");
}
