//! Which clients may read the metrics: the bearer token of a request is reviewed by the [`Authorizer`], and its authorization is
//! remembered for a short time.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::cache::{AuthorizationCache, Known, TokenKey};

/// Reviews at the same time; the others wait. Invalid tokens must not flood the API server.
const MOST_REVIEWS: usize = 4;
/// Limit of a review, with the wait for its turn.
const REVIEW: Duration = Duration::from_secs(8);
/// The same for a client that was allowed before and need not wait for an API server that hangs.
const REVIEW_AGAIN: Duration = Duration::from_secs(1);
/// How long such a client is not reviewed again after a review has failed.
const OUTAGE_PAUSE: Duration = Duration::from_secs(10);
/// Longest token, in bytes.
const LONGEST_TOKEN: usize = 16 << 10;

/// The result of a review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authorization {
    /// The client may read the metrics.
    Allowed,
    /// The client is known, but lacks the permission.
    Forbidden {
        /// Name of the client.
        user: String,
    },
    /// The token is invalid.
    Unauthenticated,
}

/// A running review; the error says why none is possible.
pub type ReviewFuture<'a> = Pin<Box<dyn Future<Output = Result<Authorization, String>> + Send + 'a>>;

/// Reviews bearer tokens.
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// Whether the owner of the token may get `/metrics`. Runs on the telemetry thread's runtime.
    fn review<'a>(&'a self, token: &'a str) -> ReviewFuture<'a>;
}

/// Why a request is refused; the text is the response.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("unauthorized: send a valid token of the cluster: `Authorization: Bearer TOKEN`")]
    Unauthenticated,
    #[error("forbidden: {user} cannot get /metrics; hint: bind it to the ClusterRole ovnkube-metrics-reader")]
    Forbidden { user: String },
    #[error("unavailable: the token cannot be reviewed now; the log of this process says why")]
    Unavailable,
}

/// Admits requests.
#[derive(Debug)]
pub(super) struct Gate {
    authorizer: Arc<dyn Authorizer>,
    authorizations: Mutex<AuthorizationCache>,
    reviews: Semaphore,
    /// When the last review failed; none if it did not.
    failed_at: Mutex<Option<Instant>>,
}

impl Gate {
    pub(super) fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        let reviews = Semaphore::new(MOST_REVIEWS);
        Self { authorizer, authorizations: Mutex::default(), reviews, failed_at: Mutex::default() }
    }

    /// Whether the request may read the metrics.
    pub(super) async fn admit(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let token = bearer_token(headers).ok_or(Refusal::Unauthenticated)?;
        let key = TokenKey::of(token);
        let known = lock(&self.authorizations).get(key, Instant::now());
        if let Known::Fresh(authorization) = known {
            return decide(authorization);
        }
        let allowed_before = known == Known::AllowedBefore;
        if allowed_before && lock(&self.failed_at).is_some_and(|at| at.elapsed() < OUTAGE_PAUSE) {
            return Ok(());
        }
        let limit = if allowed_before { REVIEW_AGAIN } else { REVIEW };
        let reviewed = timeout(limit, async {
            let _turn = self.reviews.acquire().await.map_err(|error| error.to_string())?;
            self.authorizer.review(token).await
        });
        let reviewed = reviewed.await.unwrap_or_else(|_| Err(format!("no authorization within {} s", limit.as_secs())));
        self.report(reviewed.as_ref().err());
        match reviewed {
            Ok(authorization) => {
                lock(&self.authorizations).insert(key, authorization.clone(), Instant::now());
                decide(authorization)
            }
            Err(_) if allowed_before => Ok(()),
            Err(_) => Err(Refusal::Unavailable),
        }
    }

    fn report(&self, failure: Option<&String>) {
        let mut failed_at = lock(&self.failed_at);
        // An outage is logged once.
        match (failure, failed_at.is_some()) {
            (Some(error), false) => tracing::warn!(
                error,
                "cannot review tokens of scrapers; scrapes fail with status 503, except for clients that were allowed before"
            ),
            (None, true) => tracing::info!("tokens of scrapers are reviewed again"),
            _ => {}
        }
        *failed_at = failure.map(|_| Instant::now());
    }
}

