//! Kubernetes' own tests on a lab with our network: which specs, how they are run, what came of them. The conformance
//! suite of network-policy-api (AdminNetworkPolicy, BaselineAdminNetworkPolicy) is run and reported with them.
//!
//! ```text
//!  images (Debian, built) ──▶ the nodes' containerd ◀──┐
//!  e2e.test, ginkgo (built) ────────────────▶ ginkgo ──┤ on the control machine ─▶ JSON, JUnit ─▶ Report
//!  policy-api.test, test2json (built) ─▶ policy-api ───┘
//! ```
//!
//! Nothing is fetched from a registry, and no spec is repeated: one that fails once has failed.

mod archive;
mod images;
mod junit;
mod policy_api;
mod report;
mod run;
mod selection;

use std::path::PathBuf;

pub use report::{Outcome, Report, SpecResult};
pub use run::{Options, run};
pub use selection::{Selection, Which};

use crate::error::Result;
use crate::image;
use crate::kubernetes_programs;
use crate::place::Place;
use crate::progress::Progress;
use crate::spec::Suite;

/// The programs that a run needs.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    /// The folder of Kubernetes.
    kubernetes: PathBuf,
    /// The folder of its tests.
    tests: PathBuf,
    coredns: PathBuf,
    /// The folder of network-policy-api's tests.
    policy_api: PathBuf,
}

/// What a run needs beside a lab: the long part, done before anything starts.
#[derive(Debug, Clone)]
pub struct Supplies {
    programs: Programs,
    images: PathBuf,
}

impl Supplies {
    /// Finds or makes them.
    pub fn ensure(place: &Place, suite: Suite, progress: &Progress) -> Result<Self> {
        let programs = Programs {
            kubernetes: kubernetes_programs::ensure(place, progress)?,
            tests: kubernetes_programs::ensure_tests(place, progress)?,
            coredns: kubernetes_programs::ensure_coredns(place, progress)?,
            policy_api: kubernetes_programs::ensure_policy_api_tests(place, progress)?,
        };
        let node_image = image::ensure(place, suite, progress)?;
        let images = images::ensure(place, &node_image, &programs, progress)?;
        Ok(Self { programs, images })
    }
}
