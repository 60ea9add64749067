//! The table on the terminal.

use super::rows::{NO_VALUE, rows};
use super::{Ratios, Report};
use crate::stats::{Quantile, Spread};

/// The whole comparison as text, a line for each figure, ending with a line break.
pub fn table(report: &Report) -> String {
    let summaries = report.summaries();
    let ratios = report.ratios();
    let mut lines = vec![header(report, &ratios)];
    for row in rows(&summaries) {
        let mut line = vec![row.label.to_owned()];
        line.extend(row.cells);
        let spread_of = |ratios: &Ratios| row.quantile.map(|q| spread(ratios, q));
        line.extend(ratios.iter().map(|ratios| spread_of(ratios).unwrap_or_default()));
        lines.push(line);
    }
    lay_out(&lines)
}

/// What a sweep shows of each policy: as much as fits a line.
const SWEPT: [&str; 7] =
    ["p50", "p90", "p99", "p99.9", "executions/call", "hedge rate", "both started"];

/// A sweep of many policies as text, a line for each, ending with a line break.
pub fn sweep_table(report: &Report) -> String {
    let all = rows(&report.summaries());
    let shown: Vec<_> =
        SWEPT.iter().filter_map(|label| all.iter().find(|row| row.label == *label)).collect();
    let mut lines = vec![vec![String::new()]];
    lines[0].extend(shown.iter().map(|row| row.label.to_owned()));
    for (place, rounds) in report.policies.iter().enumerate() {
        let mut line = vec![rounds.policy.clone()];
        line.extend(shown.iter().map(|row| row.cells[place].clone()));
        lines.push(line);
    }
    lay_out(&lines)
}

fn header(report: &Report, ratios: &[Ratios]) -> Vec<String> {
    let mut header = vec![String::new()];
    header.extend(report.policies.iter().map(|rounds| rounds.policy.clone()));
    header.extend(ratios.iter().map(|ratios| report.ratio_heading(ratios)));
    header
}

/// `0.31 (0.28-0.35)`: the median over the rounds, and the ends.
fn spread(ratios: &Ratios, quantile: Quantile) -> String {
    let found = ratios.spreads.iter().find(|(q, _)| *q == quantile).and_then(|(_, s)| *s);
    found.map_or_else(|| NO_VALUE.into(), |s| show_spread(&s))
}

/// A spread for readers.
pub(super) fn show_spread(spread: &Spread) -> String {
    format!("{:.2} ({:.2}-{:.2})", spread.median, spread.min, spread.max)
}

/// Lines of cells as text, a line each. Pads columns: the first to the right of its text, all
/// others to the left.
pub fn lay_out(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") }
        });
        text.push_str(cells.collect::<String>().trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_table_has_a_line_for_each_figure_and_fits_a_terminal() {
        let text = table(&sample::report());
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        for label in ["p50", "p99.9", "in deadline /s", "executions/call", "both started"] {
            assert!(text.lines().any(|line| line.starts_with(label)), "{label} in {text}");
        }
        let header = text.lines().next().expect("a header");
        assert!(header.contains("tied / none"), "{header}");
    }

    #[test]
    fn a_sweep_has_a_line_for_each_policy_and_fits_a_terminal() {
        let text = sweep_table(&sample::simulation());
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0][..5], ["p50", "p90", "p99", "p99.9", "executions/call"]);
        assert_eq!([lines[1][0], lines[2][0], lines[3][0]], ["none", "hedged", "tied"]);
        assert_eq!(lines[1][7], "-", "{text}");
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn a_percentile_without_enough_samples_is_a_dash() {
        let text = table(&sample::report());
        let line = text.lines().find(|line| line.starts_with("p99.9")).expect("a line");
        assert_eq!(line.split_whitespace().skip(1).collect::<Vec<_>>(), ["-"; 5]);
    }

    #[test]
    fn ratios_of_a_run_in_which_a_replica_failed_are_void() {
        let failed = Report { failures: vec!["replica 1 died.".into()], ..sample::report() };
        let text = table(&failed);
        let header = text.lines().next().expect("a header");
        assert!(header.contains("hedged / none VOID  tied / none VOID"), "{header}");
        assert_eq!(failed.warnings(), ["FAILED: replica 1 died."]);
    }

    #[test]
    fn ratios_stand_beside_percentiles_with_their_spread() {
        let text = table(&sample::report());
        let line = text.lines().find(|line| line.starts_with("p99 ")).expect("a line");
        assert!(line.contains('(') && line.contains('-'), "{line}");
        let line = text.lines().find(|line| line.starts_with("errors")).expect("a line");
        assert!(!line.contains('('), "{line}");
    }
}
