//! Version and commit of this build.

/// Version of the workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Commit of the build; with `-dirty` if files were changed, `unknown` outside a checkout.
pub const COMMIT: &str = env!("OVNKUBE_COMMIT");
/// As `--version` shows it.
pub const VERSION_AND_COMMIT: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("OVNKUBE_COMMIT"), ")");
