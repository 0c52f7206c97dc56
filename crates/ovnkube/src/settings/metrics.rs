//! Settings of the listener for scrapers on other machines.

use super::{Setting, parse_bind_address};

pub(crate) const TLS_ADDRESS: Setting = Setting {
    section: "metrics",
    key: "tls-bind-address",
    flag: "metrics-tls-bind-address",
    default: "off",
    placeholder: "ADDRESS",
    allowed: "an IP address with a port such as 192.0.2.1:9102 or [2001:db8::1]:9102, or off",
    help: "Listen address of /metrics over TLS, for clients that the API server authorizes",
    check: |value| parse_bind_address(value).map(drop),
};

pub(crate) const CERTIFICATE: Setting =
    file("tls-cert", "metrics-tls-cert", "Certificate of tls-bind-address, read again when it changes");
pub(crate) const KEY: Setting =
    file("tls-key", "metrics-tls-key", "Private key of tls-bind-address, read again when it changes");

const fn file(key: &'static str, flag: &'static str, help: &'static str) -> Setting {
    let allowed = "a path; needed for tls-bind-address";
    Setting { section: "metrics", key, flag, default: "", placeholder: "FILE", allowed, help, check: |_| Ok(()) }
}
