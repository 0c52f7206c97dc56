//! All settings, each declared once: the file's keys, the environment, the flags, the example file, `config
//! show` and the documentation all come from [`SETTINGS`].

pub(crate) mod metrics;
pub(crate) mod node;

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use netmodel::{ClusterCidr, Prefix};
use ovsdb::client::Remote;
use telemetry::LogFormat;

/// A setting: its names in file, environment and flags, its default, and how a value is checked.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) section: &'static str,
    pub(crate) key: &'static str,
    /// Without dashes; unique.
    pub(crate) flag: &'static str,
    pub(crate) default: &'static str,
    /// Placeholder of the value in help texts.
    pub(crate) placeholder: &'static str,
    /// Allowed values, as the end of a sentence.
    pub(crate) allowed: &'static str,
    pub(crate) help: &'static str,
    /// Checks a value; the error says what is wrong.
    pub(crate) check: fn(&str) -> Result<(), String>,
}

pub(crate) const LOG_LEVEL: Setting = Setting {
    section: "logging",
    key: "level",
    flag: "log-level",
    default: "info",
    placeholder: "FILTER",
    allowed: "off, error, warn, info, debug, trace, or directives such as info,ovsdb=debug",
    help: "Filter of the logs on stderr",
    check: |value| telemetry::check_filter(value).map_err(|_| "not a log filter".to_owned()),
};

pub(crate) const LOG_FORMAT: Setting = Setting {
    section: "logging",
    key: "format",
    flag: "log-format",
    default: "auto",
    placeholder: "FORMAT",
    allowed: "auto (human on a terminal, json elsewhere), human, json",
    help: "Format of log lines",
    check: |value| value.parse::<LogFormat>().map(drop).map_err(|_| "not a log format".to_owned()),
};

pub(crate) const METRICS_ADDRESS: Setting = Setting {
    section: "metrics",
    key: "bind-address",
    flag: "metrics-bind-address",
    default: "127.0.0.1:9102",
    placeholder: "ADDRESS",
    allowed: "an IP address with a port such as 127.0.0.1:9102 or [::1]:9102, or off",
    help: "Listen address of /metrics, /livez, /readyz and /log-level",
    check: |value| parse_bind_address(value).map(drop),
};

pub(crate) const CLUSTER_SUBNETS: Setting = Setting {
    section: "default",
    key: "cluster-subnets",
    flag: "cluster-subnets",
    default: "10.128.0.0/14/23",
    placeholder: "CIDRS",
    allowed: "networks with the prefix length of a node's subnet, separated by commas, such as 10.128.0.0/14/23,fd01::/48/64",
    help: "Networks of pod addresses",
    check: |value| list::<ClusterCidr>(value).map(drop),
};

pub(crate) const MTU: Setting = Setting {
    section: "default",
    key: "mtu",
    flag: "mtu",
    default: "1400",
    placeholder: "BYTES",
    allowed: "a whole number from 576 to 65535",
    help: "MTU of pods",
    check: |value| match value.parse::<u32>() {
        Ok(576..=65535) => Ok(()),
        _ => Err("not a usable MTU".to_owned()),
    },
};

pub(crate) const MULTICAST: Setting = Setting {
    section: "default",
    key: "enable-multicast",
    flag: "enable-multicast",
    default: "false",
    placeholder: "BOOL",
    allowed: "true, false",
    help: "Whether pods may use multicast if their namespace allows it",
    check: truth,
};

pub(crate) const KUBECONFIG: Setting = Setting {
    section: "kubernetes",
    key: "kubeconfig",
    flag: "kubeconfig",
    default: "",
    placeholder: "FILE",
    allowed: "a path; empty: KUBECONFIG, else the pod's service account",
    help: "Kubeconfig of the Kubernetes API",
    check: |_| Ok(()),
};

pub(crate) const SERVICE_CIDRS: Setting = Setting {
    section: "kubernetes",
    key: "service-cidrs",
    flag: "k8s-service-cidrs",
    default: "172.30.0.0/16",
    placeholder: "CIDRS",
    allowed: "networks separated by commas, such as 172.30.0.0/16,fd02::/112",
    help: "Networks of Service addresses",
    check: |value| list::<Prefix>(value).map(drop),
};

