//! Two hosted clusters behind one TLS router. Everything about them that can be equal is equal: names of servers, certificates and
//! CAs, and, later, an address. What separates them is the key of each cluster's CA, because neither Open vSwitch nor our client
//! checks the names of servers.

use std::net::SocketAddr;
use std::time::Duration;

use lab::tcp_forwarder::TcpForwarder;
use lab::{Databases, Family, Lab, LabSpec, Ovn, Program, TlsRoute};
use ovsdb::client::{Client, Config, TableMonitor};

use crate::site::{CONTROL, LIMIT, Pki, create, dump, ovn_controller, until};

const PORT: u16 = 443;
const NAMES: [&str; 2] = ["a.names.lab", "b.names.lab"];
const SCHEMA: &str = "/usr/share/ovn/ovn-sb.ovsschema";
/// The lab's CA has this name.
const CA: &str = "ovn-ca";

fn address(port: u16) -> SocketAddr {
    format!("{CONTROL}:{port}").parse().unwrap()
}

/// Cluster A is the lab's own: southbound database, ovn-controller on n1. Cluster B is a database, and certificates.
struct Sites {
    lab: Lab,
    a: Pki,
    b: Pki,
}

impl Sites {
    fn start() -> Self {
        let ovn = Ovn { databases: Databases::Standalone, ..Ovn::default() };
        let lab = Lab::start(LabSpec::for_test("pki-router").unwrap().nodes(1).family(Family::V4).ovn(ovn)).unwrap();
        let a = Pki::of(&lab);
        let b = create(&a.path("cluster-b"), CA);
        let control = lab.machine("control").unwrap();
        control.run(&["ovsdb-tool", "create", "/var/lib/ovn/b.db", SCHEMA]).unwrap();
        lab.sbctl(&["set", "SB_Global", ".", "external_ids:cluster=a"]).unwrap();
        for name in NAMES {
            lab.set_name(name, &[CONTROL.parse().unwrap()]).unwrap();
        }
        Self { lab, a, b }
    }

    /// Runs the database of cluster B at a port of the control machine.
    fn serve_b(&self, component: &str, port: u16) {
        let socket = format!("/run/ovn/{component}.sock");
        let remotes = [format!("--remote=punix:{socket}"), format!("--remote=pssl:{port}:0.0.0.0")];
        let program = Program::new(component, "ovsdb-server")
            .arguments(["-vconsole:info", "-vsyslog:off", "-vfile:off", "--unixctl=none"])
            .arguments(remotes)
            .arguments(self.b.options())
            .arguments(["/var/lib/ovn/b.db"]);
        self.lab.run(&program).unwrap();
        let database = format!("--db=unix:{socket}");
        let set = [
            "ovn-sbctl",
            "--timeout=10",
            &database,
            "--",
            "init",
            "--",
            "set",
            "SB_Global",
            ".",
            "external_ids:cluster=b",
        ];
        let control = self.lab.machine("control").unwrap();
        until("the database of B", || control.run(&set).map_err(|error| error.to_string()));
    }

    /// Makes the names lead to these ports.
    fn route(&self, ports: [u16; 2]) {
        let routes =
            [(NAMES[0], ports[0]), (NAMES[1], ports[1])].map(|(name, port)| TlsRoute::new(name, address(port)));
        self.lab.route_tls("control", PORT, &routes).unwrap();
    }

    /// The cluster that our client finds behind a name.
    fn found(&self, pki: &Pki, name: &str) -> Result<String, String> {
        dump(&self.lab, pki, &format!("ssl:{name}:{PORT}"), "SB_Global", &["--columns", "external_ids"])
    }

    fn finds(&self, pki: &Pki, name: &str, cluster: &str) {
        let found = self.found(pki, name).unwrap();
        assert!(found.contains(&format!("cluster={cluster}")), "{found}");
    }

    /// Our client and that of Open vSwitch are refused, although the server's certificate has the name that they asked for.
    fn is_refused(&self, pki: &Pki, name: &str) {
        let refused = self.found(pki, name).unwrap_err();
        assert!(refused.contains("certificate") || refused.contains("BadSignature"), "{refused}");
        let remote = format!("ssl:{name}:{PORT}");
        let more = ["--columns", "external_ids", "--verify-host-name"];
        let strict = dump(&self.lab, pki, &remote, "SB_Global", &more).unwrap_err();
        assert!(strict.contains("certificate") || strict.contains("BadSignature"), "{strict}");
        let options = pki.options();
        let words: Vec<&str> = ["ovsdb-client", "--timeout=10"]
            .into_iter()
            .chain(options.iter().map(String::as_str))
            .chain(["dump", &remote, "OVN_Southbound", "SB_Global"])
            .collect();
        let refused = self.lab.node(1).unwrap().run(&words).unwrap_err().to_string();
        assert!(refused.contains("SSL_connect") && !refused.contains("cluster="), "{refused}");
    }

