//! The committed page: table and pictures between two marker comments of `docs/disruption.md`; the text around them is
//! written by hand.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, create_dir, read_file, write_file};
use crate::probe::{Incident, Report, WindowKind};

use super::Scenario;

const BEGIN: &str = "<!-- results: written by `lab disruption --write` -->";
const END: &str = "<!-- end of results -->";

/// A figure of the control windows and of the fault windows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    pub control: u64,
    pub fault: u64,
}

impl Pair {
    fn cell(self) -> String {
        let Self { control, fault } = self;
        match (control, fault) {
            (0, 0) => "0".to_owned(),
            _ if fault > control => format!("**{control}/{fault}**"),
            _ => format!("{control}/{fault}"),
        }
    }
}

/// The result of one scenario.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub name: String,
    pub title: String,
    /// Whether the fault was no worse than the control.
    pub ok: bool,
    /// Number of fault windows.
    pub rounds: u64,
    /// The total length of all windows.
    pub seconds: Pair,
    /// Packets sent, in the control windows and in the fault windows.
    pub sent: Pair,
    /// Every kind is present.
    pub incidents: BTreeMap<Incident, Pair>,
    /// TCP segments retransmitted by the prober's pods.
    pub retransmitted: Pair,
    /// Packets lost or reset beyond the control, summed over the paths without the reference.
    pub beyond: u64,
}

impl Row {
    pub fn of(scenario: &Scenario, report: &Report) -> Self {
        let [control, fault] = report.total();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a length of hours at most")]
        let [control_seconds, fault_seconds] =
            [WindowKind::Control, WindowKind::Fault].map(|kind| report.seconds(kind).round() as u64);
        let pair = |incident| Pair { control: control.of(incident), fault: fault.of(incident) };
        let add =
            |sum: Pair, [control, fault]: &[u64; 2]| Pair { control: sum.control + control, fault: sum.fault + fault };
        Self {
            name: scenario.name.to_owned(),
            title: scenario.title.to_owned(),
            ok: report.ok,
            rounds: report.windows.iter().filter(|window| window.kind == WindowKind::Fault).count() as u64,
            seconds: Pair { control: control_seconds, fault: fault_seconds },
            sent: Pair { control: control.sent, fault: fault.sent },
            incidents: Incident::ALL.into_iter().map(|incident| (incident, pair(incident))).collect(),
            retransmitted: report.retransmitted.values().fold(Pair::default(), add),
            beyond: report.excess(Incident::Lost) + report.excess(Incident::Reset),
        }
    }

    fn line(&self) -> String {
        let incidents = Incident::ALL.map(|incident| self.incidents.get(&incident).copied().unwrap_or_default().cell());
        format!(
            "| [{}](#{}) | {} × {} s | {} | {} | {} | {} |\n",
            self.title,
            self.name,
            self.rounds,
            self.seconds.fault / self.rounds.max(1),
            self.sent.fault,
            incidents.join(" | "),
            self.retransmitted.cell(),
            if self.ok { "yes" } else { "**no**" }
        )
    }
}

/// The rows of this run, and those of earlier runs for scenarios that it omitted.
pub(super) fn merged(dir: &Path, fresh: &[Row]) -> Result<Vec<Row>> {
    let path = dir.join("summary.json");
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
pub(crate) fn figures(rows: &[Row]) -> serde_json::Value {
    let figure = |row: &Row| {
        serde_json::json!({
            "name": format!("{}: lost or reset beyond the control", row.title),
            "value": row.beyond,
            "unit": "packets",
            "goal": "<= 0",
            "ok": row.ok,
        })
    };
    rows.iter().map(figure).collect()
}

/// Writes table and pictures into the page; the pictures are copied from `dir` into a directory named like the page.
pub(crate) fn write_page(page: &Path, dir: &Path, rows: &[Row]) -> Result<()> {
    let text = check_page(page)?;
    let pictures = page.with_extension("");
    create_dir(&pictures)?;
    let name = pictures.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    for row in rows {
        let picture = format!("{}.svg", row.name);
        let from = dir.join(&picture);
        std::fs::copy(&from, pictures.join(&picture)).map_err(Error::io(format!("cannot copy {}", from.display())))?;
    }
    write_file(page, replace(&text, &results(rows, &name)).unwrap_or(text))
}

/// Reads a page; fails if results cannot be written into it. Called before a run of an hour starts.
pub(crate) fn check_page(page: &Path) -> Result<String> {
    let text = read_file(page)?;
    if replace(&text, "").is_none() {
        let message =
            format!("{} has no section for results: it needs the lines {BEGIN:?} and {END:?}", page.display());
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
        "| what is done | windows | packets under the fault | lost | reset | late | duplicated | wrong source | TCP segments retransmitted | not more than the control |\n\
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
            seconds: Pair { control: 60, fault: 60 },
            sent: Pair { control: 60_000, fault: 59_990 },
            incidents: [(Incident::Lost, Pair { control: lost[0], fault: lost[1] })].into(),
            retransmitted: Pair { control: 3, fault: 2 },
            beyond: lost[1].saturating_sub(lost[0]),
        }
    }

    #[test]
    fn only_the_text_between_the_markers_is_replaced() {
        let page = format!("# Disruption\n\nprose\n\n{BEGIN}\nold\n{END}\n\ncauses\n");
        let written = replace(&page, &results(&[row([0, 3])], "disruption")).unwrap();
        assert!(written.starts_with("# Disruption\n\nprose\n") && written.ends_with("causes\n"), "{written}");
        assert!(written.contains("**0/3**") && written.contains("**no**") && !written.contains("old"), "{written}");
        assert!(written.contains("disruption/agent-restart.svg"), "{written}");
        assert_eq!(replace("no place", "x"), None);
    }

    #[test]
    fn figures_are_the_loss_beyond_the_control() {
        let figures = figures(&[row([1, 3]), row([1, 1])]);
        assert_eq!(figures[0]["value"], 2);
        assert_eq!((&figures[0]["ok"], &figures[1]["ok"]), (&false.into(), &true.into()));
    }
}
