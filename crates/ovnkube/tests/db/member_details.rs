//! `ovnkube db status` shows every member in full, by what its own manager reports to the others.

use serde_json::Value;

use crate::nodes::Pki;
use crate::site::{Member, Site, endpoint, host, until};

/// The port of the TLS listener; the other one is that of the plain listener.
const TLS_PORT: u16 = 9204;

/// The northbound members of a report, and the exit status.
fn members(site: &Site, member: &Member, address: &str, words: &[&str]) -> Option<(Vec<Value>, i32)> {
    let (text, code) = site.status_of(member, address, &[words, &["-o", "json"]].concat());
    // Warnings of the command are in the same log.
    let report: Value = serde_json::from_str(&text[text.find("[\n")?..]).ok()?;
    Some((report[0]["members"].as_array()?.clone(), code))
}

fn is_full(member: &Value) -> bool {
    let details = &member["details"];
    let numbers = [&member["term"], &member["index"], &member["lag"], &details["clients"], &details["fileBytes"]];
    let more = [&details["diskFreeBytes"], &details["residentBytes"], &details["raft"]["log"][1]];
    let texts = [&member["role"], &member["since"], &details["serverVersion"], &details["schema"]];
    numbers.into_iter().chain(more).all(Value::is_number) && texts.into_iter().all(Value::is_string)
}

#[test]
fn every_raft_member_is_shown_in_full_from_any_of_them() {
    let site = Site::start("details");
    site.namespace("details");
    let pki = Pki::create(&site);
    let files = ["control/ovn.key", "control/ovn.crt", "control/ca.crt"].map(|file| pki.path(file));
    let [key, certificate, authorities] = files.each_ref().map(String::as_str);
    let tls = ["--nb-client-privkey", key, "--nb-client-cert", certificate, "--nb-client-cacert", authorities];
    let all: Vec<Member> = (1..=3)
        .map(|number| {
            let listen = format!("{}:{TLS_PORT}", host(number));
            let metrics = ["--metrics-tls-bind-address", &listen, "--metrics-tls-cert", certificate];
            let member = Member::new(number, "nb", "details", &[1, 2, 3]).with(&tls).with(&metrics);
            member.with(&["--metrics-tls-key", key])
        })
        .collect();
    all.iter().for_each(|member| site.serve(member));
    all.iter().for_each(|member| site.await_member(member));
    let address: Vec<String> = (1..=3).map(|number| format!("ssl:{}:6641", host(number))).collect();
    let address = address.join(",");
    for from in &all {
        until(&format!("{} shows all members in full", from.component()), || {
            let (members, code) = members(&site, from, &address, &tls)?;
            let leaders = members.iter().filter(|member| member["role"] == "leader").count();
            let terms = members.iter().all(|member| member["term"] == members[0]["term"]);
            (members.len() == 3 && members.iter().all(is_full) && leaders == 1 && terms && code == 0).then_some(())
        });
    }
    let (shown, _) = members(&site, &all[0], &address, &tls).unwrap();
    for (member, shown) in all.iter().zip(&shown) {
        assert_eq!(shown["details"]["host"], host(member.number).as_str(), "{shown:#}");
        assert_eq!(shown["details"]["raft"]["server"], shown["server"], "{shown:#}");
    }

    // The report is for members only: with TLS, a client needs a certificate of their CA.
    let url = format!("https://{}:{TLS_PORT}/status", host(2));
    let get = |more: &[&str]| site.machine().run(&[&["curl", "-sSk", url.as_str()], more].concat()).unwrap();
    assert!(get(&[]).starts_with("forbidden"), "{}", get(&[]));
    let stranger = ["--cert", &pki.path("nodes/n1.crt"), "--key", &pki.path("nodes/n1.key")];
    assert!(get(&stranger).starts_with("forbidden"), "{}", get(&stranger));
    assert!(get(&["--cert", certificate, "--key", key]).contains("\"member\":\"member-2\""));

    // A manager whose server is killed and cannot start again still reports, and says why.
    let (dead, gone) = (&all[1], &all[2]);
    let pid = format!("{}/ovnnb_db.pid", dead.run());
    site.shell(&format!("head -c 4096 /dev/zero > {0}; kill -9 $(cat {pid})", dead.file()));
    let problem = until("the manager without a server is shown", || {
        let (members, code) = members(&site, &all[0], &address, &tls)?;
        let details = &members[1]["details"];
        let found = details["findings"].as_array()?.iter().any(|finding| finding["name"] == "DamagedFile");
        let rest = is_full(&members[0]) && is_full(&members[2]);
        (found && rest && code == 1 && details["role"].is_null()).then(|| site.status_of(&all[0], &address, &tls).0)
    });
    assert!(problem.contains(&format!("note: ssl:{}:6641: DamagedFile: ", host(2))), "{problem}");

    // One that is gone altogether is shown with the reason, and the rest anyway.
    site.stop(gone);
    let (text, code) = site.status_of(&all[0], &address, &tls);
    let reason = format!("no details of ssl:{0}:6641: its manager cannot be reached at {0}:{TLS_PORT}: ", host(3));
    assert!(code == 1 && text.contains(&reason), "{code}: {text}");
    let (shown, _) = members(&site, &all[0], &address, &tls).unwrap();
    assert!(shown[0]["details"]["fileBytes"].is_number() && shown[2]["details"].is_null(), "{shown:#?}");
}

