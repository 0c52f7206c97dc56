//! The Container Network Interface as data: requests, network configurations, results and errors.
//!
//! ```text
//!  body of the plugin's POST ──▶ Request { command, attachment, configuration } ──▶ … ──▶ AddResult | Failure ──▶ JSON
//! ```
//!
//! All input is validated here: names, versions, paths. Results and errors have the form of the requested CNI version.

mod add_result;
mod attachment;
mod configuration;
mod failure;
mod request;
mod version;

pub use add_result::{AddResult, Address, Dns, Interface, Route};
pub use attachment::{Attachment, PodReference};
pub use configuration::Configuration;
pub use failure::{Code, Failure};
pub use request::{Command, Request};
pub use version::Version;
