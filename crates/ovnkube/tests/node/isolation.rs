//! On the userspace datapath the kernel also receives pods' frames: none of them may reach the host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use lab::frames::{BROADCAST, Mac, arp, hexadecimal, mac, neighbour_solicitation, udp};
use lab::{Family, Machine};
use serde_json::{Value, json};

use crate::cluster::until;
use crate::frames::SCRIPT;
use crate::sandbox::{Sandbox, addresses};
use crate::site::Site;

const PORT: u16 = 7777;
const TABLE: &str = "ovnkube-pods";

/// A pod that sends forged frames, and its host.
struct Attack<'a> {
    host: Machine,
    pod: &'a Sandbox,
    /// The host-side interface.
    end: String,
    pod_addresses: Vec<IpAddr>,
    gateway: Ipv4Addr,
    listener: UdpSocket,
}

fn link(text: &str) -> Value {
    serde_json::from_str::<Value>(text).unwrap()[0].clone()
}

impl<'a> Attack<'a> {
    fn new(site: &Site, pod: &'a Sandbox, answer: &Value) -> Self {
        let host = site.machine(1);
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT));
        let listener = host.with_network(|| UdpSocket::bind(any)).unwrap().unwrap();
        listener.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let gateway = answer["ips"][0]["gateway"].as_str().unwrap().parse().unwrap();
        let end = answer["interfaces"][0]["name"].as_str().unwrap().to_owned();
        Self { host, pod, end, pod_addresses: addresses(answer), gateway, listener }
    }

    fn host_addresses(&self) -> Vec<IpAddr> {
        let text = self.host.run(&["ip", "-j", "address", "show", "scope", "global"]).unwrap();
        let devices: Value = serde_json::from_str(&text).unwrap();
        let infos = devices.as_array().unwrap().iter().flat_map(|device| device["addr_info"].as_array().unwrap());
        infos.filter_map(|info| info["local"].as_str()?.parse().ok()).collect()
    }

    /// Whether an ordinary datagram reaches the host through OVN.
    fn reaches_host(&self, to: IpAddr) -> bool {
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        self.pod.within(|| UdpSocket::bind(any).unwrap().send_to(b"open", (to, PORT))).ok();
        let mut text = [0; 64];
        matches!(self.listener.recv(&mut text), Ok(4) if text.starts_with(b"open"))
    }

    /// All datagrams that the listener received, up to an end marker from the host itself.
    fn received_datagrams(&self) -> Vec<String> {
        let own = self.host.with_network(|| UdpSocket::bind("127.0.0.1:0")).unwrap().unwrap();
        own.send_to(b"end", ("127.0.0.1", PORT)).unwrap();
        let mut datagrams = Vec::new();
        let mut buffer = [0; 2048];
        until("the host's own datagram arrives", || {
            let length = self.listener.recv(&mut buffer).ok()?;
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if text != "end" {
                datagrams.push(text.clone());
            }
            (text == "end").then_some(())
        });
        datagrams
    }

    fn forged(&self, end: Mac, own: Mac) -> Vec<Vec<u8>> {
        let router =
            mac(&format!("0a:58:{}", self.gateway.octets().map(|byte| format!("{byte:02x}")).join(":"))).unwrap();
        let mut frames = Vec::new();
        let hosts = self.host_addresses();
        assert!(hosts.iter().any(IpAddr::is_ipv4) && hosts.iter().any(IpAddr::is_ipv6), "{hosts:?}");
        let neighbours: [IpAddr; 2] = ["10.99.0.254".parse().unwrap(), "fd99::fe".parse().unwrap()];
        let strangers: [IpAddr; 2] = ["203.0.113.9".parse().unwrap(), "2001:db8::9".parse().unwrap()];
        for to in &hosts {
            let same = |from: &&IpAddr| from.is_ipv6() == to.is_ipv6();
            let sources = self.pod_addresses.iter().chain(&neighbours).chain(&strangers).filter(same);
            for (place, from) in sources.enumerate() {
                for (name, target) in [("end", end), ("broadcast", BROADCAST), ("router", router)] {
                    let text = format!("forged to {to} by {name} from {from} ({place})");
                    frames.push(udp((target, own), *from, *to, PORT, &text));
                    frames.push(udp((target, [2, 0, 0, 0, 0, 9]), *from, *to, PORT, &text));
                }
            }
            match to {
                IpAddr::V4(to) => {
                    frames.push(arp((BROADCAST, own), "10.99.0.254".parse().unwrap(), *to));
                    frames.push(arp((end, own), self.gateway, *to));
                }
                IpAddr::V6(to) => {
                    let multicast: Ipv6Addr = "ff02::1".parse().unwrap();
                    for target in [*to, multicast] {
                        let from: Ipv6Addr = "fd99::fe".parse().unwrap();
                        frames.push(neighbour_solicitation((end, own), from, target, *to));
                    }
                }
            }
        }
        let everybody: [(IpAddr, IpAddr, Mac); 3] = [
            (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into(), BROADCAST),
            (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into(), end),
            ("fe80::9".parse().unwrap(), "ff02::1".parse().unwrap(), [0x33, 0x33, 0, 0, 0, 1]),
        ];
        frames.extend(everybody.map(|(from, to, target)| udp((target, own), from, to, PORT, "forged to everybody")));
        frames
    }

    /// Sends all forged frames; the host must neither receive nor answer any.
    fn assert_blocked(&self) {
        let show = |name: &str| link(&self.host.run(&["ip", "-j", "-s", "link", "show", "dev", name]).unwrap());
        let end = mac(show(&self.end)["address"].as_str().unwrap()).unwrap();
        let inside = link(&self.pod.run(&["ip", "-j", "link", "show", "dev", "eth0"]));
        let own = mac(inside["address"].as_str().unwrap()).unwrap();
        let received = || show(&self.end)["stats64"]["rx"]["packets"].as_u64().unwrap();
        let before = received();
        let mut frames = self.forged(end, own);
        let IpAddr::V4(address) = self.pod_addresses[0] else { panic!("{:?}", self.pod_addresses) };
        // OVN answers this one last: by then the kernel would have answered the others.
        frames.push(arp((BROADCAST, own), address, self.gateway));
        let count = u64::try_from(frames.len()).unwrap();
        let lines: String = frames.iter().map(|frame| hexadecimal(frame) + "\n").collect();
        let (index, gateway) = (inside["ifindex"].to_string(), hexadecimal(&self.gateway.octets()));
        let words = ["ip", "netns", "exec", &self.pod.name, "perl", "-e", SCRIPT, &index, &gateway];
        let answers = self.host.run_with_input(&words, &lines).unwrap();
        until("all frames are at the host-side interface", || (received() >= before + count).then_some(()));
        assert_eq!(self.received_datagrams(), Vec::<String>::new(), "forged frames reached the host");
        let of_host = answers.lines().filter(|answer| answer.get(12..24) == Some(&hexadecimal(&end)));
        assert_eq!(of_host.count(), 0, "the host answered: {answers}");
    }

    fn chains(&self) -> String {
        self.host.run(&["nft", "list", "table", "netdev", TABLE]).unwrap_or_default()
    }

    /// Whether the interface's chain drops everything.
    fn is_closed(&self, end: &str) -> Option<()> {
        let text = self.chains();
        let chain = text.split_once(&format!("chain {end} {{"))?.1.split_once('}')?.0;
        (!text.contains("dormant") && chain.contains("policy drop") && !chain.contains("accept")).then_some(())
    }
}

