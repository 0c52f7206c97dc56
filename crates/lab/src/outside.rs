//! The outside: a router and web server beyond the nodes' uplinks.

use crate::error::{Result, write_file};
use crate::ready::Ready;
use crate::site::{Component, Extras, Site};
use crate::underlay::{BEYOND, OUTSIDE};

/// The web server's port.
pub const WEB_PORT: u16 = 80;

/// Makes the machine, its routes and its web server, which answers every request with `outside` and the client's address.
pub(crate) fn start(site: &Site) -> Result<()> {
    let outside = site.add_attached_machine(OUTSIDE, Extras::default())?;
    outside.run(&[
        "sh",
        "-c",
        "echo 1 > /proc/sys/net/ipv4/ip_forward && echo 1 > /proc/sys/net/ipv6/conf/all/forwarding",
    ])?;
    let mut batch = String::new();
    for address in BEYOND {
        // Far addresses sit on loopback: reached by way of the router, as the internet would be.
        batch.push_str(&format!("addr add {address} dev lo\n"));
    }
    outside.run_with_input(&["ip", "-batch", "-"], &batch)?;
    let configuration = site.machine_dir(OUTSIDE).join("run/haproxy.cfg");
    write_file(&configuration, haproxy_configuration())?;
    let pidfile = site.machine_dir(OUTSIDE).join("run/haproxy.pid");
    // In master-worker mode the pid file is written once the sockets listen.
    let words = ["haproxy", "-W", "-f", "/run/haproxy.cfg", "-p", "/run/haproxy.pid"];
    site.start(Component::new("outside-web", OUTSIDE, Ready::Path(pidfile), &words))
}

fn haproxy_configuration() -> String {
    format!(
        "defaults\n  mode http\n  timeout client 10s\n  timeout server 10s\n  timeout connect 5s\n\
         frontend web\n  bind 0.0.0.0:{WEB_PORT}\n  bind [::]:{WEB_PORT} v6only\n  http-request return status 200 content-type text/plain lf-string \"outside %[src]\\n\"\n"
    )
}
