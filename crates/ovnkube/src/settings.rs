//! Every setting, declared once: the file's keys, the environment, the flags, the example file, `config
//! show` and the documentation all come from [`SETTINGS`].

use std::net::SocketAddr;

use telemetry::LogFormat;

/// One thing that can be set.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) section: &'static str,
    pub(crate) key: &'static str,
    /// The flag, without its dashes.
    pub(crate) flag: &'static str,
    pub(crate) default: &'static str,
    /// What stands for the value in help texts.
    pub(crate) placeholder: &'static str,
    /// What values are allowed, to end a sentence with.
    pub(crate) allowed: &'static str,
    pub(crate) help: &'static str,
    /// What is wrong with a value, or nothing.
    pub(crate) check: fn(&str) -> Result<(), String>,
}

pub(crate) const LOG_LEVEL: Setting = Setting {
    section: "logging",
    key: "level",
    flag: "log-level",
    default: "info",
    placeholder: "FILTER",
    allowed: "off, error, warn, info, debug, trace, or directives such as info,ovsdb=debug",
    help: "What is logged to stderr",
    check: |value| telemetry::check_filter(value).map_err(|_| "not a log filter".to_owned()),
};

pub(crate) const LOG_FORMAT: Setting = Setting {
    section: "logging",
    key: "format",
    flag: "log-format",
    default: "auto",
    placeholder: "FORMAT",
    allowed: "auto (human on a terminal, json elsewhere), human, json",
    help: "How log lines look",
    check: |value| value.parse::<LogFormat>().map(drop).map_err(|_| "not a log format".to_owned()),
};

pub(crate) const METRICS_ADDRESS: Setting = Setting {
    section: "metrics",
    key: "bind-address",
    flag: "metrics-bind-address",
    default: "127.0.0.1:9102",
    placeholder: "ADDRESS",
    allowed: "an IP address with a port such as 127.0.0.1:9102 or [::1]:9102, or off",
    help: "Where a role serves /metrics, /livez, /readyz and /log-level",
    check: |value| parse_bind_address(value).map(drop),
};

/// All settings, in the order of the file. A new setting is one more entry here.
pub(crate) const SETTINGS: [&Setting; 3] = [&LOG_LEVEL, &LOG_FORMAT, &METRICS_ADDRESS];

impl Setting {
    /// The environment variable that sets it.
    pub(crate) fn variable(&self) -> String {
        format!("OVNKUBE_{}_{}", self.section, self.key).to_uppercase().replace('-', "_")
    }
}

/// The sections of the file, each once.
pub(crate) fn sections() -> Vec<&'static str> {
    let mut sections: Vec<_> = SETTINGS.iter().map(|setting| setting.section).collect();
    sections.dedup();
    sections
}

/// The settings of one section.
pub(crate) fn in_section(section: &str) -> impl Iterator<Item = &'static Setting> {
    SETTINGS.into_iter().filter(move |setting| setting.section == section)
}

/// An address to listen on; nothing for `off`.
pub(crate) fn parse_bind_address(value: &str) -> Result<Option<SocketAddr>, String> {
    if value == "off" {
        return Ok(None);
    }
    let address: SocketAddr = value.parse().map_err(|_| "not an IP address with a port".to_owned())?;
    if address.port() == 0 {
        // A free port that nobody knows could not be scraped or probed.
        return Err("port 0 is not a port to listen on".to_owned());
    }
    Ok(Some(address))
}

/// A commented file with every setting at its default.
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
    fn every_default_is_allowed() {
        for setting in SETTINGS {
            assert_eq!((setting.check)(setting.default), Ok(()), "{}", setting.key);
        }
    }

    #[test]
    fn names_are_unique_and_sections_stand_together() {
        for (i, one) in SETTINGS.iter().enumerate() {
            for other in &SETTINGS[i + 1..] {
                assert_ne!(one.flag, other.flag);
                assert_ne!(one.variable(), other.variable());
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
        assert!(parse_bind_address("[::1]:9102").is_ok_and(|address| address.is_some()));
        for bad in ["", "9102", "localhost:9102", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:70000"] {
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
    }
}
