//! The network configuration, which the runtime reads from its directory and passes with each request.

use serde::Deserialize;

use crate::add_result::Dns;
use crate::attachment::Attachment;
use crate::failure::{Code, Failure};
use crate::version::Version;

/// The parts of a network configuration that are used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Configuration {
    /// Version of results and errors.
    pub version: Version,
    /// `name`: the network, as the runtime's configuration file calls it.
    pub name: String,
    /// Returned in the result of ADD.
    pub dns: Dns,
    /// For GC only: attachments in use; all others are removed.
    pub valid_attachments: Option<Vec<Attachment>>,
}

#[derive(Deserialize)]
struct Object {
    #[serde(rename = "cniVersion", default)]
    version: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    dns: Option<DnsObject>,
    #[serde(rename = "cni.dev/valid-attachments")]
    valid_attachments: Option<Vec<AttachmentObject>>,
    /// Another name in the text of CNI 1.1.
    #[serde(rename = "cni.dev/attachments")]
    attachments: Option<Vec<AttachmentObject>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct DnsObject {
    nameservers: Vec<String>,
    search: Vec<String>,
}

#[derive(Deserialize)]
struct AttachmentObject {
    #[serde(rename = "containerID")]
    container: String,
    #[serde(rename = "ifname")]
    interface: String,
}

impl Configuration {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Failure> {
        let object: Object = serde_json::from_slice(bytes).map_err(|error| {
            Failure::new(Code::NotDecoded, "cannot parse the network configuration").with_details(error.to_string())
        })?;
        // The specification's default.
        let named = if object.version.is_empty() { "0.3.1" } else { &object.version };
        let version = Version::parse(named).ok_or_else(|| {
            let supported: Vec<&str> = Version::ALL.into_iter().map(Version::name).collect();
            Failure::new(Code::IncompatibleVersion, format!("cniVersion {named:?} is not supported"))
                .with_details(format!("use one of {}", supported.join(", ")))
        })?;
        let valid_attachments = object.valid_attachments.or(object.attachments);
        let valid_attachments = valid_attachments
            .map(|all| all.iter().map(|one| Attachment::new(&one.container, &one.interface)).collect());
        let DnsObject { nameservers, search } = object.dns.unwrap_or_default();
        let dns = Dns { nameservers, search };
        Ok(Self { version, name: object.name, dns, valid_attachments: valid_attachments.transpose()? })
    }
}
