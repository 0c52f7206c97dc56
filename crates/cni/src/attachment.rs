//! Attachments (an interface of a sandbox) and the pods that they belong to.

use crate::failure::{Code, Failure};

/// Limit of the kernel (`IFNAMSIZ` without the terminating zero).
const MAX_INTERFACE_NAME: usize = 15;

/// One interface of one sandbox: what ADD creates and DEL removes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attachment {
    /// `CNI_CONTAINERID`: the ID of the pod's sandbox.
    pub container: String,
    /// `CNI_IFNAME`: the interface in the sandbox.
    pub interface: String,
}

impl Attachment {
    /// Validates both names, which become parts of file names and `external_ids`.
    pub fn new(container: &str, interface: &str) -> Result<Self, Failure> {
        let wrong = |variable: &str, text: &str, why: &str| {
            Failure::new(Code::InvalidEnvironment, format!("{variable} is {text:?}: {why}"))
        };
        let first = container.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        if !first || !container.bytes().all(plain) {
            let why = "it must begin with a letter or a digit, and contain only these, '_', '.' and '-'";
            return Err(wrong("CNI_CONTAINERID", container, why));
        }
        if container.len() > 253 {
            return Err(wrong("CNI_CONTAINERID", &container[..32], "it is longer than 253 bytes"));
        }
        let odd =
            |character: char| character.is_whitespace() || matches!(character, '/' | ':') || character.is_control();
        if interface.is_empty()
            || interface.len() > MAX_INTERFACE_NAME
            || matches!(interface, "." | "..")
            || interface.contains(odd)
        {
            let why = "an interface name has 1 to 15 bytes, without '/', ':' and spaces";
            return Err(wrong("CNI_IFNAME", interface, why));
        }
        Ok(Self { container: container.to_owned(), interface: interface.to_owned() })
    }
}

/// The pod that a sandbox belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodReference {
    /// `K8S_POD_NAMESPACE` of `CNI_ARGS`.
    pub namespace: String,
    /// `K8S_POD_NAME` of `CNI_ARGS`.
    pub name: String,
    /// UID, if the runtime passes it: an old sandbox does not belong to a new pod of the same name.
    pub uid: Option<String>,
}

impl PodReference {
    /// Parses `CNI_ARGS`.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let (mut namespace, mut name, mut uid) = (None, None, None);
        for pair in text.split(';').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(Failure::new(
                    Code::InvalidEnvironment,
                    format!("CNI_ARGS contains {pair:?}, which is not key=value"),
                ));
            };
            match key {
                "K8S_POD_NAMESPACE" => namespace = Some(checked(key, value)?),
                "K8S_POD_NAME" => name = Some(checked(key, value)?),
                "K8S_POD_UID" => uid = Some(checked(key, value)?),
                _ => {}
            }
        }
        match (namespace, name) {
            (Some(namespace), Some(name)) => Ok(Self { namespace, name, uid }),
            _ => {
                let message = "CNI_ARGS does not name a pod (K8S_POD_NAMESPACE, K8S_POD_NAME)";
                Err(Failure::new(Code::InvalidEnvironment, message)
                    .with_details("this network is for Kubernetes pods only"))
            }
        }
    }
}

/// A name that is valid in the Kubernetes API.
fn checked(key: &str, value: &str) -> Result<String, Failure> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    if value.is_empty() || value.len() > 253 || !value.bytes().all(plain) {
        let value: String = value.chars().take(64).collect();
        return Err(Failure::new(Code::InvalidEnvironment, format!("CNI_ARGS: {key} {value:?} is not a valid name")));
    }
    Ok(value.to_owned())
}
