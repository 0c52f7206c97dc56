//! What a watch makes of answers that come at the worst moment.

use std::time::Duration;

use crate::server::{Answer, Server};
use kubernetes::{Api, Observed, Outcome, Resource, Verb, Watch, watch};
use serde::Deserialize;

/// What one object is to these tests: its name, or a refusal.
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

fn list(version: u32, next: &str, items: &[String]) -> Answer {
    let metadata = format!(r#"{{"resourceVersion":"{version}","continue":"{next}"}}"#);
    Answer::ok(&format!(r#"{{"kind":"List","metadata":{metadata},"items":[{}]}}"#, items.join(",")))
}

const EXPIRED: &str = r#"{"kind":"Status","status":"Failure","reason":"Expired","message":"too old","code":410}"#;

/// Runs a script and returns what a watch tells until it has told so many events.
fn told(script: Vec<Answer>, resource: &Resource, events: usize) -> (Vec<Observed<String>>, Server) {
    let server = Server::start(script);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let told = runtime.block_on(async {
        let api = Api::from_kubeconfig(Some(server.kubeconfig()), None).await.unwrap();
        let mut watch = watch(&api, resource.clone(), name);
        take(&mut watch, events).await
    });
    (told, server)
}

async fn take(watch: &mut Watch<String>, events: usize) -> Vec<Observed<String>> {
    let mut told = Vec::new();
    while told.len() < events {
        let room = events - told.len();
        let waited = tokio::time::timeout(Duration::from_secs(60), watch.next_batch(&mut told, room)).await;
        assert!(waited.is_ok_and(|count| count > 0), "nothing more comes after {told:?}");
    }
    told
}

fn things() -> Resource {
    Resource::all("/api/v1", "things").page(2)
}

fn upsert(name: &str) -> Observed<String> {
    Observed::Upsert(name.into())
}

#[test]
fn lines_are_read_wherever_the_chunks_end_and_the_watch_is_resumed_where_it_was() {
    let lines =
        [event("ADDED", &object("b", 11)), event("MODIFIED", &object("ä", 12)), event("DELETED", &object("b", 13))];
    let bytes = lines.concat().into_bytes();
    for size in [1, 7, bytes.len()] {
        let bookmark = event("BOOKMARK", r#"{"metadata":{"resourceVersion":"20"}}"#);
        let script = vec![
            list(10, "", &[object("a", 5)]),
            Answer::stream(bytes.chunks(size).map(<[u8]>::to_vec).collect()),
            Answer::stream(vec![bookmark.into_bytes()]),
            Answer::stream(vec![event("ADDED", &object("c", 21)).into_bytes()]).staying(),
        ];
        let (told, server) = told(script, &things(), 7);
        let Observed::Deleted(gone) = &told[5] else { panic!("{told:?}") };
        assert_eq!((gone.namespace.as_str(), gone.name.as_str(), gone.uid.as_str()), ("ns", "b", "u-b"));
        assert_eq!(told[..5], [Observed::Relisting, upsert("a"), Observed::Listed, upsert("b"), upsert("ä")]);
        assert_eq!(told[6], upsert("c"));
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
fn pages_follow_each_other_and_an_expired_token_starts_the_list_again() {
    let script = vec![
        list(10, "t1", &[object("a", 1), object("b", 2)]),
        Answer::failing(410, EXPIRED),
        list(20, "t2", &[object("b", 2), object("c", 3)]),
        list(20, "", &[object("d", 4)]),
        Answer::stream(vec![]).staying(),
    ];
    let (told, server) = told(script, &things(), 8);
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
    assert_eq!(told, expected);
    let asked = server.asked();
    assert!(asked[1].ends_with("&continue=t1") && asked[3].ends_with("&continue=t2"), "{asked:?}");
    assert!(!asked[2].contains("continue"), "{asked:?}");
}

#[test]
fn an_expired_version_is_listed_anew() {
    let script = vec![
        list(10, "", &[object("a", 1)]),
        Answer::stream(vec![event("ERROR", EXPIRED).into_bytes()]),
        list(20, "", &[object("b", 2)]),
        Answer::failing(410, EXPIRED),
        list(30, "", &[]),
        Answer::stream(vec![]).staying(),
    ];
    let (told, _server) = told(script, &things(), 8);
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
    assert_eq!(told, expected);
}

#[test]
fn a_bad_object_parks_itself() {
    let script = vec![
        list(10, "", &[object("bad1", 1), "7".into(), object("a", 2)]),
        Answer::stream(vec![
            event("ADDED", &object("bad2", 11)).into_bytes(),
            event("NOVELTY", &object("x", 12)).into_bytes(),
            event("ADDED", &object("b", 13)).into_bytes(),
            // Not as servers write it, but JSON all the same.
            format!("{{\"type\":\"ADDED\",\"object\":{},\"more\":{{}}}}\n", object("c", 14)).into_bytes(),
        ])
        .staying(),
    ];
    let (told, _server) = told(script, &things(), 8);
    let names: Vec<&str> = told
        .iter()
        .map(|event| match event {
            Observed::Unreadable { object, .. } => object.name.as_str(),
            Observed::Upsert(name) => name,
            _ => "-",
        })
        .collect();
    assert_eq!(names, ["-", "bad1", "", "a", "-", "bad2", "b", "c"]);
}

#[test]
fn trouble_is_told_once_for_each_reason_and_its_end_too() {
    let unavailable = || Answer::failing(503, r#"{"message":"starting"}"#);
    let script = vec![
        unavailable(),
        unavailable(),
        Answer::failing(403, r#"{"message":"no right"}"#),
        list(10, "", &[]),
        unavailable(),
        unavailable(),
        Answer::stream(vec![event("ADDED", &object("a", 11)).into_bytes()]).staying(),
    ];
    let (told, server) = told(script, &things(), 7);
    let Observed::Trouble(first) = &told[0] else { panic!("{told:?}") };
    assert!(first.contains("/api/v1/things") && first.contains("starting"), "{first}");
    assert!(matches!(&told[1], Observed::Trouble(reason) if reason.contains("no right")), "{told:?}");
    assert_eq!(told[2..4], [Observed::Relisting, Observed::Listed]);
    assert!(matches!(&told[4], Observed::Trouble(reason) if reason.contains("starting")), "{told:?}");
    assert_eq!(told[5..], [upsert("a"), Observed::Resumed]);
    assert!(server.asked().last().unwrap().ends_with("&resourceVersion=10"));
}

#[test]
fn a_silent_watch_is_resumed_and_a_quiet_return_ends_the_trouble() {
    let script = vec![
        list(10, "", &[]),
        Answer::stream(vec![]).staying(),
        Answer::failing(503, ""),
        Answer::stream(vec![]).staying(),
    ];
    let (told, server) = told(script, &things().silence(Duration::from_millis(50)), 4);
    assert_eq!(told[..2], [Observed::Relisting, Observed::Listed]);
    assert!(matches!(&told[2], Observed::Trouble(_)), "{told:?}");
    assert_eq!(told[3], Observed::Resumed);
    assert!(server.asked().len() >= 4, "{:?}", server.asked());
}

#[test]
fn a_stream_that_breaks_is_resumed_without_a_word() {
    let script = vec![
        list(10, "", &[]),
        Answer::stream(vec![event("ADDED", &object("a", 11)).into_bytes(), br#"{"type":"ADDED","obj"#.to_vec()])
            .breaking(),
        Answer::stream(vec![event("ADDED", &object("b", 12)).into_bytes()]).staying(),
    ];
    let (told, server) = told(script, &things(), 4);
    assert_eq!(told[2..], [upsert("a"), upsert("b")]);
    assert!(server.asked()[2].ends_with("&resourceVersion=11"));
}

#[test]
fn a_watch_that_is_refused_again_and_again_is_given_up_for_a_list() {
    let odd = || Answer::failing(400, r#"{"message":"invalid resource version"}"#);
    let script = vec![list(10, "", &[]), odd(), odd(), odd(), list(20, "", &[]), Answer::stream(vec![]).staying()];
    let (told, _server) = told(script, &things(), 5);
    assert!(matches!(&told[2], Observed::Trouble(_)), "{told:?}");
    assert_eq!(told[3..], [Observed::Relisting, Observed::Listed]);
}

#[test]
fn a_line_that_is_no_json_is_trouble_and_what_came_before_counts() {
    let script = vec![
        list(10, "", &[]),
        Answer::stream(vec![
            format!("{}{{\"type\":\"ADDED\",\"object\":{{nonsense}}}}\n", event("ADDED", &object("a", 11)))
                .into_bytes(),
        ]),
        Answer::stream(vec![event("ADDED", &object("b", 12)).into_bytes()]).staying(),
    ];
    let (told, server) = told(script, &things(), 6);
    assert_eq!(told[2], upsert("a"));
    assert!(matches!(&told[3], Observed::Trouble(reason) if reason.contains("a line of the watch")), "{told:?}");
    assert_eq!(told[4..], [upsert("b"), Observed::Resumed]);
    assert!(server.asked()[2].ends_with("&resourceVersion=11"));
}

#[test]
fn a_server_that_was_set_back_is_listed_anew() {
    let backwards = event("BOOKMARK", r#"{"metadata":{"resourceVersion":"90"}}"#);
    let script = vec![
        list(100, "", &[]),
        Answer::stream(vec![backwards.into_bytes()]).staying(),
        list(91, "", &[object("old", 3)]),
        Answer::stream(vec![]).staying(),
    ];
    let (told, _server) = told(script, &things(), 5);
    assert_eq!(told[2..], [Observed::Relisting, upsert("old"), Observed::Listed]);
}

#[test]
fn an_absent_type_is_told_once_and_found_when_it_appears() {
    let absent = || Answer::failing(404, "404 page not found");
    let script = vec![absent(), absent(), list(10, "", &[]), Answer::stream(vec![]).staying()];
    let (told, _server) = told(script, &things().absent_retry(Duration::from_millis(10)), 3);
    assert_eq!(told, [Observed::Absent, Observed::Relisting, Observed::Listed]);
}

#[test]
fn a_slow_consumer_holds_the_server_back_and_loses_nothing() {
    const MANY: u32 = 20_000;
    let lines: String = (0..MANY).map(|n| event("ADDED", &object(&format!("o{n}"), 11 + n))).collect();
    let script = vec![list(10, "", &[]), Answer::stream(vec![lines.into_bytes()]).staying()];
    let server = Server::start(script);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let api = Api::from_kubeconfig(Some(server.kubeconfig()), None).await.unwrap();
        let mut watch = watch(&api, things(), name);
        assert_eq!(take(&mut watch, 2).await, [Observed::Relisting, Observed::Listed]);
        for n in 0..MANY {
            if n % 4096 == 0 {
                // The task runs into the bound of its channel here.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
            }
            assert_eq!(watch.next().await, Some(upsert(&format!("o{n}"))));
        }
        assert_eq!(api.calls().count(Verb::Watch, Outcome::Success), 1);
    });
}
