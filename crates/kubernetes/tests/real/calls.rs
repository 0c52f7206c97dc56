//! API calls, their errors, and credentials.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kubernetes::{Api, ApiError, ConfigError, Outcome, Patch, Verb};
use serde_json::json;

use crate::common::{CONFIG_MAPS, PODS, cluster, config_map, connect, get, pod, post, run};

#[test]
fn calls_work_and_errors_are_classified() {
    let lab = cluster("calls");
    run(async {
        let api = connect(&lab).await;
        let made = post(&api, CONFIG_MAPS, &config_map("a")).await.unwrap();
        assert_eq!(made["metadata"]["managedFields"][0]["manager"], "ovnkube");
        let path = format!("{CONFIG_MAPS}/a");
        let again = post(&api, CONFIG_MAPS, &config_map("a")).await;
        assert!(matches!(again, Err(ApiError::AlreadyExists(_))), "{again:?}");
        let missing = get(&api, &format!("{CONFIG_MAPS}/b")).await;
        assert!(matches!(&missing, Err(ApiError::NotFound(words)) if words.contains("\"b\" not found")), "{missing:?}");
        let invalid = post(&api, CONFIG_MAPS, &config_map("Not A Name")).await;
        assert!(matches!(&invalid, Err(ApiError::Invalid(words)) if words.contains("RFC 1123")), "{invalid:?}");
        assert!(matches!(api.get("not a path").await, Err(ApiError::Invalid(_))));

        // A patch with a UID applies only to that object.
        let patch = |uid: &str| json!({ "metadata": { "uid": uid }, "data": { "key": "1" } }).to_string().into_bytes();
        let wrong = api.patch(&path, Patch::Merge, patch("00000000-0000-0000-0000-000000000000")).await;
        assert!(matches!(wrong, Err(ApiError::Conflict(_))), "{wrong:?}");
        assert_eq!(get(&api, &path).await.unwrap()["data"]["key"], "0");
        let web = post(&api, PODS, &pod("web")).await.unwrap();
        let annotate = json!({ "metadata": { "uid": made["metadata"]["uid"], "annotations": { "a": "b" } } });
        for subresource in ["", "/status"] {
            let path = format!("{PODS}/web{subresource}");
            let wrong = api.patch(&path, Patch::Merge, annotate.to_string().into_bytes()).await;
            assert!(matches!(wrong, Err(ApiError::Conflict(_))), "{path}: {wrong:?}");
        }
        assert_eq!(get(&api, &format!("{PODS}/web")).await.unwrap()["metadata"]["uid"], web["metadata"]["uid"]);
        let uid = made["metadata"]["uid"].as_str().unwrap();
        api.patch(&path, Patch::Merge, patch(uid)).await.unwrap();
        let test = json!([{ "op": "test", "path": "/data/key", "value": "1" },
                          { "op": "replace", "path": "/data/key", "value": "2" }]);
        api.patch(&path, Patch::Json, test.to_string().into_bytes()).await.unwrap();
        assert_eq!(get(&api, &path).await.unwrap()["data"]["key"], "2");

        // The resourceVersion of the creation is stale.
        let stale = api.put(&path, made.to_string().into_bytes()).await;
        assert!(matches!(stale, Err(ApiError::Conflict(_))), "{stale:?}");

        let other = json!({ "preconditions": { "uid": "00000000-0000-0000-0000-000000000000" } });
        let refused = api.delete(&path, other.to_string().into_bytes()).await;
        assert!(matches!(refused, Err(ApiError::Conflict(_))), "{refused:?}");
        api.delete(&path, Vec::new()).await.unwrap();
        assert!(matches!(get(&api, &path).await, Err(ApiError::NotFound(_))));

        assert_eq!(api.calls().count(Verb::Post, Outcome::Success), 2);
        assert_eq!(api.calls().count(Verb::Post, Outcome::Refused), 2);
        assert_eq!(api.calls().count(Verb::Delete, Outcome::Success), 1);
    });
}

