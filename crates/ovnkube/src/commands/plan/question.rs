//! `--can` and `--matrix`: reachability questions.

use std::process::ExitCode;

use anyhow::anyhow;
use console::table::{Cell, colour, render};
use reachability::evaluator::{
    Case, Destination, Evaluation, Evaluator, Party, Step, Undetermined, Verdict, parse_destination, parse_party,
};
use serde::Serialize;
use topology::desired::Inputs;

use crate::cli::Output;
use crate::commands::ovsdb::{grid, value};
use crate::commands::{CHANGES, FAILED};
use crate::config::Problems;

#[derive(Serialize)]
struct JsonAnswer<'a> {
    from: String,
    to: String,
    /// Null if it depends on the packet.
    can: Option<bool>,
    chain: Vec<Rule<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cases: Vec<JsonCase<'a>>,
}

/// JSON of several answers.
#[derive(Serialize)]
struct AllAnswers<'a> {
    answers: Vec<AnswerOrError<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    notes: &'a [String],
}

/// An answer, or why there is none.
#[derive(Serialize)]
#[serde(untagged)]
enum AnswerOrError<'a> {
    Answer(JsonAnswer<'a>),
    Error { from: String, to: String, can: Option<bool>, error: String },
}

/// JSON of a single answer.
#[derive(Serialize)]
struct OnlyAnswer<'a> {
    #[serde(flatten)]
    answer: JsonAnswer<'a>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    notes: &'a [String],
}

#[derive(Serialize)]
struct JsonCase<'a> {
    what: &'a str,
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

/// Source and destination of a `--can`, as written.
pub(super) type Question<'a> = (&'a str, &'a str);

/// Splits the words of all `--can`: two each, `from=…` and `to=…`, in either order.
pub(super) fn questions(words: &[String]) -> anyhow::Result<Vec<Question<'_>>> {
    let question = |words: &'_ [String]| {
        let after = |name: &str| words.iter().position(|word| word.starts_with(name));
        after("from=").zip(after("to="))
    };
    let mut questions = Vec::new();
    for pair in words.chunks(2) {
        let Some((from, to)) = question(pair) else {
            return Err(misuse(
                "--can needs a source and a destination; hint: --can from=default/web to=default/db:5432",
            ));
        };
        questions.push((&pair[from]["from=".len()..], &pair[to]["to=".len()..]));
    }
    Ok(questions)
}