fn decide(authorization: Authorization) -> Result<(), Refusal> {
    match authorization {
        Authorization::Allowed => Ok(()),
        Authorization::Forbidden { user } => Err(Refusal::Forbidden { user }),
        Authorization::Unauthenticated => Err(Refusal::Unauthenticated),
    }
}

/// The bearer token of a request, unless it is obviously invalid.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    let valid = !token.is_empty() && token.len() <= LONGEST_TOKEN && !token.contains(char::is_whitespace);
    (scheme.eq_ignore_ascii_case("bearer") && valid).then_some(token)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that runs under these locks can leave them inconsistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
    }

    /// Counts its reviews; `None` is an API server that does not reply.
    #[derive(Debug, Default)]
    struct Scripted {
        authorization: Mutex<Option<Authorization>>,
        reviews: Mutex<u32>,
    }

    impl Authorizer for Scripted {
        fn review<'a>(&'a self, _token: &'a str) -> ReviewFuture<'a> {
            Box::pin(async {
                *lock(&self.reviews) += 1;
                lock(&self.authorization).clone().ok_or_else(|| "connection refused".to_owned())
            })
        }
    }

    #[test]
    fn only_bearer_tokens_are_accepted() {
        assert_eq!(bearer_token(&headers("Bearer abc")), Some("abc"));
        assert_eq!(bearer_token(&headers("bearer  abc ")), Some("abc"));
        let long = format!("Bearer {}", "a".repeat(LONGEST_TOKEN + 1));
        for bad in ["", "Bearer", "Bearer ", "abc", "Basic abc", "Bearer a b", &long] {
            assert_eq!(bearer_token(&headers(bad)), None, "{bad:.20}");
        }
        assert_eq!(bearer_token(&HeaderMap::new()), None);
    }

    #[tokio::test]
    async fn authorizations_are_cached_by_token() {
        let authorizer = Arc::new(Scripted::default());
        let gate = Gate::new(authorizer.clone());
        *lock(&authorizer.authorization) = Some(Authorization::Allowed);
        for _ in 0..3 {
            assert_eq!(gate.admit(&headers("Bearer good")).await, Ok(()));
        }
        assert_eq!(*lock(&authorizer.reviews), 1);
        *lock(&authorizer.authorization) = Some(Authorization::Unauthenticated);
        for _ in 0..3 {
            assert_eq!(gate.admit(&headers("Bearer bad")).await, Err(Refusal::Unauthenticated));
        }
        assert_eq!(*lock(&authorizer.reviews), 2);
        // Without a token, the API server is not asked.
        assert_eq!(gate.admit(&HeaderMap::new()).await, Err(Refusal::Unauthenticated));
        assert_eq!(*lock(&authorizer.reviews), 2);
    }

    #[tokio::test]
    async fn without_the_api_server_only_clients_that_were_allowed_continue() {
        let authorizer = Arc::new(Scripted::default());
        let gate = Gate::new(authorizer.clone());
        let (known, unknown) = (headers("Bearer known"), headers("Bearer unknown"));
        let age = Duration::from_secs(100);
        let before = Instant::now().checked_sub(age).unwrap();
        lock(&gate.authorizations).insert(TokenKey::of("known"), Authorization::Allowed, before);
        assert_eq!(gate.admit(&known).await, Ok(()), "no reply, but allowed {age:?} ago");
        assert_eq!(gate.admit(&unknown).await, Err(Refusal::Unavailable));
        // It does not wait for another failure; after a pause it is reviewed again, and a reply counts more than the memory.
        let reviews = *lock(&authorizer.reviews);
        assert_eq!(gate.admit(&known).await, Ok(()));
        assert_eq!(*lock(&authorizer.reviews), reviews);
        *lock(&gate.failed_at) = before.into();
        *lock(&authorizer.authorization) = Some(Authorization::Forbidden { user: "known".into() });
        assert_eq!(gate.admit(&known).await, Err(Refusal::Forbidden { user: "known".into() }));
    }
}