#[test]
fn no_pod_frame_bypasses_ovn_to_the_host() {
    let site = Site::start("cni-isolated", 1, Family::Dual);
    site.agents(&[]);
    let one = site.sandbox("one", 1);
    let answer = one.add();
    let attack = Attack::new(&site, &one, &answer);
    // Through OVN datagrams of both families arrive: the listener works.
    for to in ["10.99.0.11", "fd99::b"] {
        until(&format!("the pod reaches {to}"), || attack.reaches_host(to.parse().unwrap()).then_some(()));
    }
    let closed = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "closed", "namespace": "default"}, "spec": {"podSelector": {}, "policyTypes": ["Egress"]}});
    site.cluster.apply(&closed);
    let denied = ["--bare", "--columns=_uuid", "find", "ACL", "action=drop", "direction=from-lport"];
    until("the policy is written", || site.cluster.lab.nbctl(&denied).ok().filter(|rows| !rows.trim().is_empty()));
    site.cluster.lab.nbctl(&["--timeout=60", "--wait=hv", "sync"]).unwrap();
    until("the policy is in effect", || (!attack.reaches_host("10.99.0.11".parse().unwrap())).then_some(()));
    attack.received_datagrams();
    attack.assert_blocked();
    // The host-side interface has no ARP and no addresses.
    let host = site.machine(1);
    assert!(host.run(&["ip", "link", "show", "dev", &attack.end]).unwrap().contains("NOARP"));
    assert_eq!(host.run(&["ip", "address", "show", "dev", &attack.end]).unwrap().matches("inet").count(), 0);

    // External changes of the chains are repaired.
    let end = attack.end.as_str();
    for words in [
        vec!["delete", "table", "netdev", TABLE],
        vec!["delete", "chain", "netdev", TABLE, end],
        vec!["add", "rule", "netdev", TABLE, end, "accept"],
        vec!["add", "chain", "netdev", TABLE, end, "{ policy accept; }"],
        vec!["add", "table", "netdev", TABLE, "{ flags dormant; }"],
    ] {
        let before = site.metric(1, "ovnkube_node_pod_filter_repairs_total");
        host.run(&[&["nft"], &words[..]].concat()).unwrap();
        until(&format!("{end} is isolated after nft {words:?}"), || attack.is_closed(end));
        // A dormant table is enabled without a repair of its chains.
        if words[1] != "table" || words[0] != "add" {
            until("the repair is counted", || {
                (site.metric(1, "ovnkube_node_pod_filter_repairs_total") > before).then_some(())
            });
        }
    }
    attack.assert_blocked();

    // A starting agent isolates pods that an earlier version or another implementation connected.
    site.cluster.lab.kill("agent-n1").unwrap();
    host.run(&["nft", "delete", "table", "netdev", TABLE]).unwrap();
    host.run(&["ip", "link", "add", "other0", "type", "veth", "peer", "name", "other1"]).unwrap();
    let port = ["ovs-vsctl", "--timeout=30", "add-port", "br-int", "other0", "--", "set", "interface", "other0"];
    host.run(&[&port[..], &["external_ids:sandbox=other", "external_ids:iface-id=default_other"]].concat()).unwrap();
    site.cluster.lab.restart("agent-n1").unwrap();
    for end in [end, "other0"] {
        until(&format!("{end} is isolated"), || attack.is_closed(end));
    }
    attack.assert_blocked();
    one.ask("CHECK").unwrap();
    one.delete();
    until("its chain is removed", || (!attack.chains().contains(end)).then_some(()));
}
