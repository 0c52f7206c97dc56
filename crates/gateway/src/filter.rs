//! The packet filter of the host: one table of ours, as a whole.
//!
//! The host itself reaches node ports, external addresses and host ports by a translation of what it sends. With the
//! local gateway, pods leave under the host's address, and clients that keep theirs are translated here.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use crate::facts::{Exposed, Facts, Mode, Place};
use crate::text::fingerprint;

/// The family and name of our table.
pub const TABLE: &str = "inet ovnkube";

/// The family and name of the table that keeps frames from the kernel which a bridge in userspace gets copies of.
pub const SHIELD: &str = "netdev ovnkube";

/// A comment on the table, from which its content is known when it is read back.
const MARK: &str = "ovnkube ";

/// The whole table, as `nft -f` takes it: whatever it was before, it is this afterwards, in one step.
pub fn filter(facts: &Facts) -> String {
    let (body, shield) = (body(facts), shield(facts));
    format!(
        "table {TABLE} {{}}\ndelete table {TABLE}\ntable {TABLE} {{\n\tcomment \"{MARK}{:016x}\"\n{body}}}\n{shield}",
        fingerprint(&format!("{body}{shield}"))
    )
}

/// Without it the kernel would answer what the bridge hands it as well, twice.
fn shield(facts: &Facts) -> String {
    let Some(device) = &facts.bridge.shielded else { return String::new() };
    format!(
        "table {SHIELD} {{}}\ndelete table {SHIELD}\ntable {SHIELD} {{\n\tchain uplink {{\n\t\ttype filter hook ingress device \
         \"{device}\" priority -500; policy drop;\n\t}}\n}}\n"
    )
}

/// Which content a table has, by what `nft list table` printed or by what we wrote.
pub fn filter_fingerprint(text: &str) -> Option<&str> {
    text.split_once("comment \"").and_then(|(_, rest)| rest.strip_prefix(MARK)?.split_once('"')).map(|(mark, _)| mark)
}

struct Words {
    ip: &'static str,
    suffix: &'static str,
    address: &'static str,
    loopback: &'static str,
    protocol: &'static str,
}

fn words(v6: bool) -> Words {
    if v6 {
        Words { ip: "ip6", suffix: "v6", address: "ipv6_addr", loopback: "::1", protocol: "ipv6" }
    } else {
        Words { ip: "ip", suffix: "v4", address: "ipv4_addr", loopback: "127.0.0.0/8", protocol: "ipv4" }
    }
}

fn body(facts: &Facts) -> String {
    let mut text = String::new();
    let families: Vec<bool> = facts.families().collect();
    let exposed = facts.sorted();
    for v6 in &families {
        maps(&mut text, &exposed, *v6);
    }
    if families.contains(&false) {
        chain(&mut text, "loopback", "filter hook prerouting priority -300", not_from_loopback(facts).into_iter());
    }
    chain(&mut text, "output", "nat hook output priority -100", families.iter().flat_map(|v6| to_inside(*v6)));
    let by_kernel = || exposed.iter().filter_map(|exposed| Some((*exposed, facts.by_kernel(exposed)?)));
    let bridge = &facts.bridge.name;
    // Before translations: clients are who they are, and addresses what they asked for.
    let guards = by_kernel().filter_map(|(exposed, _)| guard(bridge, exposed));
    chain(&mut text, "guard", "filter hook prerouting priority -110", guards);
    let to_endpoints = by_kernel().filter_map(|(exposed, endpoints)| to_endpoints(bridge, exposed, &endpoints));
    chain(&mut text, "prerouting", "nat hook prerouting priority -100", to_endpoints);
    // Without an endpoint here clients are dropped, as kube-proxy does: their retries may find one. What is no address of
    // the host would travel back to where it came from, and the host itself must not answer for a Service. Connections
    // that are established have their endpoint's address here, and go on.
    let nowhere = |own: bool| {
        let none = by_kernel().filter(|(_, endpoints)| endpoints.is_empty()).map(|(exposed, _)| exposed);
        let none = none.filter(move |exposed| matches!(exposed.place, Place::Node { .. }) == own);
        none.map(move |exposed| format!("iifname \"{bridge}\" {} drop", asked(exposed)))
    };
    chain(&mut text, "input", "filter hook input priority 0", nowhere(true));
    let forward = std::iter::once(not_into_tunnels(facts)).chain(nowhere(false));
    chain(&mut text, "forward", "filter hook forward priority 0", forward);
    chain(&mut text, "postrouting", "nat hook postrouting priority 100", leaving(facts).into_iter());
    text
}

fn chain(text: &mut String, name: &str, hook: &str, rules: impl Iterator<Item = String>) {
    let rules: Vec<String> = rules.collect();
    if rules.is_empty() {
        return;
    }
    let _ = writeln!(text, "\tchain {name} {{\n\t\ttype {hook}; policy accept;");
    for rule in rules {
        let _ = writeln!(text, "\t\t{rule}");
    }
    text.push_str("\t}\n");
}

