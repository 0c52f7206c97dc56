//! Structured logs on stderr: text on a terminal, JSON elsewhere. The level can be changed at run time.

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::str::FromStr;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, reload};

use crate::Error;

/// How log lines look on stderr.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Human if stderr is a terminal, else JSON.
    #[default]
    Auto,
    /// Text; coloured if stderr is a terminal and `NO_COLOR` is unset.
    Human,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    /// Names of the formats, in the order of the help text.
    pub const NAMES: [&str; 3] = ["auto", "human", "json"];

    fn is_json(self, stderr_is_terminal: bool) -> bool {
        match self {
            Self::Auto => !stderr_is_terminal,
            Self::Human => false,
            Self::Json => true,
        }
    }
}

impl FromStr for LogFormat {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "auto" => Ok(Self::Auto),
            "human" => Ok(Self::Human),
            "json" => Ok(Self::Json),
            other => Err(Error::Format(other.to_owned())),
        }
    }
}

/// Filter and format of the logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOptions {
    /// A level, or directives in the syntax of `EnvFilter`: `info,ovsdb=debug`.
    pub filter: String,
    /// Human-readable or JSON.
    pub format: LogFormat,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { filter: "info".to_owned(), format: LogFormat::Auto }
    }
}

/// Handle of the process's log filter.
#[derive(Clone)]
pub struct LogLevel(reload::Handle<EnvFilter, Registry>);

impl LogLevel {
    /// The current filter.
    #[must_use]
    pub fn get(&self) -> String {
        // Fails only if the subscriber was dropped, and then nothing is logged.
        self.0.with_current(ToString::to_string).unwrap_or_else(|_| "off".to_owned())
    }

    /// Sets another filter; an invalid one is rejected and the old one stays.
    pub fn set(&self, filter: &str) -> Result<(), Error> {
        let parsed = parse_filter(filter)?;
        self.0.reload(parsed).map_err(|error| Error::Filter { filter: filter.to_owned(), reason: error.to_string() })
    }
}

impl fmt::Debug for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogLevel").field(&self.get()).finish()
    }
}

/// Sets up logs on stderr, once per process; the handle changes the level later.
pub fn init_logs(options: &LogOptions) -> Result<LogLevel, Error> {
    let (filter, handle) = reload::Layer::new(parse_filter(&options.filter)?);
    let stderr_is_terminal = io::stderr().is_terminal();
    // A closed stderr must not end the process, so write errors are ignored.
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).log_internal_errors(false);
    let lines = if options.format.is_json(stderr_is_terminal) {
        lines.json().flatten_event(true).boxed()
    } else {
        lines.with_ansi(stderr_is_terminal && !no_color()).boxed()
    };
    tracing_subscriber::registry().with(filter).with(lines).try_init().map_err(|_| Error::LogsAlreadySetUp)?;
    Ok(LogLevel(handle))
}

/// Checks a filter without setting it.
pub fn check_filter(filter: &str) -> Result<(), Error> {
    parse_filter(filter).map(drop)
}

fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

fn parse_filter(filter: &str) -> Result<EnvFilter, Error> {
    let refuse = |reason: String| Error::Filter { filter: filter.to_owned(), reason };
    if filter.trim().is_empty() {
        return Err(refuse("it is empty".to_owned()));
    }
    if filter.chars().any(char::is_control) {
        return Err(refuse("it has control characters".to_owned()));
    }
    // EnvFilter takes a bare word as a target at level trace: a misspelt level would silence everything
    // else. Targets must therefore be written as target=level.
    for directive in filter.split(',').map(str::trim) {
        let is_bare_word = directive.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-' || c == ':');
        let is_level = !directive.is_empty() && directive.parse::<LevelFilter>().is_ok();
        if is_bare_word && !is_level {
            return Err(refuse(format!("{directive:?} is not a level")));
        }
    }
    EnvFilter::try_new(filter).map_err(|error| refuse(error.to_string()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A handle whose filter is not used by any subscriber.
    pub(crate) fn detached_level(filter: &str) -> (LogLevel, impl Sized + use<>) {
        let (layer, handle) = reload::Layer::new(parse_filter(filter).unwrap());
        (LogLevel(handle), layer)
    }

    #[test]
    fn levels_and_directives_are_accepted() {
        for filter in ["info", "OFF", "debug", "info,ovsdb=debug", "warn,a::b=trace", "info,[commit{zone=a}]=debug"] {
            check_filter(filter).unwrap_or_else(|error| panic!("{filter}: {error}"));
        }
    }

    #[test]
    fn an_invalid_filter_is_rejected_with_its_remedy() {
        for (filter, reason) in [
            ("", "it is empty"),
            ("inof", "\"inof\" is not a level"),
            ("info,loud", "\"loud\" is not a level"),
            ("info,", "\"\" is not a level"),
            ("info,ovsdb=loud", "error parsing level filter"),
            ("in\nfo", "control characters"),
        ] {
            let error = check_filter(filter).unwrap_err().to_string();
            assert!(error.contains(reason), "{filter:?}: {error}");
            assert!(error.contains("hint: give a level"), "{error}");
            assert!(!error.contains('\n'), "{error:?}");
        }
    }

    #[test]
    fn an_invalid_level_does_not_replace_the_old_one() {
        let (level, _layer) = detached_level("info");
        assert!(level.set("loud").is_err());
        assert_eq!(level.get(), "info");
        level.set("debug").unwrap();
        assert_eq!(level.get(), "debug");
    }

    #[test]
    fn formats_are_parsed_from_their_names() {
        for name in LogFormat::NAMES {
            name.parse::<LogFormat>().unwrap();
        }
        assert!("xml".parse::<LogFormat>().unwrap_err().to_string().contains("human"));
        assert!(LogFormat::Auto.is_json(false));
        assert!(!LogFormat::Auto.is_json(true));
        assert!(LogFormat::Json.is_json(true));
        assert!(!LogFormat::Human.is_json(false));
    }
}
