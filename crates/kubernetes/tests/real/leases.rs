//! Leader election on real Leases.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use kubernetes::{Api, Elector, LeaseAccess, LeaseSettings, LossReason, Outcome, Patch, Verb};
use serde_json::json;
use tokio::sync::oneshot;

use crate::common::{cluster, connect, eventually, get, post, run, soon};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

/// An elector with a short Lease whose expiry a test can await.
fn elector(api: &Api, identity: &str) -> Elector {
    let usual = LeaseSettings::new("default", "leader", identity);
    let (duration, renew_deadline) = (Duration::from_secs(2), Duration::from_secs(1));
    let retry_period = Duration::from_millis(500);
    Elector::new(api, LeaseSettings { duration, renew_deadline, retry_period, ..usual }).unwrap()
}

/// An elector with a Lease that does not expire within the test.
fn enduring(api: &Api, identity: &str) -> Elector {
    let usual = LeaseSettings::new("default", "leader", identity);
    let minute = Duration::from_secs(60);
    Elector::new(api, LeaseSettings { duration: minute, renew_deadline: minute - Duration::from_secs(1), ..usual })
        .unwrap()
}

async fn never() {
    std::future::pending::<()>().await;
}

#[test]
fn a_released_lease_is_taken_over_at_once() {
    let lab = cluster("handover");
    run(async {
        let api = connect(&lab).await;
        let path = format!("{LEASES}/leader");
        let mut first = enduring(&api, "first");
        soon("the first", first.acquire()).await;
        let (stop, stopped) = oneshot::channel::<()>();
        let first = tokio::spawn(async move {
            let end = first.hold(async { drop(stopped.await) }).await;
            first.release().await.unwrap();
            end
        });
        let mut second = enduring(&api, "second");
        let second = tokio::spawn(async move {
            second.acquire().await;
            second
        });
        // The holder renews while the other waits.
        let mut renewed = get(&api, &path).await.unwrap()["spec"]["renewTime"].clone();
        for _ in 0..4 {
            let lease = eventually(&api, &path, "a renewal", |lease| lease["spec"]["renewTime"] != renewed).await;
            assert_eq!(lease["spec"]["holderIdentity"], "first");
            renewed = lease["spec"]["renewTime"].clone();
        }
        assert!(!second.is_finished());
        stop.send(()).unwrap();
        assert_eq!(soon("the first's end", first).await.unwrap(), LossReason::Stopped);
        let second = soon("the handover", second).await.unwrap();
        assert!(second.is_held());
        let lease = get(&api, &path).await.unwrap();
        assert_eq!(lease["spec"]["holderIdentity"], "second");
        assert_eq!(lease["spec"]["leaseTransitions"], 1);
        assert_eq!(lease["spec"]["leaseDurationSeconds"], 60);
    });
}

#[test]
fn a_dead_holder_is_replaced_when_its_lease_expires() {
    let lab = cluster("dead-holder");
    run(async {
        let api = connect(&lab).await;
        let mut first = elector(&api, "first");
        soon("the first", first.acquire()).await;
        drop(first);
        let mut second = elector(&api, "second");
        soon("the second", second.acquire()).await;
        let lease = get(&api, &format!("{LEASES}/leader")).await.unwrap();
        assert_eq!(lease["spec"]["holderIdentity"], "second");
        // A restarted holder with the same identity gets its Lease back without a transition.
        drop(second);
        soon("the same again", enduring(&api, "second").acquire()).await;
        let lease = get(&api, &format!("{LEASES}/leader")).await.unwrap();
        assert_eq!(lease["spec"]["leaseTransitions"], 1);
    });
}

#[test]
fn there_is_never_more_than_one_holder() {
    let lab = cluster("many-electors");
    run(async {
        let api = connect(&lab).await;
        let (holders, handovers) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let tasks = tokio::task::LocalSet::new();
        for number in 0..4 {
            let (holders, handovers) = (holders.clone(), handovers.clone());
            let mut elector = enduring(&api, &format!("e{number}"));
            tasks.spawn_local(async move {
                for _ in 0..3 {
                    elector.acquire().await;
                    holders.set(holders.get() + 1);
                    assert_eq!(holders.get(), 1, "two holders");
                    let pause = tokio::time::sleep(Duration::from_millis(20));
                    assert_eq!(elector.hold(pause).await, LossReason::Stopped);
                    handovers.set(handovers.get() + 1);
                    holders.set(holders.get() - 1);
                    elector.release().await.unwrap();
                }
            });
        }
        soon("twelve handovers", tasks).await;
        assert_eq!(handovers.get(), 12);
    });
}

