//! A page of numbers in the OpenMetrics text format, read.

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

/// Why a page can't be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PageError {
    /// A line that is no sample.
    #[error("line {line} is no sample: {text:?}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What it says, or how it begins.
        text: String,
    },
    /// The page ends in the middle.
    #[error("it has no end mark")]
    Unfinished,
}

/// So much memory a page may take, in bytes: many times what a server's does.
const MOST: usize = 16 << 20;
/// What a sample takes of that beside its text, at most.
const SAMPLE: usize = 128;

/// The samples of a page, as many as it may have.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    families: BTreeMap<Box<str>, Vec<Sample>>,
    /// The labels of all samples, as they were written.
    labels: String,
    left_out: usize,
}

/// A sample of a family: where its labels are, and its value.
#[derive(Clone, Debug)]
struct Sample {
    labels: Range<usize>,
    value: f64,
}

impl Page {
    /// Reads a page. What it has beyond 16 MiB is left out, and counted.
    pub(super) fn parse(text: &str) -> Result<Page, PageError> {
        Page::parse_within(text, MOST)
    }

    pub(super) fn parse_within(text: &str, most: usize) -> Result<Page, PageError> {
        let (mut page, mut taken) = (Page::default(), 0);
        for (number, line) in (1..).zip(text.lines()) {
            if line == "# EOF" {
                return Ok(page);
            }
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = || PageError::Line { line: number, text: line.chars().take(80).collect() };
            let (name, labels, value) = sample(line).ok_or_else(bad)?;
            taken += name.len() + labels.len() + SAMPLE;
            if taken > most {
                page.left_out += 1;
            } else {
                page.keep(name, labels, value);
            }
        }
        Err(PageError::Unfinished)
    }

    fn keep(&mut self, name: &str, labels: &str, value: f64) {
        let from = self.labels.len();
        self.labels.push_str(labels);
        let sample = Sample { labels: from..self.labels.len(), value };
        match self.families.get_mut(name) {
            Some(family) => family.push(sample),
            None => _ = self.families.insert(name.into(), vec![sample]),
        }
    }

    /// How many samples were left out.
    pub(super) fn left_out(&self) -> usize {
        self.left_out
    }

    /// The sum of a family's samples that have all these labels.
    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let of = self.of(name).filter(|sample| {
            labels.iter().all(|(label, value)| self.value_of(sample, label) == Some(value))
        });
        // What adds up to nothing is not less than that.
        of.map(|sample| sample.value).sum::<f64>() + 0.0
    }

    /// Whether there is such a family.
    pub(super) fn has(&self, name: &str) -> bool {
        self.families.contains_key(name)
    }

    /// The values that a label has in a family, as they were written, in order.
    pub(super) fn values_of(&self, name: &str, label: &str) -> BTreeSet<&str> {
        self.of(name).filter_map(|sample| self.value_of(sample, label)).collect()
    }

    /// Whether this may be a later page of the process that told `before`: no counter went down.
    pub(super) fn continues(&self, before: &Page) -> bool {
        let mut counters = before.families.keys().filter(|name| name.ends_with("_total"));
        counters.all(|name| self.sum(name, &[]) >= before.sum(name, &[]))
    }

    /// The value of a label that all samples have.
    pub(super) fn common(&self, label: &str) -> &str {
        let first = self.families.values().flatten().next();
        first.and_then(|sample| self.value_of(sample, label)).unwrap_or_default()
    }

    /// A histogram's buckets for a method: upper bounds, and how many were not above them.
    pub(super) fn buckets(&self, name: &str, method: &str) -> Vec<(f64, f64)> {
        let of = self.of(name).filter(|sample| self.value_of(sample, "method") == Some(method));
        let bucket = |sample: &Sample| {
            let bound = self.value_of(sample, "le")?;
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
            Some((bound, sample.value))
        };
        of.filter_map(bucket).collect()
    }

    fn of(&self, name: &str) -> impl Iterator<Item = &Sample> {
        self.families.get(name).into_iter().flatten()
    }

    /// The value of a label, as it was written.
    fn value_of(&self, sample: &Sample, wanted: &str) -> Option<&str> {
        let mut rest = &self.labels[sample.labels.clone()];
        while !rest.is_empty() {
            let (name, value, after) = label(rest)?;
            if name == wanted {
                return Some(value);
            }
            rest = after;
        }
        None
    }
}

