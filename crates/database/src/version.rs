//! Versions of schemas and of Open vSwitch, and what follows from them. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::finding::{Finding, FindingKind};
use crate::maintenance::silence_limit;
use crate::status::ClusterStatus;

/// Three numbers, such as `7.11.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub u32, pub u32, pub u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// A text is not a version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version such as 7.11.0")]
pub(crate) struct VersionError(String);

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        // A distribution may append its own number, e.g. `3.5.0~git20250114`.
        let numbers: Vec<u32> = text
            .split('.')
            .map_while(|part| {
                let digits = part.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(part.len());
                part[..digits].parse().ok()
            })
            .collect();
        match numbers[..] {
            [major, minor, patch, ..] => Ok(Self(major, minor, patch)),
            [major, minor] => Ok(Self(major, minor, 0)),
            _ => Err(VersionError(text.to_owned())),
        }
    }
}

/// The release in `ovsdb-server (Open vSwitch) 3.5.0`, the first line of `--version`.
pub(crate) fn of_server(output: &str) -> Option<Version> {
    output.lines().next()?.rsplit(' ').next()?.parse().ok()
}

/// Releases with the raft fixes 9d15da43b, 5f12cd410, c34c21bb0, adc588f96 and d94b3259d; older branches did not get them.
const FIRST_FIXED: [Version; 3] = [Version(3, 5, 4), Version(3, 6, 3), Version(3, 7, 1)];

/// A note about a release of Open vSwitch that lacks known fixes of raft; they concern clusters of several members.
pub(crate) fn raft_bugs(release: Version, members: usize) -> Option<Finding> {
    if members < 2 {
        return None;
    }
    let branch = FIRST_FIXED.iter().find(|fixed| (fixed.0, fixed.1) == (release.0, release.1));
    let fixed = match branch {
        Some(first) => release >= *first,
        None => release > FIRST_FIXED[2],
    };
    (!fixed).then(|| {
        Finding::new(
            FindingKind::KnownRaftBugs,
            format!(
                "Open vSwitch {release} lacks five fixes of raft, so that in rare cases a member that is behind or was removed \
                 disturbs elections, or keeps talking to another cluster at a reused address; use 3.5.4, 3.6.3, 3.7.1, 4.0 or \
                 newer; until then replace or remove one member at a time"
            ),
        )
    })
}

/// What a member's manager records about its image, so that the leader knows when all members were upgraded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberVersion {
    /// Node or pod of the member.
    pub member: String,
    /// Version of the image's schema file.
    pub schema: String,
    /// Release of its ovsdb-server.
    pub server: String,
}

/// What is to be done about the schema of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SchemaStep {
    /// It is the image's, or another member does what is to be done.
    Nothing,
    /// Convert the database to the schema of the image.
    Convert,
    /// Convert later: the reason.
    Wait(String),
    /// The database is newer than the image.
    Newer,
}

/// Decides about the schema. `members` are the recorded versions by full server ID.
///
/// A conversion is an entry of the raft log, which every member applies with its own program: a release before Open vSwitch
/// 3.2 cannot read that of a later one. So it waits until every member runs the image of the leader.
pub(crate) fn schema_step(
    database: Version,
    own: &MemberVersion,
    status: &ClusterStatus,
    members: &BTreeMap<String, MemberVersion>,
) -> SchemaStep {
    let Ok(image) = own.schema.parse::<Version>() else { return SchemaStep::Nothing };
    if database > image {
        return SchemaStep::Newer;
    }
    if database == image || !status.is_leader() || !status.is_member() {
        return SchemaStep::Nothing;
    }
    let limit = silence_limit(status);
    for server in &status.servers {
        if !server.is_alive(limit) {
            return SchemaStep::Wait(format!("{} is down", server.address));
        }
        let recorded = members.iter().find(|(id, _)| id.starts_with(&server.id)).map(|(_, version)| version);
        let Some(version) = recorded else {
            return SchemaStep::Wait(format!("the image of {} is not known yet", server.address));
        };
        if (&version.schema, &version.server) != (&own.schema, &own.server) {
            return SchemaStep::Wait(format!(
                "{} has an image with schema {} and Open vSwitch {}, this leader {} and {}",
                version.member, version.schema, version.server, own.schema, own.server
            ));
        }
    }
    SchemaStep::Convert
}

