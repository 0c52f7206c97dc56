//! The committed page: a table and pictures between two comments of `docs/disruption.md`; the prose around them is people's.

use std::fmt::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, make_dir, read_file, write_file};
use crate::probe::{Incident, Kind, Report};

use super::Scenario;

const BEGIN: &str = "<!-- results: written by `lab disruption --write` -->";
const END: &str = "<!-- end of results -->";

/// One scenario's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The scenario.
    pub name: String,
    /// What was done.
    pub title: String,
    /// Whether no path had more of anything than its control.
    pub ok: bool,
    /// How many fault windows.
    pub rounds: u64,
    /// Seconds of control and of fault windows.
    pub seconds: [u64; 2],
    /// Packets sent, in control and fault windows.
    pub sent: [u64; 2],
    /// Lost, reset, late, duplicated, wrong source: in control and fault windows.
    pub counts: [[u64; 2]; 5],
    /// TCP segments sent again in the prober's pods.
    pub retransmitted: [u64; 2],
    /// Packets lost or reset beyond the control, summed over the paths.
    pub beyond: u64,
}

impl Row {
    /// Of a report.
    pub fn of(scenario: &Scenario, report: &Report) -> Self {
        let [control, fault] = report.total();
        let seconds = |kind: Kind| -> u64 {
            let windows = report.windows.iter().filter(|window| window.kind == kind);
            windows.map(crate::probe::Window::length).sum::<std::time::Duration>().as_secs()
        };
        Self {
            name: scenario.name.to_owned(),
            title: scenario.title.to_owned(),
            ok: report.ok,
            rounds: report.windows.iter().filter(|window| window.kind == Kind::Fault).count() as u64,
            seconds: [seconds(Kind::Control), seconds(Kind::Fault)],
            sent: [control.sent, fault.sent],
            counts: Incident::ALL.map(|incident| [control.of(incident), fault.of(incident)]),
            retransmitted: report
                .retransmitted
                .values()
                .fold([0, 0], |[control, fault], more| [control + more[0], fault + more[1]]),
            beyond: report.excess(Incident::Lost) + report.excess(Incident::Reset),
        }
    }

    fn line(&self) -> String {
        let pair = |[control, fault]: [u64; 2]| match (control, fault) {
            (0, 0) => "0".to_owned(),
            (control, fault) if fault > control => format!("**{control}/{fault}**"),
            (control, fault) => format!("{control}/{fault}"),
        };
        let counts: Vec<String> = self.counts.iter().map(|count| pair(*count)).collect();
        format!(
            "| [{}](#{}) | {} × {} s | {} | {} | {} | {} |\n",
            self.title,
            self.name,
            self.rounds,
            self.seconds[1] / self.rounds.max(1),
            self.sent[1],
            counts.join(" | "),
            pair(self.retransmitted),
            if self.ok { "yes" } else { "**no**" }
        )
    }
}

/// The rows of this run, and of former runs for scenarios that it left out.
pub(super) fn merged(folder: &Path, fresh: &[Row]) -> Result<Vec<Row>> {
    let path = folder.join("summary.json");
    let mut rows: Vec<Row> =
        if path.exists() { serde_json::from_str(&read_file(&path)?).unwrap_or_default() } else { Vec::new() };
    for row in fresh {
        rows.retain(|old| old.name != row.name);
        rows.push(row.clone());
    }
    let position = |row: &Row| Scenario::all().iter().position(|scenario| scenario.name == row.name);
    rows.sort_by_key(position);
    let json = serde_json::to_string_pretty(&rows).map_err(|error| Error::Invalid(error.to_string()))?;
    write_file(&path, json)?;
    Ok(rows)
}

/// The figures for `target/bench/disruption.json`: packets lost or reset beyond the control, one for each scenario.
pub fn figures(rows: &[Row]) -> serde_json::Value {
    let figure = |row: &Row| {
        serde_json::json!({
            "name": format!("{}: lost beyond the control", row.title),
            "value": row.beyond,
            "unit": "packets",
            "goal": "<= 0",
            "ok": row.beyond == 0,
        })
    };
    rows.iter().map(figure).collect()
}

/// Writes table and pictures into the page; the pictures of `folder` are copied into a folder beside it that is named like it.
pub fn write_page(page: &Path, folder: &Path, rows: &[Row]) -> Result<()> {
    let text = check_page(page)?;
    let pictures = page.with_extension("");
    make_dir(&pictures)?;
    let name = pictures.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    for row in rows {
        let picture = format!("{}.svg", row.name);
        let from = folder.join(&picture);
        std::fs::copy(&from, pictures.join(&picture)).map_err(Error::io(format!("cannot copy {}", from.display())))?;
    }
    write_file(page, replace(&text, &results(rows, &name)).unwrap_or(text))
}

/// Reads a page; an error if results cannot be written into it. A run of an hour asks before it begins.
pub fn check_page(page: &Path) -> Result<String> {
    let text = read_file(page)?;
    if replace(&text, "").is_none() {
        let message = format!("{} has no place for results: it needs the lines {BEGIN:?} and {END:?}", page.display());
        return Err(Error::Invalid(message));
    }
    Ok(text)
}

fn replace(text: &str, results: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{results}\n{END}{after}"))
}

fn results(rows: &[Row], pictures: &str) -> String {
    let mut text = String::from(
        "| what is done | windows | packets under the fault | lost | reset | late | duplicated | wrong source | TCP segments sent again | not more than the control |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        text.push_str(&row.line());
    }
    for row in rows {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n### {}\n\n<a id=\"{}\"></a>\n\n![{}]({pictures}/{}.svg)\n",
            row.title, row.name, row.title, row.name
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(lost: [u64; 2]) -> Row {
        Row {
            name: "agent-restart".into(),
            title: "agent killed".into(),
            ok: lost[1] <= lost[0],
            rounds: 2,
            seconds: [60, 60],
            sent: [60_000, 59_990],
            counts: [lost, [0, 0], [1, 0], [0, 0], [0, 0]],
            retransmitted: [3, 2],
            beyond: lost[1].saturating_sub(lost[0]),
        }
    }

    #[test]
    fn only_what_is_between_the_comments_is_replaced() {
        let page = format!("# Disruption\n\nprose\n\n{BEGIN}\nold\n{END}\n\ncauses\n");
        let written = replace(&page, &results(&[row([0, 3])], "disruption")).unwrap();
        assert!(written.starts_with("# Disruption\n\nprose\n") && written.ends_with("causes\n"), "{written}");
        assert!(written.contains("**0/3**") && written.contains("**no**") && !written.contains("old"), "{written}");
        assert!(written.contains("disruption/agent-restart.svg"), "{written}");
        assert_eq!(replace("no place", "x"), None);
    }

    #[test]
    fn a_figure_says_what_is_beyond_the_control() {
        let figures = figures(&[row([1, 3]), row([1, 1])]);
        assert_eq!(figures[0]["value"], 2);
        assert_eq!((&figures[0]["ok"], &figures[1]["ok"]), (&false.into(), &true.into()));
    }
}
