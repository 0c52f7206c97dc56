//! The request: command and parameters from the environment, and the configuration from stdin.

use std::ffi::OsString;

use crate::failure::Failure;
use crate::{base64, json};

/// The variables of CNI; nothing else of the environment is forwarded.
const VARIABLES: [&str; 7] =
    ["CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH", "CNI_NETNS_OVERRIDE"];

pub(crate) fn environment(
    all: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<(&'static str, String)>, Failure> {
    let mut variables = Vec::new();
    for (key, value) in all {
        let Some(name) = VARIABLES.into_iter().find(|name| key == *name) else { continue };
        match value.into_string() {
            Ok(value) => variables.push((name, value)),
            Err(_) => return Err(Failure::Environment(format!("{name} is not UTF-8"))),
        }
    }
    variables.sort_unstable();
    Ok(variables)
}

/// The value of `CNI_COMMAND`, if it is a command of CNI.
pub(crate) fn command<'a>(environment: &'a [(&'static str, String)]) -> Result<&'a str, Failure> {
    let command = environment.iter().find(|(name, _)| *name == "CNI_COMMAND").map(|(_, value)| value.as_str());
    match command {
        Some(command @ ("ADD" | "DEL" | "CHECK" | "STATUS" | "GC" | "VERSION")) => Ok(command),
        Some(other) => Err(Failure::Environment(format!(
            "CNI_COMMAND {other:?} is not one of ADD, DEL, CHECK, STATUS, GC, VERSION"
        ))),
        None => {
            let what = "CNI_COMMAND is not set: this program is run by a container runtime, for the pods of this node";
            Err(Failure::Environment(what.to_owned()))
        }
    }
}

/// The JSON body that `cni::Request::parse` reads.
pub(crate) fn body(environment: &[(&'static str, String)], config: &[u8]) -> String {
    let pairs: Vec<String> =
        environment.iter().map(|(key, value)| format!("\"{key}\":{}", json::string(value))).collect();
    format!("{{\"env\":{{{}}},\"config\":\"{}\"}}", pairs.join(","), base64::encode(config))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_of_cni_are_forwarded() {
        let all = [("PATH", "/bin"), ("CNI_COMMAND", "ADD"), ("TOKEN", "secret"), ("CNI_IFNAME", "eth0")];
        let found = environment(all.into_iter().map(|(key, value)| (key.into(), value.into()))).unwrap();
        assert_eq!(found, [("CNI_COMMAND", "ADD".to_owned()), ("CNI_IFNAME", "eth0".to_owned())]);
        assert_eq!(body(&found, b"{}"), r#"{"env":{"CNI_COMMAND":"ADD","CNI_IFNAME":"eth0"},"config":"e30="}"#);
    }

    #[test]
    fn an_unknown_command_is_refused_by_name() {
        assert!(
            matches!(command(&[("CNI_COMMAND", "PLAY".into())]), Err(Failure::Environment(what)) if what.contains("PLAY"))
        );
        assert!(matches!(command(&[]), Err(Failure::Environment(_))));
    }
}
