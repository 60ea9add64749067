//! A page of numbers in the OpenMetrics text format, read.

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

#[derive(Clone, Debug, PartialEq)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// All samples of a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Page(Vec<Sample>);

impl Page {
    pub(super) fn parse(text: &str) -> Result<Page, PageError> {
        let mut samples = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            if line == "# EOF" {
                return Ok(Page(samples));
            }
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = || PageError::Line { line: number, text: line.chars().take(80).collect() };
            samples.push(sample(line).ok_or_else(bad)?);
        }
        Err(PageError::Unfinished)
    }

    /// The sum of a family's samples that have all these labels.
    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let of = self.of(name).filter(|sample| {
            labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|v| v == value))
        });
        of.map(|sample| sample.value).sum()
    }

    /// Whether there is such a family.
    pub(super) fn has(&self, name: &str) -> bool {
        self.of(name).next().is_some()
    }

    /// The values that a label has in a family, in order.
    pub(super) fn values_of(&self, name: &str, label: &str) -> BTreeSet<String> {
        self.of(name).filter_map(|sample| sample.labels.get(label).cloned()).collect()
    }

    /// Whether this may be a later page of the process that told `before`: no counter went down.
    pub(super) fn continues(&self, before: &Page) -> bool {
        let names: BTreeSet<&str> = before.0.iter().map(|sample| sample.name.as_str()).collect();
        let mut counters = names.into_iter().filter(|name| name.ends_with("_total"));
        counters.all(|name| self.sum(name, &[]) >= before.sum(name, &[]))
    }

    /// The value of a label that all samples have.
    pub(super) fn common(&self, label: &str) -> String {
        let first = self.0.first().and_then(|sample| sample.labels.get(label));
        first.cloned().unwrap_or_default()
    }

    /// A histogram's buckets for a method: upper bounds, and how many were not above them.
    pub(super) fn buckets(&self, name: &str, method: &str) -> Vec<(f64, f64)> {
        let of =
            self.of(name).filter(|sample| sample.labels.get("method").is_some_and(|m| m == method));
        let bucket = |sample: &Sample| {
            let bound = sample.labels.get("le")?;
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
            Some((bound, sample.value))
        };
        of.filter_map(bucket).collect()
    }

    fn of(&self, name: &str) -> impl Iterator<Item = &Sample> {
        self.0.iter().filter(move |sample| sample.name == name)
    }
}

/// `name{label="value",...} number`, of which the braces may be missing.
fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(mut inner) = rest.strip_prefix('{') {
        while !inner.starts_with('}') {
            let (key, after) = inner.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.insert(key.to_owned(), value);
            inner = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &inner[1..];
    }
    let value = rest.strip_prefix(' ')?.split(' ').next()?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// A value up to its closing quote, and what follows that.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            // What others wrote is shown: no letter of it may speak to a terminal.
            '"' => return Some((value.escape_debug().to_string(), &text[at + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            letter => value.push(letter),
        }
    }
    None
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
        assert_eq!(page.buckets("t_bucket", "m"), [(0.1, 1.0), (f64::INFINITY, 2.0)]);
    }

    #[test]
    fn no_name_of_a_page_speaks_to_the_terminal_that_shows_it() {
        let text = "a{method=\"\u{1b}[2J\u{202e}\\nx\"} 1\n# EOF\n";
        let names = Page::parse(text).unwrap().values_of("a", "method");
        let names: Vec<_> = names.into_iter().collect();
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
        assert_eq!(Page::parse("a 1\n"), Err(PageError::Unfinished));
    }

    #[test]
    fn a_page_may_be_cut_anywhere() {
        for cut in 0..TEXT.len() {
            let _ = Page::parse(&TEXT[..cut]);
        }
    }
}