/// What was written as a label's value, for readers: no letter of it may speak to their terminal.
pub(super) fn shown(written: &str) -> String {
    let mut letters = written.chars();
    let mut value = String::new();
    while let Some(letter) = letters.next() {
        value.extend(match letter {
            '\\' => letters.next().map(|letter| if letter == 'n' { '\n' } else { letter }),
            letter => Some(letter),
        });
    }
    value.escape_debug().to_string()
}

/// `name{label="value",...} number`, of which the braces may be missing, in its three parts.
fn sample(line: &str) -> Option<(&str, &str, f64)> {
    let (name, mut rest) = line.split_at(line.find(['{', ' '])?);
    let mut labels = "";
    if let Some(inner) = rest.strip_prefix('{') {
        let mut left = inner;
        while !left.starts_with('}') {
            (_, _, left) = label(left)?;
        }
        (labels, rest) = (&inner[..inner.len() - left.len()], &left[1..]);
    }
    let value = rest.strip_prefix(' ')?.split(' ').next()?.parse().ok()?;
    Some((name, labels, value))
}

/// The first of some labels: its name, its value as it is written, and what follows.
fn label(text: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = text.split_once("=\"")?;
    let mut is_escaped = false;
    let ends = |letter: char| {
        let ends = letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        ends
    };
    let (value, rest) = rest.split_at(rest.find(ends)?);
    let rest = &rest[1..];
    Some((name, value, rest.strip_prefix(',').unwrap_or(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a_total A.\n# TYPE a_total counter\na_total{x=\"1\",y=\"u\\\"v\"} 3\n\
                        a_total{x=\"2\"} 4\nb 0.5\n\
                        t_bucket{le=\"0.1\",method=\"m\"} 1\nt_bucket{le=\"+Inf\",method=\"m\"} 2\n\
                        # EOF\n";

    #[test]
    fn samples_are_found_by_name_and_labels() {
        let page = Page::parse(TEXT).unwrap();
        assert_eq!(page.sum("a_total", &[]), 7.0);
        assert_eq!(page.sum("a_total", &[("x", "2")]), 4.0);
        assert_eq!(page.sum("b", &[]), 0.5);
        assert_eq!(page.values_of("a_total", "y").into_iter().collect::<Vec<_>>(), ["u\\\"v"]);
        assert_eq!(shown("u\\\"v"), "u\\\"v");
        assert_eq!(page.buckets("t_bucket", "m"), [(0.1, 1.0), (f64::INFINITY, 2.0)]);
    }

    #[test]
    fn no_name_of_a_page_speaks_to_the_terminal_that_shows_it() {
        let text = "a{method=\"\u{1b}[2J\u{202e}\\nx\"} 1\n# EOF\n";
        let page = Page::parse(text).unwrap();
        let names: Vec<_> = page.values_of("a", "method").into_iter().map(shown).collect();
        assert_eq!(names, ["\\u{1b}[2J\\u{202e}\\nx"]);
        assert!(names[0].chars().all(|letter| letter.is_ascii_graphic()), "{names:?}");
    }

    #[test]
    fn what_is_no_page_is_named_and_nothing_panics() {
        for (text, line) in
            [("a", 1), ("a{", 1), ("a{x=\"", 1), ("a{x=\"\\", 1), ("\na{} z", 2), ("a{x=\"1\"", 1)]
        {
            let error = Page::parse(text).unwrap_err();
            assert!(
                matches!(error, PageError::Line { line: at, .. } if at == line),
                "{text}: {error}"
            );
        }
        assert_eq!(Page::parse("a 1\n").unwrap_err(), PageError::Unfinished);
    }

    #[test]
    fn a_page_may_be_cut_anywhere() {
        for cut in 0..TEXT.len() {
            let _ = Page::parse(&TEXT[..cut]);
        }
    }

    #[test]
    fn of_a_page_without_bounds_what_may_be_kept_is_and_the_rest_is_counted() {
        let rows = |n: usize| (0..n).map(|n| format!("a_total{{x=\"{n:05}\"}} 1\n"));
        let text = rows(1000).chain(["# EOF\n".into()]).collect::<String>();
        let row = "a_total".len() + "x=\"00000\"".len() + SAMPLE;
        let page = Page::parse_within(&text, 10 * row).unwrap();
        assert_eq!((page.sum("a_total", &[]), page.left_out()), (10.0, 990));
        assert_eq!(Page::parse(&text).unwrap().left_out(), 0);
        // All of it is still read: a page that is cut off is none, however large.
        let cut = rows(1000).collect::<String>();
        assert_eq!(Page::parse_within(&cut, 10 * row).unwrap_err(), PageError::Unfinished);
    }
}
