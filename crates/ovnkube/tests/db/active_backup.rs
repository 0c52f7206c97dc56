//! What a member of an active server and its backups reports, and how its schema follows the image.

use crate::conversion::{OLD, version, write_old_schema};
use crate::site::{Member, Site, until};

/// The address of the only member: an EndpointSlice takes no loopback address.
fn member(site: &Site) -> Member {
    let address = site.endpoint(1);
    Member::new(1, "nb", "active", &[]).with(&[
        "--form",
        "active-backup",
        "--nb-endpoints-service",
        "ovnkube-nb",
        "--host",
        &address,
        "--listen",
        &address,
    ])
}

fn await_active(site: &Site, member: &Member) {
    until("the server is active", || {
        let status = site.appctl(member, &["ovsdb-server/sync-status"]).unwrap_or_default();
        status.contains("state: active").then_some(())
    });
}

#[test]
fn an_active_server_is_checked_reported_and_converted() {
    let site = Site::start("active");
    site.namespace("active");
    let new = write_old_schema(&site);
    let current = member(&site);
    let old = current.clone().with(&["--schema-dir", OLD]);
    let data = current.data();
    site.machine().run(&["sh", "-c", &format!("mkdir -p {data} && mount -t tmpfs -o size=100m none {data}")]).unwrap();

    // An image with an older schema.
    site.serve(&old);
    await_active(&site, &old);
    assert_eq!(version(&site, &old), "6.0.0");
    let socket = format!("--db=unix:{}/ovnnb_db.sock", current.run());
    site.machine().run(&["ovn-nbctl", &socket, "ls-add", "kept"]).unwrap();
    until("the manager knows the file", || site.manager(&old)["fileBytes"].as_u64().filter(|size| *size > 0));
    assert_eq!(site.manager(&old)["schema"], "6.0.0");

    // Its file is converted at the start with a newer one, and never back.
    site.stop(&old);
    site.serve(&current);
    await_active(&site, &current);
    assert_eq!(version(&site, &current), new);
    let rows = site.machine().run(&["ovn-nbctl", &socket, "ls-list"]).unwrap();
    assert!(rows.contains("kept"), "{rows}");
    site.stop(&current);
    site.serve(&old);
    await_active(&site, &old);
    let newer = site.await_finding(&old, "SchemaNewer");
    assert!(newer.contains(&format!("the database has schema {new}, newer than 6.0.0")), "{newer}");
    assert_eq!(version(&site, &old), new);
    site.stop(&old);
    site.serve(&current);
    await_active(&site, &current);
    site.await_resolved(&current, "SchemaNewer");

    // A server that dies is reported, also as an Event of the pod, and runs again.
    let pid = format!("kill -9 $(cat {}/ovnnb_db.pid)", current.run());
    site.machine().run(&["sh", "-c", &pid]).unwrap();
    let event = |reason: &str| {
        let selector = format!("reason={reason},involvedObject.name=member-1");
        let events = site.lab.kubectl(&["-n", "active", "get", "events", "--field-selector", &selector, "-o", "name"]);
        events.is_ok_and(|events| !events.trim().is_empty()).then_some(())
    };
    until("the Event NotRunning", || event("NotRunning"));
    await_active(&site, &current);
    site.await_resolved(&current, "NotRunning");

    // A disk that fills up is reported before it is full.
    let filler = format!("{data}/filler");
    site.machine().run(&["fallocate", "-l", "60M", &filler]).unwrap();
    site.await_finding(&current, "DiskAlmostFull");
    until("the Event DiskAlmostFull", || event("DiskAlmostFull"));
    let (text, code) = site.status(&current, &[]);
    assert!(code == 1 && text.contains("problem: DiskAlmostFull"), "{code}: {text}");
    site.machine().run(&["rm", &filler]).unwrap();
    site.await_resolved(&current, "DiskAlmostFull");
    // It was active all the time.
    await_active(&site, &current);
}