/// Answers all questions; one without an answer does not affect the others.
pub(super) fn can(
    inputs: Inputs<'_>,
    questions: &[Question<'_>],
    notes: &[String],
    output: Output,
) -> anyhow::Result<ExitCode> {
    let mut asked = Vec::new();
    let mut wrong = Vec::new();
    for (from, to) in questions {
        match (parse_party(inputs.store, from), parse_destination(inputs.store, to)) {
            (Ok(from), Ok(to)) => asked.push((from, to)),
            (from, to) => {
                wrong.extend(from.err().map(|why| format!("from: {why}")));
                wrong.extend(to.err().map(|why| format!("to: {why}")));
            }
        }
    }
    if !wrong.is_empty() {
        return Err(Problems(wrong).into());
    }
    let evaluator = Evaluator::new(inputs);
    let answers: Vec<Result<Evaluation, Undetermined>> =
        asked.iter().map(|(from, to)| evaluator.evaluate(from, to)).collect();
    // A single question without an answer fails the command.
    if let [Err(why)] = &answers[..] {
        return Err(why.clone().into());
    }
    let all = || asked.iter().zip(&answers);
    match output {
        Output::Json => {
            let mut results: Vec<AnswerOrError<'_>> =
                all().map(|((from, to), answer)| json_answer(from, to, answer)).collect();
            match results.pop() {
                Some(AnswerOrError::Answer(answer)) if answers.len() == 1 => {
                    console::print_json(&OnlyAnswer { answer, notes })?;
                }
                last => {
                    results.extend(last);
                    console::print_json(&AllAnswers { answers: results, notes })?;
                }
            }
        }
        Output::Table => {
            let texts: Vec<String> = all()
                .map(|((from, to), answer)| match answer {
                    Ok(answer) => text(from, to, answer),
                    Err(_) => format!("unknown: {from} to {to}\n"),
                })
                .collect();
            console::print(&texts.join("\n"))?;
        }
    }
    for ((from, to), why) in all().filter_map(|(asked, answer)| Some((asked, answer.as_ref().err()?))) {
        console::eprint_line(format_args!("error: {}", value::escape(&format!("{from} to {to}: {why}"))));
    }
    let yes = |answer: &Result<Evaluation, _>| matches!(answer, Ok(Evaluation { verdict: Verdict::Yes, .. }));
    Ok(match answers.iter().all(yes) {
        true => ExitCode::SUCCESS,
        false if answers.iter().any(Result::is_err) => ExitCode::from(FAILED),
        false => ExitCode::from(CHANGES),
    })
}

/// One line for the answer, then the steps that lead to it.
fn text(from: &Party, to: &Destination, answer: &Evaluation) -> String {
    let word = match answer.verdict {
        Verdict::Yes => "yes",
        Verdict::No => "no",
        Verdict::Partial => "some",
    };
    let mut text = format!("{word}: {from} to {to}\n{}", table(&answer.chain));
    for Case { what, yes, chain } in &answer.cases {
        let word = if *yes { "yes" } else { "no" };
        text.push_str(&format!("\n{word}: {}\n{}", value::escape(what), table(chain)));
    }
    text
}

/// The rules that decide, as a table.
fn table(chain: &[Step]) -> String {
    let row = |step: &Step| [&step.object, &step.field, &step.says].map(Cell::plain);
    if chain.is_empty() {
        String::new()
    } else {
        render(["OBJECT", "FIELD", "SAYS"], chain.iter().map(row).collect(), colour())
    }
}

/// None if it depends on the packet.
fn as_bool(verdict: Verdict) -> Option<bool> {
    match verdict {
        Verdict::Yes => Some(true),
        Verdict::No => Some(false),
        Verdict::Partial => None,
    }
}

fn json_answer<'a>(from: &Party, to: &Destination, answer: &'a Result<Evaluation, Undetermined>) -> AnswerOrError<'a> {
    fn rules(chain: &[Step]) -> Vec<Rule<'_>> {
        chain.iter().map(|step| Rule { object: &step.object, field: &step.field, says: &step.says }).collect()
    }
    let case = |case: &'a Case| JsonCase { what: &case.what, can: case.yes, chain: rules(&case.chain) };
    let (from, to) = (from.to_string(), to.to_string());
    match answer {
        Ok(answer) => AnswerOrError::Answer(JsonAnswer {
            from,
            to,
            can: as_bool(answer.verdict),
            chain: rules(&answer.chain),
            cases: answer.cases.iter().map(case).collect(),
        }),
        Err(why) => AnswerOrError::Error { from, to, can: None, error: why.to_string() },
    }
}

#[derive(Serialize)]
struct Matrix<'a> {
    namespace: String,
    pairs: Vec<Pair>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    notes: &'a [String],
}

