//! Service times from a CSV file of single requests: when, at which replica, how long.
//!
//! The first line names the columns; `at_UNIT`, `replica` and `took_UNIT` have to be there (units
//! ns, us, ms, s), in any order, others are passed over. A line is one request: the moment it was
//! started (on one clock for all replicas; only differences count), the replica (numbered from 0
//! without gaps), and the time it was served. Lines may stand in any order; those that begin with
//! `#` are comments.

use core::time::Duration;
use std::path::Path;

use bowline_tests::kernel::span::Nanos;
use bowline_tests::kernel::trace::{NoTrace, Seen, Trace};

use super::spec::unit_of;
use super::{ModelError, lines};

/// What a file has to begin with, for an error's cure.
const HEADER: &str = "the first line names the columns, for example at_us,replica,took_us";
/// More replicas are a mistake in the column.
const REPLICAS: u32 = 1000;
/// Years in nanoseconds: a time beyond is a mistake in the unit.
const LATEST: f64 = 4e18;

/// Where the three columns are, and what their units are in nanoseconds.
struct Columns {
    at: (usize, u64),
    replica: usize,
    took: (usize, u64),
}

/// Reads a trace.
pub(super) fn read(path: &Path, window: Duration) -> Result<Trace, ModelError> {
    let mut columns = None;
    let mut seen = Vec::new();
    lines(path, |number, line| {
        if line.starts_with('#') {
            return Ok(());
        }
        let wrong = |what| ModelError::line(path, number, what);
        match &columns {
            None => columns = Some(Columns::of(line).map_err(wrong)?),
            Some(columns) => seen.push(columns.row(line).map_err(wrong)?),
        }
        Ok(())
    })?;
    if seen.is_empty() {
        return Err(ModelError::whole(path, format!("has no request; {HEADER}")));
    }
    let first = seen.iter().map(|seen: &Seen| seen.at).min().unwrap_or(0);
    seen.iter_mut().for_each(|seen| seen.at -= first);
    let nanos = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
    Trace::of(seen, nanos).map_err(|error| ModelError::whole(path, refused(error)))
}

fn refused(error: NoTrace) -> String {
    match error {
        NoTrace::Unseen(replica) => {
            format!(
                "has no request at replica {replica}; replicas are numbered from 0, without gaps"
            )
        }
        NoTrace::TooLong(most) => format!(
            "has more than {most} windows or requests; write a longer ,window=TIME or cut the file"
        ),
    }
}

impl Columns {
    fn of(line: &str) -> Result<Columns, String> {
        let names: Vec<&str> = line.split(',').map(bare).collect();
        let timed = |stem: &str| {
            let mut found = names.iter().enumerate().filter_map(|(place, name)| {
                Some((place, unit_of(name.strip_prefix(stem)?.strip_prefix('_')?)?))
            });
            found.next().ok_or_else(|| format!("there is no column {stem}_us; {HEADER}"))
        };
        let replica = names.iter().position(|name| *name == "replica");
        Ok(Columns {
            at: timed("at")?,
            replica: replica.ok_or_else(|| format!("there is no column replica; {HEADER}"))?,
            took: timed("took")?,
        })
    }

    fn row(&self, line: &str) -> Result<Seen, String> {
        let cells: Vec<&str> = line.split(',').map(bare).collect();
        let cell = |place: usize| {
            let needed = place + 1;
            cells
                .get(place)
                .copied()
                .ok_or_else(|| format!("has {} columns, and needs at least {needed}", cells.len()))
        };
        let time = |(place, unit): (usize, u64)| -> Result<Nanos, String> {
            let text = cell(place)?;
            let nanos = text.parse::<f64>().ok().map(|number| number * unit as f64);
            let held = nanos.filter(|nanos| (0.0..LATEST).contains(nanos));
            held.map(|nanos| nanos.round() as Nanos).ok_or_else(|| {
                format!("{text:?} is no time: a number, not negative, without a unit")
            })
        };
        let replica = cell(self.replica)?;
        let number = replica.parse::<u32>().ok().filter(|number| *number < REPLICAS);
        let number = number.ok_or_else(|| {
            format!("{replica:?} is no number of a replica: from 0, below {REPLICAS}")
        })?;
        Ok(Seen { at: time(self.at)?, replica: number as usize, took: time(self.took)? })
    }
}

/// What a cell holds, which may be quoted.
fn bare(cell: &str) -> &str {
    let cell = cell.trim();
    let inner = cell.strip_prefix('"').and_then(|cell| cell.strip_suffix('"'));
    inner.map_or(cell, str::trim)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::model::{Model, ModelSpec, parse_model};

    fn load(text: &str, spec: &str) -> Result<Model, String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("reads.csv");
        fs::write(&path, text).expect("writable");
        let spec = parse_model(&format!("trace:{}{spec}", path.display())).expect("a spec");
        assert!(matches!(spec, ModelSpec::Trace { .. }));
        spec.load().map_err(|error| error.to_string())
    }

    #[test]
    fn columns_are_found_by_name_and_unit() {
        let text = "# measured\nreplica, who, took_us, at_s\n0,x,1500,1000.25\n1,y,2.5,1000.26\n";
        let Ok(Model::Trace(trace)) = load(text, ",window=1ms") else { panic!("a trace") };
        assert_eq!((trace.replicas(), trace.lasts()), (2, 11_000_000));
        let mut rng = bowline_tests::kernel::rng::Rng::new(1);
        assert_eq!(trace.draw(0, 0, &mut rng), 1_500_000);
        assert_eq!(trace.draw(1, 10_500_000, &mut rng), 2_500);
    }

    #[test]
    fn a_spreadsheets_mark_and_quotes_are_passed_over() {
        let text = "\u{feff}\"at_us\",\"replica\",\"took_us\"\r\n\"1\",\"0\",\"5\"\r\n2,1,5\r\n";
        let Ok(Model::Trace(trace)) = load(text, "") else { panic!("a trace") };
        assert_eq!(trace.replicas(), 2);
    }

    #[test]
    fn what_is_wrong_is_told_with_the_line_and_the_cure() {
        let header = "at_us,replica,took_us\n";
        for (text, line, told) in [
            ("", "", "no request; the first line names"),
            (header, "", "no request"),
            ("at_us,took_us\n1,1\n", ":1:", "no column replica; the first line names"),
            ("at,replica,took_us\n", ":1:", "no column at_us"),
            (&format!("{header}1,0\n"), ":2:", "has 2 columns"),
            (&format!("{header}1,0,5\n\n1,0,5ms\n"), ":4:", "\"5ms\" is no time"),
            (&format!("{header}-1,0,5\n"), ":2:", "\"-1\" is no time"),
            (&format!("{header}nan,0,5\n"), ":2:", "\"nan\" is no time"),
            (&format!("{header}1,first,5\n"), ":2:", "\"first\" is no number of a replica"),
            (&format!("{header}1,0,5\n1,2,5\n"), "", "no request at replica 1"),
            (&format!("{header}1,0,5\n9000000000,0,5\n"), "", "longer ,window=TIME"),
        ] {
            let window = if told.contains("window") { ",window=1us" } else { "" };
            let said = load(text, window).expect_err(text);
            assert!(said.contains(told) && said.contains("reads.csv"), "{text:?}: {said}");
            assert!(said.contains(&format!("reads.csv{line}")), "{text:?}: {said}");
        }
        let missing = parse_model("trace:/nowhere/reads.csv").expect("a spec").load();
        let said = missing.expect_err("no file").to_string();
        assert!(said.contains("/nowhere/reads.csv") && said.contains("trace:"), "{said}");
    }
}