    /// How often ovn-controller was connected so far.
    fn connections(&self) -> usize {
        let log = self.lab.log("n1-ovn-controller").unwrap();
        log.lines().filter(|line| line.contains("|ssl:") && line.ends_with(": connected")).count()
    }

    /// Waits until ovn-controller has refused a server.
    fn ovn_controller_is_refused(&self) {
        let refusals = || {
            let log = self.lab.log("n1-ovn-controller").unwrap();
            log.matches("|SSL_connect: error:").count()
        };
        let before = refusals();
        until("ovn-controller is refused", || if refusals() > before { Ok(()) } else { Err("not yet".to_owned()) });
        ovn_controller(&self.lab).unwrap_err();
    }

    fn set_remote(&self, remote: &str) {
        let value = format!("external_ids:ovn-remote=\"{remote}\"");
        self.lab.node(1).unwrap().run(&["ovs-vsctl", "--no-wait", "set", "Open_vSwitch", ".", &value]).unwrap();
    }

    fn await_controller(&self) {
        until("ovn-controller is connected", || ovn_controller(&self.lab));
    }
}

#[test]
fn clients_of_one_cluster_never_reach_another_ones_database() {
    let sites = Sites::start();
    sites.serve_b("sb-b", 7642);
    sites.route([6642, 7642]);
    sites.finds(&sites.a, NAMES[0], "a");
    sites.finds(&sites.b, NAMES[1], "b");
    let before = sites.connections();
    sites.set_remote(&format!("ssl:{}:{PORT}", NAMES[0]));
    until(
        "ovn-controller uses the router",
        || if sites.connections() > before { Ok(()) } else { Err("not yet".into()) },
    );
    sites.await_controller();

    // A client that asks for the other cluster's name.
    sites.is_refused(&sites.a, NAMES[1]);
    sites.is_refused(&sites.b, NAMES[0]);

    // A router that routes wrongly.
    let before = sites.connections();
    sites.route([7642, 6642]);
    sites.ovn_controller_is_refused();
    sites.is_refused(&sites.a, NAMES[0]);
    sites.is_refused(&sites.b, NAMES[1]);
    assert_eq!(sites.connections(), before);
    sites.route([6642, 7642]);
    sites.await_controller();

    address_of_another_cluster(&sites);

    // The files of B have every transaction since it was created.
    let control = sites.lab.machine("control").unwrap();
    let log = control.run(&["ovsdb-tool", "-mm", "show-log", "/var/lib/ovn/b.db"]).unwrap();
    assert!(log.contains("cluster") && !log.contains("Chassis"), "{log}");
}

/// The server of B gets the address that A's had.
fn address_of_another_cluster(sites: &Sites) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let forwarder = TcpForwarder::start(sites.lab.machine("control").unwrap(), address(6642), None).unwrap();
    let mut config = Config::new(vec![format!("ssl:{}", forwarder.address()).parse().unwrap()], "OVN_Southbound")
        .monitor(TableMonitor::new("SB_Global").columns(&["external_ids"]));
    config.tls = Some(sites.a.tls());
    config.backoff.longest = Duration::from_millis(300);
    let client = {
        let _entered = runtime.enter();
        Client::start(config)
    };
    runtime.block_on(client.connected(LIMIT)).unwrap();
    sites.set_remote(&format!("ssl:{CONTROL}:6642"));
    sites.await_controller();
    let before = sites.connections();

    sites.lab.kill("sb").unwrap();
    sites.lab.kill("sb-b").unwrap();
    sites.serve_b("sb-b-moved", 6642);
    let mut status = client.status();
    let refused = status.wait_for(|status| {
        status.last_error.as_ref().is_some_and(|error| error.contains("certificate") || error.contains("BadSignature"))
    });
    let refused = runtime.block_on(async { tokio::time::timeout(LIMIT, refused).await.unwrap().unwrap().clone() });
    assert_eq!((refused.sessions, refused.connected), (1, false));
    sites.ovn_controller_is_refused();
    assert_eq!(sites.connections(), before);

    sites.lab.kill("sb-b-moved").unwrap();
    sites.lab.restart("sb").unwrap();
    sites.await_controller();
    let back = status.wait_for(|status| status.connected);
    let back = runtime.block_on(async { tokio::time::timeout(LIMIT, back).await.unwrap().unwrap().clone() });
    assert_eq!(back.sessions, 2, "with A only");
}
