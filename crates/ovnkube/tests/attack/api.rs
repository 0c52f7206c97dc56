//! Requests to the API server with one token.

use lab::Machine;
use serde_json::{Value, json};

/// How a patch is merged.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PatchKind {
    Strategic,
    Merge,
    Json,
    Apply,
}

impl PatchKind {
    fn content_type(self) -> &'static str {
        match self {
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Json => "application/json-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

/// A caller of the API server, with its token.
pub(crate) struct Caller<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) server: String,
    pub(crate) token: String,
}

impl Caller<'_> {
    pub(crate) fn get(&self, path: &str) -> Value {
        self.call("GET", path, "application/json", None)
    }

    pub(crate) fn patch(&self, path: &str, kind: PatchKind, body: &Value) -> Value {
        let path = match kind {
            PatchKind::Apply => format!("{path}?fieldManager=intruder&force=true"),
            _ => path.to_owned(),
        };
        self.call("PATCH", &path, kind.content_type(), Some(body))
    }

    pub(crate) fn create(&self, path: &str, body: &Value) -> Value {
        self.call("POST", path, "application/json", Some(body))
    }

    pub(crate) fn replace(&self, path: &str, body: &Value) -> Value {
        self.call("PUT", path, "application/json", Some(body))
    }

    fn call(&self, method: &str, path: &str, kind: &str, body: Option<&Value>) -> Value {
        let (url, bearer, kind) = (
            format!("{}{path}", self.server),
            format!("Authorization: Bearer {}", self.token),
            format!("Content-Type: {kind}"),
        );
        let mut words = vec!["curl", "-gsSk", "-X", method, "-H", &bearer, "-H", &kind, &url];
        let body = body.map(Value::to_string);
        if body.is_some() {
            words.extend(["--data-binary", "@-"]);
        }
        let answer = self.machine.run_with_input(&words, &body.unwrap_or_default()).unwrap();
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{method} {path}: {error}: {answer}"))
    }

    /// The API server's answers to "may this account do that", for all resources and verbs, over one connection.
    pub(crate) fn reviews(&self, user: &str, asked: &[Value]) -> Vec<bool> {
        let mut config = String::new();
        for attributes in asked {
            let groups = ["system:serviceaccounts", "system:serviceaccounts:ovn-kubernetes", "system:authenticated"];
            let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                "spec": {"user": user, "groups": groups, "resourceAttributes": attributes}});
            let quoted = review.to_string().replace('\\', "\\\\").replace('"', "\\\"");
            config += &format!(
                "url = \"{}/apis/authorization.k8s.io/v1/subjectaccessreviews\"\ninsecure\nsilent\n\
                 header = \"Authorization: Bearer {}\"\nheader = \"Content-Type: application/json\"\ndata = \"{quoted}\"\nnext\n",
                self.server, self.token
            );
        }
        let answers =
            self.machine.run_with_input(&["curl", "--config", "-"], config.trim_end_matches("next\n")).unwrap();
        let answers = serde_json::Deserializer::from_str(&answers).into_iter::<Value>().map(Result::unwrap);
        let allowed: Vec<bool> = answers
            .map(|answer| answer["status"]["allowed"].as_bool().unwrap_or_else(|| panic!("no review: {answer}")))
            .collect();
        assert_eq!(allowed.len(), asked.len());
        allowed
    }
}
