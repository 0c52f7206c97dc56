//! Releases of OVN, and the vulnerabilities that they have.

use std::fmt;
use std::str::FromStr;

/// A release such as 25.03.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release(pub u32, pub u32, pub u32);

/// A text without a release.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a release of OVN such as 25.03.0")]
pub struct ReleaseError(String);

impl FromStr for Release {
    type Err = ReleaseError;

    /// Ignores what follows the three numbers: `25.03.0-20.41.0-77.6` is northd's internal version.
    fn from_str(text: &str) -> Result<Self, ReleaseError> {
        let release = text.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap_or_default();
        let mut numbers = release.split('.').map(str::parse::<u32>);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(year)), Some(Ok(month)), Some(Ok(patch))) => Ok(Self(year, month, patch)),
            _ => Err(ReleaseError(text.to_owned())),
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}.{}", self.0, self.1, self.2)
    }
}

impl Release {
    /// The release in the output of `--version` or of the control command `version`: `ovn-controller 25.03.0`, then other lines.
    pub fn of_output(output: &str) -> Result<Self, ReleaseError> {
        output.lines().next().unwrap_or_default().rsplit(' ').next().unwrap_or_default().parse()
    }

    fn branch(self) -> (u32, u32) {
        (self.0, self.1)
    }
}

/// A published vulnerability of OVN that tenants could use.
#[derive(Debug, PartialEq, Eq)]
pub struct Vulnerability {
    /// Its CVE number.
    pub id: &'static str,
    /// What an attacker can do.
    pub effect: &'static str,
    /// The first fixed release of each branch that was fixed; later branches are fixed from the start.
    fixed: &'static [Release],
}

const VULNERABILITIES: [Vulnerability; 3] = [
    Vulnerability {
        id: "CVE-2023-3153",
        effect: "a pod can overload ovn-controller with packets to the service monitor's MAC, which no rate limit covers",
        fixed: &[Release(22, 3, 3), Release(23, 6, 1), Release(23, 9, 0)],
    },
    Vulnerability {
        id: "CVE-2024-2182",
        effect: "a pod can stop traffic between nodes by BFD packets, if tunnels are monitored by BFD",
        fixed: &[Release(22, 3, 7), Release(23, 9, 3), Release(24, 3, 1)],
    },
    Vulnerability {
        id: "CVE-2025-0650",
        effect: "UDP packets can bypass policies of a switch that has DNS records (ovnkube creates none)",
        fixed: &[Release(22, 3, 8), Release(24, 3, 5), Release(24, 9, 2)],
    },
];

/// The oldest release of each supported branch that has none of the known vulnerabilities.
pub const FLOOR: &str = "22.03.8, 24.03.5, 24.09.2, 25.03.0 or newer";

/// What is known to be unsafe about a release. Distributions may have added a fix without a new number.
pub fn vulnerabilities(release: Release) -> impl Iterator<Item = &'static Vulnerability> {
    VULNERABILITIES.iter().filter(move |vulnerability| {
        let of_branch = vulnerability.fixed.iter().find(|fixed| fixed.branch() == release.branch());
        match (of_branch, vulnerability.fixed.last()) {
            (Some(first), _) => release < *first,
            (None, Some(last)) => release < *last,
            (None, None) => true,
        }
    })
}

/// One sentence about a program of a release with known vulnerabilities, with the remedy; none if it has none.
pub fn warning(program: &str, release: Release) -> Option<String> {
    let known: Vec<String> = vulnerabilities(release).map(|known| format!("{} ({})", known.id, known.effect)).collect();
    (!known.is_empty()).then(|| {
        let known = known.join("; ");
        format!(
            "{program} {release} has known vulnerabilities: {known}. Use OVN {FLOOR}, or a package with these fixes"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(release: &str) -> Vec<&'static str> {
        vulnerabilities(release.parse().unwrap()).map(|known| known.id).collect()
    }

    #[test]
    fn releases_are_read_from_what_programs_print() {
        assert_eq!("25.03.0-20.41.0-77.6".parse(), Ok(Release(25, 3, 0)));
        let output = "ovn-controller 24.03.2\nOpen vSwitch Library 3.3.1\n";
        assert_eq!(Release::of_output(output), Ok(Release(24, 3, 2)));
        for text in ["", "ovn-controller", "25.03", "ovn-northd: not found", "99999999999.1.1"] {
            assert!(Release::of_output(text).is_err(), "{text}");
        }
        assert_eq!(Release(25, 3, 0).to_string(), "25.03.0");
    }

    #[test]
    fn a_release_is_unsafe_until_the_first_fixed_one_of_its_branch() {
        assert_eq!(ids("22.03.8"), Vec::<&str>::new());
        assert_eq!(ids("22.03.7"), ["CVE-2025-0650"]);
        assert_eq!(ids("23.03.1"), ["CVE-2023-3153", "CVE-2024-2182", "CVE-2025-0650"]);
        assert_eq!(ids("23.09.3"), ["CVE-2025-0650"]);
        assert_eq!(ids("24.03.5"), Vec::<&str>::new());
        assert_eq!(ids("24.09.1"), ["CVE-2025-0650"]);
        for fixed in ["24.09.2", "25.03.0", "26.03.0"] {
            assert_eq!(ids(fixed), Vec::<&str>::new(), "{fixed}");
        }
    }

    #[test]
    fn the_warning_names_each_vulnerability_and_the_remedy() {
        let warning = warning("ovn-northd", Release(23, 3, 1)).unwrap();
        for part in ["ovn-northd 23.03.1", "CVE-2023-3153", "CVE-2024-2182", "CVE-2025-0650", FLOOR] {
            assert!(warning.contains(part), "{warning}");
        }
        assert_eq!(super::warning("ovn-northd", Release(25, 3, 0)), None);
    }
}
