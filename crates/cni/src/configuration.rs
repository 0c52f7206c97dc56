//! The configuration that the runtime reads from its folder and hands over with each request.

use serde::Deserialize;

use crate::answer::Dns;
use crate::attachment::Attachment;
use crate::failure::{Code, Failure};
use crate::version::Version;

/// What we read of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Configuration {
    /// The version that is spoken.
    pub version: Version,
    /// The network's name.
    pub name: String,
    /// Where pods find names, if the network says so.
    pub dns: Dns,
    /// Only for GC: the attachments that are in use; all others can go.
    pub in_use: Option<Vec<Attachment>>,
    /// Only for CHECK and DEL: what ADD answered, as it is.
    pub previous: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Object {
    #[serde(rename = "cniVersion", default)]
    version: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    dns: Option<Names>,
    #[serde(rename = "cni.dev/valid-attachments")]
    in_use: Option<Vec<InUse>>,
    /// What 1.1's own text calls it in one place.
    #[serde(rename = "cni.dev/attachments")]
    also_in_use: Option<Vec<InUse>>,
    #[serde(rename = "prevResult")]
    previous: Option<serde_json::Value>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Names {
    nameservers: Vec<String>,
    search: Vec<String>,
}

#[derive(Deserialize)]
struct InUse {
    #[serde(rename = "containerID")]
    container: String,
    #[serde(rename = "ifname")]
    interface: String,
}

impl Configuration {
    /// Reads it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Failure> {
        let object: Object = serde_json::from_slice(bytes).map_err(|error| {
            Failure::new(Code::NotDecoded, "the network's configuration cannot be read").with_details(error.to_string())
        })?;
        // The specification's own default for one that says nothing.
        let named = if object.version.is_empty() { "0.3.1" } else { &object.version };
        let version = Version::parse(named).ok_or_else(|| {
            let spoken: Vec<&str> = Version::ALL.into_iter().map(Version::name).collect();
            Failure::new(Code::IncompatibleVersion, format!("cniVersion {named:?} is not spoken"))
                .with_details(format!("choose one of {}", spoken.join(", ")))
        })?;
        let in_use = object.in_use.or(object.also_in_use);
        let in_use = in_use.map(|all| all.iter().map(|one| Attachment::new(&one.container, &one.interface)).collect());
        let Names { nameservers, search } = object.dns.unwrap_or_default();
        let dns = Dns { nameservers, search };
        Ok(Self { version, name: object.name, dns, in_use: in_use.transpose()?, previous: object.previous })
    }
}
