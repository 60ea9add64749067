//! The folder that a report is written to.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::chart::{self, PICTURE};
use super::hlog::{self, EncodeError};
use super::{Point, Report, html, json, loads};

/// A folder that was found writable.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

/// Why a report cannot be written.
#[derive(Debug, Error)]
pub enum ReportError {
    /// The folder or a file in it cannot be made.
    #[error("cannot write {path}: {source}; {}", cure(source))]
    NotWritable {
        /// What could not be written.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file that a report would replace is no report of ours.
    #[error(
        "{path} is there and is not a report of bowline; it stays as it is: move it away, or give \
         another folder with --out DIR"
    )]
    Foreign {
        /// What is in the way.
        path: PathBuf,
    },
    /// A histogram cannot be encoded.
    #[error(transparent)]
    Histogram(#[from] EncodeError),
    /// The results cannot be encoded.
    #[error("cannot encode results.json: {0}")]
    Json(#[from] serde_json::Error),
}

/// What helps against the system's answer.
fn cure(source: &io::Error) -> &'static str {
    match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "make room there, or name a folder of another file system with --out DIR"
        }
        _ => "give a writable folder with --out DIR",
    }
}

/// The files of a report, each with what its beginning has in it and no other file's is likely to;
/// results begin with the machine, or with that there is none.
const FILES: [(&str, &[&str]); 4] = [
    (
        "results.json",
        &["{\n  \"setup\": {\n    \"kernel\"", "{\n  \"setup\": {\n    \"simulated\""],
    ),
    ("latency.hlog", &["#Values are nanoseconds; the maximum on each line is in milliseconds."]),
    ("report.html", &["<title>Bowline: "]),
    ("latency.svg", &[PICTURE]),
];
/// Of several loads there is one picture, in the folder that has theirs.
const LOADS: (&str, &[&str]) = ("loads.svg", &[PICTURE]);

impl Folder {
    /// Makes the folder if need be and tries to write in it: better told before a run than after.
    ///
    /// # Errors
    /// [`ReportError::NotWritable`]; [`ReportError::Foreign`] if a file is in the way that only
    /// bears the name of a report's.
    pub fn open(path: &Path) -> Result<Folder, ReportError> {
        Folder::open_for(path, &FILES)
    }

    /// The same for the folder of several loads, in which each has one of its own.
    ///
    /// # Errors
    /// As for [`Folder::open`].
    pub fn open_for_loads(path: &Path) -> Result<Folder, ReportError> {
        Folder::open_for(path, &[LOADS])
    }

    fn open_for(path: &Path, files: &[(&str, &[&str])]) -> Result<Folder, ReportError> {
        let refused = |source| ReportError::NotWritable { path: path.to_owned(), source };
        fs::create_dir_all(path).map_err(refused)?;
        let folder = Folder { path: path.to_owned() };
        files.iter().try_for_each(|(name, marks)| folder.check(name, marks))?;
        let probe = path.join(format!(".probe-{}", std::process::id()));
        File::create_new(&probe).and_then(|_| fs::remove_file(&probe)).map_err(refused)?;
        Ok(folder)
    }

    /// Writes `report.html`, `results.json`, `latency.hlog` and, if a call was measured,
    /// `latency.svg`, in place of those of an earlier run.
    ///
    /// # Errors
    /// [`ReportError`].
    pub fn write(&self, report: &Report) -> Result<(), ReportError> {
        self.put("results.json", json::json(report)?.as_bytes())?;
        self.put("latency.hlog", &hlog::log(report)?)?;
        let picture = chart::picture(&report.summaries());
        picture.map(|svg| self.put("latency.svg", svg.as_bytes())).transpose()?;
        self.put("report.html", html::html(report).as_bytes())
    }

    /// Writes the picture of several loads, in place of an earlier one, and says where.
    ///
    /// # Errors
    /// [`ReportError`].
    pub fn write_loads(&self, points: &[Point]) -> Result<PathBuf, ReportError> {
        let picture = loads::picture(points);
        picture.map(|svg| self.put(LOADS.0, svg.as_bytes())).transpose()?;
        Ok(self.file(LOADS.0))
    }