pub(crate) const NB_ADDRESS: Setting = database(
    "ovnnorth",
    "address",
    "nb-address",
    "unix:/var/run/ovn/ovnnb_db.sock",
    "Address of the northbound database",
);
pub(crate) const NB_SERVICE: Setting =
    service("ovnnorth", "nb-endpoints-service", "Service whose endpoints are the servers of the northbound database");
pub(crate) const NB_KEY: Setting =
    tls_file("ovnnorth", "client-privkey", "nb-client-privkey", "Private key for the northbound database");
pub(crate) const NB_CERTIFICATE: Setting =
    tls_file("ovnnorth", "client-cert", "nb-client-cert", "Certificate for the northbound database");
pub(crate) const NB_AUTHORITIES: Setting =
    tls_file("ovnnorth", "client-cacert", "nb-client-cacert", "Certificate authorities of the northbound database");
pub(crate) const SB_ADDRESS: Setting = database(
    "ovnsouth",
    "address",
    "sb-address",
    "unix:/var/run/ovn/ovnsb_db.sock",
    "Address of the southbound database",
);
pub(crate) const SB_SERVICE: Setting =
    service("ovnsouth", "sb-endpoints-service", "Service whose endpoints are the servers of the southbound database");
pub(crate) const SB_KEY: Setting =
    tls_file("ovnsouth", "client-privkey", "sb-client-privkey", "Private key for the southbound database");
pub(crate) const SB_CERTIFICATE: Setting =
    tls_file("ovnsouth", "client-cert", "sb-client-cert", "Certificate for the southbound database");
pub(crate) const SB_AUTHORITIES: Setting =
    tls_file("ovnsouth", "client-cacert", "sb-client-cacert", "Certificate authorities of the southbound database");

pub(crate) const V4_JOIN: Setting =
    network("v4-join-subnet", "gateway-v4-join-subnet", "100.64.0.0/16", "Join network of the routers, IPv4");
pub(crate) const V6_JOIN: Setting =
    network("v6-join-subnet", "gateway-v6-join-subnet", "fd98::/64", "Join network of the routers, IPv6");
pub(crate) const V4_MASQUERADE: Setting = network(
    "v4-masquerade-subnet",
    "gateway-v4-masquerade-subnet",
    "169.254.169.0/29",
    "Masquerade addresses of the host, IPv4",
);
pub(crate) const V6_MASQUERADE: Setting = network(
    "v6-masquerade-subnet",
    "gateway-v6-masquerade-subnet",
    "fd69::/125",
    "Masquerade addresses of the host, IPv6",
);

pub(crate) const SNAT_PER_POD: Setting = Setting {
    section: "gateway",
    key: "disable-snat-multiple-gws",
    flag: "disable-snat-multiple-gws",
    default: "false",
    placeholder: "BOOL",
    allowed: "true, false",
    help: "One SNAT rule per pod instead of one for the cluster",
    check: truth,
};

pub(crate) const LEASE_DURATION: Setting = seconds(
    "election-lease-duration",
    "ha-election-lease-duration",
    "5",
    "Seconds without a renewal after which a leader is replaced; one that dies or stops is replaced sooner",
);
pub(crate) const RENEW_DEADLINE: Setting = seconds(
    "election-renew-deadline",
    "ha-election-renew-deadline",
    "4",
    "Seconds that one renewal may take; a leader that cannot renew keeps leading until another one has taken over",
);
pub(crate) const RETRY_PERIOD: Setting =
    seconds("election-retry-period", "ha-election-retry-period", "1", "Seconds between renewals");

const fn database(
    section: &'static str,
    key: &'static str,
    flag: &'static str,
    default: &'static str,
    help: &'static str,
) -> Setting {
    let allowed = "unix:PATH, tcp:HOST:PORT, ssl:HOST:PORT, or several separated by commas";
    let check = |value: &str| Remote::parse_list(value).map(drop).map_err(|error| error.to_string());
    Setting { section, key, flag, default, placeholder: "REMOTES", allowed, help, check }
}

const fn service(section: &'static str, flag: &'static str, help: &'static str) -> Setting {
    let allowed = "NAME or NAMESPACE/NAME; empty: only the servers of `address`";
    let check = |value: &str| remotes::Service::parse(value, "").map(drop).map_err(|error| error.to_string());
    Setting { section, key: "endpoints-service", flag, default: "", placeholder: "SERVICE", allowed, help, check }
}

