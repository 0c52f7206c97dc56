//! nftables rules of the host: one table, always written as a whole.
//!
//! The host's own connections to node ports, external addresses and host ports are DNATed on output. In local gateway mode,
//! pods' egress is masqueraded here, and clients whose source is preserved are balanced here.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use netmodel::{Family, GatewayMode};

use crate::facts::{ExposedPort, Facts, ListenAddress};
use crate::fingerprint::fingerprint;

/// Family and name of the table.
pub const TABLE: &str = "inet ovnkube";

/// Family and name of the table that drops the uplink's frames before the kernel sees them: a userspace bridge gets copies.
pub const UPLINK_TABLE: &str = "netdev ovnkube";

/// Prefix of the table's comment, whose fingerprint identifies the content when it is read back.
const MARK: &str = "ovnkube ";

/// Input for `nft -f` that replaces the table in one transaction.
pub fn filter(facts: &Facts) -> String {
    let (body, uplink_table) = (body(facts), uplink_table(facts));
    format!(
        "table {TABLE} {{}}\ndelete table {TABLE}\ntable {TABLE} {{\n\tcomment \"{MARK}{:016x}\"\n{body}}}\n{uplink_table}",
        fingerprint(&format!("{body}{uplink_table}"))
    )
}

/// Without it the kernel would also respond to the frames that the bridge delivers: every response would be sent twice.
fn uplink_table(facts: &Facts) -> String {
    let Some(device) = &facts.bridge.isolated_uplink else { return String::new() };
    format!(
        "table {UPLINK_TABLE} {{}}\ndelete table {UPLINK_TABLE}\ntable {UPLINK_TABLE} {{\n\tchain uplink {{\n\t\ttype filter hook ingress device \
         \"{device}\" priority -500; policy drop;\n\t}}\n}}\n"
    )
}

/// Fingerprint in the output of [`filter`] or of `nft list table`.
pub fn filter_fingerprint(text: &str) -> Option<&str> {
    text.split_once("comment \"").and_then(|(_, rest)| rest.strip_prefix(MARK)?.split_once('"')).map(|(mark, _)| mark)
}

struct Keywords {
    ip: &'static str,
    suffix: &'static str,
    address: &'static str,
    loopback: &'static str,
    protocol: &'static str,
}

fn keywords(family: Family) -> Keywords {
    let suffix = family.short();
    match family {
        Family::V4 => Keywords { ip: "ip", suffix, address: "ipv4_addr", loopback: "127.0.0.0/8", protocol: "ipv4" },
        Family::V6 => Keywords { ip: "ip6", suffix, address: "ipv6_addr", loopback: "::1", protocol: "ipv6" },
    }
}

