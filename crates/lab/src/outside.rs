//! The outside: a router and web server on the nodes' external network.

use crate::error::{Result, write_file};
use crate::ready::Ready;
use crate::supervisor::{Component, MachineOptions, Supervisor};
use crate::underlay::{EXTERNAL_ADDRESSES, OUTSIDE};

/// Port of the web server of machine `outside`.
pub const WEB_PORT: u16 = 80;

/// Creates the machine and its web server, which answers every request with `outside` and the client's address.
pub(crate) fn start(supervisor: &Supervisor) -> Result<()> {
    let outside = supervisor.add_addressed_machine(OUTSIDE, MachineOptions::default())?;
    outside.run(&[
        "sh",
        "-c",
        "echo 1 > /proc/sys/net/ipv4/ip_forward && echo 1 > /proc/sys/net/ipv6/conf/all/forwarding",
    ])?;
    let mut batch = String::new();
    for address in EXTERNAL_ADDRESSES {
        // On loopback: reachable only through this router, as the internet would be.
        batch.push_str(&format!("addr add {address} dev lo\n"));
    }
    outside.run_with_input(&["ip", "-batch", "-"], &batch)?;
    let configuration = supervisor.machine_dir(OUTSIDE).join("run/haproxy.cfg");
    write_file(&configuration, haproxy_configuration())?;
    let pidfile = supervisor.machine_dir(OUTSIDE).join("run/haproxy.pid");
    // In master-worker mode haproxy writes the pid file once the sockets listen.
    let args = ["haproxy", "-W", "-f", "/run/haproxy.cfg", "-p", "/run/haproxy.pid"];
    supervisor.start(Component::new("outside-web", OUTSIDE, Ready::Path(pidfile), &args))
}

fn haproxy_configuration() -> String {
    format!(
        "defaults\n  mode http\n  timeout client 10s\n  timeout server 10s\n  timeout connect 5s\n\
         frontend web\n  bind 0.0.0.0:{WEB_PORT}\n  bind [::]:{WEB_PORT} v6only\n  http-request return status 200 content-type text/plain lf-string \"outside %[src]\\n\"\n"
    )
}
