//! Kubernetes' programs, CoreDNS and the conformance suites: built from Go modules once, then taken from the cache.
//!
//! `lab/kubernetes/go.mod` pins Kubernetes (`lab/kubernetes/pin VERSION`); `lab/coredns/go.mod` and
//! `lab/network-policy-api/go.mod` pin CoreDNS and network-policy-api, which need other versions of the same libraries.
//! A directory that the user names may contain the programs instead.

use std::path::PathBuf;

use crate::directories::{Directories, KUBERNETES_VARIABLE};
use crate::error::Result;
use crate::go_module::GoModule;
use crate::progress::Progress;

pub(crate) const PROGRAMS: &[&str] =
    &["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl", "agnhost", "pause"];

const KUBERNETES: GoModule = GoModule {
    name: "Kubernetes",
    pinned: "k8s.io/kubernetes",
    dir: "kubernetes",
    files: &[
        ("go.mod", include_str!("../../../lab/kubernetes/go.mod")),
        ("go.sum", include_str!("../../../lab/kubernetes/go.sum")),
        ("pause/main.go", include_str!("../../../lab/kubernetes/pause/main.go")),
    ],
    targets: &["tool", "./pause"],
    test_programs: &[],
    programs: PROGRAMS,
    version_variables: kubernetes_variables,
    space_mib: 4000,
};

/// Kubernetes' e2e tests, their runner, and programs of the images that they run; from the same module.
const KUBERNETES_TESTS: GoModule = GoModule {
    name: "Kubernetes' tests",
    pinned: "k8s.io/kubernetes",
    dir: "kubernetes-tests",
    files: &[
        ("go.mod", include_str!("../../../lab/kubernetes/go.mod")),
        ("go.sum", include_str!("../../../lab/kubernetes/go.sum")),
    ],
    targets: &[
        "github.com/onsi/ginkgo/v2/ginkgo",
        "k8s.io/kubernetes/test/images/nonewprivs",
        "k8s.io/kubernetes/test/images/regression-issue-74839",
        "k8s.io/sample-apiserver",
    ],
    test_programs: &[("e2e.test", "k8s.io/kubernetes/test/e2e")],
    programs: &["e2e.test", "ginkgo", "nonewprivs", "regression-issue-74839", "sample-apiserver"],
    version_variables: kubernetes_variables,
    space_mib: 3000,
};

const COREDNS: GoModule = GoModule {
    name: "CoreDNS",
    pinned: "github.com/coredns/coredns",
    dir: "coredns",
    files: &[
        ("go.mod", include_str!("../../../lab/coredns/go.mod")),
        ("go.sum", include_str!("../../../lab/coredns/go.sum")),
        ("main.go", include_str!("../../../lab/coredns/main.go")),
    ],
    targets: &["."],
    test_programs: &[],
    programs: &["coredns"],
    version_variables: |_| Vec::new(),
    space_mib: 1000,
};

/// The conformance suite of AdminNetworkPolicy and BaselineAdminNetworkPolicy, `test2json` for its output, and the
/// agnhost of its pods.
const POLICY_API_TESTS: GoModule = GoModule {
    name: "network-policy-api's tests",
    pinned: "sigs.k8s.io/network-policy-api",
    dir: "network-policy-api",
    files: &[
        ("go.mod", include_str!("../../../lab/network-policy-api/go.mod")),
        ("go.sum", include_str!("../../../lab/network-policy-api/go.sum")),
        ("agnhost-sctp/main.go", include_str!("../../../lab/network-policy-api/agnhost-sctp/main.go")),
        ("agnhost-sctp/packet.go", include_str!("../../../lab/network-policy-api/agnhost-sctp/packet.go")),
        ("suite/suite_test.go", include_str!("../../../lab/network-policy-api/suite/suite_test.go")),
    ],
    targets: &["./agnhost-sctp", "cmd/test2json"],
    test_programs: &[("policy-api.test", "./suite")],
    programs: &["agnhost-sctp", "policy-api.test", "test2json"],
    version_variables: |_| Vec::new(),
    space_mib: 1000,
};

fn kubernetes_variables(version: &str) -> Vec<(&'static str, String)> {
    let mut numbers = version.trim_start_matches('v').split('.').map(str::to_owned);
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    vec![
        ("k8s.io/component-base/version.gitVersion", version.to_owned()),
        ("k8s.io/component-base/version.gitMajor", major),
        ("k8s.io/component-base/version.gitMinor", minor),
    ]
}

/// The directory of all programs of Kubernetes; builds them if necessary.
pub(crate) fn ensure(directories: &Directories, progress: &Progress) -> Result<PathBuf> {
    match dir_from_env() {
        Some(dir) => KUBERNETES.use_dir(dir),
        None => KUBERNETES.ensure(directories, progress),
    }
}

/// The directory of Kubernetes' e2e tests; builds them if necessary.
pub(crate) fn ensure_tests(directories: &Directories, progress: &Progress) -> Result<PathBuf> {
    let existing = dir_from_env().filter(|dir| KUBERNETES_TESTS.use_dir(dir.clone()).is_ok());
    existing.map_or_else(|| KUBERNETES_TESTS.ensure(directories, progress), Ok)
}

/// The directory of network-policy-api's conformance suite; builds it if necessary.
pub(crate) fn ensure_policy_api_tests(directories: &Directories, progress: &Progress) -> Result<PathBuf> {
    let existing = dir_from_env().filter(|dir| POLICY_API_TESTS.use_dir(dir.clone()).is_ok());
    existing.map_or_else(|| POLICY_API_TESTS.ensure(directories, progress), Ok)
}

/// The CoreDNS program; builds it if necessary.
pub(crate) fn ensure_coredns(directories: &Directories, progress: &Progress) -> Result<PathBuf> {
    let existing = dir_from_env().map(|dir| dir.join("coredns")).filter(|program| program.is_file());
    existing.map_or_else(|| Ok(COREDNS.ensure(directories, progress)?.join("coredns")), Ok)
}

fn dir_from_env() -> Option<PathBuf> {
    std::env::var_os(KUBERNETES_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_go_mod() {
        assert!(KUBERNETES.version().starts_with("v1."), "{}", KUBERNETES.version());
        assert!(COREDNS.version().starts_with("v1."), "{}", COREDNS.version());
        assert!(POLICY_API_TESTS.version().starts_with("v0.1."), "{}", POLICY_API_TESTS.version());
    }

    #[test]
    fn every_staging_module_is_pinned_to_the_same_release() {
        let staging = KUBERNETES.version().replacen("v1.", "v0.", 1);
        let (_, module) = KUBERNETES.files[0];
        let replaced: Vec<&str> = module.lines().filter(|line| line.contains("=>")).collect();
        assert!(replaced.len() > 20);
        assert!(replaced.iter().all(|line| line.ends_with(&staging)), "{replaced:?}");
    }

    #[test]
    fn a_directory_without_the_programs_is_rejected() {
        let message = KUBERNETES.use_dir(std::env::temp_dir().join("no-kubernetes-here")).unwrap_err().to_string();
        assert!(message.contains("kube-apiserver") && message.contains(KUBERNETES_VARIABLE), "{message}");
    }
}
