//! Version and commit of this build.

/// Version of the workspace, such as `0.1.0`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Commit of the build; with `-dirty` if files were changed, `unknown` outside a checkout.
pub const COMMIT: &str = env!("OVNKUBE_COMMIT");
/// What `--version` prints: `0.1.0 (commit 1a2b3c4)`.
pub const VERSION_AND_COMMIT: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("OVNKUBE_COMMIT"), ")");