#[test]
fn an_active_server_is_shown_with_its_backups_from_any_of_them() {
    let site = Site::start("backups");
    site.namespace("backups");
    // What the Service of the manifest would have.
    let slice = serde_json::json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "members", "namespace": "backups", "labels": {"kubernetes.io/service-name": "ovnkube-db"}},
        "endpoints": [{"addresses": [site.endpoint(1)]}, {"addresses": [site.endpoint(2)]}],
    });
    site.lab.apply(&slice.to_string()).unwrap();
    let all = [1, 2].map(|number| {
        let address = endpoint(number);
        let form = ["--form", "active-backup", "--nb-endpoints-service", "ovnkube-nb", "--peers-service", "ovnkube-db"];
        Member::new(number, "nb", "backups", &[]).with(&form).with(&["--host", &address, "--listen", &address])
    });
    all.iter().for_each(|member| site.serve(member));
    let address = format!("tcp:{}:6641", endpoint(1));
    let service = ["--nb-endpoints-service", "backups/ovnkube-nb"];
    for from in &all {
        until(&format!("{} shows the active server and its backup", from.component()), || {
            let (members, code) = members(&site, from, &address, &service)?;
            let [active, backup] = members.as_slice() else { return None };
            let known = |member: &Value| {
                let details = &member["details"];
                member["connected"] == true
                    && member["since"].is_string()
                    && [&details["clients"], &details["fileBytes"], &details["diskFreeBytes"]]
                        .iter()
                        .all(|it| it.is_number())
            };
            let roles = active["role"] == "active" && backup["role"] == "backup";
            (roles && known(active) && known(backup) && code == 0).then_some(())
        });
    }

    // Without its manager, a backup is shown with the reason. Clients do not need it, so the command does not fail.
    let (shown, _) = members(&site, &all[0], &address, &service).unwrap();
    let backup = all.iter().find(|member| shown[1]["details"]["host"] == endpoint(member.number).as_str()).unwrap();
    let active = all.iter().find(|member| member.number != backup.number).unwrap();
    site.stop(backup);
    let (text, code) = site.status_of(active, &address, &service);
    let reason =
        format!("no details of tcp:{0}:6641: its manager cannot be reached at {0}:9104: ", endpoint(backup.number));
    assert!(code == 0 && text.contains(&reason) && text.contains("unreachable"), "{code}: {text}");
}
