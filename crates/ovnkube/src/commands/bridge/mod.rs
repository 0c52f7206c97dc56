//! `ovnkube bridge`: br-ex configurations as files. The rules and the renderers are crate `bridge`.

mod check;
mod default;
mod render;

use std::io::Read as _;
use std::process::ExitCode;

use anyhow::Context as _;
use bridge::Violation;

use super::ovsdb::value;
use crate::cli::BridgeVerb;

pub(super) fn run(verb: &BridgeVerb) -> anyhow::Result<ExitCode> {
    match verb {
        BridgeVerb::Check(check) => check::run(check),
        BridgeVerb::Render(render) => render::run(render),
        BridgeVerb::Default(default) => default::run(default),
    }
}

/// The text of a file, or of stdin.
fn read(file: &str) -> anyhow::Result<String> {
    /// No configuration is larger; the parser's own limit is 4 MiB.
    const MOST: u64 = 16 << 20;
    let mut bytes = Vec::new();
    let read = match file {
        "-" => std::io::stdin().lock().take(MOST).read_to_end(&mut bytes),
        _ => std::fs::File::open(file).and_then(|file| file.take(MOST).read_to_end(&mut bytes)),
    };
    read.with_context(|| format!("cannot read {file}"))?;
    String::from_utf8(bytes).with_context(|| format!("{file} is not text in UTF-8"))
}

/// Prints violations to stderr, one per line.
fn print_violations(file: Option<&str>, violations: &[Violation]) {
    for violation in violations {
        let (code, severity) = (violation.code, violation.code.severity().as_str());
        let place = file.map(|file| format!("{file}:{}: ", violation.at)).unwrap_or_default();
        let host = violation.host.as_ref().map(|host| format!("host {host}: ")).unwrap_or_default();
        let line = format!("{severity}: {place}{code}: {host}{}; {}", violation.reason, code.remedy());
        console::eprint_line(format_args!("{}", value::escape(&line)));
    }
}
