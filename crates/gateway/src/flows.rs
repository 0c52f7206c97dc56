//! The flows of the external bridge.
//!
//! ```text
//!                     ┌────────── br-ex ──────────┐
//!   outside ── uplink │ 0 ─ct─▶ 1                 │ patch ── gateway router (OVN)
//!                     │ 0 ──────────▶ 2 to router │
//!                     │ 0 ──────────▶ 3 to host   │ LOCAL ── host
//!                     └───────────────────────────┘
//! ```
//!
//! Host and gateway router share a MAC and an address. A packet from outside belongs to the router if it is a reply to the
//! router: connections of the router are committed with a mark. The host's own connections are not tracked here: everything
//! without the mark is the host's.

use std::net::IpAddr;

use netmodel::Family;

use crate::facts::{Bridge, ExposedPort, Facts, ListenAddress, MasqueradeAddresses, Protocol};
use crate::flow::Flow;

/// Entry table: classifies by port and destination.
const ENTRY: u8 = 0;
/// Packets from outside, after connection tracking.
const TRACKED: u8 = 1;
/// Output to the gateway router.
const TO_ROUTER: u8 = 2;
/// Output to the host.
const TO_HOST: u8 = 3;
/// To an endpoint on the host itself: the source is translated too, so that replies return to the bridge.
const HAIRPIN: u8 = 4;
/// Replies of such an endpoint: translated back to the address that the router knows.
const HAIRPIN_REPLY: u8 = 5;

/// Conntrack zone of connections between the gateway router and the outside.
const ZONE: u16 = 64000;
/// Conntrack zone of the router's address as the host sees it.
const ZONE_ROUTER: u16 = 64001;
/// Conntrack zone of the host's address as the router sees it.
const ZONE_HOST: u16 = 64002;
/// `ct_mark` of the gateway router's connections.
const ROUTER_MARK: &str = "0x1";

const TUNNELS: u16 = 900;
const SERVICES: u16 = 500;
const REPLIES: u16 = 490;
const MASQUERADE: u16 = 480;
const NEIGHBOURS_OWN: u16 = 320;
const NEIGHBOURS: u16 = 300;
/// Above `EXPOSED`: a later fragment has no ports, and belongs to its connection.
const FRAGMENTS: u16 = 210;
const EXPOSED: u16 = 200;
const DEFAULT: u16 = 100;
const UNMATCHED: u16 = 5;
/// Above priority 0, the bridge's own flow, which is left alone.
const FALLBACK: u16 = 1;

/// Desired flows of the external bridge, sorted.
pub fn flows(facts: &Facts) -> Vec<Flow> {
    let mut builder = FlowBuilder { facts, bridge: &facts.bridge, flows: Vec::new() };
    for family in facts.families() {
        builder.family(family);
    }
    builder.family_independent();
    for exposed in facts.sorted_ports() {
        builder.exposed(exposed);
    }
    builder.flows.sort();
    builder.flows
}

struct FlowBuilder<'a> {
    facts: &'a Facts,
    bridge: &'a Bridge,
    flows: Vec<Flow>,
}

/// Match keywords that differ between the families.
struct Keywords {
    ip: &'static str,
    source: &'static str,
    destination: &'static str,
    udp: &'static str,
    tracked: &'static str,
}

const KEYWORDS: [Keywords; 2] = [
    Keywords { ip: "ip", source: "nw_src", destination: "nw_dst", udp: "udp", tracked: "ct_nw_dst" },
    Keywords { ip: "ipv6", source: "ipv6_src", destination: "ipv6_dst", udp: "udp6", tracked: "ct_ipv6_dst" },
];

fn keywords(family: Family) -> &'static Keywords {
    &KEYWORDS[family.index()]
}

