//! Requests to a running role.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::bail;

use crate::cli::Target;
use crate::config::{Config, ConfigArgs};
use crate::http::{self, Request, Response};
use crate::settings::{METRICS_ADDRESS, parse_bind_address};

/// A role on the same host replies at once, or is stuck.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Address of a running role.
#[derive(Debug)]
pub(super) struct Role {
    pub(super) address: String,
}

impl Role {
    /// The role at `--address`, else at the configured one. With an address no file is read: a probe must
    /// not fail because of a mistake in a file that the role has already read.
    pub(super) fn find(target: &Target, args: &ConfigArgs) -> anyhow::Result<Self> {
        let config = Config::load(&ConfigArgs { no_file: target.address.is_some(), ..args.clone() })?;
        telemetry::init_logs(&config.log_options()?)?;
        if let Some(address) = &target.address {
            // Accept URLs as well.
            let bare = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
            return Ok(Self { address: bare.to_owned() });
        }
        match parse_bind_address(config.value(&METRICS_ADDRESS)?) {
            Ok(Some(address)) => Ok(Self { address: reachable(address).to_string() }),
            _ => bail!("[metrics] bind-address is off, so the role has no endpoint; hint: give --address"),
        }
    }

    pub(super) fn send(&self, request: Request<'_>) -> anyhow::Result<Response> {
        Ok(http::send(&self.address, request, TIMEOUT)?)
    }
}

/// Loopback, if the role listens on all addresses.
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
    fn a_role_that_listens_on_all_addresses_is_reached_by_loopback() {
        for (listens, asked) in
            [("0.0.0.0:9102", "127.0.0.1:9102"), ("[::]:9102", "[::1]:9102"), ("192.0.2.1:9102", "192.0.2.1:9102")]
        {
            assert_eq!(reachable(listens.parse().unwrap()).to_string(), asked);
        }
    }
}