#[test]
fn an_edited_lease_is_lost_or_kept_accordingly() {
    let lab = cluster("edited");
    run(async {
        let api = connect(&lab).await;
        let path = format!("{LEASES}/leader");
        let edit = async |patch: serde_json::Value| {
            api.patch(&path, Patch::Merge, patch.to_string().into_bytes()).await.unwrap();
        };
        let mut me = enduring(&api, "me");
        soon("the lease", me.acquire()).await;
        // Unrelated edits are kept and change nothing.
        edit(json!({ "metadata": { "labels": { "edited": "yes" } }, "spec": { "leaseDurationSeconds": 7 } })).await;
        let kept = async {
            eventually(&api, &path, "a renewal", |lease| lease["spec"]["leaseDurationSeconds"] == 60).await;
        };
        assert_eq!(soon("a renewal", me.hold(kept)).await, LossReason::Stopped);
        assert_eq!(get(&api, &path).await.unwrap()["metadata"]["labels"]["edited"], "yes");

        edit(json!({ "spec": { "holderIdentity": "a person" } })).await;
        assert_eq!(soon("the loss", me.hold(never())).await, LossReason::Taken { by: "a person".into() });
        assert_eq!(me.hold(never()).await, LossReason::NotHeld);
        me.release().await.unwrap();
        assert_eq!(get(&api, &path).await.unwrap()["spec"]["holderIdentity"], "a person");

        // An empty Lease is free.
        edit(json!({ "spec": null })).await;
        soon("an empty lease", me.acquire()).await;
        edit(json!({ "spec": { "holderIdentity": null } })).await;
        assert_eq!(soon("the loss", me.hold(never())).await, LossReason::Cleared);
        soon("the lease", me.acquire()).await;
        edit(json!({ "spec": { "renewTime": "2001-01-01T00:00:00.000000Z" } })).await;
        assert_eq!(soon("the loss", me.hold(never())).await, LossReason::DuplicateIdentity);
        edit(json!({ "spec": { "holderIdentity": "" } })).await;
        soon("the lease", me.acquire()).await;
        api.delete(&path, Vec::new()).await.unwrap();
        assert_eq!(soon("the loss", me.hold(never())).await, LossReason::Deleted);
        soon("a new lease", me.acquire()).await;
    });
}

#[test]
fn a_holder_keeps_the_lease_during_an_api_outage() {
    let lab = cluster("away");
    run(async {
        let api = connect(&lab).await;
        let mut me = elector(&api, "me");
        soon("the lease", me.acquire()).await;
        let mut standby = enduring(&api, "standby");
        let mut access = standby.access();
        let standby = tokio::spawn(async move { standby.acquire().await });
        soon("the standby's first look", access.wait_for(|access| *access == LeaseAccess::Works)).await.unwrap();
        lab.kill("kube-apiserver").unwrap();
        soon("the standby's failure", access.wait_for(|access| matches!(access, LeaseAccess::Failed(_))))
            .await
            .unwrap();
        assert!(access.borrow().problem().is_some_and(|problem| problem.contains("could not take over")));
        let mut renewals = me.renewals();
        let away = tokio::time::Instant::now();
        let back = async {
            // Longer than the Lease lasts; then it renews by itself.
            tokio::time::sleep_until(away + Duration::from_secs(3)).await;
            renewals.mark_unchanged();
            lab.restart("kube-apiserver").unwrap();
            renewals.changed().await.unwrap();
        };
        assert_eq!(soon("a renewal", me.hold(back)).await, LossReason::Stopped);
        assert!(me.is_held());
        soon("the standby's recovery", access.wait_for(|access| *access == LeaseAccess::Works)).await.unwrap();
        standby.abort();
        let lease = get(&api, &format!("{LEASES}/leader")).await.unwrap();
        assert_eq!((&lease["spec"]["holderIdentity"], &lease["spec"]["leaseTransitions"]), (&json!("me"), &json!(0)));
    });
}

/// The Lease lasts a minute and its holder died: a liveness signal shortens the wait.
#[test]
fn a_holder_known_to_be_dead_is_replaced_before_expiry() {
    let lab = cluster("witness");
    run(async {
        let api = connect(&lab).await;
        let mut first = enduring(&api, "first");
        soon("the first", first.acquire()).await;
        let (tell, gone) = tokio::sync::watch::channel(None);
        let mut second = enduring(&api, "second");
        let second = tokio::spawn(async move { second.acquire_with_witness(gone).await });
        tell.send_replace(Some(std::time::Instant::now()));
        soon("the second", second).await.unwrap();
    });
}

#[test]
fn a_missing_namespace_is_waited_for() {
    let lab = cluster("no-namespace");
    run(async {
        let api = connect(&lab).await;
        let mut me = Elector::new(&api, LeaseSettings::new("later", "leader", "me")).unwrap();
        let acquired = tokio::spawn(async move { me.acquire().await });
        soon("a refusal", async {
            while api.calls().count(Verb::Post, Outcome::Refused) == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        post(&api, "/api/v1/namespaces", &json!({ "metadata": { "name": "later" } })).await.unwrap();
        soon("the lease", acquired).await.unwrap();
    });
}
