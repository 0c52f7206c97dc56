//! Which ports of ovnkube a pod reaches, and what they serve it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use lab::Machine;

use crate::pod_attack::Site;
use crate::report::{Report, Scope};

const DATABASES: [(u16, &str); 5] = [
    (6641, "northbound database"),
    (6642, "southbound database, for nodes"),
    (6643, "northbound raft members"),
    (6644, "southbound raft members"),
    (6646, "southbound database, for the control plane"),
];
/// The southbound server behind the listener for nodes.
const INWARD: u16 = 6648;
const METRICS: [(u16, &str); 5] = [
    (9102, "controller"),
    (9103, "node agent"),
    (9104, "northbound manager"),
    (9105, "southbound manager"),
    (9108, "signer"),
];
/// Programs of ovnkube and of its databases.
const OURS: [&str; 6] = ["ovnkube", "ovsdb-server", "ovn-northd", "ovn-controller", "ovs-vswitchd", "ovsdb-tool"];

/// A listening socket of one of our programs.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Listener {
    port: u16,
    loopback: bool,
}

/// The TCP listeners of our programs on a machine.
fn listeners(machine: &Machine) -> BTreeSet<Listener> {
    let text = machine.run(&["ss", "-Hltnp"]).unwrap();
    let of_line = |line: &str| {
        let local = line.split_whitespace().nth(3)?;
        let users = line.split_once("users:")?.1;
        OURS.iter().any(|name| users.contains(&format!("\"{name}\""))).then_some(())?;
        let (address, port) = local.rsplit_once(':')?;
        let address = address.trim_matches(['[', ']']).split('%').next()?;
        // Such as `*`: every address.
        let loopback = address.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
        Some(Listener { port: port.parse().unwrap(), loopback })
    };
    assert!(text.contains("users:"), "no programs in {text}");
    text.lines().filter_map(of_line).collect()
}

/// What a client in a pod is served.
struct Client<'a> {
    site: &'a Site,
}

impl Client<'_> {
    /// The output of a shell script in the pod's network; `$1` is the address with its port.
    fn ask(&self, target: SocketAddr, script: &str, more: &str) -> String {
        let words = ["sh", "-c", script, "sh", &target.to_string(), more];
        self.site.attacker.place.run(&words).unwrap_or_else(|error| panic!("{target}: {error}"))
    }

    /// A request of OVSDB without TLS.
    fn plain(&self, target: SocketAddr) -> String {
        // curl sends the request as it is, and shows whatever comes back.
        let script = "printf '{\"method\":\"list_dbs\",\"params\":[],\"id\":0}' | timeout 3 curl -gsS --max-time 2 \"telnet://$1\" 2>&1 || true";
        self.ask(target, script, "")
    }

    /// The same with TLS, without a client certificate.
    fn without_certificate(&self, target: SocketAddr) -> String {
        let script = "printf '{\"method\":\"list_dbs\",\"params\":[],\"id\":0}' | timeout 10 openssl s_client -quiet -connect \"$1\" 2>&1 || true";
        self.ask(target, script, "")
    }

    /// The HTTP status of a path; 0 without an answer.
    fn status(&self, target: SocketAddr, scheme: &str, path: &str, token: &str) -> u16 {
        let script = format!(
            "curl -gsk --max-time 10 -o /dev/null -w '%{{http_code}}' -H \"Authorization: Bearer $2\" \"{scheme}://$1{path}\" || true"
        );
        self.ask(target, &script, token).trim().parse().unwrap()
    }
}

fn is_refused(answer: &str) -> bool {
    !answer.contains("\"result\"") && !answer.contains("OVN_") && !answer.contains("_Server")
}

