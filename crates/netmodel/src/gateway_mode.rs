//! How pods' packets leave their node.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The path of pods' packets to networks outside the cluster. Displayed as the setting and the node annotation spell
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GatewayMode {
    /// Through the node's gateway router, which shares the host's address on the external bridge.
    Shared,
    /// Through the management port and the host's routing table.
    Local,
}

impl GatewayMode {
    /// `shared` or `local`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Local => "local",
        }
    }
}

impl fmt::Display for GatewayMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is neither `shared` nor `local`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown gateway mode {0:?}: use shared or local")]
pub struct GatewayModeError(String);

impl FromStr for GatewayMode {
    type Err = GatewayModeError;

    fn from_str(text: &str) -> Result<Self, GatewayModeError> {
        let known = [Self::Shared, Self::Local].into_iter().find(|mode| mode.name() == text);
        known.ok_or_else(|| GatewayModeError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_parsed_as_they_are_displayed() {
        for mode in [GatewayMode::Shared, GatewayMode::Local] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert!("Shared".parse::<GatewayMode>().is_err());
    }
}