fn body(facts: &Facts) -> String {
    let mut text = String::new();
    let families: Vec<Family> = facts.families().collect();
    let exposed = facts.sorted_ports();
    for family in &families {
        maps(&mut text, &exposed, *family);
    }
    if families.contains(&Family::V4) {
        chain(&mut text, "loopback", "filter hook prerouting priority -300", drop_loopback(facts).into_iter());
    }
    chain(&mut text, "output", "nat hook output priority -100", families.iter().flat_map(|family| host_dnat(*family)));
    let in_kernel = || exposed.iter().filter_map(|exposed| Some((*exposed, facts.kernel_endpoints(exposed)?)));
    let bridge = &facts.bridge.name;
    // Before DNAT, so that rules match the client's address and the address it connected to.
    let source_range_drops = in_kernel().filter_map(|(exposed, _)| source_range_drop(bridge, exposed));
    chain(&mut text, "guard", "filter hook prerouting priority -110", source_range_drops);
    let endpoint_dnat = in_kernel().filter_map(|(exposed, endpoints)| endpoint_dnat(bridge, exposed, &endpoints));
    chain(&mut text, "prerouting", "nat hook prerouting priority -100", endpoint_dnat);
    // Without an endpoint on this node clients are dropped, as kube-proxy does: their retransmissions may find one. Packets to
    // an address that is not the host's would be routed back, and the host itself must not respond for a Service. Established
    // connections have their endpoint's address at this hook and continue.
    let without_endpoint = |own: bool| {
        let none = in_kernel().filter(|(_, endpoints)| endpoints.is_empty()).map(|(exposed, _)| exposed);
        let none = none.filter(move |exposed| matches!(exposed.listen, ListenAddress::Node(_)) == own);
        none.map(move |exposed| format!("iifname \"{bridge}\" {} drop", client_match(exposed)))
    };
    chain(&mut text, "input", "filter hook input priority 0", without_endpoint(true));
    let forward = std::iter::once(drop_to_tunnel_port(facts)).chain(without_endpoint(false));
    chain(&mut text, "forward", "filter hook forward priority 0", forward);
    chain(&mut text, "postrouting", "nat hook postrouting priority 100", source_nat(facts).into_iter());
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

/// Maps from what the host connects to, to its target.
fn maps(text: &mut String, exposed: &[&ExposedPort], family: Family) {
    let Keywords { suffix, address, .. } = keywords(family);
    let (mut ports, mut addresses) = (BTreeMap::new(), BTreeMap::new());
    for exposed in exposed.iter().filter(|exposed| exposed.listen.family() == family) {
        let Some((target, port)) = exposed.host_target else { continue };
        let key = format!("{} . {}", exposed.protocol.keyword(), exposed.port);
        let target = format!("{target} . {port}");
        match exposed.listen {
            ListenAddress::Node(_) => ports.insert(key, target),
            ListenAddress::Address(address) => addresses.insert(format!("{address} . {key}"), target),
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

fn host_dnat(family: Family) -> [String; 2] {
    let Keywords { ip, suffix, loopback, .. } = keywords(family);
    // The kernel has no route back to `::1` from a device: connections from there are refused rather than timing out.
    let from = if family.is_ipv6() { "ip6 saddr != ::1 " } else { "" };
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

/// Packets of pods leave with the host's address, from which other nodes accept tunnel packets (see the same rule in flows).
fn drop_to_tunnel_port(facts: &Facts) -> String {
    format!("iifname \"{}\" udp dport {} drop", facts.network.management, facts.network.tunnel_port)
}

/// With `route_localnet` the kernel would accept packets to and from loopback addresses from the network: a pod could reach what
/// listens there. Replies to the host's own connections are not translated back yet at this hook, and pass.
fn drop_loopback(facts: &Facts) -> [String; 2] {
    let (management, Keywords { ip, loopback, .. }) = (&facts.network.management, keywords(Family::V4));
    ["daddr", "saddr"].map(|end| format!("iifname \"{management}\" {ip} {end} {loopback} drop"))
}

/// Matches packets from clients to an exposed port.
fn client_match(exposed: &ExposedPort) -> String {
    let Keywords { ip, protocol, .. } = keywords(exposed.listen.family());
    let address = match exposed.listen {
        ListenAddress::Node(_) => format!("meta nfproto {protocol} fib daddr type local"),
        ListenAddress::Address(address) => format!("{ip} daddr {address}"),
    };
    format!("{address} {} dport {}", exposed.protocol.keyword(), exposed.port)
}

fn source_range_drop(bridge: &str, exposed: &ExposedPort) -> Option<String> {
    let family = exposed.listen.family();
    let Keywords { ip, .. } = keywords(family);
    if exposed.source_ranges.is_empty() {
        return None;
    }
    let ranges: Vec<String> =
        exposed.source_ranges.iter().filter(|range| range.family() == family).map(ToString::to_string).collect();
    let from = if ranges.is_empty() { String::new() } else { format!(" {ip} saddr != {{ {} }}", ranges.join(", ")) };
    Some(format!("iifname \"{bridge}\" {}{from} drop", client_match(exposed)))
}

/// Fixed, because the kernel would choose another seed for each new table, and clients would change endpoints.
const SEED: &str = "0x6f766e6b";

fn endpoint_dnat(bridge: &str, exposed: &ExposedPort, endpoints: &[&(IpAddr, u16)]) -> Option<String> {
    let Keywords { ip, .. } = keywords(exposed.listen.family());
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
            let targets =
                many.iter().enumerate().map(|(index, (address, port))| format!("{index} : {address} . {port}"));
            let targets: Vec<String> = targets.collect();
            format!("{choice} map {{ {} }}", targets.join(", "))
        }
    };
    Some(format!("iifname \"{bridge}\" {} dnat {ip} to {target}", client_match(exposed)))
}

/// Source ports of pods' egress, the same as the gateway router's SNAT uses.
const SNAT_PORTS: &str = "32768-60999";

/// Source NAT of packets that leave the host.
fn source_nat(facts: &Facts) -> Vec<String> {
    let management = &facts.network.management;
    // The host's connections to host ports come from the management port's address, which policies always allow.
    let mut rules = vec![format!("oifname \"{management}\" fib saddr type local ct status dnat masquerade")];
    if facts.mode == GatewayMode::Local {
        for family in facts.families() {
            let Some(subnet) = facts.subnet(family) else { continue };
            let Keywords { ip, .. } = keywords(family);
            let leaves = format!("{ip} saddr {subnet} oifname != \"{management}\"");
            // Ports on which nothing on the host listens: a pod must not receive packets for the host's servers.
            for protocol in ["tcp", "udp", "sctp"] {
                rules.push(format!("{leaves} meta l4proto {protocol} masquerade to :{SNAT_PORTS}"));
            }
            rules.push(format!("{leaves} masquerade"));
        }
    }
    rules
}
