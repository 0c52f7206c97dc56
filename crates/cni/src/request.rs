//! A request, as the plugin posts it: `{"env": {"CNI_COMMAND": "ADD", …}, "config": "<base64>"}`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::attachment::{Attachment, PodReference};
use crate::base64;
use crate::configuration::Configuration;
use crate::failure::{Code, Failure};
use crate::version::Version;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A pod's interface is to be made.
    Add {
        /// Which.
        attachment: Attachment,
        /// The path of the pod's network namespace.
        namespace: String,
        /// The pod.
        pod: PodReference,
    },
    /// It is to be removed.
    Delete {
        /// Which.
        attachment: Attachment,
        /// The path of the pod's network namespace; none if it is gone.
        namespace: Option<String>,
        /// The pod, if the runtime still knows.
        pod: Option<PodReference>,
    },
    /// It is to be looked at.
    Check {
        /// Which.
        attachment: Attachment,
        /// The path of the pod's network namespace.
        namespace: String,
        /// The pod.
        pod: PodReference,
    },
    /// Whether ADD would work.
    Status,
    /// What nobody uses is to be removed.
    CollectGarbage,
    /// Which versions are spoken.
    Version,
}

impl Command {
    /// As CNI calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Add { .. } => "ADD",
            Self::Delete { .. } => "DEL",
            Self::Check { .. } => "CHECK",
            Self::Status => "STATUS",
            Self::CollectGarbage => "GC",
            Self::Version => "VERSION",
        }
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What is to be done.
    pub command: Command,
    /// By which network.
    pub configuration: Configuration,
}

#[derive(Deserialize)]
struct Body {
    env: BTreeMap<String, String>,
    #[serde(default)]
    config: String,
}

impl Request {
    /// Reads a body. With the failure comes the version in which to tell it.
    pub fn parse(body: &[u8]) -> Result<Self, (Failure, Version)> {
        let plain = |failure| (failure, Version::default());
        let body: Body = serde_json::from_slice(body).map_err(|error| {
            plain(Failure::new(Code::NotDecoded, "the request cannot be read").with_details(error.to_string()))
        })?;
        let Some(word) = body.env.get("CNI_COMMAND") else {
            return Err(plain(Failure::new(Code::InvalidEnvironment, "CNI_COMMAND is not set")));
        };
        if word == "VERSION" {
            return Ok(Self { command: Command::Version, configuration: Configuration::default() });
        }
        let config = base64::decode(&body.config)
            .ok_or_else(|| plain(Failure::new(Code::NotDecoded, "the configuration in the request is no base64")))?;
        let configuration = Configuration::parse(&config).map_err(plain)?;
        let command = command(word, &body.env, &configuration).map_err(|failure| (failure, configuration.version))?;
        Ok(Self { command, configuration })
    }
}

fn command(word: &str, env: &BTreeMap<String, String>, configuration: &Configuration) -> Result<Command, Failure> {
    let value = |name: &str| env.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let needed = |name: &str| {
        let message = || format!("{name} is not set, and {word} needs it");
        value(name).ok_or_else(|| Failure::new(Code::InvalidEnvironment, message()))
    };
    let attachment = || Attachment::new(needed("CNI_CONTAINERID")?, needed("CNI_IFNAME")?);
    let path = |path: &str| {
        let sound = path.starts_with('/') && path.len() < 4096 && !path.contains('\0');
        let wrong =
            || Failure::new(Code::InvalidEnvironment, format!("CNI_NETNS is {path:?}, which is no absolute path"));
        sound.then(|| path.to_owned()).ok_or_else(wrong)
    };
    let since = |version: Version| {
        let spoken = configuration.version;
        let message = || format!("{word} came with version {version}, and the configuration says {spoken}");
        if spoken < version { Err(Failure::new(Code::IncompatibleVersion, message())) } else { Ok(()) }
    };
    match word {
        "ADD" => {
            let pod = PodReference::parse(needed("CNI_ARGS")?)?;
            Ok(Command::Add { attachment: attachment()?, namespace: path(needed("CNI_NETNS")?)?, pod })
        }
        "CHECK" => {
            since(Version::V0_4_0)?;
            let pod = PodReference::parse(needed("CNI_ARGS")?)?;
            Ok(Command::Check { attachment: attachment()?, namespace: path(needed("CNI_NETNS")?)?, pod })
        }
        "DEL" => {
            // A pod that is to go must not be held up by what nobody remembers any more.
            let pod = value("CNI_ARGS").and_then(|args| PodReference::parse(args).ok());
            let namespace = value("CNI_NETNS").and_then(|text| path(text).ok());
            Ok(Command::Delete { attachment: attachment()?, namespace, pod })
        }
        "STATUS" => since(Version::V1_1_0).map(|()| Command::Status),
        "GC" => {
            since(Version::V1_1_0)?;
            if configuration.in_use.is_none() {
                let message = "GC without cni.dev/valid-attachments: everything would have to go";
                return Err(Failure::new(Code::InvalidConfiguration, message));
            }
            Ok(Command::CollectGarbage)
        }
        other => {
            let other: String = other.chars().take(32).collect();
            let message = format!("CNI_COMMAND is {other:?}: none of ADD, DEL, CHECK, STATUS, GC, VERSION");
            Err(Failure::new(Code::InvalidEnvironment, message))
        }
    }
}
