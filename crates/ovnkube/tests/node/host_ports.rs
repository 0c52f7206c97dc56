//! Host ports: they work when ADD returns.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use lab::Family;
use lab::frames::{BROADCAST, arp, hexadecimal, mac, udp};
use serde_json::Value;

use crate::cluster::{pod, until};
use crate::frames::SCRIPT;
use crate::sandbox::Sandbox;
use crate::site::Site;

const PORT: u16 = 7071;
/// A host port at which the test listens.
const LISTEN_PORT: u16 = 7072;

#[test]
fn add_waits_for_host_port_flows() {
    let site = Site::start("cni-hostport", 1, Family::V4);
    // `ovs-ofctl` hangs as long as the file exists.
    let slow = site.path(1, "/opt/slow/ovs-ofctl");
    std::fs::create_dir_all(slow.parent().unwrap()).unwrap();
    std::fs::write(&slow, "#!/bin/sh\nwhile [ -e /run/hold ]; do sleep 0.1; done\nexec /usr/bin/ovs-ofctl \"$@\"\n")
        .unwrap();
    std::fs::set_permissions(&slow, std::fs::Permissions::from_mode(0o755)).unwrap();
    site.agent_with_path(1, "/opt/slow:/usr/sbin:/usr/bin:/sbin:/bin", &[]);
    until("the gateway is ready", || crate::sandbox::request(&site, 1, "STATUS", &serde_json::json!({})).ok());
    let hold = site.path(1, "/run/hold");
    std::fs::write(&hold, "").unwrap();

    let mut object = pod("default", "web", "n1");
    object["spec"]["containers"][0]["ports"] = serde_json::json!([{"containerPort": 8080, "hostPort": PORT}]);
    site.cluster.apply_all(&[object]);
    let web = Sandbox::create(&site, 1, "sandbox-of-web", "web", &site.uid("web"));
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| web.ask("ADD"));
        let installed = ["--bare", "--columns=name", "find", "Interface", "external_ids:iface-id=default_web"];
        let installed = [&["ovs-vsctl", "--timeout=30"], &installed[..], &["external_ids:ovn-installed=true"]].concat();
        until("the pod's flows are installed", || {
            site.machine(1).run(&installed).ok().filter(|name| !name.trim().is_empty())
        });
        // An ADD without host ports does not wait for them.
        site.sandbox("plain", 1).add();
        assert!(!adding.is_finished(), "ADD returned before the host port worked");
        std::fs::remove_file(&hold).unwrap();
        adding.join().unwrap().unwrap();
    });
    let listener = web.within(|| TcpListener::bind(("0.0.0.0", 8080)).unwrap());
    let flows = site.machine(1).run(&["ovs-ofctl", "dump-flows", "br-ex"]).unwrap();
    assert!(flows.contains(&format!("tp_dst={PORT}")), "{flows}");
    // The first attempt must succeed.
    let target = SocketAddr::from(([10, 99, 0, 11], PORT));
    site.machine(1).connect(target, Duration::from_secs(10)).unwrap();
    drop(listener);
    loopback_host_port_is_for_the_host_only(&site);
}

