//! Faults of one member are named, with the remedy, by its manager and by `ovnkube db status`, also while no server runs.

use std::net::TcpListener;

use crate::site::{LIMIT, Member, Site, host, until};

impl Site {
    pub(crate) fn shell(&self, script: &str) {
        self.machine().run(&["sh", "-c", script]).unwrap();
    }

    /// A member that is a cluster of its own, in a namespace of its own.
    pub(crate) fn alone(&self, number: u32) -> Member {
        let namespace = format!("alone-{number}");
        self.namespace(&namespace);
        let member = Member::new(number, "nb", &namespace, &[number]);
        self.shell(&format!("mkdir -p {} {}", member.data(), member.run()));
        member
    }

    /// The finding is in the metrics and, as a problem, in `db status`.
    fn is_reported(&self, member: &Member, name: &str) {
        let message = self.await_finding(member, name);
        assert!(message.contains(';'), "without a remedy: {message}");
        let metrics = self.metrics(member);
        let line = format!("problem=\"{name}\"}} 1");
        assert!(metrics.contains(&line), "no {line} in {metrics}");
        let (text, code) = self.status(member, &[]);
        assert!(text.contains(&format!("problem: {name}: ")) && code == 1, "{code}: {text}");
        assert!(self.lab.log(&member.component()).unwrap().contains(name));
    }

    /// The finding is the reason of one Event of the member's pod.
    fn has_event(&self, member: &Member, name: &str, remedy: &str) {
        let reason = format!("--field-selector=reason={name}");
        let events = until("the Event of a finding", || {
            let text = self.lab.kubectl(&["-n", &member.namespace, "get", "events", &reason, "-o", "json"]).ok()?;
            let list: serde_json::Value = serde_json::from_str(&text).ok()?;
            list["items"].as_array().filter(|events| !events.is_empty()).cloned()
        });
        assert_eq!(events.len(), 1, "{events:#?}");
        let (event, object) = (&events[0], &events[0]["involvedObject"]);
        assert_eq!((&event["type"], &object["kind"]), (&"Warning".into(), &"Pod".into()), "{event:#}");
        assert_eq!(object["name"], format!("member-{}", member.number), "{event:#}");
        assert!(event["message"].as_str().unwrap().contains(remedy), "{event:#}");
    }

    fn metrics(&self, member: &Member) -> String {
        let url = format!("http://{}:9104/metrics", host(member.number));
        self.machine().run(&["curl", "-sS", &url]).unwrap()
    }
}

