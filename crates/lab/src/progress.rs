//! Progress of long operations: bars on a terminal, plain lines otherwise, JSON lines from the keeper to `lab up`.

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "event")]
pub(crate) enum Event {
    Begin {
        step: String,
    },
    /// A message of a running step.
    Note {
        step: String,
        /// One line.
        text: String,
    },
    End {
        step: String,
        milliseconds: u64,
        error: Option<String>,
    },
}

/// A sink for progress events.
#[derive(Clone)]
pub struct Progress(Arc<dyn Fn(Event) + Send + Sync>);

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Progress")
    }
}

impl Progress {
    pub(crate) fn new(sink: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self(Arc::new(sink))
    }

    /// Discards everything: for tests.
    pub fn silent() -> Self {
        Self::new(|_| ())
    }

    /// Bars if standard error is a terminal, plain lines otherwise.
    pub fn to_stderr() -> Self {
        if std::io::stderr().is_terminal() { Self::bars() } else { Self::new(|event| plain_line(&event)) }
    }

    fn bars() -> Self {
        let all = MultiProgress::new();
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let mark = move |colour: &str, sign: &str| {
            if plain { sign.to_owned() } else { format!("\x1b[{colour}m{sign}\x1b[0m") }
        };
        let template = if plain {
            "{spinner} {prefix:<28} {elapsed:>4} {wide_msg}"
        } else {
            "{spinner:.cyan} {prefix:<28} {elapsed:>4} {wide_msg:.dim}"
        };
        let running: Mutex<HashMap<String, ProgressBar>> = Mutex::new(HashMap::new());
        Self::new(move |event| {
            let mut running = running.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match event {
                Event::Begin { step } => {
                    let bar = all.add(ProgressBar::new_spinner());
                    if let Ok(style) = ProgressStyle::with_template(template) {
                        bar.set_style(style);
                    }
                    bar.set_prefix(step.clone());
                    bar.enable_steady_tick(Duration::from_millis(120));
                    running.insert(step, bar);
                }
                Event::Note { step, text } => {
                    if let Some(bar) = running.get(&step) {
                        bar.set_message(text);
                    }
                }
                Event::End { step, milliseconds, error } => {
                    if let Some(bar) = running.remove(&step) {
                        bar.finish_and_clear();
                    }
                    let line = match error {
                        None => format!("{} {step:<28} {}", mark("32", "✔"), format_duration(milliseconds)),
                        Some(error) => format!("{} {step:<28} {error}", mark("31", "✘")),
                    };
                    // A terminal that rejects a line is not worth an error.
                    let _ = all.println(line);
                }
            }
        })
    }

    pub(crate) fn emit(&self, event: Event) {
        (self.0)(event);
    }

    /// Shows one line for a running step.
    pub(crate) fn note(&self, step: &str, text: impl Into<String>) {
        self.emit(Event::Note { step: step.to_owned(), text: text.into() });
    }

    /// Runs one step and reports its start and end.
    pub fn step<T, E: std::fmt::Display>(&self, name: &str, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.emit(Event::Begin { step: name.to_owned() });
        let begun = Instant::now();
        let answer = work();
        let milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.emit(Event::End {
            step: name.to_owned(),
            milliseconds,
            error: answer.as_ref().err().map(ToString::to_string),
        });
        answer
    }
}

fn plain_line(event: &Event) {
    let line = match event {
        Event::Begin { step } => format!("… {step}"),
        Event::Note { step, text } => format!("  {step}: {text}"),
        Event::End { step, milliseconds, error: None } => format!("✔ {step} ({})", format_duration(*milliseconds)),
        // The caller prints the error itself, once.
        Event::End { step, error: Some(_), .. } => format!("✘ {step}"),
    };
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn format_duration(milliseconds: u64) -> String {
    match milliseconds {
        0..=999 => format!("{milliseconds} ms"),
        1000..=99_999 => format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100),
        _ => format!("{} min {} s", milliseconds / 60_000, milliseconds / 1000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_reports_its_start_and_end_even_if_it_fails() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let progress = Progress::new(move |event| sink.lock().unwrap().push(event));
        progress.step("good", || Ok::<_, String>(())).unwrap();
        progress.step("bad", || Err::<(), _>("no disk".to_owned())).unwrap_err();
        let seen = seen.lock().unwrap();
        assert!(matches!(&seen[0], Event::Begin { step } if step == "good"));
        assert!(matches!(&seen[1], Event::End { error: None, .. }));
        assert!(matches!(&seen[3], Event::End { error: Some(error), .. } if error == "no disk"));
    }

    #[test]
    fn durations_are_formatted() {
        assert_eq!(format_duration(42), "42 ms");
        assert_eq!(format_duration(1234), "1.2 s");
        assert_eq!(format_duration(125_000), "2 min 5 s");
    }
}