/// The kernel cannot route replies to `::1`: the port works from the host's other addresses, and is refused from `::1`.
#[test]
fn an_ipv6_loopback_host_port_works_from_other_host_addresses() {
    let site = Site::start("cni-loopback6", 1, Family::Dual);
    site.agents(&[]);
    let mut object = pod("default", "inner", "n1");
    let ports = serde_json::json!([{"containerPort": 8080, "hostPort": PORT, "hostIP": "::1", "protocol": "UDP"}]);
    object["spec"]["containers"][0]["ports"] = ports;
    site.cluster.apply_all(&[object]);
    let inner = Sandbox::create(&site, 1, "sandbox-of-inner", "inner", &site.uid("inner"));
    inner.add();
    let server = inner.within(|| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 8080)).unwrap());
    server.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let from = |address: &str| {
        let address: Ipv6Addr = address.parse().unwrap();
        let socket = site.machine(1).with_network(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
        socket.connect((Ipv6Addr::LOCALHOST, PORT)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.send(b"asked").unwrap();
        socket
    };
    let mut text = [0; 16];
    // A datagram may get lost, e.g. while neighbours are resolved.
    let (client, (length, peer)) = crate::cluster::until("a datagram arrives in the pod", || {
        let client = from("fd99::b");
        Some((client, server.recv_from(&mut text).ok()?))
    });
    server.send_to(&text[..length], peer).unwrap();
    assert_eq!(client.recv(&mut text).unwrap(), length);
    let refused = from("::1").recv(&mut text).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

/// The host reaches it from 127.0.0.1, for which `route_localnet` must be set; pods must not be able to use that.
fn loopback_host_port_is_for_the_host_only(site: &Site) {
    let (host, timeout) = (site.machine(1), Duration::from_secs(10));
    let setting = || host.run(&["cat", "/proc/sys/net/ipv4/conf/ovn-k8s-mp0/route_localnet"]).unwrap();
    assert_eq!(setting().trim(), "0", "route_localnet is set without need");
    let mut object = pod("default", "inner", "n1");
    let ports = serde_json::json!([{"containerPort": 8080, "hostPort": PORT, "hostIP": "127.0.0.1"}]);
    object["spec"]["containers"][0]["ports"] = ports;
    site.cluster.apply_all(&[object]);
    let inner = Sandbox::create(site, 1, "sandbox-of-inner", "inner", &site.uid("inner"));
    let answer = inner.add();
    assert_eq!(setting().trim(), "1");
    let listener = inner.within(|| TcpListener::bind(("0.0.0.0", 8080)).unwrap());
    host.connect(SocketAddr::from(([127, 0, 0, 1], PORT)), timeout).unwrap();
    drop(listener);

    // To the management port's MAC: OVN's port security checks the source, not the destination.
    let show = |name: &str, text: String| {
        let links: Value = serde_json::from_str(&text).unwrap();
        (
            links[0]["address"].as_str().and_then(mac).unwrap_or_else(|| panic!("{name}")),
            links[0]["ifindex"].to_string(),
        )
    };
    let (management, _) = show("mp0", host.run(&["ip", "-j", "link", "show", "dev", "ovn-k8s-mp0"]).unwrap());
    let (own, index) = show("eth0", inner.run(&["ip", "-j", "link", "show", "dev", "eth0"]));
    let addresses: Value =
        serde_json::from_str(&host.run(&["ip", "-j", "-4", "address", "show", "dev", "ovn-k8s-mp0"]).unwrap()).unwrap();
    let open: IpAddr = addresses[0]["addr_info"][0]["local"].as_str().unwrap().parse().unwrap();
    let gateway: Ipv4Addr = answer["ips"][0]["gateway"].as_str().unwrap().parse().unwrap();
    let from = crate::sandbox::addresses(&answer)[0];
    let IpAddr::V4(address) = from else { panic!("{from}") };
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, LISTEN_PORT));
    let listener_socket = host.with_network(|| UdpSocket::bind(any)).unwrap().unwrap();
    listener_socket.set_read_timeout(Some(timeout)).unwrap();
    let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
    let frames = [
        udp((management, own), from, loopback, LISTEN_PORT, "to loopback"),
        // Shows that such frames arrive at all, and that the first one did not.
        udp((management, own), from, open, LISTEN_PORT, "to the management port"),
        arp((BROADCAST, own), address, gateway),
    ];
    let lines: String = frames.iter().map(|frame| hexadecimal(frame) + "\n").collect();
    let words = ["ip", "netns", "exec", &inner.name, "perl", "-e", SCRIPT, &index, &hexadecimal(&gateway.octets())];
    host.run_with_input(&words, &lines).unwrap();
    let mut text = [0; 64];
    let length = listener_socket.recv(&mut text).unwrap();
    assert_eq!(String::from_utf8_lossy(&text[..length]), "to the management port");
}