    /// The path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes beside the place and renames: what stands there is replaced as a whole, or not at
    /// all, and never written through a link.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), ReportError> {
        let path = self.file(name);
        for (_, marks) in FILES.iter().chain([&LOADS]).filter(|(file, _)| *file == name) {
            self.check(name, marks)?; // it may have come since the run began
        }
        let partial = self.file(&format!(".{name}-{}", std::process::id()));
        let placed = File::create_new(&partial).and_then(|mut file| {
            let written = file.write_all(bytes).and_then(|()| fs::rename(&partial, &path));
            written.inspect_err(|_| drop(fs::remove_file(&partial)))
        });
        placed.map_err(|source| ReportError::NotWritable { path, source })
    }

    /// Refuses anything but nothing, or a regular file with a mark of this program.
    fn check(&self, name: &str, marks: &[&str]) -> Result<(), ReportError> {
        let path = self.file(name);
        let ours = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(source) => return Err(ReportError::NotWritable { path, source }),
            Ok(there) => there.is_file() && begins_with_mark(&path, marks),
        };
        if ours { Ok(()) } else { Err(ReportError::Foreign { path }) }
    }
}

fn begins_with_mark(path: &Path, marks: &[&str]) -> bool {
    /// More than stands before any mark.
    const BEGINNING: u64 = 1024;
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(BEGINNING).read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    read.is_ok() && marks.iter().any(|mark| text.contains(mark))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::report::sample;

    #[test]
    fn a_report_is_four_files() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let folder = Folder::open(&parent.path().join("a/b")).expect("writable");
        folder.write(&sample::report()).expect("writable");
        for name in ["report.html", "results.json", "latency.hlog", "latency.svg"] {
            assert!(fs::metadata(folder.file(name)).expect("written").len() > 500, "{name}");
        }
        let names = fs::read_dir(parent.path().join("a/b")).expect("readable").count();
        assert_eq!(names, 4, "the probe is gone");
    }

    #[test]
    fn a_report_replaces_an_earlier_one() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        for report in [sample::report(), sample::simulation(), sample::report()] {
            let folder = Folder::open(parent.path()).expect("writable, or a report of ours");
            folder.write(&report).expect("writable");
        }
        assert_eq!(fs::read_dir(parent.path()).expect("readable").count(), 4);
    }

    #[test]
    fn a_file_of_somebody_else_is_not_replaced() {
        for (name, _) in FILES {
            let parent = tempfile::tempdir().expect("a temporary folder");
            let path = parent.path().join(name);
            fs::write(&path, "precious").expect("writable");
            let message = Folder::open(parent.path()).expect_err("in the way").to_string();
            assert!(message.contains(name) && message.contains("--out DIR"), "{message}");
            assert_eq!(fs::read_to_string(&path).expect("readable"), "precious");

            // A link would lead the report to where nobody asked for it.
            fs::rename(&path, parent.path().join("elsewhere")).expect("writable");
            symlink(parent.path().join("elsewhere"), &path).expect("writable");
            Folder::open(parent.path()).expect_err("a link");

            // What comes during the run is safe as well.
            fs::remove_file(&path).expect("writable");
            let folder = Folder::open(parent.path()).expect("nothing in the way");
            fs::write(&path, "precious").expect("writable");
            folder.write(&sample::report()).expect_err("in the way");
            assert_eq!(fs::read_to_string(&path).expect("readable"), "precious");
        }
    }

    #[test]
    fn the_picture_of_several_loads_replaces_its_like_alone() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let point = |at| Point { name: "30 %".into(), at, policies: sample::simulation().policies };
        let points = [point(0.3), point(0.6)];
        for _ in 0..2 {
            let folder = Folder::open_for_loads(parent.path()).expect("writable, or ours");
            let path = folder.write_loads(&points).expect("writable");
            assert!(fs::read_to_string(path).expect("written").starts_with(PICTURE));
        }
        fs::write(parent.path().join("loads.svg"), "precious").expect("writable");
        Folder::open_for_loads(parent.path()).expect_err("in the way");
        Folder::open(parent.path()).expect("no file of a single load's");
    }

    #[test]
    fn a_full_disk_asks_for_room_and_not_for_permission() {
        let said = |kind: ErrorKind| {
            let path = PathBuf::from("out/results.json");
            ReportError::NotWritable { path, source: kind.into() }.to_string()
        };
        for full in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
            let said = said(full);
            assert!(said.contains("make room there") && !said.contains("writable"), "{said}");
        }
        assert!(said(ErrorKind::PermissionDenied).contains("writable folder with --out DIR"));
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
