//! A lab that a command starts for itself where none of that name runs: its options, and what they ask for.

use std::path::PathBuf;

use clap::Args;

use super::up;
use crate::error::Result;
use crate::spec::{Gateway, LabSpec, Product, Suite};

#[derive(Debug, Args)]
pub(super) struct OwnLab {
    /// How pods of a lab that is started reach the outside
    #[arg(long, value_enum, default_value = "shared")]
    gateway: Gateway,
    /// The folder of our binaries (deploy/image/build.sh fills it); target/image beside this program's if not given
    #[arg(long)]
    binaries: Option<PathBuf>,
    /// The Debian suite of its node image
    #[arg(long, value_enum, env = crate::place::SUITE_VARIABLE, default_value = "trixie")]
    pub(super) suite: Suite,
}

impl OwnLab {
    /// So many nodes with our network.
    pub(super) fn spec(&self, name: &str, nodes: u32) -> Result<LabSpec> {
        let product = Product { binaries: up::binaries(self.binaries.as_deref())?, gateway: self.gateway };
        let mut spec = LabSpec::new(name).nodes(nodes).product(product);
        spec.suite = self.suite;
        Ok(spec)
    }
}