#[derive(Serialize)]
struct Pair {
    from: String,
    to: String,
    /// Null if it depends on the packet, or is unknown.
    can: Option<bool>,
    #[serde(skip)]
    unknown: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// All pairs of a namespace's pods. The exit status says only whether all pairs have an answer.
pub(super) fn matrix(inputs: Inputs<'_>, asked: &str, notes: &[String], output: Output) -> anyhow::Result<ExitCode> {
    let (namespace, door) = asked.split_once(':').map_or((asked, None), |(namespace, door)| (namespace, Some(door)));
    let pods: Vec<String> = inputs.store.pods_in(namespace).map(|pod| pod.key.name.to_string()).collect();
    if pods.is_empty() {
        return Err(anyhow!("namespace {namespace:?} has no pods here; hint: give -f or --kubeconfig that have them"));
    }
    let evaluator = Evaluator::new(inputs);
    let mut pairs = Vec::new();
    for from in &pods {
        for to in &pods {
            let meant = door.map_or_else(|| format!("{namespace}/{to}"), |door| format!("{namespace}/{to}:{door}"));
            let source = parse_party(inputs.store, &format!("{namespace}/{from}")).map_err(misuse)?;
            let answer = evaluator.evaluate(&source, &parse_destination(inputs.store, &meant).map_err(misuse)?);
            let unknown = answer.is_err();
            let (can, why) = match answer {
                Ok(answer) => (as_bool(answer.verdict), why(&answer)),
                Err(why) => (None, Some(why.to_string())),
            };
            pairs.push(Pair { from: from.clone(), to: to.clone(), can, unknown, why });
        }
    }
    let unknown = pairs.iter().find_map(|pair| if pair.unknown { pair.why.clone() } else { None });
    match output {
        Output::Json => console::print_json(&Matrix { namespace: namespace.to_owned(), pairs, notes })?,
        Output::Table => {
            console::print(&drawn(&pods, &pairs, colour()))?;
        }
    }
    match unknown {
        Some(why) => {
            console::eprint_line(format_args!("error: some pairs are unknown: {}", value::escape(&why)));
            Ok(ExitCode::from(FAILED))
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Why the answer is not a plain yes.
fn why(answer: &Evaluation) -> Option<String> {
    match answer.verdict {
        Verdict::Yes => None,
        Verdict::No => answer.chain.last().map(|step| format!("{} {}: {}", step.object, step.field, step.says)),
        Verdict::Partial => {
            let passes: Vec<&str> = answer.cases.iter().filter(|case| case.yes).map(|case| &*case.what).collect();
            Some(format!("only {}", passes.join("; ")))
        }
    }
}

/// The matrix as a table, followed by the reasons for everything but a plain yes, each once.
fn drawn(pods: &[String], pairs: &[Pair], colour: bool) -> String {
    // The grid capitalizes headings, so the names of pods are a row.
    let mut headings = vec![""; pods.len() + 1];
    headings[0] = "from \\ to";
    let mut rows = vec![std::iter::once(String::new()).chain(pods.iter().cloned()).collect::<Vec<_>>()];
    for (from, line) in pods.iter().zip(pairs.chunks(pods.len())) {
        rows.push(std::iter::once(from.clone()).chain(line.iter().map(|pair| pair.mark().to_owned())).collect());
    }
    let mut text = grid::render(&headings, &rows, false);
    if colour {
        text = text.replace('✓', "\u{1b}[32m✓\u{1b}[0m").replace('✗', "\u{1b}[31m✗\u{1b}[0m");
    }
    let mut reasons: Vec<(&str, &str, Vec<String>)> = Vec::new();
    for pair in pairs.iter().filter(|pair| !pair.unknown) {
        let Some(why) = pair.why.as_deref() else { continue };
        let named = format!("{} to {}", pair.from, pair.to);
        match reasons.iter_mut().find(|(mark, known, _)| *mark == pair.mark() && *known == why) {
            Some((.., names)) => names.push(named),
            None => reasons.push((pair.mark(), why, vec![named])),
        }
    }
    for (mark, why, names) in &reasons {
        let more = match names.len() {
            1 => String::new(),
            many => format!(" and {} more", many - 1),
        };
        text.push_str(&format!("{mark} {}{more}: {}\n", value::escape(&names[0]), value::escape(why)));
    }
    text
}

impl Pair {
    fn mark(&self) -> &'static str {
        match self.can {
            Some(true) => "✓",
            Some(false) => "✗",
            None if self.unknown => "?",
            None => "~",
        }
    }
}
