//! Why the node agent cannot start, or cannot go on.

/// Why the node agent cannot start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The Kubernetes API cannot be used.
    #[error(transparent)]
    Kubernetes(#[from] kubernetes::ConfigError),
    /// The runtime cannot ask.
    #[error("{0}")]
    Cni(String),
    /// A part of the agent ended, which must not be.
    #[error("{0} ended: this is a bug")]
    Ended(&'static str),
    /// The host could not be cleaned up.
    #[error("not everything could be taken off this host: {0}; hint: mend that and run it again")]
    CleanUp(String),
}
