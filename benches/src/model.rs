//! Models of how long a replica serves a request: named on the command line, or read from what was
//! measured.

mod histogram;
mod records;
mod spec;

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use bowline_tests::kernel::empirical::Empirical;
use bowline_tests::kernel::span::Span;
use bowline_tests::kernel::trace::Trace;
use thiserror::Error;

pub use spec::{ModelSpec, parse_model, parse_span, show_span};

/// Why a model cannot be had from a file.
#[derive(Debug, Error)]
pub enum ModelError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}; give the path of a file behind hdr: or trace:")]
    Read {
        /// Which.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A line is wrong.
    #[error("{path}:{line}: {what}")]
    Line {
        /// Of which file.
        path: PathBuf,
        /// Which, from 1.
        line: usize,
        /// How, and what is right.
        what: String,
    },
    /// The file as a whole is wrong.
    #[error("{path}: {what}")]
    Whole {
        /// Which.
        path: PathBuf,
        /// How, and what is right.
        what: String,
    },
}

impl ModelError {
    fn line(path: &Path, line: usize, what: impl Display) -> Self {
        ModelError::Line { path: path.to_owned(), line, what: what.to_string() }
    }

    fn whole(path: &Path, what: impl Display) -> Self {
        ModelError::Whole { path: path.to_owned(), what: what.to_string() }
    }
}

/// A model that is ready to be drawn from.
#[derive(Clone, Debug)]
pub enum Model {
    /// Every request draws from one distribution.
    Span(Span),
    /// Every request takes what one took at its replica at that time.
    Trace(Trace),
}

impl Model {
    /// Mean service time, in nanoseconds.
    pub fn mean(&self) -> f64 {
        match self {
            Model::Span(span) => span.mean(),
            Model::Trace(trace) => trace.mean(),
        }
    }

    /// The distribution that is left when nobody asks what happened together.
    pub fn marginal(&self) -> Option<Span> {
        match self {
            Model::Span(span) => Some(span.clone()),
            Model::Trace(trace) => trace.all().map(Span::Empirical),
        }
    }
}

impl ModelSpec {
    /// The model; files are read now.
    ///
    /// # Errors
    /// [`ModelError`], which names the file, the line where there is one, and the cure.
    pub fn load(&self) -> Result<Model, ModelError> {
        match self {
            ModelSpec::Known(span) => Ok(Model::Span(span.clone())),
            ModelSpec::Histogram { path, tag, unit } => {
                histogram::read(path, tag.as_deref(), *unit)
                    .map(|values: Empirical| Model::Span(Span::Empirical(values)))
            }
            ModelSpec::Trace { path, window } => records::read(path, *window).map(Model::Trace),
        }
    }
}

/// Hands every line of a file that is not empty to `each`, with its number.
fn lines(
    path: &Path,
    mut each: impl FnMut(usize, &str) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    let refused = |source| ModelError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(refused)?;
    for (index, line) in BufReader::new(file).lines().enumerate() {
        let line = line.map_err(|error| match error.kind() {
            ErrorKind::InvalidData => ModelError::line(path, index + 1, "is not text in UTF-8"),
            _ => refused(error),
        })?;
        // Spreadsheets begin a file with a mark of its encoding.
        let line = if index == 0 { line.trim_start_matches('\u{feff}') } else { &line };
        if !line.trim().is_empty() {
            each(index + 1, line.trim())?;
        }
    }
    Ok(())
}
