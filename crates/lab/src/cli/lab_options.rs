//! Options of every command that starts a lab with ovnkube: declared once, flattened into the command's own.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use netmodel::GatewayMode;

use crate::error::{Error, Result};
use crate::spec::{LabSpec, Product, Suite};

// No doc comments on these structs: clap would show them as the description of the command that flattens them.
#[derive(Debug, Args)]
pub(super) struct SuiteOption {
    /// The Debian suite of the node image
    #[arg(long, value_enum, env = crate::directories::SUITE_VARIABLE, default_value = "trixie")]
    pub(super) suite: Suite,
}

#[derive(Debug, Args)]
pub(super) struct LabOptions {
    /// How pods reach the outside: through OVN's gateway router, or through the host's routing table
    #[arg(long, value_parser = gateway_mode(), default_value_t = GatewayMode::Shared)]
    gateway: GatewayMode,
    /// Directory of the ovnkube binaries, filled by deploy/image/build.sh [default: target/image next to this program]
    #[arg(long)]
    binaries: Option<PathBuf>,
    #[command(flatten)]
    suite: SuiteOption,
}

impl LabOptions {
    pub(super) fn suite(&self) -> Suite {
        self.suite.suite
    }

    pub(super) fn product(&self) -> Result<Product> {
        Ok(Product { binaries: binaries(self.binaries.as_deref())?, gateway: self.gateway })
    }

    /// A lab with ovnkube and this many nodes.
    pub(super) fn spec(&self, name: &str, nodes: u32) -> Result<LabSpec> {
        let mut spec = LabSpec::new(name).nodes(nodes).product(self.product()?);
        spec.suite = self.suite();
        Ok(spec)
    }
}

/// Parses a gateway mode; the help of the option lists all of them.
fn gateway_mode() -> impl TypedValueParser<Value = GatewayMode> {
    PossibleValuesParser::new([GatewayMode::Shared, GatewayMode::Local].map(GatewayMode::name))
        .try_map(|text| text.parse::<GatewayMode>())
}

/// The directory of the binaries: the given one, made absolute because the keeper has another working directory; else
/// `target/image` if this program is `target/debug/lab`.
fn binaries(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(dir) = given {
        return std::path::absolute(dir).map_err(Error::io(format!("cannot find {}", dir.display())));
    }
    let program = std::env::current_exe().map_err(Error::io("cannot find this program"))?;
    Ok(program.ancestors().nth(2).unwrap_or(Path::new("/")).join("image"))
}
