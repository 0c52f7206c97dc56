//! Host ports: a pod that runs is reached through them from its first moment.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use lab::Family;

use crate::cluster::{pod, until};
use crate::sandbox::Sandbox;
use crate::site::Site;

const PORT: u16 = 7071;

#[test]
fn add_returns_when_host_ports_lead_to_the_pod() {
    let site = Site::start("cni-hostport", 1, Family::V4);
    // A bridge that is slow: its flows wait for as long as the file is there.
    let slow = site.path(1, "/opt/slow/ovs-ofctl");
    std::fs::create_dir_all(slow.parent().unwrap()).unwrap();
    std::fs::write(&slow, "#!/bin/sh\nwhile [ -e /run/hold ]; do sleep 0.1; done\nexec /usr/bin/ovs-ofctl \"$@\"\n")
        .unwrap();
    std::fs::set_permissions(&slow, std::fs::Permissions::from_mode(0o755)).unwrap();
    site.agent_finding(1, "/opt/slow:/usr/sbin:/usr/bin:/sbin:/bin", &[]);
    until("the gateway is ready", || crate::sandbox::request(&site, 1, "STATUS", &serde_json::json!({})).ok());
    let hold = site.path(1, "/run/hold");
    std::fs::write(&hold, "").unwrap();

    let mut object = pod("default", "web", "n1");
    object["spec"]["containers"][0]["ports"] = serde_json::json!([{"containerPort": 8080, "hostPort": PORT}]);
    site.cluster.apply_all(&[object]);
    let web = Sandbox::make(&site, 1, "sandbox-of-web", "web", &site.uid("web"));
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| web.ask("ADD"));
        let installed = ["--bare", "--columns=name", "find", "Interface", "external_ids:iface-id=default_web"];
        let installed = [&["ovs-vsctl", "--timeout=30"], &installed[..], &["external_ids:ovn-installed=true"]].concat();
        until("its flows are installed", || {
            site.machine(1).run(&installed).ok().filter(|name| !name.trim().is_empty())
        });
        // One without host ports does not wait for them, and is answered later than the first would be.
        site.sandbox("plain", 1).add();
        assert!(!asking.is_finished(), "ADD returned before the host port led to the pod");
        std::fs::remove_file(&hold).unwrap();
        asking.join().unwrap().unwrap();
    });
    let listener = web.within(|| TcpListener::bind(("0.0.0.0", 8080)).unwrap());
    let flows = site.machine(1).run(&["ovs-ofctl", "dump-flows", "br-ex"]).unwrap();
    assert!(flows.contains(&format!("tp_dst={PORT}")), "{flows}");
    // The first attempt counts.
    let target = SocketAddr::from(([10, 99, 0, 11], PORT));
    site.machine(1).connect(target, Duration::from_secs(10)).unwrap();
    drop(listener);
}
