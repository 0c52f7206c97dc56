//! Why the controller cannot start, or cannot go on.

/// Why the controller cannot start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// Settings that cannot work.
    #[error(transparent)]
    Settings(#[from] topology::settings::SettingsError),
    /// Networks that cannot be cut up.
    #[error(transparent)]
    Subnets(#[from] netmodel::SubnetPoolError),
    /// The Kubernetes API cannot be used.
    #[error(transparent)]
    Kubernetes(#[from] kubernetes::ConfigError),
    /// The lease cannot be used.
    #[error(transparent)]
    Lease(#[from] kubernetes::LeaseSettingsError),
    /// The northbound server is too old.
    #[error(transparent)]
    Schema(#[from] ovn_schema::CoreIncomplete),
    /// Somebody else's network is in the database.
    #[error(
        "the northbound database has the network of another controller ({0}); hint: stop that controller and start this \
         one once with --adopt to take its rows over, or give it a database of its own"
    )]
    ForeignNetwork(String),
    /// A watch ended, which must not be.
    #[error("the watch of {0} ended: this is a bug")]
    WatchEnded(&'static str),
}
