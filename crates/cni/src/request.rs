//! A request as the plugin sends it: `{"env": {"CNI_COMMAND": "ADD", …}, "config": "<base64>"}`.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::attachment::{Attachment, PodReference};
use crate::configuration::Configuration;
use crate::failure::{Code, Failure};
use crate::version::Version;

/// A CNI command with its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Create the interface of a pod.
    Add {
        /// The interface and its sandbox.
        attachment: Attachment,
        /// Path of the pod's network namespace.
        netns: String,
        /// From `CNI_ARGS`.
        pod: PodReference,
    },
    /// Remove an interface.
    Delete {
        /// The interface and its sandbox.
        attachment: Attachment,
        /// Path of the pod's network namespace; None if it is gone.
        netns: Option<String>,
        /// From `CNI_ARGS`, if the runtime still knows it.
        pod: Option<PodReference>,
    },
    /// Compare an interface with its desired state.
    Check {
        /// The interface and its sandbox.
        attachment: Attachment,
        /// Path of the pod's network namespace.
        netns: String,
        /// From `CNI_ARGS`.
        pod: PodReference,
    },
    /// Report whether ADD would succeed.
    Status,
    /// Remove all attachments that the configuration does not name.
    CollectGarbage,
    /// List the supported versions.
    Version,
}

impl Command {
    /// Value of `CNI_COMMAND`.
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

/// A request whose variables and configuration are valid for its command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// With its parameters from the environment.
    pub command: Command,
    /// From stdin of the plugin.
    pub configuration: Configuration,
}

#[derive(Deserialize)]
struct Body {
    env: BTreeMap<String, String>,
    #[serde(default)]
    config: String,
}

impl Request {
    /// Parses a body. With a failure comes the CNI version in which to report it.
    pub fn parse(body: &[u8]) -> Result<Self, (Failure, Version)> {
        let plain = |failure| (failure, Version::default());
        let body: Body = serde_json::from_slice(body).map_err(|error| {
            plain(Failure::new(Code::NotDecoded, "cannot parse the request").with_details(error.to_string()))
        })?;
        let Some(word) = body.env.get("CNI_COMMAND") else {
            return Err(plain(Failure::new(Code::InvalidEnvironment, "CNI_COMMAND is not set")));
        };
        if word == "VERSION" {
            return Ok(Self { command: Command::Version, configuration: Configuration::default() });
        }
        let config = STANDARD
            .decode(&body.config)
            .map_err(|_| plain(Failure::new(Code::NotDecoded, "the configuration in the request is not base64")))?;
        let configuration = Configuration::parse(&config).map_err(plain)?;
        let command = command(word, &body.env, &configuration).map_err(|failure| (failure, configuration.version))?;
        Ok(Self { command, configuration })
    }
}

fn command(word: &str, env: &BTreeMap<String, String>, configuration: &Configuration) -> Result<Command, Failure> {
    let value = |name: &str| env.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let needed = |name: &str| {
        let message = || format!("{name} is not set: {word} needs it");
        value(name).ok_or_else(|| Failure::new(Code::InvalidEnvironment, message()))
    };
    let attachment = || Attachment::new(needed("CNI_CONTAINERID")?, needed("CNI_IFNAME")?);
    let path = |path: &str| {
        let sound = path.starts_with('/') && path.len() < 4096 && !path.contains('\0');
        let wrong = || Failure::new(Code::InvalidEnvironment, format!("CNI_NETNS {path:?} is not an absolute path"));
        sound.then(|| path.to_owned()).ok_or_else(wrong)
    };
    let since = |version: Version| {
        let requested = configuration.version;
        let message = || format!("{word} needs CNI version {version}, but the configuration has {requested}");
        if requested < version { Err(Failure::new(Code::IncompatibleVersion, message())) } else { Ok(()) }
    };
    match word {
        "ADD" => {
            let pod = PodReference::parse(needed("CNI_ARGS")?)?;
            Ok(Command::Add { attachment: attachment()?, netns: path(needed("CNI_NETNS")?)?, pod })
        }
        "CHECK" => {
            since(Version::V0_4_0)?;
            let pod = PodReference::parse(needed("CNI_ARGS")?)?;
            Ok(Command::Check { attachment: attachment()?, netns: path(needed("CNI_NETNS")?)?, pod })
        }
        "DEL" => {
            // Removal must not fail because of parameters that the runtime no longer knows.
            let pod = value("CNI_ARGS").and_then(|args| PodReference::parse(args).ok());
            let netns = value("CNI_NETNS").and_then(|text| path(text).ok());
            Ok(Command::Delete { attachment: attachment()?, netns, pod })
        }
        "STATUS" => since(Version::V1_1_0).map(|()| Command::Status),
        "GC" => {
            since(Version::V1_1_0)?;
            if configuration.valid_attachments.is_none() {
                let message = "GC without cni.dev/valid-attachments would remove every attachment";
                return Err(Failure::new(Code::InvalidConfiguration, message));
            }
            Ok(Command::CollectGarbage)
        }
        other => {
            let other: String = other.chars().take(32).collect();
            let message = format!("CNI_COMMAND {other:?} is not one of ADD, DEL, CHECK, STATUS, GC, VERSION");
            Err(Failure::new(Code::InvalidEnvironment, message))
        }
    }
}
