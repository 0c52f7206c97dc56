//! Watches of a real server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kubernetes::{Observed, Outcome, Resource, Verb, Watch, watch};
use serde::Deserialize;
use serde_json::json;

use crate::common::{CONFIG_MAPS, PODS, cluster, config_map, connect, pod, post, run, soon};

/// The parsed fields of an object.
#[derive(Debug, Clone, PartialEq)]
struct Fact {
    name: String,
    uid: String,
    label: String,
}

fn fact(object: &str) -> Result<Fact, String> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: String,
        uid: String,
        #[serde(default)]
        labels: BTreeMap<String, String>,
    }
    let Metadata { name, uid, labels } =
        serde_json::from_str::<Object>(object).map_err(|error| error.to_string())?.metadata;
    let label = labels.get("label").cloned().unwrap_or_default();
    if label == "bad" { Err("its label is bad".into()) } else { Ok(Fact { name, uid, label }) }
}

/// A consumer that follows the documentation of `Observed`; objects by UID.
#[derive(Default)]
struct Mirror {
    facts: BTreeMap<String, Fact>,
    marked: BTreeSet<String>,
    lists: u32,
    troubles: Vec<String>,
    unreadable: Vec<String>,
    absent: bool,
    /// Objects that were deleted, or missing from a relist.
    gone: Vec<Fact>,
}

impl Mirror {
    fn take(&mut self, event: Observed<Fact>) {
        match event {
            Observed::Relisting => self.marked = self.facts.keys().cloned().collect(),
            Observed::Upsert(fact) => {
                self.marked.remove(&fact.uid);
                self.facts.insert(fact.uid.clone(), fact);
            }
            Observed::Deleted(object) => self.gone.extend(self.facts.remove(&object.uid)),
            Observed::Listed => {
                self.lists += 1;
                let gone = std::mem::take(&mut self.marked);
                self.gone.extend(gone.iter().filter_map(|uid| self.facts.remove(uid)));
            }
            Observed::Malformed { object, error } => {
                self.marked.remove(&object.uid);
                self.unreadable.push(format!("{object}: {error}"));
            }
            Observed::Failed(reason) => self.troubles.push(reason),
            Observed::Resumed => {}
            Observed::Absent => self.absent = true,
        }
    }

    async fn until(&mut self, watch: &mut Watch<Fact>, what: &str, reached: impl Fn(&Self) -> bool) {
        soon(what, async {
            let mut batch = Vec::new();
            while !reached(self) {
                assert!(watch.next_batch(&mut batch, 1000).await > 0);
                batch.drain(..).for_each(|event| self.take(event));
            }
        })
        .await;
    }

    fn named(&self, name: &str) -> Option<&Fact> {
        self.facts.values().find(|fact| fact.name == name)
    }
}

#[test]
fn pod_creation_change_and_deletion_are_seen() {
    let lab = cluster("pods");
    run(async {
        let api = connect(&lab).await;
        post(&api, PODS, &pod("early")).await.unwrap();
        let mut pods = watch(&api, Resource::all("/api/v1", "pods"), fact);
        let mut mirror = Mirror::default();
        mirror.until(&mut pods, "the list", |mirror| mirror.lists == 1).await;
        assert!(mirror.named("early").is_some());

        post(&api, PODS, &pod("late")).await.unwrap();
        mirror.until(&mut pods, "a creation", |mirror| mirror.named("late").is_some()).await;
        lab.kubectl(&["label", "pod", "late", "label=good"]).unwrap();
        mirror.until(&mut pods, "a change", |mirror| mirror.named("late").unwrap().label == "good").await;
        lab.kubectl(&["label", "pod", "early", "label=bad"]).unwrap();
        mirror.until(&mut pods, "a bad one", |mirror| !mirror.unreadable.is_empty()).await;
        assert_eq!(mirror.unreadable, ["default/early: its label is bad"]);

        // A recreated object has another UID.
        let first = mirror.named("late").unwrap().uid.clone();
        let options = json!({ "gracePeriodSeconds": 0 }).to_string().into_bytes();
        api.delete(&format!("{PODS}/late"), options).await.unwrap();
        post(&api, PODS, &pod("late")).await.unwrap();
        mirror
            .until(&mut pods, "the successor", |mirror| mirror.named("late").is_some_and(|fact| fact.uid != first))
            .await;
        assert!(mirror.gone.iter().any(|fact| fact.uid == first));
        assert_eq!((mirror.lists, mirror.troubles), (1, vec![]));
    });
}