impl FlowBuilder<'_> {
    fn add(&mut self, table: u8, priority: u16, matching: impl Into<String>, actions: impl Into<String>) {
        self.flows.push(Flow::new(table, priority, matching, actions));
    }

    fn family(&mut self, family: Family) {
        let Some(own) = self.facts.addresses(family).next() else { return };
        let Bridge { mac, uplink, patch, .. } = self.bridge;
        let (mac, uplink, patch) = (mac.to_string(), *uplink, *patch);
        let Keywords { ip, .. } = keywords(family);
        self.neighbours(family);
        if let Some(masquerade) = self.facts.masquerade(family) {
            self.services(family, own, masquerade);
        }
        let commit = format!("ct(commit,zone={ZONE},exec(set_field:{ROUTER_MARK}->ct_mark))");
        let out = format!("{commit},output:{uplink}");
        self.add(ENTRY, FRAGMENTS, format!("{ip},in_port={patch},ip_frag=yes"), out.clone());
        self.add(ENTRY, DEFAULT, format!("{ip},in_port={patch}"), out);
        self.add(ENTRY, DEFAULT, format!("{ip},in_port=LOCAL"), format!("output:{uplink}"));
        let arrived = format!("ct(zone={ZONE},table={TRACKED})");
        self.add(ENTRY, FRAGMENTS, format!("{ip},in_port={uplink},dl_dst={mac},ip_frag=yes"), arrived.clone());
        self.add(ENTRY, DEFAULT, format!("{ip},in_port={uplink},dl_dst={mac}"), arrived);
        for state in ["+trk+est", "+trk+rel"] {
            let matching = format!("{ip},ct_state={state},ct_mark={ROUTER_MARK}");
            self.add(TRACKED, DEFAULT, matching, format!("output:{patch}"));
        }
        // An ICMP error about an untracked packet goes to both: the sender of that packet recognizes it.
        let errors: &[(&str, &[u8])] = match family {
            Family::V4 => &[("icmp", &[3, 11, 12])],
            Family::V6 => &[("icmp6", &[1, 2, 3, 4])],
        };
        for (word, kinds) in errors {
            for kind in *kinds {
                let actions = format!("output:{patch},LOCAL");
                self.add(TRACKED, UNMATCHED, format!("{word},icmp_type={kind}"), actions);
            }
        }
    }

    /// ARP and neighbour discovery: the host responds for the shared address; both get replies and announcements.
    fn neighbours(&mut self, family: Family) {
        let Bridge { uplink, patch, .. } = *self.bridge;
        let own: Vec<IpAddr> = self.facts.addresses(family).collect();
        if family.is_ipv6() {
            // Router discovery, redirects and solicitations are for the host only.
            for kind in 133..=137 {
                let to = if kind == 136 { format!("output:{patch},LOCAL") } else { "LOCAL".to_owned() };
                self.add(ENTRY, NEIGHBOURS, format!("icmp6,in_port={uplink},icmp_type={kind}"), to);
                for port in [patch.to_string(), "LOCAL".to_owned()] {
                    let matching = format!("icmp6,in_port={port},icmp_type={kind}");
                    self.add(ENTRY, NEIGHBOURS, matching, format!("output:{uplink}"));
                }
            }
            return;
        }
        for address in own {
            let matching = format!("arp,in_port={uplink},arp_op=1,arp_tpa={address}");
            self.add(ENTRY, NEIGHBOURS_OWN, matching, "LOCAL");
        }
        self.add(ENTRY, NEIGHBOURS, format!("arp,in_port={uplink}"), format!("output:{patch},LOCAL"));
        for port in [patch.to_string(), "LOCAL".to_owned()] {
            self.add(ENTRY, NEIGHBOURS, format!("arp,in_port={port}"), format!("output:{uplink}"));
        }
    }

    /// Between the host and its gateway router.
    fn services(&mut self, family: Family, own: IpAddr, masquerade: MasqueradeAddresses) {
        let MasqueradeAddresses { router, host, network, .. } = masquerade;
        let patch = self.bridge.patch;
        let Keywords { ip, source, destination, .. } = keywords(family);
        let services: Vec<_> =
            self.facts.network.services.iter().filter(|net| net.family() == family).copied().collect();
        for services in services {
            self.add(
                ENTRY,
                SERVICES,
                format!("{ip},in_port=LOCAL,{destination}={services}"),
                format!("ct(commit,zone={ZONE_HOST},nat(src={host}),table={TO_ROUTER})"),
            );
        }
        // Replies to the host: from Services, and ICMP errors from routers on the path.
        self.add(
            ENTRY,
            REPLIES,
            format!("{ip},in_port={patch},{destination}={host}"),
            format!("ct(zone={ZONE_HOST},nat,table={TO_HOST})"),
        );
        // Masquerade addresses are used between the two only, and never leave the node.
        for port in [patch.to_string(), "LOCAL".to_owned()] {
            self.add(ENTRY, MASQUERADE, format!("{ip},in_port={port},{destination}={network}"), "drop");
        }
        // An endpoint on this host: the router reaches it by the host's masquerade address.
        self.add(
            ENTRY,
            SERVICES,
            format!("{ip},in_port={patch},{source}={own},{destination}={host}"),
            format!("ct(commit,zone={ZONE_HOST},nat(dst={own}),table={HAIRPIN})"),
        );
        self.add(
            HAIRPIN,
            DEFAULT,
            ip.to_owned(),
            format!("ct(commit,zone={ZONE_ROUTER},nat(src={router}),table={TO_HOST})"),
        );
        self.add(
            ENTRY,
            SERVICES,
            format!("{ip},in_port=LOCAL,{destination}={router}"),
            format!("ct(zone={ZONE_ROUTER},nat,table={HAIRPIN_REPLY})"),
        );
        self.add(HAIRPIN_REPLY, DEFAULT, ip.to_owned(), format!("ct(commit,zone={ZONE_HOST},nat,table={TO_ROUTER})"));
    }

    fn family_independent(&mut self) {
        let Bridge { mac, uplink, patch, .. } = self.bridge;
        let (mac, uplink, patch) = (mac.to_string(), *uplink, *patch);
        // Tunnels to other nodes, before everything else and without connection tracking. Either family may carry them.
        let port = self.facts.network.tunnel_port;
        for Keywords { udp, .. } in &KEYWORDS {
            self.add(ENTRY, TUNNELS, format!("{udp},in_port={uplink},dl_dst={mac},tp_dst={port}"), "LOCAL");
            self.add(ENTRY, TUNNELS, format!("{udp},in_port=LOCAL,tp_dst={port}"), format!("output:{uplink}"));
            // Packets of pods leave with this host's address, from which other nodes accept tunnel packets: a pod that sends its
            // own tunnel headers could inject frames into any switch, past all policies.
            self.add(ENTRY, TUNNELS, format!("{udp},in_port={patch},tp_dst={port}"), "drop");
        }
        // The router's MAC is the host's: the bridge must not learn it from the patch port.
        self.add(ENTRY, UNMATCHED, format!("in_port={patch}"), "drop");
        self.add(ENTRY, UNMATCHED, format!("in_port={uplink},dl_dst={mac}"), "LOCAL");
        self.add(ENTRY, UNMATCHED, "in_port=LOCAL", format!("output:{uplink}"));
        self.add(ENTRY, FALLBACK, "", "NORMAL");
        self.add(TO_ROUTER, DEFAULT, "", format!("set_field:{mac}->eth_dst,output:{patch}"));
        let swap = format!("move:NXM_OF_ETH_DST[]->NXM_OF_ETH_SRC[],set_field:{mac}->eth_dst,LOCAL");
        self.add(TO_HOST, DEFAULT, "", swap);
        self.add(TRACKED, FALLBACK, "", "LOCAL");
    }

    /// Packets of clients go to the gateway router, and its replies out, without connection tracking.
    fn exposed(&mut self, exposed: &ExposedPort) {
        if exposed.listen.is_loopback() || self.facts.kernel_endpoints(exposed).is_some() {
            return;
        }
        let family = exposed.listen.family();
        let addresses: Vec<IpAddr> = match exposed.listen {
            ListenAddress::Node(family) => self.facts.addresses(family).collect(),
            ListenAddress::Address(address) => vec![address],
        };
        let Bridge { uplink, patch, .. } = *self.bridge;
        let (protocol, port) = (exposed.protocol.flow_keyword(family), exposed.port);
        let Keywords { source, destination, .. } = keywords(family);
        for address in addresses {
            let incoming = format!("{protocol},in_port={uplink},{destination}={address},tp_dst={port}");
            self.add(ENTRY, EXPOSED, incoming, format!("output:{patch}"));
            let outgoing = format!("{protocol},in_port={patch},{source}={address},tp_src={port}");
            self.add(ENTRY, EXPOSED, outgoing, format!("output:{uplink}"));
            if exposed.protocol == Protocol::Udp {
                let Keywords { ip, tracked, .. } = keywords(family);
                let whole = format!("{ip},ct_state=+trk+new,{tracked}={address},ct_nw_proto=17,ct_tp_dst={port}");
                self.add(TRACKED, EXPOSED, whole, format!("output:{patch}"));
            }
        }
    }
}
