//! Authorizations of tokens, cached for a short time. Pure: the caller passes the time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::access::Authorization;

/// How long a client stays allowed without another review.
const ALLOWED_FOR: Duration = Duration::from_secs(60);
/// How long a refusal is repeated without another review. Short: an administrator who grants the permission waits for it.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// How long an allowed client may continue while no review is possible. The metrics are needed most while the API server is
/// down; a token that was revoked meanwhile works for this long at most.
const ALLOWED_IN_OUTAGE: Duration = Duration::from_secs(600);
/// Most remembered authorizations.
const MOST: usize = 256;

/// A token's SHA-256: tokens themselves are not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TokenKey([u8; 32]);

impl TokenKey {
    pub(super) fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }
}

/// What is known about a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Recent enough to use.
    Fresh(Authorization),
    /// To be used only if no review is possible.
    AllowedBefore,
    Nothing,
}

/// What the API server said about tokens, for some seconds: not every scrape asks it.
#[derive(Debug, Default)]
pub(super) struct AuthorizationCache(HashMap<TokenKey, (Authorization, Instant)>);

impl AuthorizationCache {
    pub(super) fn get(&self, token: TokenKey, now: Instant) -> Known {
        let Some((authorization, at)) = self.0.get(&token) else { return Known::Nothing };
        let age = now.saturating_duration_since(*at);
        match authorization {
            Authorization::Allowed if age < ALLOWED_FOR => Known::Fresh(Authorization::Allowed),
            Authorization::Allowed if age < ALLOWED_IN_OUTAGE => Known::AllowedBefore,
            Authorization::Forbidden { .. } | Authorization::Unauthenticated if age < REFUSED_FOR => {
                Known::Fresh(authorization.clone())
            }
            _ => Known::Nothing,
        }
    }

    pub(super) fn insert(&mut self, token: TokenKey, authorization: Authorization, now: Instant) {
        self.0.insert(token, (authorization, now));
        if self.0.len() <= MOST {
            return;
        }
        // Refused ones go first: a flood of invalid tokens must not push out the clients that are allowed.
        let oldest =
            self.0.iter().min_by_key(|(_, (authorization, at))| (*authorization == Authorization::Allowed, *at));
        if let Some(oldest) = oldest.map(|(token, _)| *token) {
            self.0.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> TokenKey {
        TokenKey::of(&number.to_string())
    }

    #[test]
    fn allowed_clients_are_reviewed_again_after_a_minute() {
        let (mut cache, start) = (AuthorizationCache::default(), Instant::now());
        cache.insert(key(1), Authorization::Allowed, start);
        let after = |seconds| cache.get(key(1), start + Duration::from_secs(seconds));
        assert_eq!(after(59), Known::Fresh(Authorization::Allowed));
        assert_eq!(after(60), Known::AllowedBefore);
        assert_eq!(after(599), Known::AllowedBefore);
        assert_eq!(after(600), Known::Nothing);
        assert_eq!(cache.get(key(2), start), Known::Nothing);
    }

    #[test]
    fn refusals_are_forgotten_after_ten_seconds_and_never_become_valid() {
        let (mut cache, start) = (AuthorizationCache::default(), Instant::now());
        let forbidden = Authorization::Forbidden { user: "stranger".into() };
        for (number, authorization) in [forbidden, Authorization::Unauthenticated].into_iter().enumerate() {
            cache.insert(key(number), authorization.clone(), start);
            assert_eq!(cache.get(key(number), start + Duration::from_secs(9)), Known::Fresh(authorization));
            assert_eq!(cache.get(key(number), start + Duration::from_secs(10)), Known::Nothing);
        }
    }

    #[test]
    fn a_flood_of_invalid_tokens_does_not_push_out_an_allowed_client() {
        let (mut cache, start) = (AuthorizationCache::default(), Instant::now());
        cache.insert(key(0), Authorization::Allowed, start);
        for number in 1..=2 * MOST {
            cache.insert(key(number), Authorization::Unauthenticated, start + Duration::from_millis(1));
        }
        assert_eq!(cache.0.len(), MOST);
        assert_eq!(cache.get(key(0), start), Known::Fresh(Authorization::Allowed));
    }
}
