//! Why a relay does not forward, and what to do about it, from the replies of its upstreams. Pure.

use std::time::Duration;

use crate::inspect::Member;

/// Why the write without effect failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The upstream does not allow the relay to write.
    Denied(String),
    /// The relay did not answer in time, or has no upstream.
    NoAnswer(String),
}

/// What to do about a relay that does not forward.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RelayAction {
    /// It connects by itself, or cannot; the reason.
    Wait(String),
    /// A member works, but the relay does not connect to it; the reason.
    Restart(String),
}

/// Assesses a relay that has not forwarded for `lasts`.
pub(super) fn assess(members: &[Member], failure: &Failure, lasts: Duration, stuck_after: Duration) -> RelayAction {
    let error = match failure {
        Failure::Denied(error) => {
            return RelayAction::Wait(format!(
                "the members do not let the relay write: {error}; hint: it needs a port without an RBAC role"
            ));
        }
        Failure::NoAnswer(error) => error,
    };
    if members.iter().any(|member| member.connected) {
        let seconds = lasts.as_secs();
        return if lasts >= stuck_after {
            RelayAction::Restart(format!(
                "the relay has not connected to a working member for {seconds} s ({error}); restarting it"
            ))
        } else {
            RelayAction::Wait(format!("connecting to a member ({error})"))
        };
    }
    let each: Vec<String> = members
        .iter()
        .map(|member| {
            let why = match &member.error {
                Some(error) => error.as_str(),
                None => "it is not in contact with a quorum",
            };
            format!("{}: {why}", member.remote)
        })
        .collect();
    RelayAction::Wait(format!(
        "no upstream works; hint: --upstream must list the members of the southbound database ({})",
        each.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(remote: &str, connected: bool, error: Option<&str>) -> Member {
        Member {
            remote: remote.into(),
            reachable: error.is_none(),
            error: error.map(str::to_owned),
            connected,
            ..Member::default()
        }
    }

    fn silent() -> Failure {
        Failure::NoAnswer("timed out".into())
    }

    fn reason(action: RelayAction) -> String {
        match action {
            RelayAction::Wait(why) => why,
            RelayAction::Restart(why) => panic!("{why}"),
        }
    }

    #[test]
    fn every_upstream_that_does_not_work_is_named_with_its_reason() {
        let members = [
            member("ssl:192.0.2.1:6642", false, Some("connection refused")),
            member("ssl:192.0.2.2:6642", false, Some("the server does not have database OVN_Southbound")),
            member("ssl:192.0.2.3:6642", false, None),
        ];
        // Restarting does not help.
        let why = reason(assess(&members, &silent(), Duration::from_secs(3600), Duration::from_secs(20)));
        for part in ["192.0.2.1:6642: connection refused", "not have database", "192.0.2.3:6642: it is not in contact"]
        {
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn a_relay_is_restarted_only_if_a_member_works_and_it_had_time_to_connect() {
        let members = [member("a", false, Some("refused")), member("b", true, None)];
        let after = |seconds| assess(&members, &silent(), Duration::from_secs(seconds), Duration::from_secs(20));
        assert!(matches!(after(19), RelayAction::Wait(_)));
        assert!(matches!(after(20), RelayAction::Restart(_)));
    }

    #[test]
    fn a_relay_that_may_not_write_is_not_restarted() {
        let denied = Failure::Denied("permission error".into());
        let why = reason(assess(&[member("a", true, None)], &denied, Duration::from_secs(60), Duration::from_secs(20)));
        assert!(why.contains("permission error") && why.contains("without an RBAC role"), "{why}");
    }
}
