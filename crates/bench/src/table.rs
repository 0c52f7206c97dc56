//! Figures as a text table.

use std::fmt::Write as _;

use crate::Figure;

/// The figures as an aligned table, one line each, ending with a newline.
pub fn table(figures: &[Figure]) -> String {
    let mut rows = vec![["figure", "value", "unit", "goal", ""].map(str::to_owned)];
    for figure in figures {
        let verdict = match (figure.ok(), figure.goal()) {
            (true, Some(_)) => "ok",
            (true, None) => "",
            (false, Some(_)) => "MISSED",
            (false, None) => "NO VALUE",
        };
        let goal = figure.goal().map_or_else(String::new, |goal| goal.to_string());
        rows.push([
            figure.name().to_owned(),
            number(figure.value()),
            figure.unit().to_owned(),
            goal,
            verdict.to_owned(),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 4] = std::array::from_fn(width);
    let mut text = String::new();
    for [name, value, unit, goal, verdict] in &rows {
        let [w0, w1, w2, w3] = widths;
        let line = format!("{name:w0$}  {value:>w1$}  {unit:w2$}  {goal:w3$}  {verdict}");
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// About four significant digits; integers are shown in full.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size == 0.0 || size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        size if size >= 1.0 => 3,
        size if size >= 0.001 => 5,
        _ => return format!("{value:.3e}"),
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Goal;

    #[test]
    fn columns_line_up_and_missed_goals_stand_out() {
        let figures = [
            Figure::new("rows", 5830.4, "rows/s").with_goal(Goal::AtLeast(5000.0)),
            Figure::new("overhead of the client", 1.25, "×").with_goal(Goal::AtMost(1.1)),
            Figure::new("memory", 12.5, "MiB"),
        ];
        assert_eq!(
            table(&figures),
            "\
figure                  value  unit    goal
rows                     5830  rows/s  >= 5000  ok
overhead of the client  1.250  ×       <= 1.1   MISSED
memory                  12.50  MiB
"
        );
    }

    #[test]
    fn numbers_keep_about_four_digits() {
        let written: Vec<String> = [0.0, 12345.6, 0.01234, 0.000012, 99.999].map(number).to_vec();
        assert_eq!(written, ["0", "12346", "0.01234", "1.200e-5", "100.00"]);
        assert_eq!(number(f64::NAN), "NaN");
    }
}