const fn tls_file(section: &'static str, key: &'static str, flag: &'static str, help: &'static str) -> Setting {
    let allowed = "a path; needed for ssl: remotes";
    Setting { section, key, flag, default: "", placeholder: "FILE", allowed, help, check: |_| Ok(()) }
}

const fn network(key: &'static str, flag: &'static str, default: &'static str, help: &'static str) -> Setting {
    let check = |value: &str| value.parse::<Prefix>().map(drop).map_err(|error| error.to_string());
    Setting { section: "gateway", key, flag, default, placeholder: "CIDR", allowed: "a network", help, check }
}

const fn seconds(key: &'static str, flag: &'static str, default: &'static str, help: &'static str) -> Setting {
    let check = |value: &str| parse_seconds(value).map(drop);
    let allowed = "a number of seconds from 0.01 to 3600, such as 4 or 0.5";
    Setting { section: "masterha", key, flag, default, placeholder: "SECONDS", allowed, help, check }
}

/// Parses a number of seconds, which may have a fraction.
pub(crate) fn parse_seconds(value: &str) -> Result<Duration, String> {
    let seconds: Option<f64> =
        value.parse().ok().filter(|seconds: &f64| seconds.is_finite() && (0.01..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "not a number of seconds".to_owned())
}

/// Parses values separated by commas; at least one.
pub(crate) fn list<T: FromStr<Err: ToString>>(value: &str) -> Result<Vec<T>, String> {
    let parts = value.split(',').map(str::trim).filter(|part| !part.is_empty());
    let values: Result<Vec<T>, String> =
        parts.map(|part| part.parse().map_err(|error: T::Err| error.to_string())).collect();
    values.and_then(|values| if values.is_empty() { Err("it is empty".to_owned()) } else { Ok(values) })
}

pub(crate) fn truth(value: &str) -> Result<(), String> {
    value.parse::<bool>().map(drop).map_err(|_| "neither true nor false".to_owned())
}

/// All settings, in the order of the file. A new setting is one more entry here.
pub(crate) const SETTINGS: [&Setting; 47] = [
    &LOG_LEVEL,
    &LOG_FORMAT,
    &METRICS_ADDRESS,
    &metrics::TLS_ADDRESS,
    &metrics::CERTIFICATE,
    &metrics::KEY,
    &CLUSTER_SUBNETS,
    &MTU,
    &MULTICAST,
    &node::ENCAP_IP,
    &node::ENCAP_PORT,
    &node::INACTIVITY_PROBE,
    &node::WAIT_BEFORE_CLEAR,
    &node::MONITOR_ALL,
    &KUBECONFIG,
    &SERVICE_CIDRS,
    &NB_ADDRESS,
    &NB_SERVICE,
    &NB_KEY,
    &NB_CERTIFICATE,
    &NB_AUTHORITIES,
    &SB_ADDRESS,
    &SB_SERVICE,
    &node::RELAY_ADDRESS,
    &SB_KEY,
    &SB_CERTIFICATE,
    &SB_AUTHORITIES,
    &node::CERTIFICATE_DIR,
    &node::NODE_AUTHORITIES,
    &node::SWITCH_ADDRESS,
    &node::GATEWAY_MODE,
    &node::GATEWAY_INTERFACE,
    &node::GATEWAY_NEXT_HOP,
    &V4_JOIN,
    &V6_JOIN,
    &V4_MASQUERADE,
    &V6_MASQUERADE,
    &SNAT_PER_POD,
    &node::CNI_CONF_DIR,
    &node::CNI_BIN_DIR,
    &node::CNI_SERVER_DIR,
    &node::CNI_SHIM,
    &node::CNI_VERSION,
    &node::CNI_ADD_TIMEOUT,
    &LEASE_DURATION,
    &RENEW_DEADLINE,
    &RETRY_PERIOD,
];

impl Setting {
    /// Name of its environment variable.
    pub(crate) fn variable(&self) -> String {
        variable(self.section, self.key)
    }
}

fn variable(section: &str, key: &str) -> String {
    format!("OVNKUBE_{section}_{key}").to_uppercase().replace('-', "_")
}

/// A former name of a setting. It works in every layer, with a warning; the new name wins within a layer.
#[derive(Debug)]
pub(crate) struct Deprecated {
    pub(crate) key: &'static str,
    pub(crate) flag: &'static str,
    pub(crate) setting: &'static Setting,
}

impl Deprecated {
    pub(crate) fn variable(&self) -> String {
        variable(self.setting.section, self.key)
    }
}

/// All former names.
pub(crate) const DEPRECATED: [Deprecated; 1] =
    [Deprecated { key: "patience", flag: "cni-patience", setting: &node::CNI_ADD_TIMEOUT }];

/// The sections of the file.
pub(crate) fn sections() -> Vec<&'static str> {
    let mut sections: Vec<_> = SETTINGS.iter().map(|setting| setting.section).collect();
    sections.dedup();
    sections
}

