//! Which build this is.

/// The version of the workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit that the binary was built from; `-dirty` if something was changed since, `unknown` outside a checkout.
pub const COMMIT: &str = env!("OVNKUBE_COMMIT");
/// Both, as `--version` shows them.
pub const VERSION_AND_COMMIT: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("OVNKUBE_COMMIT"), ")");