/// What is reported about the schema.
pub(crate) fn schema_finding(step: &SchemaStep, database: Version, image: &str) -> Option<Finding> {
    match step {
        SchemaStep::Nothing | SchemaStep::Convert => None,
        SchemaStep::Wait(why) => Some(Finding::new(
            FindingKind::SchemaOutdated,
            format!(
                "the database has schema {database}, older than {image} of the image, and is converted when every member runs \
                 this image: {why}; complete the rollout"
            ),
        )),
        SchemaStep::Newer => Some(Finding::new(
            FindingKind::SchemaNewer,
            format!(
                "the database has schema {database}, newer than {image} of the image; it is served as it is and never converted \
                 back; upgrade the image again, or see the runbook to return to the older schema"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Server;

    #[test]
    fn releases_with_known_raft_bugs_are_named() {
        for (text, lacks) in [
            ("3.1.0", true),
            ("3.5.0", true),
            ("3.5.4", false),
            ("3.6.2", true),
            ("3.6.3", false),
            ("3.7.0", true),
            ("3.7.1", false),
            ("3.8.0", false),
            ("4.0.0~git1", false),
        ] {
            let output = format!("ovsdb-server (Open vSwitch) {text}\nCopyright");
            assert_eq!(raft_bugs(of_server(&output).unwrap(), 3).is_some(), lacks, "{text}");
            assert_eq!(raft_bugs(of_server(&output).unwrap(), 1), None, "one member does not elect");
        }
        assert_eq!(of_server("ovsdb-server: not found"), None);
        assert!("7".parse::<Version>().is_err() && "".parse::<Version>().is_err());
    }

    fn version(schema: &str, server: &str) -> MemberVersion {
        MemberVersion { member: "m".into(), schema: schema.into(), server: server.into() }
    }

    fn leader() -> ClusterStatus {
        let server = |id: &str, silent_ms: Option<u64>| Server {
            id: id.into(),
            address: format!("tcp:{id}"),
            this: silent_ms.is_none(),
            match_index: None,
            silent_ms,
        };
        ClusterStatus {
            status: "cluster member".into(),
            role: "leader".into(),
            election_timer: 1000,
            servers: vec![server("aaaa", None), server("bbbb", Some(100))],
            ..ClusterStatus::default()
        }
    }

    fn step(database: &str, status: &ClusterStatus, members: &[(&str, MemberVersion)]) -> SchemaStep {
        let members = members.iter().map(|(id, version)| ((*id).to_owned(), version.clone())).collect();
        schema_step(database.parse().unwrap(), &version("7.11.0", "3.5.0"), status, &members)
    }

    #[test]
    fn the_leader_converts_when_every_member_has_its_image() {
        let own = version("7.11.0", "3.5.0");
        let all = [("aaaa-1", own.clone()), ("bbbb-2", own.clone())];
        assert_eq!(step("7.0.0", &leader(), &all), SchemaStep::Convert);
        assert_eq!(step("7.11.0", &leader(), &all), SchemaStep::Nothing);
        let follower = ClusterStatus { role: "follower".into(), ..leader() };
        assert_eq!(step("7.0.0", &follower, &all), SchemaStep::Nothing);
    }

    #[test]
    fn a_conversion_waits_for_members_that_are_down_unknown_or_older() {
        let own = version("7.11.0", "3.5.0");
        let waits = |status: &ClusterStatus, members: &[(&str, MemberVersion)], part: &str| match step(
            "7.0.0", status, members,
        ) {
            SchemaStep::Wait(why) => assert!(why.contains(part), "{why}"),
            other => panic!("{other:?}"),
        };
        waits(&leader(), &[("aaaa-1", own.clone())], "is not known");
        for older in [version("7.0.0", "3.5.0"), version("7.11.0", "3.1.0")] {
            waits(&leader(), &[("aaaa-1", own.clone()), ("bbbb-2", older)], "has an image with schema");
        }
        let mut down = leader();
        down.servers[1].silent_ms = Some(60_000);
        waits(&down, &[("aaaa-1", own.clone()), ("bbbb-2", own.clone())], "is down");
    }

    #[test]
    fn a_newer_database_is_never_converted_back() {
        let own = version("7.11.0", "3.5.0");
        let step = step("8.0.0", &leader(), &[("aaaa-1", own.clone()), ("bbbb-2", own)]);
        assert_eq!(step, SchemaStep::Newer);
        let finding = schema_finding(&step, Version(8, 0, 0), "7.11.0").unwrap();
        assert_eq!(finding.kind, FindingKind::SchemaNewer);
    }
}
