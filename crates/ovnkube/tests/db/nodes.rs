//! A southbound raft member with certificates of nodes: which port accepts which certificate, what the role allows, and that
//! a rotation, half-written files and restarts cost no node its access.

use std::path::PathBuf;

use lab::pki::Authority;

use crate::site::{Member, Site, host, until};

/// Certificates of both authorities in one directory.
pub(crate) struct Pki {
    directory: PathBuf,
    control: Authority,
    nodes: Authority,
}

impl Pki {
    pub(crate) fn create(site: &Site) -> Self {
        let directory =
            lab::directories::Directories::from_environment().unwrap().lab(site.lab.name()).join("node-pki");
        let create = |name: &str| {
            std::fs::create_dir_all(directory.join(name)).unwrap();
            Authority::create(&directory.join(name), name).unwrap()
        };
        let (control, nodes) = (create("control"), create("nodes"));
        let this = Self { control, nodes, directory };
        this.control.issue("ovn", "ovn", None, &["ovn"], &[]).unwrap();
        this.nodes.issue("n1", "n1", None, &["ovnkube-node"], &[]).unwrap();
        std::fs::copy(this.directory.join("nodes/ca.crt"), this.directory.join("nodes/ca-bundle.crt")).unwrap();
        this
    }

    pub(crate) fn path(&self, file: &str) -> String {
        self.directory.join(file).display().to_string()
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.path(file)).unwrap()
    }

    fn replace(&self, file: &str, text: &str) {
        std::fs::write(self.path("draft"), text).unwrap();
        std::fs::rename(self.path("draft"), self.path(file)).unwrap();
    }
}

/// Runs `ovn-sbctl` at a port of the member with a certificate.
fn sbctl(site: &Site, pki: &Pki, identity: &str, port: u16, words: &[&str]) -> Result<String, String> {
    let address = if port == 6648 { "127.0.0.1".to_owned() } else { host(1) };
    let options = [
        format!("--db=ssl:{address}:{port}"),
        format!("--private-key={}", pki.path(&format!("{identity}.key"))),
        format!("--certificate={}", pki.path(&format!("{identity}.crt"))),
        format!("--ca-cert={}", pki.path("control/ca.crt")),
    ];
    let tool: Vec<&str> = ["ovn-sbctl", "--timeout=8", "--no-leader-only"]
        .into_iter()
        .chain(options.iter().map(String::as_str))
        .collect();
    site.machine().run(&[tool.as_slice(), words].concat()).map_err(|error| error.to_string())
}

