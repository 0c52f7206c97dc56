//! The Container Network Interface as data: requests, network configurations, results and errors.
//!
//! ```text
//!  body of the plugin's POST ──▶ Request { command, attachment, configuration } ──▶ … ──▶ AddResult | Failure ──▶ JSON
//! ```
//!
//! All input is validated here: names, versions, paths. Results and errors have the form of the requested CNI version.
//!
//! ```
//! use cni::{Code, Command, Failure, Request, Version};
//!
//! // The plugin sends its environment, and its stdin in base64: {"cniVersion":"1.0.0","name":"ovn-kubernetes"}.
//! let body = r#"{"config": "eyJjbmlWZXJzaW9uIjoiMS4wLjAiLCJuYW1lIjoib3ZuLWt1YmVybmV0ZXMifQ==", "env": {
//!     "CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_NETNS": "/run/netns/x", "CNI_IFNAME": "eth0",
//!     "CNI_ARGS": "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-1"}}"#;
//! let request = Request::parse(body.as_bytes()).expect("a valid request");
//! assert_eq!(request.configuration.version, Version::V1_0_0);
//! let Command::Add { attachment, pod, .. } = request.command else { panic!("not an ADD") };
//! assert_eq!((attachment.interface.as_str(), pod.name.as_str()), ("eth0", "web-1"));
//!
//! // Errors are the JSON that a runtime expects on the plugin's stdout.
//! let failure = Failure::new(Code::InvalidEnvironment, "CNI_IFNAME is not set");
//! assert!(failure.to_json(Version::V1_0_0).contains(r#""cniVersion":"1.0.0""#));
//! ```

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
