//! The question: the command and its parameters from the environment, and the configuration from stdin.

use std::ffi::OsString;

use crate::failure::Failure;
use crate::{base64, json};

/// What CNI hands over; nothing else of the environment is any business of the agent.
const VARIABLES: [&str; 7] =
    ["CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH", "CNI_NETNS_OVERRIDE"];

/// CNI's variables, as far as they are set.
pub(crate) fn environment(
    all: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<(&'static str, String)>, Failure> {
    let mut ours = Vec::new();
    for (key, value) in all {
        let Some(name) = VARIABLES.into_iter().find(|name| key == *name) else { continue };
        match value.into_string() {
            Ok(value) => ours.push((name, value)),
            Err(_) => return Err(Failure::Environment(format!("{name} is no UTF-8"))),
        }
    }
    ours.sort_unstable();
    Ok(ours)
}

/// What is to be done.
pub(crate) fn command<'a>(environment: &'a [(&'static str, String)]) -> Result<&'a str, Failure> {
    let command = environment.iter().find(|(name, _)| *name == "CNI_COMMAND").map(|(_, value)| value.as_str());
    match command {
        Some(command @ ("ADD" | "DEL" | "CHECK" | "STATUS" | "GC" | "VERSION")) => Ok(command),
        Some(other) => {
            Err(Failure::Environment(format!("CNI_COMMAND is {other:?}: none of ADD, DEL, CHECK, STATUS, GC, VERSION")))
        }
        None => {
            let what = "CNI_COMMAND is not set: this program is started by a container runtime, for pods of this node";
            Err(Failure::Environment(what.to_owned()))
        }
    }
}

/// As the agent reads it.
pub(crate) fn body(environment: &[(&'static str, String)], config: &[u8]) -> String {
    let pairs: Vec<String> =
        environment.iter().map(|(key, value)| format!("\"{key}\":{}", json::text(value))).collect();
    format!("{{\"env\":{{{}}},\"config\":\"{}\"}}", pairs.join(","), base64::encode(config))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cni_says_is_handed_on() {
        let all = [("PATH", "/bin"), ("CNI_COMMAND", "ADD"), ("TOKEN", "secret"), ("CNI_IFNAME", "eth0")];
        let found = environment(all.into_iter().map(|(key, value)| (key.into(), value.into()))).unwrap();
        assert_eq!(found, [("CNI_COMMAND", "ADD".to_owned()), ("CNI_IFNAME", "eth0".to_owned())]);
        assert_eq!(body(&found, b"{}"), r#"{"env":{"CNI_COMMAND":"ADD","CNI_IFNAME":"eth0"},"config":"e30="}"#);
    }

    #[test]
    fn what_is_no_command_is_named() {
        assert!(
            matches!(command(&[("CNI_COMMAND", "PLAY".into())]), Err(Failure::Environment(what)) if what.contains("PLAY"))
        );
        assert!(matches!(command(&[]), Err(Failure::Environment(_))));
    }
}
