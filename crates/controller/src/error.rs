//! Errors that end the controller.

/// Why the controller cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// Invalid cluster settings.
    #[error(transparent)]
    Settings(#[from] topology::settings::SettingsError),
    /// The cluster networks cannot be divided into node subnets.
    #[error(transparent)]
    Subnets(#[from] netmodel::SubnetPoolError),
    /// The kubeconfig or in-cluster configuration is unusable.
    #[error(transparent)]
    Kubernetes(#[from] kubernetes::ConfigError),
    /// Invalid Lease settings.
    #[error(transparent)]
    Lease(#[from] kubernetes::LeaseSettingsError),
    /// The northbound schema lacks required columns: OVN is too old.
    #[error(transparent)]
    Schema(#[from] ovn_schema::CoreIncomplete),
    /// Another controller's network is in the database; names one of its rows.
    #[error(
        "the northbound database has the network of another controller ({0}); hint: stop that controller and start this \
         one once with --adopt to adopt its rows, or use an empty database"
    )]
    ForeignNetwork(String),
    /// A watch ended, which is a bug.
    #[error("the watch of {0} ended: this is a bug")]
    WatchEnded(&'static str),
}