#[test]
fn no_event_is_lost_when_the_api_server_is_killed() {
    let lab = cluster("restarted");
    run(async {
        let api = connect(&lab).await;
        for name in ["stays", "goes"] {
            post(&api, CONFIG_MAPS, &config_map(name)).await.unwrap();
        }
        let ours = Resource::inside("/api/v1", "default", "configmaps").labels("test=yes");
        let mut maps = watch(&api, ours, fact);
        let mut mirror = Mirror::default();
        mirror.until(&mut maps, "the list", |mirror| mirror.facts.len() == 2).await;

        // The runtime has only this thread: the watch cannot reconnect before the deletion.
        lab.kill("kube-apiserver").unwrap();
        lab.restart("kube-apiserver").unwrap();
        lab.kubectl(&["delete", "configmap", "goes"]).unwrap();
        mirror.until(&mut maps, "the deletion", |mirror| mirror.named("goes").is_none()).await;
        assert!(mirror.named("stays").is_some());

        // Once more, with the failure observed.
        lab.kill("kube-apiserver").unwrap();
        mirror.until(&mut maps, "trouble", |mirror| !mirror.troubles.is_empty()).await;
        lab.restart("kube-apiserver").unwrap();
        post(&connect(&lab).await, CONFIG_MAPS, &config_map("new")).await.unwrap();
        lab.kubectl(&["delete", "configmap", "stays"]).unwrap();
        mirror
            .until(&mut maps, "what is now", |mirror| mirror.named("new").is_some() && mirror.named("stays").is_none())
            .await;
        assert!(mirror.troubles[0].contains("/api/v1/namespaces/default/configmaps"), "{:?}", mirror.troubles);
    });
}

#[test]
fn a_list_of_many_pages_is_complete() {
    let lab = cluster("pages");
    run(async {
        let api = connect(&lab).await;
        for number in 0..25 {
            post(&api, CONFIG_MAPS, &config_map(&format!("m{number}"))).await.unwrap();
        }
        let ours = Resource::inside("/api/v1", "default", "configmaps").labels("test in (yes, no)").page(4);
        let mut maps = watch(&api, ours, fact);
        let mut mirror = Mirror::default();
        mirror.until(&mut maps, "the list", |mirror| mirror.lists == 1).await;
        assert_eq!(mirror.facts.len(), 25);
        assert!(api.calls().count(Verb::List, Outcome::Success) >= 7);
        let all = BTreeSet::from_iter(mirror.facts.values().map(|fact| fact.name.clone()));
        assert_eq!(all, BTreeSet::from_iter((0..25).map(|number| format!("m{number}"))));
    });
}

#[test]
fn a_missing_type_is_watched_once_it_exists() {
    let lab = cluster("absent");
    run(async {
        let api = connect(&lab).await;
        let things = Resource::all("/apis/example.org/v1", "things").absent_retry(Duration::from_millis(200));
        let mut things = watch(&api, things, fact);
        let mut mirror = Mirror::default();
        mirror.until(&mut things, "absence", |mirror| mirror.absent).await;
        assert_eq!((mirror.lists, &mirror.troubles), (0, &vec![]));
        lab.apply(
            "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
",
        )
        .unwrap();
        lab.kubectl(&["wait", "--for=condition=Established", "crd/things.example.org", "--timeout=60s"]).unwrap();
        mirror.until(&mut things, "the type", |mirror| mirror.lists > 0).await;
        lab.apply("{apiVersion: example.org/v1, kind: Thing, metadata: {name: one}}").unwrap();
        mirror.until(&mut things, "an object", |mirror| mirror.named("one").is_some()).await;
    });
}
