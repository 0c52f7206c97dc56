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
//! Host and gateway router share a MAC and an address, so what arrives belongs to the router if the router asked for it:
//! what the router sends out is committed with a mark, and answers are known by it. The host's own connections are not
//! tracked here: they are what is left over.

use std::net::IpAddr;

use crate::facts::{Bridge, Exposed, Facts, Masquerade, Place, Protocol};
use crate::flow::Flow;

/// Where packets are looked at first.
const FIRST: u8 = 0;
/// What came from outside, tracked.
const ARRIVED: u8 = 1;
/// On its way to the gateway router.
const TO_ROUTER: u8 = 2;
/// On its way to the host.
const TO_HOST: u8 = 3;
/// To an endpoint on the host itself: its source is translated too, so that answers come back here.
const HAIRPIN: u8 = 4;
/// Answers of such an endpoint: back to the address that the router knows.
const HAIRPIN_BACK: u8 = 5;

/// Connections of the gateway router with the outside.
const ZONE: u16 = 64000;
/// The router, as the host sees it.
const ZONE_ROUTER: u16 = 64001;
/// The host, as the router sees it.
const ZONE_HOST: u16 = 64002;
/// The mark of the gateway router's connections.
const OF_ROUTER: &str = "0x1";

const TUNNELS: u16 = 900;
const SERVICES: u16 = 500;
const ANSWERS: u16 = 490;
const INSIDE: u16 = 480;
const NEIGHBOURS_OWN: u16 = 320;
const NEIGHBOURS: u16 = 300;
/// Above the ports: a fragment may have none, and is known by its connection.
const FRAGMENTS: u16 = 210;
const EXPOSED: u16 = 200;
const USUAL: u16 = 100;
const STRAY: u16 = 5;
/// Above the bridge's own last flow, which stays as it is.
const REST: u16 = 1;

/// The flows that the bridge shall have, in an order of their own.
pub fn flows(facts: &Facts) -> Vec<Flow> {
    let mut maker = Maker { facts, bridge: &facts.bridge, flows: Vec::new() };
    for v6 in facts.families() {
        maker.family(v6);
    }
    maker.both_families();
    for exposed in facts.sorted() {
        maker.exposed(exposed);
    }
    maker.flows.sort();
    maker.flows
}

struct Maker<'a> {
    facts: &'a Facts,
    bridge: &'a Bridge,
    flows: Vec<Flow>,
}

/// The words that differ between the families.
struct Words {
    ip: &'static str,
    source: &'static str,
    destination: &'static str,
    udp: &'static str,
    tracked: &'static str,
}

const WORDS: [Words; 2] = [
    Words { ip: "ip", source: "nw_src", destination: "nw_dst", udp: "udp", tracked: "ct_nw_dst" },
    Words { ip: "ipv6", source: "ipv6_src", destination: "ipv6_dst", udp: "udp6", tracked: "ct_ipv6_dst" },
];

fn words(v6: bool) -> &'static Words {
    &WORDS[usize::from(v6)]
}

