//! What is attached: a container's interface, and the pod that it is of.

use crate::failure::{Code, Failure};

/// The longest name that the kernel gives an interface.
const LONGEST_INTERFACE: usize = 15;

/// A container's interface.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attachment {
    /// The container, as the runtime calls it: for Kubernetes the pod's sandbox.
    pub container: String,
    /// The interface in it.
    pub interface: String,
}

impl Attachment {
    /// Checks both names: they become parts of others, and of names of files.
    pub fn new(container: &str, interface: &str) -> Result<Self, Failure> {
        let wrong = |variable: &str, text: &str, why: &str| {
            Failure::new(Code::InvalidEnvironment, format!("{variable} is {text:?}: {why}"))
        };
        let first = container.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        if !first || !container.bytes().all(plain) {
            let why = "it begins with a letter or a digit and has none but these, '_', '.' and '-'";
            return Err(wrong("CNI_CONTAINERID", container, why));
        }
        if container.len() > 253 {
            return Err(wrong("CNI_CONTAINERID", &container[..32], "it is too long"));
        }
        let odd =
            |character: char| character.is_whitespace() || matches!(character, '/' | ':') || character.is_control();
        if interface.is_empty()
            || interface.len() > LONGEST_INTERFACE
            || matches!(interface, "." | "..")
            || interface.contains(odd)
        {
            let why = "an interface's name has 1 to 15 bytes, without '/', ':' and spaces";
            return Err(wrong("CNI_IFNAME", interface, why));
        }
        Ok(Self { container: container.to_owned(), interface: interface.to_owned() })
    }
}

/// The pod that a sandbox is of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodReference {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its identity, where the runtime tells it: an old sandbox is not of a new pod of the same name.
    pub uid: Option<String>,
}

impl PodReference {
    /// Reads `CNI_ARGS`.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let (mut namespace, mut name, mut uid) = (None, None, None);
        for pair in text.split(';').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(Failure::new(
                    Code::InvalidEnvironment,
                    format!("CNI_ARGS has {pair:?}, which is no key=value"),
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
                    .with_details("this network is for pods of Kubernetes"))
            }
        }
    }
}

/// A name as the API has them.
fn checked(key: &str, value: &str) -> Result<String, Failure> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    if value.is_empty() || value.len() > 253 || !value.bytes().all(plain) {
        let value: String = value.chars().take(64).collect();
        return Err(Failure::new(Code::InvalidEnvironment, format!("CNI_ARGS: {key} is {value:?}, which no pod has")));
    }
    Ok(value.to_owned())
}
