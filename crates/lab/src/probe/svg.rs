//! The report as a picture: time from left to right, a row for each path, a mark for each incident, and the fault
//! windows shaded. Works on light and dark pages; its size does not depend on the length of the run.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::report::{Incident, PathReport, Report};
use super::rounds::WindowKind;

const WIDTH: u64 = 1000;
const LABELS: u64 = 250;
const MARGIN: u64 = 12;
const ROW: u64 = 17;
const TOP: u64 = 64;
/// Incidents in the same column are drawn once; the height shows how many.
const COLUMN: u64 = 3;
/// Overlapping labels are omitted; the JSON report has them all.
const LABEL_WIDTH: u64 = 110;

const STYLE: &str = "\
.bg{fill:#ffffff}.t{fill:#1f2328}.m{fill:#59636e}.row{stroke:#d1d9e0}.f{fill:#ddf4ff}.k{stroke:#0969da}.kt{fill:#0969da}\
.lost{fill:#cf222e}.reset{fill:#8250df}.late{fill:#bc4c00}.duplicated{fill:#1a7f37}.wrong-source{fill:#bf3989}\
@media(prefers-color-scheme:dark){.bg{fill:#0d1117}.t{fill:#f0f6fc}.m{fill:#9198a1}.row{stroke:#3d444d}.f{fill:#12283f}\
.k{stroke:#4493f8}.kt{fill:#4493f8}.lost{fill:#f85149}.reset{fill:#ab7df8}.late{fill:#f0883e}.duplicated{fill:#3fb950}\
.wrong-source{fill:#db61a2}}\
text{font:11px -apple-system,'Segoe UI','Noto Sans',Helvetica,Arial,sans-serif}.h{font-size:14px;font-weight:600}";

impl Report {
    pub fn svg(&self) -> String {
        let begin = self.windows.first().map_or(0, |window| window.begin_us);
        let end = self.windows.last().map_or(1, |window| window.end_us).max(begin + 1);
        let picture = Picture { report: self, begin, end, bottom: TOP + ROW * self.paths.len() as u64 };
        picture.draw().unwrap_or_default()
    }
}

struct Picture<'a> {
    report: &'a Report,
    begin: u64,
    end: u64,
    bottom: u64,
}

impl Picture<'_> {
    fn x(&self, at: u64) -> u64 {
        let width = WIDTH - LABELS - MARGIN;
        LABELS + at.clamp(self.begin, self.end).saturating_sub(self.begin) * width / (self.end - self.begin)
    }

    fn draw(&self) -> Result<String, std::fmt::Error> {
        let height = self.bottom + 44;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n\
             <title>{}</title>\n<style>{STYLE}</style>\n<rect class=\"bg\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>\n",
            escape(&self.report.title)
        );
        writeln!(svg, "<text class=\"t h\" x=\"{MARGIN}\" y=\"22\">{}</text>", escape(&self.report.title))?;
        self.legend(&mut svg)?;
        self.windows(&mut svg)?;
        for (index, path) in (0..).zip(&self.report.paths) {
            self.row(&mut svg, path, TOP + ROW * index)?;
        }
        self.axis(&mut svg)?;
        svg.push_str("</svg>\n");
        Ok(svg)
    }

    fn legend(&self, svg: &mut String) -> std::fmt::Result {
        let mut x = MARGIN;
        for incident in Incident::ALL {
            let [control, fault] = self.report.total();
            let text = format!("{} {}/{}", incident.as_str(), control.of(incident), fault.of(incident));
            writeln!(
                svg,
                "<rect class=\"{}\" x=\"{x}\" y=\"34\" width=\"9\" height=\"9\"/><text class=\"t\" x=\"{}\" y=\"43\">{text}</text>",
                class(incident),
                x + 13
            )?;
            x += 40 + 6 * text.len() as u64;
        }
        let text = "control/fault";
        writeln!(svg, "<rect class=\"f\" x=\"{x}\" y=\"32\" width=\"22\" height=\"13\"/>")?;
        writeln!(svg, "<text class=\"m\" x=\"{}\" y=\"43\">fault window · figures are {text}</text>", x + 28)
    }

    fn windows(&self, svg: &mut String) -> std::fmt::Result {
        let height = self.bottom - TOP + 6;
        for window in self.report.windows.iter().filter(|window| window.kind == WindowKind::Fault) {
            let (left, right) = (self.x(window.begin_us), self.x(window.end_us));
            let width = (right - left).max(1);
            writeln!(svg, "<rect class=\"f\" x=\"{left}\" y=\"{}\" width=\"{width}\" height=\"{height}\"/>", TOP - 6)?;
        }
        let mut free = 0;
        for mark in &self.report.marks {
            let x = self.x(mark.at_us);
            writeln!(svg, "<path class=\"k\" stroke-dasharray=\"2 3\" d=\"M{x} {}v{height}\"/>", TOP - 6)?;
            if x >= free {
                let anchor = if x + LABEL_WIDTH > WIDTH { " text-anchor=\"end\"" } else { "" };
                writeln!(
                    svg,
                    "<text class=\"kt\" x=\"{x}\" y=\"{}\"{anchor}>{}</text>",
                    TOP - 9,
                    escape(&mark.label.chars().take(18).collect::<String>())
                )?;
                free = x + LABEL_WIDTH;
            }
        }
        Ok(())
    }

    fn row(&self, svg: &mut String, path: &PathReport, y: u64) -> std::fmt::Result {
        writeln!(svg, "<text class=\"t\" x=\"{MARGIN}\" y=\"{}\">{}</text>", y + 12, escape(&path.name()))?;
        writeln!(svg, "<path class=\"row\" d=\"M{LABELS} {}H{}\"/>", y + ROW - 3, WIDTH - MARGIN)?;
        let mut columns: BTreeMap<(Incident, u64), u64> = BTreeMap::new();
        for one in &path.incidents {
            *columns.entry((one.what, self.x(one.at_us) / COLUMN * COLUMN)).or_default() += 1;
        }
        // One element per kind: a picture with thousands of incidents stays small.
        for incident in Incident::ALL {
            let mut d = String::new();
            for ((_, x), count) in columns.iter().filter(|((what, _), _)| *what == incident) {
                let high = (4 + 2 * u64::from(count.ilog2())).min(ROW - 4);
                write!(d, "M{x} {}h{COLUMN}v-{high}h-{COLUMN}z", y + ROW - 3)?;
            }
            if !d.is_empty() {
                writeln!(svg, "<path class=\"{}\" d=\"{d}\"/>", class(incident))?;
            }
        }
        Ok(())
    }

    fn axis(&self, svg: &mut String) -> std::fmt::Result {
        let seconds = (self.end - self.begin).div_ceil(1_000_000);
        let step =
            [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800].into_iter().find(|step| seconds / step <= 12).unwrap_or(3600);
        for second in (0..=seconds).step_by(usize::try_from(step).unwrap_or(1)) {
            let x = self.x(self.begin + second * 1_000_000);
            writeln!(
                svg,
                "<text class=\"m\" x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{second}</text>",
                self.bottom + 18
            )?;
        }
        let (x, y) = ((LABELS + WIDTH) / 2, self.bottom + 36);
        writeln!(svg, "<text class=\"m\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">seconds</text>")
    }
}

fn class(incident: Incident) -> &'static str {
    match incident {
        Incident::WrongSource => "wrong-source",
        other => other.as_str(),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
