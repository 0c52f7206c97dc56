//! `--can` and `--matrix`: who may talk to whom.

use std::process::ExitCode;

use anyhow::anyhow;
use serde::Serialize;
use topology::can::{Answer, Destination, Party, decide, understand, understand_party};
use topology::desired::Given;

use crate::cli::Output;
use crate::commands::ovsdb::{grid, value};
use crate::commands::{CHANGES, FAILED};
use crate::config::Problems;

#[derive(Serialize)]
struct Told<'a> {
    from: String,
    to: String,
    can: bool,
    chain: Vec<Rule<'a>>,
}

#[derive(Serialize)]
struct Rule<'a> {
    object: &'a str,
    field: &'a str,
    says: &'a str,
}

fn misuse(message: impl Into<String>) -> anyhow::Error {
    Problems(vec![message.into()]).into()
}

/// Splits `from=… to=…`, in either order.
pub(super) fn words(words: &[String]) -> anyhow::Result<(&str, &str)> {
    let after = |name: &str| words.iter().find_map(|word| word.strip_prefix(name));
    match (after("from="), after("to=")) {
        (Some(from), Some(to)) => Ok((from, to)),
        _ => Err(misuse("--can needs who and whom; hint: --can from=default/web to=default/db:5432")),
    }
}

/// Answers one question.
pub(super) fn can(given: Given<'_>, from: &str, to: &str, output: Output) -> anyhow::Result<ExitCode> {
    let from = understand_party(given.store, from).map_err(|why| misuse(format!("from: {why}")))?;
    let to = understand(given.store, to).map_err(|why| misuse(format!("to: {why}")))?;
    let answer = decide(given, &from, &to)?;
    match output {
        Output::Json => console::print_json(&told(&from, &to, &answer))?,
        Output::Table => {
            let word = if answer.yes { "yes" } else { "no" };
            let mut text = format!("{word}: {from} to {to}\n");
            let rows: Vec<Vec<String>> = answer
                .chain
                .iter()
                .map(|step| vec![step.object.clone(), step.field.clone(), step.says.clone()])
                .collect();
            text.push_str(&grid::render(&["object", "field", "says"], &rows, false));
            console::print(&text)?;
        }
    }
    Ok(if answer.yes { ExitCode::SUCCESS } else { ExitCode::from(CHANGES) })
}

fn told<'a>(from: &Party, to: &Destination, answer: &'a Answer) -> Told<'a> {
    let rule = |step: &'a topology::can::Step| Rule { object: &step.object, field: &step.field, says: &step.says };
    Told { from: from.to_string(), to: to.to_string(), can: answer.yes, chain: answer.chain.iter().map(rule).collect() }
}

#[derive(Serialize)]
struct Matrix {
    namespace: String,
    pairs: Vec<Pair>,
}

#[derive(Serialize)]
struct Pair {
    from: String,
    to: String,
    /// Null where it cannot be told.
    can: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// All pairs of a namespace's pods. It answers no question of yes or no, so its status only says whether all could be told.
pub(super) fn matrix(given: Given<'_>, asked: &str, output: Output) -> anyhow::Result<ExitCode> {
    let (namespace, door) = asked.split_once(':').map_or((asked, None), |(namespace, door)| (namespace, Some(door)));
    let pods: Vec<String> = given.store.pods_in(namespace).map(|pod| pod.key.name.to_string()).collect();
    if pods.is_empty() {
        return Err(anyhow!("namespace {namespace:?} has no pods here; hint: give -f or --kubeconfig that have them"));
    }
    let mut pairs = Vec::new();
    for from in &pods {
        for to in &pods {
            let meant = door.map_or_else(|| format!("{namespace}/{to}"), |door| format!("{namespace}/{to}:{door}"));
            let source = understand_party(given.store, &format!("{namespace}/{from}")).map_err(misuse)?;
            let answer = decide(given, &source, &understand(given.store, &meant).map_err(misuse)?);
            let (can, why) = match answer {
                Ok(answer) => {
                    (Some(answer.yes), answer.chain.last().filter(|_| !answer.yes).map(|step| step.says.clone()))
                }
                Err(why) => (None, Some(why.to_string())),
            };
            pairs.push(Pair { from: from.clone(), to: to.clone(), can, why });
        }
    }
    let unknown = pairs.iter().find_map(|pair| if pair.can.is_none() { pair.why.clone() } else { None });
    match output {
        Output::Json => console::print_json(&Matrix { namespace: namespace.to_owned(), pairs })?,
        Output::Table => {
            // Headings are letters' own case in the grid, so the names of pods stand in a first row of their own.
            let mut headings = vec![""; pods.len() + 1];
            headings[0] = "from \\ to";
            let mut rows = vec![std::iter::once(String::new()).chain(pods.iter().cloned()).collect::<Vec<_>>()];
            for (from, line) in pods.iter().zip(pairs.chunks(pods.len())) {
                let mark = |pair: &Pair| match pair.can {
                    Some(true) => "✓".to_owned(),
                    Some(false) => "✗".to_owned(),
                    None => "?".to_owned(),
                };
                rows.push(std::iter::once(from.clone()).chain(line.iter().map(mark)).collect());
            }
            console::print(&grid::render(&headings, &rows, false))?;
        }
    }
    match unknown {
        Some(why) => {
            eprintln!("error: some pairs cannot be told: {}", value::tame(&why));
            Ok(ExitCode::from(FAILED))
        }
        None => Ok(ExitCode::SUCCESS),
    }
}
