//! What a standby knows about its Lease.

use std::time::Duration;

use kubernetes::{Api, Elector, LeaseAccess, LeaseSettings};

use crate::server::{Response, Server};

const LIMIT: Duration = Duration::from_secs(60);

fn list(items: &str) -> Response {
    Response::ok(&format!(r#"{{"kind":"List","metadata":{{"resourceVersion":"7"}},"items":[{items}]}}"#))
}

/// Runs a standby against a script; returns what its Lease's state was in turn, until one satisfies `last`.
fn states(script: Vec<Response>, last: impl Fn(&LeaseAccess) -> bool) -> Vec<LeaseAccess> {
    let server = Server::start(script);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let api = Api::from_kubeconfig(Some(server.kubeconfig()), None).await.unwrap();
        let mut elector = Elector::new(&api, LeaseSettings::new("default", "leader", "me")).unwrap();
        let mut access = elector.access();
        let mut seen = vec![access.borrow_and_update().clone()];
        let watch = async {
            while seen.last().is_none_or(|state| !last(state)) {
                access.changed().await.unwrap();
                seen.push(access.borrow_and_update().clone());
            }
        };
        tokio::select! {
            () = elector.acquire() => panic!("the Lease is held by another process"),
            done = tokio::time::timeout(LIMIT, watch) => done.expect("the state does not change"),
        }
        seen
    })
}

const HELD: &str = r#"{"metadata":{"name":"leader","namespace":"default","resourceVersion":"5"},
    "spec":{"holderIdentity":"other","leaseDurationSeconds":60,"renewTime":"2026-01-01T00:00:00.000000Z"}}"#;

#[test]
fn a_standby_that_may_not_read_its_lease_says_so_until_it_may() {
    let forbidden =
        Response::failing(403, r#"{"kind":"Status","reason":"Forbidden","message":"leases is forbidden","code":403}"#);
    let states = states(vec![forbidden, list(HELD)], |state| *state == LeaseAccess::Works);
    assert_eq!(states.len(), 3, "{states:?}");
    assert_eq!(states[0], LeaseAccess::Unknown);
    let problem = states[1].problem().unwrap();
    assert!(problem.contains("leases is forbidden") && problem.contains("could not take over"), "{problem}");
    assert_eq!(states[2].problem(), None);
}

#[test]
fn a_server_without_leases_is_a_problem() {
    let absent = Response::failing(404, r#"{"kind":"Status","reason":"NotFound","message":"no such type","code":404}"#);
    let states = states(vec![absent], |state| matches!(state, LeaseAccess::Failed(_)));
    assert!(states[1].problem().unwrap().contains("has no Leases"), "{states:?}");
}

/// The holder could not renew during an outage either: its Lease is not taken at the first read that succeeds.
#[test]
fn a_lease_that_expired_during_an_outage_is_not_taken_at_once() {
    let lease = HELD.replace("60", "1");
    let renewed = lease.replace("00:00:00", "00:00:09");
    let failing = Response::failing(500, r#"{"kind":"Status","reason":"InternalError","message":"etcd","code":500}"#);
    let watch = Response::stream(vec![]).staying();
    let reads = [failing, Response::ok(&lease), Response::ok(&renewed)];
    let server = Server::start([list(&lease), watch].into_iter().chain(reads).collect());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let api = Api::from_kubeconfig(Some(server.kubeconfig()), None).await.unwrap();
        let mut elector = Elector::new(&api, LeaseSettings::new("default", "leader", "me")).unwrap();
        let requests = async {
            while server.asked().len() < 5 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            () = elector.acquire() => panic!("the Lease is held by another process"),
            done = tokio::time::timeout(LIMIT, requests) => done.expect("fewer requests than expected"),
        }
    });
    let asked = server.asked();
    assert!(asked.iter().all(|request| request.starts_with("GET ")), "{asked:?}");
}
