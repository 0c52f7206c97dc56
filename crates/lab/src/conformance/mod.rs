//! Kubernetes' e2e tests on a lab with ovnkube: selection, execution, report. The conformance suite of
//! network-policy-api (AdminNetworkPolicy, BaselineAdminNetworkPolicy) is run and reported with them.
//!
//! ```text
//!  images (Debian, built) ──▶ the nodes' containerd ◀──┐
//!  e2e.test, ginkgo (built) ────────────────▶ ginkgo ──┤ on the control machine ─▶ JSON, JUnit ─▶ Report
//!  policy-api.test, test2json (built) ─▶ policy-api ───┘
//! ```
//!
//! No registry is used, and no spec is retried.

mod archive;
mod images;
mod junit;
mod policy_api;
mod report;
mod run;
mod selection;

use std::path::PathBuf;

pub use report::Outcome;
pub use run::{Options, run};
pub use selection::{Selection, SpecSet};

use crate::directories::Directories;
use crate::error::Result;
use crate::image;
use crate::kubernetes_programs;
use crate::progress::Progress;
use crate::spec::Suite;

#[derive(Debug, Clone)]
pub(crate) struct Programs {
    /// Directory of Kubernetes' programs.
    kubernetes: PathBuf,
    /// Directory of its e2e tests.
    tests: PathBuf,
    coredns: PathBuf,
    /// Directory of network-policy-api's tests.
    policy_api: PathBuf,
}

/// What a run needs in addition to a lab. Building it takes long, so it is done (once, then cached) before anything
/// starts.
#[derive(Debug, Clone)]
pub struct Artifacts {
    programs: Programs,
    images: PathBuf,
}

impl Artifacts {
    /// Finds them in the cache or builds them.
    pub fn ensure(directories: &Directories, suite: Suite, progress: &Progress) -> Result<Self> {
        let programs = Programs {
            kubernetes: kubernetes_programs::ensure(directories, progress)?,
            tests: kubernetes_programs::ensure_tests(directories, progress)?,
            coredns: kubernetes_programs::ensure_coredns(directories, progress)?,
            policy_api: kubernetes_programs::ensure_policy_api_tests(directories, progress)?,
        };
        let node_image = image::ensure(directories, suite, progress)?;
        let images = images::ensure(directories, &node_image, &programs, progress)?;
        Ok(Self { programs, images })
    }
}
