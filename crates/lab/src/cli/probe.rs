//! `lab probe`: packet loss caused by a fault, compared with a control.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use clap::Args;

use super::print;
use super::show::Output;
use crate::error::{Error, Result, write_file};
use crate::interrupt;
use crate::probe::{self, Marks, Prober, RATE, Rounds, Workload};
use crate::progress::Progress;
use crate::record::Record;

#[derive(Debug, Args)]
#[command(
    after_help = "Sends numbered packets on 26 paths in parallel: TCP (one long-lived connection, and new ones), UDP and \
    ICMP;\npod to pod on one and on two nodes, pod to Service, pod to outside, outside to NodePort, host to Service. Client and \
    server are\nsockets of this command in the networks of pods, nodes and the outside; the pods are in namespace `probe` and are \
    deleted\nat the end.\n\n\
    Each round has a control window without the fault and a window with it, of the same length. A path passes if the\n\
    fault cost not more than the control. Status 1 if a path fails or does not recover, or if nothing can be concluded\n\
    because the control itself loses packets. Without --fault both windows are controls: what the host loses by itself.\n\n\
    A fault is a shell command; `lab` in it is this program, with this lab as default. It should undo what it breaks. A fault\n\
    that takes longer than the window extends it, and the control is extended by as much.\n\
    Ctrl-C lets a running fault finish, deletes the pods and exits with status 130.\n\n\
    Examples:\n  \
    lab up --network ovnkube --databases raft\n  \
    lab probe --duration 20s\n  \
    lab probe --fault 'lab restart nb-1' --rounds 3 --svg nb-1.svg\n  \
    lab probe --fault 'lab fault kill nb-1' --fault 'sleep 5' --fault 'lab restart nb-1' -o json > nb-1.json\n  \
    lab probe --fault 'lab kubectl -n ovn-kubernetes rollout restart daemonset/ovnkube && \
    lab kubectl -n ovn-kubernetes rollout status daemonset/ovnkube'"
)]
pub(super) struct Options {
    /// Length of one window: 30s, 500ms, 2m
    #[arg(long, default_value = "30s", value_parser = duration)]
    duration: Duration,
    /// Shell command that injects a fault; several run one after the other in each fault window
    #[arg(long, value_name = "COMMAND")]
    fault: Vec<String>,
    /// Number of control windows and of fault windows
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Packets per second, over all paths
    #[arg(long, default_value_t = RATE, value_parser = clap::value_parser!(u32).range(20..=20_000))]
    rate: u32,
    /// Draw the incidents over time
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(record: &Record, options: &Options) -> Result<ExitCode> {
    crate::directories::require_root("lab probe")?;
    if let Some(path) = &options.svg {
        // Fail now rather than after the measurement if the picture cannot be written.
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !dir.is_dir() {
            let message = format!("cannot write {}: directory {} does not exist", path.display(), dir.display());
            return Err(Error::Invalid(message));
        }
    }
    interrupt::install_handlers()?;
    let progress = Progress::to_stderr();
    let workload = progress.step("prober pods", || Workload::create(record))?;
    let title = if options.fault.is_empty() { "without a fault".to_owned() } else { options.fault.join("; ") };
    let rounds = Rounds { title: title.clone(), rounds: options.rounds, window: options.duration };
    let measured = progress.step(&title, || {
        let prober = Prober::start(&workload.plan(options.rate)?)?;
        if options.fault.is_empty() {
            return probe::run_without_fault(&prober, &rounds, &progress);
        }
        probe::run(&prober, &rounds, &progress, |marks| run_fault(record, &options.fault, marks))
    });
    let removed = progress.step("removing the pods", || workload.remove());
    let report = measured?;
    if let Some(path) = &options.svg {
        write_file(path, report.svg())?;
        console::eprint_line(format_args!("lab: wrote {}", path.display()));
    }
    if options.output.is_json() {
        console::print_json(&report).map_err(|error| Error::Invalid(error.to_string()))?;
    } else {
        print(&report.table(console::table::colour()))?;
    }
    removed?;
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the commands of a fault. Their output goes to standard error: standard output is for the report.
fn run_fault(record: &Record, commands: &[String], marks: &Marks<'_>) -> Result<()> {
    let program = std::env::current_exe().map_err(Error::io("cannot find this program"))?;
    let own = program.parent().map(|dir| dir.display().to_string()).unwrap_or_default();
    let path = format!("{own}:{}", std::env::var("PATH").unwrap_or_default());
    for command in commands {
        marks.mark(command);
        let mut child = Command::new("sh");
        child.args(["-c", command]).env("PATH", &path).env("OVNKUBE_LAB_NAME", &record.name);
        child.stdin(Stdio::null()).stdout(std::io::stderr()).process_group(0);
        let status = child.status().map_err(Error::io("cannot run sh"))?;
        if !status.success() {
            return Err(Error::Invalid(format!("the fault failed ({status}), so nothing was measured: {command}")));
        }
    }
    Ok(())
}

fn duration(text: &str) -> std::result::Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| format!("invalid duration {text:?}: write 30s, 500ms or 2m"))?;
    let milliseconds = match unit {
        "ms" => number,
        "s" | "" => number.saturating_mul(1000),
        "m" => number.saturating_mul(60_000),
        _ => return Err(format!("invalid unit of time {unit:?}: use ms, s or m")),
    };
    if !(100..=86_400_000).contains(&milliseconds) {
        return Err("a window lasts at least 100ms and at most a day".to_owned());
    }
    Ok(Duration::from_millis(milliseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "s", "5h", "1ms", "-1s", "99999999999999999999s", "99999999999999999s", "99999999999999999m"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