#[test]
fn faults_of_a_member_are_named_with_the_remedy() {
    let site = Site::start("findings");

    // Directories that cannot be written, before anything exists.
    let read_only = site.alone(1);
    site.shell(&format!("mount -t tmpfs -o ro none {}", read_only.data()));
    site.serve(&read_only);
    let full = site.alone(2);
    site.shell(&format!("mount -t tmpfs -o size=4k none {0} && (dd if=/dev/zero of={0}/filler || true)", full.data()));
    site.serve(&full);

    // Files of others.
    let damaged = site.alone(3);
    site.shell(&format!("head -c 4096 /dev/zero > {}", damaged.file()));
    let foreign = site.alone(4);
    let create = |file: &str| {
        format!("ovsdb-tool -vconsole:err create-cluster {file} /usr/share/ovn/ovn-nb.ovsschema tcp:127.0.1.4:6643")
    };
    // The record is of the first cluster, the file of the second.
    site.serve(&foreign);
    site.await_member(&foreign);
    site.stop(&foreign);
    site.shell(&format!("rm {0} && {1}", foreign.file(), create(&foreign.file())));
    let standalone = site.alone(5);
    site.shell(&format!("ovsdb-tool -vconsole:err create {} /usr/share/ovn/ovn-nb.ovsschema", standalone.file()));
    let wrong = site.alone(6);
    site.shell(&format!("ovsdb-tool -vconsole:err create {} /usr/share/ovn/ovn-sb.ovsschema", wrong.file()));
    for member in [&damaged, &foreign, &standalone, &wrong] {
        let before = site.sum(&member.file());
        site.serve(member);
        site.await_finding(member, "NotRunning");
        assert_eq!(site.sum(&member.file()), before, "{} was changed", member.file());
    }

    // Another process has the ports.
    let ports = site.alone(7);
    let listeners: Vec<TcpListener> = [6641, 6643]
        .into_iter()
        .map(|port| {
            let address = format!("{}:{port}", host(7));
            site.machine().with_network(move || TcpListener::bind(address).unwrap()).unwrap()
        })
        .collect();
    site.serve(&ports);

    // A list of members without this one, and one with a name that has no address.
    let listed = site.alone(8).with(&["--peers-service", "members"]);
    site.lab
        .apply(
            "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, metadata: {name: members, namespace: alone-8, \
             labels: {kubernetes.io/service-name: members}}, ports: [{port: 6641}], endpoints: [{addresses: [192.0.2.77]}]}",
        )
        .unwrap();
    site.serve(&listed);
    let unnamed = site.alone(9);
    let unnamed = Member { peers: format!("{},no-such-member.test", host(9)), ..unnamed };
    site.serve(&unnamed);

    for (member, name) in [
        (&read_only, "DirectoryNotWritable"),
        (&full, "DiskFull"),
        (&damaged, "DamagedFile"),
        (&foreign, "ForeignCluster"),
        (&standalone, "StandaloneFile"),
        (&wrong, "WrongDatabase"),
        (&ports, "PortInUse"),
        (&listed, "WrongMembers"),
    ] {
        site.is_reported(member, name);
    }
    site.has_event(&standalone, "StandaloneFile", "ovnkube db replace-member");

    // A member that works does not need the name of another one.
    let message = site.await_finding(&unnamed, "PeerNotResolved");
    assert!(message.contains("no-such-member.test") && message.contains("start that member"), "{message}");
    let (text, code) = site.status(&unnamed, &[]);
    assert!(text.contains("note: PeerNotResolved: ") && code == 0, "{code}: {text}");
    assert_eq!(site.finding(&unnamed, "HostNotResolved"), None);

    // Each fault ends, and so does its finding.
    drop(listeners);
    site.await_resolved(&ports, "PortInUse");
    site.shell(&format!("rm {}/filler; mount -o remount,size=64m {}", full.data(), full.data()));
    site.shell(&format!("mount -o remount,rw {}", read_only.data()));
    for member in [&full, &read_only] {
        site.await_member(member);
        site.await_resolved(member, "NotRunning");
    }
}

#[test]
fn a_deleted_control_socket_is_reported_and_status_shows_the_member() {
    let site = Site::start("status");
    let member = site.alone(1);
    site.serve(&member);
    site.await_member(&member);
    until("the first slow check", || site.manager(&member)["schema"].as_str().map(str::to_owned));
    let (text, code) = site.status(&member, &[]);
    for part in ["leader", "election timer 1000 ms", "LAST WRITE", "Z  ", " MB  ", "OPEN VSWITCH"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert_eq!(code, 0, "{text}");
    assert!(!text.contains("KnownRaftBugs"), "a single member holds no elections: {text}");

    // The watch prints one document per change, also for changes that the test did not make. A line may be incomplete yet.
    let watch = site.watch(&member);
    let documents = || site.lab.log(&watch).ok().filter(|log| log.ends_with('\n'));
    let before = until("the first document", documents).lines().count();
    let socket = format!("--db=unix:{}/ovnnb_db.sock", member.run());
    site.machine().run(&["ovn-nbctl", &socket, "ls-add", "one"]).unwrap();
    let log = until("a document for the change", || documents().filter(|log| log.lines().count() > before));
    for line in log.lines() {
        let report: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(report[0]["database"], "OVN_Northbound");
    }
    site.lab.kill(&watch).unwrap();

    site.machine().run(&["rm", &member.control()]).unwrap();
    let message = site.await_finding(&member, "NoReply");
    assert!(message.contains("its control socket was deleted"), "{message}");
    // A leader that cannot be asked is not shown as one.
    assert!(!site.metrics(&member).contains("server_role=\"leader\""));
    let (text, code) = site.status(&member, &[]);
    assert!(text.contains("problem: NoReply") && code == 1, "{code}: {text}");
    site.lab.terminate(&member.component(), LIMIT).unwrap();
}

impl Site {
    fn watch(&self, member: &Member) -> String {
        let address = format!("tcp:{}:6641", host(member.number));
        let program = lab::Program::new("watch", env!("CARGO_BIN_EXE_ovnkube"))
            .arguments(["db", "status", "nb", "--watch", "-o", "json", "--run-dir", &member.run()])
            .environment("OVNKUBE_OVNNORTH_ADDRESS", address);
        self.lab.run(&program).unwrap();
        "watch".to_owned()
    }
}
