//! The folder that a report is written to.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::hlog::{self, EncodeError};
use super::{Report, html, json};

/// A folder that was found writable.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

/// Why a report cannot be written.
#[derive(Debug, Error)]
pub enum ReportError {
    /// The folder or a file in it cannot be made.
    #[error("cannot write {path}: {source}; give a writable folder with --out DIR")]
    NotWritable {
        /// What could not be written.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A histogram cannot be encoded.
    #[error(transparent)]
    Histogram(#[from] EncodeError),
    /// The results cannot be encoded.
    #[error("cannot encode results.json: {0}")]
    Json(#[from] serde_json::Error),
}

impl Folder {
    /// Makes the folder if need be and tries to write in it: better told before a run than after.
    ///
    /// # Errors
    /// [`ReportError::NotWritable`].
    pub fn open(path: &Path) -> Result<Folder, ReportError> {
        let refused = |source| ReportError::NotWritable { path: path.to_owned(), source };
        fs::create_dir_all(path).map_err(refused)?;
        let probe = path.join(format!(".probe-{}", std::process::id()));
        fs::write(&probe, "").and_then(|()| fs::remove_file(&probe)).map_err(refused)?;
        Ok(Folder { path: path.to_owned() })
    }

    /// Writes `report.html`, `results.json` and `latency.hlog`, in place of those of an earlier
    /// run.
    ///
    /// # Errors
    /// [`ReportError`].
    pub fn write(&self, report: &Report) -> Result<(), ReportError> {
        self.put("results.json", json::json(report)?.as_bytes())?;
        self.put("latency.hlog", &hlog::log(report)?)?;
        self.put("report.html", html::html(report).as_bytes())
    }

    /// The path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), ReportError> {
        let path = self.file(name);
        fs::write(&path, bytes).map_err(|source| ReportError::NotWritable { path, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_report_is_three_files() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let folder = Folder::open(&parent.path().join("a/b")).expect("writable");
        folder.write(&sample::report()).expect("writable");
        for name in ["report.html", "results.json", "latency.hlog"] {
            assert!(fs::metadata(folder.file(name)).expect("written").len() > 500, "{name}");
        }
        let names = fs::read_dir(parent.path().join("a/b")).expect("readable").count();
        assert_eq!(names, 3, "the probe is gone");
    }

    #[test]
    fn an_unwritable_folder_is_named_with_the_cure() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let blocked = parent.path().join("blocked");
        fs::write(&blocked, "").expect("writable");
        let message = Folder::open(&blocked).expect_err("a file").to_string();
        assert!(message.contains("blocked") && message.contains("--out DIR"), "{message}");
    }
}