impl Maker<'_> {
    fn add(&mut self, table: u8, priority: u16, matching: impl Into<String>, actions: impl Into<String>) {
        self.flows.push(Flow::new(table, priority, matching, actions));
    }

    fn family(&mut self, v6: bool) {
        let Some(own) = self.facts.addresses(v6).next() else { return };
        let Bridge { mac, uplink, patch, .. } = self.bridge;
        let (mac, uplink, patch) = (mac.to_string(), *uplink, *patch);
        let Words { ip, .. } = words(v6);
        self.neighbours(v6);
        if let Some(masquerade) = self.facts.masquerade(v6) {
            self.services(v6, own, masquerade);
        }
        let commit = format!("ct(commit,zone={ZONE},exec(set_field:{OF_ROUTER}->ct_mark))");
        let out = format!("{commit},output:{uplink}");
        self.add(FIRST, FRAGMENTS, format!("{ip},in_port={patch},ip_frag=yes"), out.clone());
        self.add(FIRST, USUAL, format!("{ip},in_port={patch}"), out);
        self.add(FIRST, USUAL, format!("{ip},in_port=LOCAL"), format!("output:{uplink}"));
        let arrived = format!("ct(zone={ZONE},table={ARRIVED})");
        self.add(FIRST, FRAGMENTS, format!("{ip},in_port={uplink},dl_dst={mac},ip_frag=yes"), arrived.clone());
        self.add(FIRST, USUAL, format!("{ip},in_port={uplink},dl_dst={mac}"), arrived);
        for state in ["+trk+est", "+trk+rel"] {
            let matching = format!("{ip},ct_state={state},ct_mark={OF_ROUTER}");
            self.add(ARRIVED, USUAL, matching, format!("output:{patch}"));
        }
        // An error about a packet that was not tracked: whoever sent that packet knows.
        let errors: &[(&str, &[u8])] = if v6 { &[("icmp6", &[1, 2, 3, 4])] } else { &[("icmp", &[3, 11, 12])] };
        for (word, kinds) in errors {
            for kind in *kinds {
                let actions = format!("output:{patch},LOCAL");
                self.add(ARRIVED, STRAY, format!("{word},icmp_type={kind}"), actions);
            }
        }
    }

    /// The host answers for what they share; both hear answers and news.
    fn neighbours(&mut self, v6: bool) {
        let Bridge { uplink, patch, .. } = *self.bridge;
        let own: Vec<IpAddr> = self.facts.addresses(v6).collect();
        if v6 {
            // Routers and redirects concern the host alone, and so does who asks for its addresses.
            for kind in 133..=137 {
                let to = if kind == 136 { format!("output:{patch},LOCAL") } else { "LOCAL".to_owned() };
                self.add(FIRST, NEIGHBOURS, format!("icmp6,in_port={uplink},icmp_type={kind}"), to);
                for port in [patch.to_string(), "LOCAL".to_owned()] {
                    let matching = format!("icmp6,in_port={port},icmp_type={kind}");
                    self.add(FIRST, NEIGHBOURS, matching, format!("output:{uplink}"));
                }
            }
            return;
        }
        for address in own {
            let matching = format!("arp,in_port={uplink},arp_op=1,arp_tpa={address}");
            self.add(FIRST, NEIGHBOURS_OWN, matching, "LOCAL");
        }
        self.add(FIRST, NEIGHBOURS, format!("arp,in_port={uplink}"), format!("output:{patch},LOCAL"));
        for port in [patch.to_string(), "LOCAL".to_owned()] {
            self.add(FIRST, NEIGHBOURS, format!("arp,in_port={port}"), format!("output:{uplink}"));
        }
    }

    /// The host and its own gateway router.
    fn services(&mut self, v6: bool, own: IpAddr, masquerade: Masquerade) {
        let Masquerade { router, host, network, .. } = masquerade;
        let patch = self.bridge.patch;
        let Words { ip, source, destination, .. } = words(v6);
        let services: Vec<_> = self.facts.network.services.iter().filter(|net| net.is_ipv6() == v6).copied().collect();
        for services in services {
            self.add(
                FIRST,
                SERVICES,
                format!("{ip},in_port=LOCAL,{destination}={services}"),
                format!("ct(commit,zone={ZONE_HOST},nat(src={host}),table={TO_ROUTER})"),
            );
        }
        // Whatever answers what the host asked for: Services, and routers on the way that have something to say.
        self.add(
            FIRST,
            ANSWERS,
            format!("{ip},in_port={patch},{destination}={host}"),
            format!("ct(zone={ZONE_HOST},nat,table={TO_HOST})"),
        );
        // Between the two of them only: nobody outside knows these addresses.
        for port in [patch.to_string(), "LOCAL".to_owned()] {
            self.add(FIRST, INSIDE, format!("{ip},in_port={port},{destination}={network}"), "drop");
        }
        // A Service's endpoint on this host: the router reaches it by the address that stands for the host.
        self.add(
            FIRST,
            SERVICES,
            format!("{ip},in_port={patch},{source}={own},{destination}={host}"),
            format!("ct(commit,zone={ZONE_HOST},nat(dst={own}),table={HAIRPIN})"),
        );
        self.add(
            HAIRPIN,
            USUAL,
            ip.to_owned(),
            format!("ct(commit,zone={ZONE_ROUTER},nat(src={router}),table={TO_HOST})"),
        );
        self.add(
            FIRST,
            SERVICES,
            format!("{ip},in_port=LOCAL,{destination}={router}"),
            format!("ct(zone={ZONE_ROUTER},nat,table={HAIRPIN_BACK})"),
        );
        self.add(HAIRPIN_BACK, USUAL, ip.to_owned(), format!("ct(commit,zone={ZONE_HOST},nat,table={TO_ROUTER})"));
    }

    fn both_families(&mut self) {
        let Bridge { mac, uplink, patch, .. } = self.bridge;
        let (mac, uplink, patch) = (mac.to_string(), *uplink, *patch);
        // Before all else, and by no connection tracking: other nodes' pods. Hosts of any family may carry them.
        let port = self.facts.network.tunnel_port;
        for Words { udp, .. } in &WORDS {
            self.add(FIRST, TUNNELS, format!("{udp},in_port={uplink},dl_dst={mac},tp_dst={port}"), "LOCAL");
            self.add(FIRST, TUNNELS, format!("{udp},in_port=LOCAL,tp_dst={port}"), format!("output:{uplink}"));
            // Pods leave under this host's address, which other nodes take for a tunnel's: a pod that writes its own tunnel
            // headers would put frames onto any switch, past all policies.
            self.add(FIRST, TUNNELS, format!("{udp},in_port={patch},tp_dst={port}"), "drop");
        }
        // Its MAC is the host's: no bridge may learn it here, nor send back what it knows of.
        self.add(FIRST, STRAY, format!("in_port={patch}"), "drop");
        self.add(FIRST, STRAY, format!("in_port={uplink},dl_dst={mac}"), "LOCAL");
        self.add(FIRST, STRAY, "in_port=LOCAL", format!("output:{uplink}"));
        self.add(FIRST, REST, "", "NORMAL");
        self.add(TO_ROUTER, USUAL, "", format!("set_field:{mac}->eth_dst,output:{patch}"));
        let swap = format!("move:NXM_OF_ETH_DST[]->NXM_OF_ETH_SRC[],set_field:{mac}->eth_dst,LOCAL");
        self.add(TO_HOST, USUAL, "", swap);
        self.add(ARRIVED, REST, "", "LOCAL");
    }

    /// What clients outside ask for goes to the gateway router, and its answers out, without connection tracking.
    fn exposed(&mut self, exposed: &Exposed) {
        if exposed.place.is_loopback() || self.facts.by_kernel(exposed).is_some() {
            return;
        }
        let v6 = exposed.place.is_ipv6();
        let addresses: Vec<IpAddr> = match exposed.place {
            Place::Node { v6 } => self.facts.addresses(v6).collect(),
            Place::Address(address) => vec![address],
        };
        let Bridge { uplink, patch, .. } = *self.bridge;
        let (protocol, port) = (exposed.protocol.flow_word(v6), exposed.port);
        let Words { source, destination, .. } = words(v6);
        for address in addresses {
            let in_ = format!("{protocol},in_port={uplink},{destination}={address},tp_dst={port}");
            self.add(FIRST, EXPOSED, in_, format!("output:{patch}"));
            let out = format!("{protocol},in_port={patch},{source}={address},tp_src={port}");
            self.add(FIRST, EXPOSED, out, format!("output:{uplink}"));
            if exposed.protocol == Protocol::Udp {
                let Words { ip, tracked, .. } = words(v6);
                let whole = format!("{ip},ct_state=+trk+new,{tracked}={address},ct_nw_proto=17,ct_tp_dst={port}");
                self.add(ARRIVED, EXPOSED, whole, format!("output:{patch}"));
            }
        }
    }
}