pub(crate) fn attack(site: &Site, report: &mut Report) {
    let client = Client { site };
    report.heading("Ports that a pod reaches");
    report.paragraph(
        "From a pod, by every address of the nodes. Every TCP port on which a program of ovnkube listens outside loopback is in this table.",
    );
    let expected: BTreeSet<u16> = DATABASES.iter().chain(&METRICS).map(|(port, _)| *port).collect();
    let mut open: BTreeMap<&str, BTreeSet<u16>> = BTreeMap::new();
    for (name, station) in [("n1", &site.own_node), ("n2", &site.other_node)] {
        let found = listeners(&station.place.machine);
        let outward: BTreeSet<u16> = found.iter().filter(|one| !one.loopback).map(|one| one.port).collect();
        assert!(outward.is_subset(&expected), "{name}: unknown listeners: {found:?}");
        // Health and changes of the log level are on loopback only.
        let inward: BTreeSet<u16> = found.iter().filter(|one| one.loopback).map(|one| one.port).collect();
        let metrics = METRICS.iter().map(|(port, _)| *port);
        assert!(inward.is_subset(&metrics.chain([INWARD]).collect()), "{name}: {found:?}");
        open.insert(name, outward);
    }
    assert!(open["n1"].is_superset(&BTreeSet::from([6641, 6642, 6646, 9102, 9103, 9104, 9105])), "{open:?}");
    report.table(&["port", "without TLS", "TLS without a certificate", "what it serves a pod"]);
    let machines = [("n1", &site.own_node), ("n2", &site.other_node)];
    let targets = |port: u16| -> Vec<SocketAddr> {
        let on = machines.iter().filter(|(name, _)| open[name].contains(&port));
        on.flat_map(|(_, station)| station.addresses()).map(|address| SocketAddr::new(address, port)).collect()
    };
    for (port, what) in DATABASES {
        let (mut plain, mut nameless, mut reached) = (false, false, false);
        for target in targets(port) {
            plain |= !is_refused(&client.plain(target));
            let answer = client.without_certificate(target);
            nameless |= !is_refused(&answer);
            // It has seen the server's certificate.
            reached |= answer.contains("depth=");
        }
        report.attempts.push((Scope::Own, format!("{port} is reached by TLS"), reached));
        let word = |served: bool| if served { "**served**" } else { "refused" };
        report.row(&[&format!("{port}, {what}"), word(plain), word(nameless), "nothing"]);
        report.attempts.push((Scope::Foreign, format!("{port}, {what}, serves a pod"), plain || nameless));
    }
    metrics(site, &client, report, &targets);
    services(site, report);
}

/// Metrics, and what the same listeners could serve besides.
fn metrics(site: &Site, client: &Client<'_>, report: &mut Report, targets: &dyn Fn(u16) -> Vec<SocketAddr>) {
    let token = |namespace: &str, account: &str| {
        let words = ["-n", namespace, "create", "token", account];
        site.lab.kubectl(&words).unwrap().trim().to_owned()
    };
    let binding = ["create", "clusterrolebinding", "reader", "--clusterrole=ovnkube-metrics-reader"];
    site.lab.kubectl(&["-n", "default", "create", "serviceaccount", "reader"]).unwrap();
    site.lab.kubectl(&[&binding[..], &["--serviceaccount=default:reader"]].concat()).unwrap();
    let (stranger, reader) = (token("shop", "default"), token("default", "reader"));
    for (port, what) in METRICS {
        let mut served = BTreeSet::new();
        for target in targets(port) {
            let plain = client.status(target, "http", "/metrics", &reader);
            let of = |path: &str, token: &str| client.status(target, "https", path, token);
            // They listen on the node's first address.
            if of("/metrics", "none") == 0 {
                continue;
            }
            // Health needs no account on loopback; here it does not exist, and neither does the log level.
            for path in ["/livez", "/readyz", "/log-level"] {
                assert_ne!(of(path, &reader), 200, "{target}{path}");
            }
            let refused = [of("/metrics", "none"), of("/metrics", &stranger)];
            let known = lab::poll(std::time::Duration::from_secs(60), || {
                let status = of("/metrics", &reader);
                if status == 200 { Ok(status) } else { Err(status) }
            });
            report.attempts.push((Scope::Own, format!("{target} serves metrics to their reader"), known.is_ok()));
            let open = plain == 200 || refused.contains(&200);
            report.attempts.push((
                Scope::Foreign,
                format!("{target} serves metrics to a pod: {plain}, {refused:?}"),
                open,
            ));
            served.insert((plain == 200, refused));
        }
        assert_eq!(served.len(), 1, "{port}: the nodes differ: {served:?}");
        let (plain, [nobody, known]) = served.into_iter().next().unwrap();
        let without = if plain { "**served**" } else { "refused" };
        let text = format!("metrics, to an account that RBAC allows (no token: {nobody}, a pod's token: {known})");
        report.row(&[&format!("{port}, {what}"), without, "accepted", &text]);
    }
}

/// No Service of ours has a cluster IP or a node port that would lead to these ports.
fn services(site: &Site, report: &mut Report) {
    let words =
        ["-n", "ovn-kubernetes", "get", "services", "-o", "jsonpath={range .items[*]}{.spec.clusterIP}{\"\\n\"}{end}"];
    let addresses = site.lab.kubectl(&words).unwrap();
    assert!(addresses.lines().count() > 0 && addresses.lines().all(|address| address == "None"), "{addresses}");
    report.paragraph(
        "Health checks (`/livez`, `/readyz`) and `/log-level` listen on loopback only. The Services of ovnkube are headless: they have no \
         cluster IP and no node port. CNI requests and the control sockets of OVN and Open vSwitch are UNIX sockets, in directories \
         of the host.",
    );
}
