//! Watches under rare responses and failures.

use std::time::Duration;

use crate::server::{Response, Server};
use kubernetes::{Api, Observed, Outcome, Resource, Verb, Watch, watch};
use serde::Deserialize;

/// Parses an object to its name, or to an error.
fn name(object: &str) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: String,
    }
    let object: Object = serde_json::from_str(object).map_err(|error| error.to_string())?;
    if object.metadata.name.starts_with("bad") { Err("it is bad".into()) } else { Ok(object.metadata.name) }
}

fn object(name: &str, version: u32) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","namespace":"ns","uid":"u-{name}","resourceVersion":"{version}"}}}}"#)
}

fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn list(version: u32, next: &str, items: &[String]) -> Response {
    let metadata = format!(r#"{{"resourceVersion":"{version}","continue":"{next}"}}"#);
    Response::ok(&format!(r#"{{"kind":"List","metadata":{metadata},"items":[{}]}}"#, items.join(",")))
}

const EXPIRED: &str = r#"{"kind":"Status","status":"Failure","reason":"Expired","message":"too old","code":410}"#;

/// Runs a script and returns the first events of a watch.
fn observed(script: Vec<Response>, resource: &Resource, events: usize) -> (Vec<Observed<String>>, Server) {
    let server = Server::start(script);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let observed = runtime.block_on(async {
        let api = Api::from_kubeconfig(Some(server.kubeconfig()), None).await.unwrap();
        let mut watch = watch(&api, resource.clone(), name);
        take(&mut watch, events).await
    });
    (observed, server)
}

async fn take(watch: &mut Watch<String>, events: usize) -> Vec<Observed<String>> {
    let mut observed = Vec::new();
    while observed.len() < events {
        let room = events - observed.len();
        let waited = tokio::time::timeout(Duration::from_secs(60), watch.next_batch(&mut observed, room)).await;
        assert!(waited.is_ok_and(|count| count > 0), "no more events after {observed:?}");
    }
    observed
}

fn things() -> Resource {
    Resource::all("/api/v1", "things").page(2)
}

fn upsert(name: &str) -> Observed<String> {
    Observed::Upsert(name.into())
}

#[test]
fn chunk_boundaries_do_not_matter_and_the_watch_resumes() {
    let lines =
        [event("ADDED", &object("b", 11)), event("MODIFIED", &object("ä", 12)), event("DELETED", &object("b", 13))];
    let bytes = lines.concat().into_bytes();
    for size in [1, 7, bytes.len()] {
        let bookmark = event("BOOKMARK", r#"{"metadata":{"resourceVersion":"20"}}"#);
        let script = vec![
            list(10, "", &[object("a", 5)]),
            Response::stream(bytes.chunks(size).map(<[u8]>::to_vec).collect()),
            Response::stream(vec![bookmark.into_bytes()]),
            Response::stream(vec![event("ADDED", &object("c", 21)).into_bytes()]).staying(),
        ];
        let (observed, server) = observed(script, &things(), 7);
        let Observed::Deleted(gone) = &observed[5] else { panic!("{observed:?}") };
        assert_eq!((gone.namespace.as_str(), gone.name.as_str(), gone.uid.as_str()), ("ns", "b", "u-b"));
        assert_eq!(observed[..5], [Observed::Relisting, upsert("a"), Observed::Listed, upsert("b"), upsert("ä")]);
        assert_eq!(observed[6], upsert("c"));
        let asked = server.asked();
        assert_eq!(asked[0], "GET /api/v1/things?limit=2");
        for (request, version) in asked[1..].iter().zip(["10", "13", "20"]) {
            assert!(request.ends_with(&format!("&resourceVersion={version}")), "{asked:?}");
            assert!(request.contains("allowWatchBookmarks=true") && request.contains("timeoutSeconds="), "{asked:?}");
        }
        assert_eq!(asked.len(), 4);
    }
}

#[test]
fn an_expired_continue_token_restarts_the_list() {
    let script = vec![
        list(10, "t1", &[object("a", 1), object("b", 2)]),
        Response::failing(410, EXPIRED),
        list(20, "t2", &[object("b", 2), object("c", 3)]),
        list(20, "", &[object("d", 4)]),
        Response::stream(vec![]).staying(),
    ];
    let (observed, server) = observed(script, &things(), 8);
    let expected = [
        Observed::Relisting,
        upsert("a"),
        upsert("b"),
        Observed::Relisting,
        upsert("b"),
        upsert("c"),
        upsert("d"),
        Observed::Listed,
    ];
    assert_eq!(observed, expected);
    let asked = server.asked();
    assert!(asked[1].ends_with("&continue=t1") && asked[3].ends_with("&continue=t2"), "{asked:?}");
    assert!(!asked[2].contains("continue"), "{asked:?}");
}

#[test]
fn an_expired_resource_version_causes_a_relist() {
    let script = vec![
        list(10, "", &[object("a", 1)]),
        Response::stream(vec![event("ERROR", EXPIRED).into_bytes()]),
        list(20, "", &[object("b", 2)]),
        Response::failing(410, EXPIRED),
        list(30, "", &[]),
        Response::stream(vec![]).staying(),
    ];
    let (observed, _server) = observed(script, &things(), 8);
    let expected = [
        Observed::Relisting,
        upsert("a"),
        Observed::Listed,
        Observed::Relisting,
        upsert("b"),
        Observed::Listed,
        Observed::Relisting,
        Observed::Listed,
    ];
    assert_eq!(observed, expected);
}

#[test]
fn an_unparsable_object_does_not_stop_the_watch() {
    let script = vec![
        list(10, "", &[object("bad1", 1), "7".into(), object("a", 2)]),
        Response::stream(vec![
            event("ADDED", &object("bad2", 11)).into_bytes(),
            event("NOVELTY", &object("x", 12)).into_bytes(),
            event("ADDED", &object("b", 13)).into_bytes(),
            // Unusual formatting, but valid JSON.
            format!("{{\"type\":\"ADDED\",\"object\":{},\"more\":{{}}}}\n", object("c", 14)).into_bytes(),
        ])
        .staying(),
    ];
    let (observed, _server) = observed(script, &things(), 8);
    let names: Vec<&str> = observed
        .iter()
        .map(|event| match event {
            Observed::Malformed { object, .. } => object.name.as_str(),
            Observed::Upsert(name) => name,
            _ => "-",
        })
        .collect();
    assert_eq!(names, ["-", "bad1", "", "a", "-", "bad2", "b", "c"]);
}

#[test]
fn a_failure_is_reported_once_per_reason_and_when_it_ends() {
    let unavailable = || Response::failing(503, r#"{"message":"starting"}"#);
    let script = vec![
        unavailable(),
        unavailable(),
        Response::failing(403, r#"{"message":"no right"}"#),
        list(10, "", &[]),
        unavailable(),
        unavailable(),
        Response::stream(vec![event("ADDED", &object("a", 11)).into_bytes()]).staying(),
    ];
    let (observed, server) = observed(script, &things(), 7);
    let Observed::Failed(first) = &observed[0] else { panic!("{observed:?}") };
    assert!(first.contains("/api/v1/things") && first.contains("starting"), "{first}");
    assert!(matches!(&observed[1], Observed::Failed(reason) if reason.contains("no right")), "{observed:?}");
    assert_eq!(observed[2..4], [Observed::Relisting, Observed::Listed]);
    assert!(matches!(&observed[4], Observed::Failed(reason) if reason.contains("starting")), "{observed:?}");
    assert_eq!(observed[5..], [upsert("a"), Observed::Resumed]);
    assert!(server.asked().last().unwrap().ends_with("&resourceVersion=10"));
}

#[test]
fn a_silent_watch_is_resumed_and_recovery_is_reported() {
    let script = vec![
        list(10, "", &[]),
        Response::stream(vec![]).staying(),
        Response::failing(503, ""),
        Response::stream(vec![]).staying(),
    ];
    let (observed, server) = observed(script, &things().silence(Duration::from_millis(50)), 4);
    assert_eq!(observed[..2], [Observed::Relisting, Observed::Listed]);
    assert!(matches!(&observed[2], Observed::Failed(_)), "{observed:?}");
    assert_eq!(observed[3], Observed::Resumed);
    assert!(server.asked().len() >= 4, "{:?}", server.asked());
}

#[test]
fn a_broken_stream_is_resumed_silently() {
    let script = vec![
        list(10, "", &[]),
        Response::stream(vec![event("ADDED", &object("a", 11)).into_bytes(), br#"{"type":"ADDED","obj"#.to_vec()])
            .breaking(),
        Response::stream(vec![event("ADDED", &object("b", 12)).into_bytes()]).staying(),
    ];
    let (observed, server) = observed(script, &things(), 4);
    assert_eq!(observed[2..], [upsert("a"), upsert("b")]);
    assert!(server.asked()[2].ends_with("&resourceVersion=11"));
}

#[test]
fn a_repeatedly_rejected_watch_falls_back_to_a_list() {
    let odd = || Response::failing(400, r#"{"message":"invalid resource version"}"#);
    let script = vec![list(10, "", &[]), odd(), odd(), odd(), list(20, "", &[]), Response::stream(vec![]).staying()];
    let (observed, _server) = observed(script, &things(), 5);
    assert!(matches!(&observed[2], Observed::Failed(_)), "{observed:?}");
    assert_eq!(observed[3..], [Observed::Relisting, Observed::Listed]);
}

#[test]
fn invalid_json_is_reported_and_earlier_events_count() {
    let script = vec![
        list(10, "", &[]),
        Response::stream(vec![
            format!("{}{{\"type\":\"ADDED\",\"object\":{{nonsense}}}}\n", event("ADDED", &object("a", 11)))
                .into_bytes(),
        ]),
        Response::stream(vec![event("ADDED", &object("b", 12)).into_bytes()]).staying(),
    ];
    let (observed, server) = observed(script, &things(), 6);
    assert_eq!(observed[2], upsert("a"));
    assert!(matches!(&observed[3], Observed::Failed(reason) if reason.contains("watch event")), "{observed:?}");
    assert_eq!(observed[4..], [upsert("b"), Observed::Resumed]);
    assert!(server.asked()[2].ends_with("&resourceVersion=11"));
}

#[test]
fn a_server_restored_from_backup_causes_a_relist() {
    let backwards = event("BOOKMARK", r#"{"metadata":{"resourceVersion":"90"}}"#);
    let script = vec![
        list(100, "", &[]),
        Response::stream(vec![backwards.into_bytes()]).staying(),
        list(91, "", &[object("old", 3)]),
        Response::stream(vec![]).staying(),
    ];
    let (observed, _server) = observed(script, &things(), 5);
    assert_eq!(observed[2..], [Observed::Relisting, upsert("old"), Observed::Listed]);
}

#[test]
fn a_missing_type_is_reported_once_and_found_later() {
    let absent = || Response::failing(404, "404 page not found");
    let script = vec![absent(), absent(), list(10, "", &[]), Response::stream(vec![]).staying()];
    let (observed, _server) = observed(script, &things().absent_retry(Duration::from_millis(10)), 3);
    assert_eq!(observed, [Observed::Absent, Observed::Relisting, Observed::Listed]);
}

#[test]
fn a_slow_consumer_causes_backpressure_and_no_loss() {
    const MANY: u32 = 20_000;
    let lines: String = (0..MANY).map(|n| event("ADDED", &object(&format!("o{n}"), 11 + n))).collect();
    let script = vec![list(10, "", &[]), Response::stream(vec![lines.into_bytes()]).staying()];
    let server = Server::start(script);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let api = Api::from_kubeconfig(Some(server.kubeconfig()), None).await.unwrap();
        let mut watch = watch(&api, things(), name);
        assert_eq!(take(&mut watch, 2).await, [Observed::Relisting, Observed::Listed]);
        for n in 0..MANY {
            if n % 4096 == 0 {
                // The watch task blocks on its full channel here.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
            }
            assert_eq!(watch.next().await, Some(upsert(&format!("o{n}"))));
        }
        assert_eq!(api.calls().count(Verb::Watch, Outcome::Success), 1);
    });
}
