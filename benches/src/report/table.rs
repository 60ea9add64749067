//! The table on the terminal.

use core::ops::Range;

use super::rows::{NO_VALUE, rows};
use super::{Ratios, Report};
use crate::stats::{Quantile, Spread};
use crate::text::WIDTH;

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

/// What a sweep shows of each policy: as much as fits a line, by shorter names.
const SWEPT: [(&str, &str); 7] = [
    ("p50", "p50"),
    ("p90", "p90"),
    ("p99", "p99"),
    ("p99.9", "p99.9"),
    ("executions/call", "runs/call"),
    ("hedge rate", "hedged"),
    ("both started", "both ran"),
];

/// A sweep of many policies as text, a line for each, ending with a line break.
pub fn sweep_table(report: &Report) -> String {
    let all = rows(&report.summaries());
    let find = |label: &str| all.iter().find(|row| row.label == label);
    let shown: Vec<_> =
        SWEPT.iter().filter_map(|(label, name)| Some((name, find(label)?))).collect();
    let mut lines = vec![vec![String::new()]];
    lines[0].extend(shown.iter().map(|(name, _)| (*name).to_string()));
    for (place, rounds) in report.policies.iter().enumerate() {
        let mut line = vec![rounds.policy.clone()];
        line.extend(shown.iter().map(|(_, row)| row.cells[place].clone()));
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

/// A policy's ratio at a percentile, for readers.
fn spread(ratios: &Ratios, quantile: Quantile) -> String {
    let found = ratios.spreads.iter().find(|(q, _)| *q == quantile).and_then(|(_, s)| *s);
    found.map_or_else(|| NO_VALUE.into(), |s| show_spread(&s))
}

/// `0.31 (0.28-0.35)`: the median over the rounds, and the ends; ` 3/5` behind it where no more
/// rounds than that have a say.
pub(super) fn show_spread(spread: &Spread) -> String {
    let Spread { median, min, max, rounds, of } = spread;
    let some = if spread.is_of_all() { String::new() } else { format!(" {rounds}/{of}") };
    format!("{median:.2} ({min:.2}-{max:.2}){some}")
}

/// Lines of cells as text, a line each. Pads columns: the first to the right of its text, all
/// others to the left. What is wider than a terminal goes on beneath, each part with the first
/// column again; there, lines without anything but that are left out.
pub fn lay_out(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    let mut next = 1;
    loop {
        let first = next;
        let mut room = WIDTH.saturating_sub(widths.first().copied().unwrap_or(0));
        // However wide: one column at least.
        while next < columns && (next == first || widths[next] + 2 <= room) {
            room = room.saturating_sub(widths[next] + 2);
            next += 1;
        }
        part(&mut text, lines, &widths, first..next);
        if next >= columns {
            return text;
        }
        text.push('\n');
    }
}

/// The first column, and these.
fn part(text: &mut String, lines: &[Vec<String>], widths: &[usize], columns: Range<usize>) {
    for line in lines {
        let cells = || columns.clone().map(|column| line.get(column).map_or("", String::as_str));
        if columns.start > 1 && cells().all(str::is_empty) {
            continue;
        }
        let (name, width) = (line.first().map_or("", String::as_str), widths.first().unwrap_or(&0));
        let mut row = format!("{name:<width$}");
        for (cell, width) in cells().zip(&widths[columns.clone()]) {
            row += &format!("  {cell:>width$}");
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_table_has_a_line_for_each_figure_and_fits_a_terminal() {
        let text = table(&sample::report());
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        for label in ["p50", "p99.9", "in deadline /s", "executions/call", "both started"] {
            assert!(text.lines().any(|line| line.starts_with(label)), "{label} in {text}");
        }
        let header = text.lines().next().expect("a header");
        assert!(header.contains("tied / none"), "{header}");
    }

    #[test]
    fn a_sweep_has_a_line_for_each_policy_and_fits_a_terminal() {
        let text = sweep_table(&sample::simulation());
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0][..5], ["p50", "p90", "p99", "p99.9", "runs/call"]);
        assert_eq!([lines[1][0], lines[2][0], lines[3][0]], ["none", "hedged", "tied"]);
        assert_eq!(lines[1][7], "-", "{text}");
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn what_is_wider_than_a_terminal_goes_on_beneath_with_its_names() {
        let mut report = sample::report();
        for copy in ["tied-hedged", "hedged-late"] {
            let mut rounds = report.policies[1].clone();
            rounds.policy = copy.into();
            report.policies.push(rounds);
        }
        let text = table(&report);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let headers: Vec<&str> = text.lines().filter(|line| line.starts_with("     ")).collect();
        assert!(headers.len() > 1, "{text}");
        for name in ["hedged-late / none", "tied / none"] {
            assert!(headers.iter().any(|header| header.contains(name)), "{name}: {text}");
        }
        let rows = |label: &str| text.lines().filter(|line| line.starts_with(label)).count();
        assert_eq!(rows("p50"), headers.len(), "{text}");
        assert_eq!(rows("calls"), 1, "ratios are of percentiles: {text}");
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
        assert!(text.contains("hedged / none VOID") && text.contains("tied / none VOID"), "{text}");
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

    #[test]
    fn a_ratio_of_some_of_the_rounds_says_of_how_many() {
        let mut report = sample::report();
        assert!(!table(&report).contains("/3"), "all three have a say");
        sample::make_rounds_late(&mut report, "tied", 1);
        let text = table(&report);
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("p99 ")).collect();
        assert!(lines[0].ends_with(')'), "of all: {text}");
        assert!(lines[1].ends_with(") 2/3"), "{text}");
        let told = report.on_ratios().expect("several rounds");
        assert!(told.contains("2/3"), "{told}");
    }
}