/// The settings of one section.
pub(crate) fn in_section(section: &str) -> impl Iterator<Item = &'static Setting> {
    SETTINGS.into_iter().filter(move |setting| setting.section == section)
}

/// Parses a listen address; `None` for `off`.
pub(crate) fn parse_bind_address(value: &str) -> Result<Option<SocketAddr>, String> {
    if value == "off" {
        return Ok(None);
    }
    let address = socket_address(value).ok_or_else(|| "not an IP address with a port".to_owned())?;
    if address.port() == 0 {
        // A random port could not be scraped or probed.
        return Err("port 0 is not a port to listen on".to_owned());
    }
    Ok(Some(address))
}

/// An address with a port. Any address may be in brackets, so that manifests can write `[$(HOST_IP)]:9102`.
fn socket_address(value: &str) -> Option<SocketAddr> {
    let in_brackets = || {
        let (address, port) = value.strip_prefix('[')?.split_once("]:")?;
        Some(SocketAddr::new(address.parse().ok()?, port.parse().ok()?))
    };
    value.parse().ok().or_else(in_brackets)
}

/// A commented file with all settings at their defaults.
pub(crate) fn example_file() -> String {
    let mut text = String::from(
        "# Configuration of ovnkube. Every setting is shown at its default: remove the # before a key to set it.\n\
         # A flag wins over the environment, the environment over this file, this file over the default.\n",
    );
    for section in sections() {
        text.push_str(&format!("\n[{section}]\n"));
        for setting in in_section(section) {
            text.push_str(&format!(
                "# {}.\n# Allowed: {}.\n# Also: {}, --{}\n#{}={}\n",
                setting.help,
                setting.allowed,
                setting.variable(),
                setting.flag,
                setting.key,
                setting.default,
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_valid() {
        for setting in SETTINGS {
            assert_eq!((setting.check)(setting.default), Ok(()), "{}", setting.key);
        }
    }

    #[test]
    fn names_are_unique_and_sections_are_contiguous() {
        for (i, one) in SETTINGS.iter().enumerate() {
            for other in &SETTINGS[i + 1..] {
                assert_ne!(one.flag, other.flag);
                assert_ne!(one.variable(), other.variable());
            }
            for former in &DEPRECATED {
                assert_ne!((one.flag, one.variable()), (former.flag, former.variable()));
            }
        }
        let mut unique = sections();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), sections().len());
    }

    #[test]
    fn variables_follow_the_section_and_the_key() {
        assert_eq!(METRICS_ADDRESS.variable(), "OVNKUBE_METRICS_BIND_ADDRESS");
    }

    #[test]
    fn bind_addresses() {
        assert_eq!(parse_bind_address("off"), Ok(None));
        for (given, listens) in [("[::1]:9102", "[::1]:9102"), ("[192.0.2.1]:9102", "192.0.2.1:9102")] {
            assert_eq!(parse_bind_address(given), Ok(Some(listens.parse().unwrap())));
        }
        for bad in [
            "[]:9102",
            "[192.0.2.1]",
            "[192.0.2.1]:0",
            "",
            "9102",
            "localhost:9102",
            "127.0.0.1",
            "127.0.0.1:0",
            "127.0.0.1:70000",
        ] {
            assert!(parse_bind_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_documentation_has_every_setting() {
        let page = include_str!("../../../docs/configuration.md");
        for setting in SETTINGS {
            let row = format!(
                "| `[{}]` `{}` | `{}` | `--{}` | `{}` | {} |",
                setting.section,
                setting.key,
                setting.variable(),
                setting.flag,
                setting.default,
                setting.help
            );
            assert!(page.contains(&row), "docs/configuration.md lacks the row\n{row}");
        }
        for Deprecated { key, flag, setting } in &DEPRECATED {
            let former = format!("`[{}]` `{key}` (`--{flag}`)", setting.section);
            assert!(page.contains(&former), "docs/configuration.md lacks the deprecated name {former}");
        }
    }
}