#[test]
fn only_nodes_reach_the_port_for_nodes_and_nothing_else_with_their_certificates() {
    let site = Site::start("db-nodes");
    site.namespace("nodes");
    let pki = Pki::create(&site);
    let files =
        ["control/ovn.key", "control/ovn.crt", "control/ca.crt", "nodes/ca-bundle.crt"].map(|file| pki.path(file));
    let [key, certificate, authorities, nodes] = files.each_ref().map(String::as_str);
    let member = Member::new(1, "sb", "nodes", &[1]).with(&[
        "--sb-client-privkey",
        key,
        "--sb-client-cert",
        certificate,
        "--sb-client-cacert",
        authorities,
        "--node-authorities",
        nodes,
    ]);
    site.serve(&member);
    site.await_member(&member);
    let as_control = |words: &[&str]| sbctl(&site, &pki, "control/ovn", 6646, words);
    let as_node = |words: &[&str]| sbctl(&site, &pki, "nodes/n1", 6642, words);
    until("the control plane reaches its port", || as_control(&["init"]).ok());
    as_control(&["chassis-add", "n1", "geneve", "10.1.0.1"]).unwrap();
    as_control(&["chassis-add", "n2", "geneve", "10.1.0.2"]).unwrap();
    // northd writes the permissions of the role; none runs here.
    let permission = "create RBAC_Permission table=Chassis authorization=name insert_delete=true update=other_config";
    let role = "create RBAC_Role name=ovn-controller permissions:Chassis=@p";
    let words: Vec<&str> =
        ["--id=@p"].into_iter().chain(permission.split(' ')).chain(["--"]).chain(role.split(' ')).collect();
    let log = || site.lab.log(&member.component()).unwrap();
    until("the listener waits for the role", || log().contains("until ovn-northd has written").then_some(()));
    as_node(&["show"]).unwrap_err();
    as_control(&words).unwrap();

    until("a node reaches its port", || as_node(&["show"]).ok());
    let set = |chassis: &str, value: &str| as_node(&["set", "Chassis", chassis, &format!("other_config:{value}")]);
    set("n1", "round=1").unwrap();
    let error = set("n2", "round=1").unwrap_err();
    assert!(error.contains("permission error"), "{error}");
    for port in [6646, 6644, 6648] {
        sbctl(&site, &pki, "nodes/n1", port, &["show"]).unwrap_err();
        // The raft port speaks another protocol: what refuses is TLS.
        let ask = format!(
            "sleep 2 | timeout 8 openssl s_client -connect {}:{port} -key {} -cert {} -CAfile {} 2>&1; true",
            if port == 6648 { "127.0.0.1".to_owned() } else { host(1) },
            pki.path("nodes/n1.key"),
            pki.path("nodes/n1.crt"),
            pki.path("control/ca.crt"),
        );
        let said = site.machine().run(&["sh", "-c", &ask]).unwrap();
        assert!(said.contains("alert"), "port {port}: {said}");
    }
    sbctl(&site, &pki, "control/ovn", 6642, &["show"]).unwrap_err();

    // A second authority of the nodes; then the former one is gone, and half a bundle does not replace it.
    let nodes_next = pki.directory.join("nodes-next");
    std::fs::create_dir_all(&nodes_next).unwrap();
    let next = Authority::create(&nodes_next, "nodes-next").unwrap();
    next.issue("n1", "n1", None, &[], &[]).unwrap();
    let (old, new) = (pki.read("nodes/ca-bundle.crt"), pki.read("nodes-next/ca.crt"));
    pki.replace("nodes/ca-bundle.crt", &format!("{new}{old}"));
    until("both are accepted", || sbctl(&site, &pki, "nodes-next/n1", 6642, &["show"]).ok());
    as_node(&["show"]).unwrap();
    pki.replace("nodes/ca-bundle.crt", &new);
    until("the former authority is refused", || as_node(&["show"]).is_err().then_some(()));
    pki.replace("nodes/ca-bundle.crt", &old[..200]);
    until("the manager has seen it", || {
        site.lab.log(&member.component()).ok()?.contains("bundle of the nodes' CA cannot be used").then_some(())
    });
    sbctl(&site, &pki, "nodes-next/n1", 6642, &["show"]).unwrap();

    // A crash of the server, and a restart of the manager, which gets another authority in its memory.
    let server = || site.manager(&member)["process"].as_u64().map(|process| process.to_string());
    let killed = server().unwrap();
    site.machine().run(&["kill", "-KILL", &killed]).unwrap();
    until("a node reaches the new server", || sbctl(&site, &pki, "nodes-next/n1", 6642, &["show"]).ok());
    pki.replace("nodes/ca-bundle.crt", &new);
    // As with their container, both end.
    let process = until("the new server is known", || server().filter(|process| *process != killed));
    site.lab.kill(&member.component()).unwrap();
    site.machine().run(&["kill", "-KILL", &process]).unwrap();
    site.lab.restart(&member.component()).unwrap();
    until("a node reaches the new manager", || sbctl(&site, &pki, "nodes-next/n1", 6642, &["show"]).ok());
    until("and the control plane", || as_control(&["show"]).ok());

    // Without the role, a node could only fail, which ovn-controller repeats without a pause.
    as_control(&["destroy", "RBAC_Role", "ovn-controller"]).unwrap();
    until("the port is closed", || log().contains("the database lost the role").then_some(()));
    sbctl(&site, &pki, "nodes-next/n1", 6642, &["show"]).unwrap_err();
    as_control(&["create", "RBAC_Role", "name=ovn-controller"]).unwrap();
    until("a node reaches the port again", || sbctl(&site, &pki, "nodes-next/n1", 6642, &["show"]).ok());
}
