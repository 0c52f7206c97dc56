//! Asking a running role, for the commands that do.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::bail;

use crate::cli::Target;
use crate::config::{Config, Given};
use crate::http::{self, Answer, Request};
use crate::settings::{METRICS_ADDRESS, parse_bind_address};

/// A role on the same host answers at once, or is stuck.
const PATIENCE: Duration = Duration::from_secs(3);

/// A role that can be asked.
#[derive(Debug)]
pub(super) struct Role {
    pub(super) address: String,
}

impl Role {
    /// The role at the address that was given, else at the configured one. With an address no file is
    /// read: a probe must not fail for a typo in a file that the role has long read.
    pub(super) fn find(target: &Target, given: &Given) -> anyhow::Result<Self> {
        let config = Config::load(&Given { no_file: target.address.is_some(), ..given.clone() })?;
        telemetry::init_logs(&config.log_options()?)?;
        if let Some(address) = &target.address {
            // Roles and tools print addresses as URLs; both forms are understood.
            let bare = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
            return Ok(Self { address: bare.to_owned() });
        }
        match parse_bind_address(config.value(&METRICS_ADDRESS)?) {
            Ok(Some(address)) => Ok(Self { address: reachable(address).to_string() }),
            _ => bail!("[metrics] bind-address is off, so no role can be asked; hint: give --address"),
        }
    }

    pub(super) fn ask(&self, request: Request<'_>) -> anyhow::Result<Answer> {
        Ok(http::ask(&self.address, request, PATIENCE)?)
    }
}

/// Where to reach a role that listens on every address.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_that_listens_everywhere_is_asked_on_loopback() {
        for (listens, asked) in
            [("0.0.0.0:9102", "127.0.0.1:9102"), ("[::]:9102", "[::1]:9102"), ("192.0.2.1:9102", "192.0.2.1:9102")]
        {
            assert_eq!(reachable(listens.parse().unwrap()).to_string(), asked);
        }
    }
}
