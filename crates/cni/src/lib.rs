//! The Container Network Interface as data: what a runtime asks for, and what it is told.
//!
//! ```text
//!  body of the plugin's POST ──▶ Request { command, attachment, configuration } ──▶ … ──▶ Answer | Failure ──▶ JSON
//! ```
//!
//! Everything that comes in is checked here: names, versions, addresses. What leaves has the shape of the version that was
//! asked for.

mod answer;
mod attachment;
mod base64;
mod configuration;
mod failure;
mod request;
mod version;

pub use answer::{Address, Answer, Dns, Interface, Route};
pub use attachment::{Attachment, PodReference};
pub use configuration::Configuration;
pub use failure::{Code, Failure};
pub use request::{Command, Request};
pub use version::Version;