#[test]
fn concurrent_calls_are_not_queued_and_a_hung_server_times_out() {
    let lab = cluster("parallel");
    run(async {
        let api = connect(&lab).await;
        post(&api, CONFIG_MAPS, &config_map("a")).await.unwrap();
        let calls: Vec<_> = (0..100)
            .map(|_| {
                let api = api.clone();
                tokio::spawn(async move { api.get(&format!("{CONFIG_MAPS}/a")).await })
            })
            .collect();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(api.calls().count(Verb::Get, Outcome::Success), 100);

        let paused = lab.pause("kube-apiserver").unwrap();
        let hurried = api.with_timeout(Duration::from_millis(200));
        let late = hurried.get("/version").await;
        assert_eq!(late, Err(ApiError::Timeout { after: Duration::from_millis(200) }));
        assert!(late.unwrap_err().is_temporary());
        paused.resume().unwrap();
        api.get("/version").await.unwrap();
        assert_eq!(api.calls().count(Verb::Get, Outcome::Timeout), 1);

        lab.kill("kube-apiserver").unwrap();
        let away = api.get("/version").await.unwrap_err();
        assert!(matches!(&away, ApiError::Transport(words) if words.contains(api.server())), "{away:?}");
        assert!(away.is_temporary());
    });
}

/// The lab's kubeconfig with another user.
fn kubeconfig_as(lab: &lab::Lab, user: &str) -> PathBuf {
    let own = lab.record().endpoints.kubeconfig.unwrap();
    let text = std::fs::read_to_string(&own).unwrap();
    let users = text.find("users:").unwrap();
    let name = text[users..].split("name: ").nth(1).unwrap().split(',').next().unwrap();
    let path = own.with_file_name("test.kubeconfig");
    std::fs::write(&path, format!("{}users: [{{name: {name}, user: {user}}}]\n", &text[..users])).unwrap();
    path
}

#[test]
fn all_kinds_of_credentials_work() {
    let lab = cluster("credentials");
    run(async {
        let nobody = kubeconfig_as(&lab, "{token: wrong}");
        let api = Api::from_kubeconfig(Some(&nobody), None).await.unwrap();
        assert!(matches!(api.get(CONFIG_MAPS).await, Err(ApiError::Unauthorized(_))));

        let token = lab.kubectl(&["create", "token", "default"]).unwrap();
        let token = token.trim();
        let service_account = kubeconfig_as(&lab, &format!("{{token: {token}}}"));
        let file = service_account.with_file_name("token");
        std::fs::write(&file, token).unwrap();
        let script = file.with_file_name("plugin.sh");
        let credential = format!(
            r#"{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"{token}"}}}}"#
        );
        std::fs::write(&script, format!("echo '{credential}'\n")).unwrap();
        let exec = format!(
            "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never, args: ['{}']}}}}",
            script.display()
        );
        let from_file = format!("{{tokenFile: '{}'}}", file.display());
        for user in [format!("{{token: {token}}}"), from_file, exec] {
            let path = kubeconfig_as(&lab, &user);
            let api = Api::from_kubeconfig(Some(&path), None).await.unwrap();
            // Authenticated, without permissions.
            let refused = api.get(CONFIG_MAPS).await;
            assert!(
                matches!(&refused, Err(ApiError::Forbidden(words)) if words.contains("serviceaccount:default:default")),
                "{user}: {refused:?}"
            );
        }
    });
}

#[test]
fn an_unusable_kubeconfig_is_named_with_a_remedy() {
    run(async {
        let folder = std::env::temp_dir().join(format!("kubernetes-config-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("config");
        let words = async |file: &Path, context: Option<&str>| {
            let error = Api::from_kubeconfig(Some(file), context).await.unwrap_err();
            assert!(matches!(error, ConfigError::Kubeconfig { .. }), "{error:?}");
            let words = error.to_string();
            assert!(words.contains(&file.display().to_string()) && !words.contains('\n'), "{words}");
            words
        };
        assert!(words(&folder.join("missing"), None).await.contains("check the path"));
        let cases = [
            ("{", None, "kubectl --kubeconfig"),
            ("{}", None, "current-context"),
            ("{current-context: c}", None, "get-contexts"),
            ("{current-context: c}", Some("d"), "get-contexts"),
            ("{current-context: c, contexts: [{name: c, context: {cluster: x}}]}", None, "a cluster with a server"),
            (
                "{current-context: c, contexts: [{name: c, context: {cluster: x}}], \
                 clusters: [{name: x, cluster: {server: 'https://h', certificate-authority: /missing}}]}",
                None,
                "certificate files",
            ),
            (
                "{current-context: c, contexts: [{name: c, context: {cluster: x}}], \
                 clusters: [{name: x, cluster: {server: 'https://h', proxy-url: 'http://p'}}]}",
                None,
                "proxies are not supported",
            ),
        ];
        for (text, context, remedy) in cases {
            std::fs::write(&file, text).unwrap();
            let words = words(&file, context).await;
            assert!(words.contains(remedy), "{text}: {words}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    });
}