/// Where the host itself is sent to.
fn maps(text: &mut String, exposed: &[&Exposed], v6: bool) {
    let Words { suffix, address, .. } = words(v6);
    let (mut ports, mut addresses) = (BTreeMap::new(), BTreeMap::new());
    for exposed in exposed.iter().filter(|exposed| exposed.place.is_ipv6() == v6) {
        let Some((inside, port)) = exposed.inside else { continue };
        let asked = format!("{} . {}", exposed.protocol.word(), exposed.port);
        let target = format!("{inside} . {port}");
        match exposed.place {
            Place::Node { .. } => ports.insert(asked, target),
            Place::Address(address) => addresses.insert(format!("{address} . {asked}"), target),
        };
    }
    for (name, key, elements) in [
        ("node_ports", "inet_proto . inet_service".to_owned(), ports),
        ("addresses", format!("{address} . inet_proto . inet_service"), addresses),
    ] {
        let _ = writeln!(text, "\tmap {name}_{suffix} {{\n\t\ttype {key} : {address} . inet_service");
        if !elements.is_empty() {
            let elements: Vec<String> = elements.iter().map(|(key, value)| format!("{key} : {value}")).collect();
            let _ = writeln!(text, "\t\telements = {{ {} }}", elements.join(", "));
        }
        text.push_str("\t}\n");
    }
}

fn to_inside(v6: bool) -> [String; 2] {
    let Words { ip, suffix, loopback, .. } = words(v6);
    // The kernel has no route back to `::1` from a device: connections from there are refused instead of timing out.
    let from = if v6 { "ip6 saddr != ::1 " } else { "" };
    [
        format!(
            "{from}meta l4proto {{ tcp, udp, sctp }} dnat {ip} to {ip} daddr . meta l4proto . th dport map \
             @addresses_{suffix}"
        ),
        format!(
            "{ip} daddr != {loopback} meta l4proto {{ tcp, udp, sctp }} fib daddr type local dnat {ip} to meta l4proto . th dport \
             map @node_ports_{suffix}"
        ),
    ]
}

/// Pods that leave through the host do so under its address, which other nodes take for a tunnel's (see the same in flows).
fn not_into_tunnels(facts: &Facts) -> String {
    format!("iifname \"{}\" udp dport {} drop", facts.network.management, facts.network.tunnel_port)
}

/// With `route_localnet` the kernel would take packets for and from its loopback addresses also from the network: a pod could
/// reach what listens there. Answers to the host's own come by before they are translated back, and pass.
fn not_from_loopback(facts: &Facts) -> [String; 2] {
    let (management, Words { ip, loopback, .. }) = (&facts.network.management, words(false));
    ["daddr", "saddr"].map(|end| format!("iifname \"{management}\" {ip} {end} {loopback} drop"))
}

/// What clients ask for.
fn asked(exposed: &Exposed) -> String {
    let Words { ip, protocol, .. } = words(exposed.place.is_ipv6());
    let place = match exposed.place {
        Place::Node { .. } => format!("meta nfproto {protocol} fib daddr type local"),
        Place::Address(address) => format!("{ip} daddr {address}"),
    };
    format!("{place} {} dport {}", exposed.protocol.word(), exposed.port)
}

fn guard(bridge: &str, exposed: &Exposed) -> Option<String> {
    let v6 = exposed.place.is_ipv6();
    let Words { ip, .. } = words(v6);
    if exposed.ranges.is_empty() {
        return None;
    }
    let ranges: Vec<String> =
        exposed.ranges.iter().filter(|range| range.is_ipv6() == v6).map(ToString::to_string).collect();
    let from = if ranges.is_empty() { String::new() } else { format!(" {ip} saddr != {{ {} }}", ranges.join(", ")) };
    Some(format!("iifname \"{bridge}\" {}{from} drop", asked(exposed)))
}

/// Without one the kernel takes another with each new table, and clients would move.
const SEED: &str = "0x6f766e6b";

fn to_endpoints(bridge: &str, exposed: &Exposed, endpoints: &[&(IpAddr, u16)]) -> Option<String> {
    let Words { ip, .. } = words(exposed.place.is_ipv6());
    let target = match endpoints {
        [] => return None,
        [(address, port)] => match address {
            IpAddr::V4(address) => format!("{address}:{port}"),
            IpAddr::V6(address) => format!("[{address}]:{port}"),
        },
        many => {
            let count = many.len();
            let choice = if exposed.affinity {
                format!("jhash {ip} saddr mod {count} seed {SEED}")
            } else {
                format!("numgen random mod {count}")
            };
            let ways = many.iter().enumerate().map(|(place, (address, port))| format!("{place} : {address} . {port}"));
            let ways: Vec<String> = ways.collect();
            format!("{choice} map {{ {} }}", ways.join(", "))
        }
    };
    Some(format!("iifname \"{bridge}\" {} dnat {ip} to {target}", asked(exposed)))
}

/// The ports under which pods' connections leave, as with the gateway router's translations.
const SNAT_PORTS: &str = "32768-60999";

/// Under which address packets leave.
fn leaving(facts: &Facts) -> Vec<String> {
    let management = &facts.network.management;
    // What the host sends to a pod's port of its own comes from the address that pods always let in.
    let mut rules = vec![format!("oifname \"{management}\" fib saddr type local ct status dnat masquerade")];
    if facts.mode == Mode::Local {
        for v6 in facts.families() {
            let Some(subnet) = facts.subnet(v6) else { continue };
            let Words { ip, .. } = words(v6);
            let leaves = format!("{ip} saddr {subnet} oifname != \"{management}\"");
            // Under ports at which nobody listens on the host: a pod must not get what is sent to the host's servers.
            for protocol in ["tcp", "udp", "sctp"] {
                rules.push(format!("{leaves} meta l4proto {protocol} masquerade to :{SNAT_PORTS}"));
            }
            rules.push(format!("{leaves} masquerade"));
        }
    }
    rules
}
