//! The report as a table: a line for each path, with control and fault.

use console::table::{self, Cell, Tone};

use super::report::{Counts, Incident, PathReport, Report};
use super::rounds::WindowKind;

impl Report {
    /// The table, and below it the summary.
    pub fn table(&self, colour: bool) -> String {
        let mut rows: Vec<[Cell; 9]> = self.paths.iter().map(row).collect();
        let [control, fault] = self.total();
        let mut sum = [Cell::plain("all paths"), Cell::plain(""), Cell::plain(pair(control.sent, fault.sent))].to_vec();
        sum.extend(Incident::ALL.map(|incident| Cell::plain(pair(control.of(incident), fault.of(incident)))));
        sum.push(Cell::plain(slowest(&control, &fault)));
        rows.extend(<[Cell; 9]>::try_from(sum));
        let headings =
            ["PATH", "PROTOCOL", "SENT", "LOST", "RESET", "LATE", "DUPLICATED", "WRONG SOURCE", "SLOWEST ms"];
        let mut text = table::render(headings, rows, colour);
        text.push_str(&format!("\n{}\n", self.summary()));
        text
    }

    /// What was worse than the control, one line each.
    pub fn summary(&self) -> String {
        let [control, second] = [WindowKind::Control, WindowKind::Fault].map(|kind| self.seconds(kind));
        let windows = if self.has_fault {
            format!("each figure is control/fault; {control:.0} s of control, {second:.0} s with the fault")
        } else {
            format!("each figure is first/second control; {control:.0} s and {second:.0} s")
        };
        let mut text = format!("{}: {windows}, {} packets per second\n", self.title, self.rate);
        let again: Vec<String> =
            self.retransmitted.iter().map(|(name, [control, fault])| format!("{name} {control}/{fault}")).collect();
        if !again.is_empty() {
            text.push_str(&format!("TCP segments retransmitted: {}\n", again.join(", ")));
        }
        for path in &self.unrecovered {
            text.push_str(&format!("no answers for a minute after the fault: {path}\n"));
        }
        for path in &self.unusable {
            text.push_str(&format!("nothing can be concluded: {path}\n"));
        }
        for path in &self.paths {
            for incident in Incident::ALL.into_iter().filter(|incident| path.excess(*incident) > 0) {
                let (control, fault) = (path.control.of(incident), path.fault.of(incident));
                let shared = fault - path.unshared(incident, WindowKind::Fault);
                let shared = if shared > 0 && !path.reference {
                    format!(" ({shared} while host → host stalled, too)")
                } else {
                    String::new()
                };
                let judged = if path.reference { " (ignored: this path bypasses OVN)" } else { "" };
                text.push_str(&format!(
                    "more than the control{judged}: {}: {fault} {}, control {control}, of {}{shared}\n",
                    path.name(),
                    incident.as_str(),
                    path.fault.sent
                ));
            }
        }
        if self.ok {
            text.push_str("not more than the control on any path\n");
        }
        text
    }
}

fn pair(control: u64, fault: u64) -> String {
    format!("{control}/{fault}")
}

fn slowest(control: &Counts, fault: &Counts) -> String {
    pair(control.slowest_us.div_ceil(1000), fault.slowest_us.div_ceil(1000))
}

fn row(path: &PathReport) -> [Cell; 9] {
    let cell = |incident: Incident| {
        let (control, fault) = (path.control.of(incident), path.fault.of(incident));
        let text = pair(control, fault);
        match (control, fault) {
            (0, 0) => Cell::plain(text),
            _ if fault > control && !path.reference => Cell::new(text, Tone::Bad),
            _ => Cell::new(text, Tone::Good),
        }
    };
    let [lost, reset, late, duplicated, wrong] = Incident::ALL.map(cell);
    [
        Cell::plain(&path.route),
        Cell::plain(path.protocol.as_str()),
        Cell::plain(pair(path.control.sent, path.fault.sent)),
        lost,
        reset,
        late,
        duplicated,
        wrong,
        Cell::plain(slowest(&path.control, &path.fault)),
    ]
}
