//! What caught each mutation, kept in a file from one run to the next.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::Path;

use crate::Result;

/// What caught a mutation.
#[derive(Clone, Debug)]
pub(crate) enum Caught {
    /// A rule that a world broke, and how many seeds that took.
    Seed(String, u64),
    /// A test.
    Test(String),
    /// It hung.
    Hang,
    /// The project does not build with it.
    Unbuildable(String),
    /// Nothing.
    No,
}

impl Caught {
    pub(crate) const fn is_caught(&self) -> bool {
        matches!(self, Caught::Seed(..) | Caught::Test(_) | Caught::Hang)
    }
}

impl fmt::Display for Caught {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caught::Seed(rule, _) => f.write_str(rule),
            Caught::Test(name) => write!(f, "test {name}"),
            Caught::Hang => f.write_str("it hangs"),
            Caught::Unbuildable(why) => write!(f, "NOT BUILT: {why}"),
            Caught::No => f.write_str("SURVIVED"),
        }
    }
}

/// The rows of what was caught, by what stands for the mutation and the source that it was put in.
pub(crate) struct Results {
    known: BTreeMap<u64, String>,
    file: File,
}

impl Results {
    /// Reads what is known, if anything is.
    pub(crate) fn open(dir: &Path) -> Result<Results> {
        let path = dir.join("results");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let known = text.lines().filter_map(read).collect();
        Ok(Results { known, file: File::options().create(true).append(true).open(path)? })
    }

    /// The row that is known by this name.
    pub(crate) fn find(&self, name: u64) -> Option<&str> {
        self.known.get(&name).map(String::as_str)
    }

    /// Keeps a row.
    pub(crate) fn keep(&mut self, name: u64, row: &str) -> Result<()> {
        Ok(writeln!(self.file, "{name:x} {row}")?)
    }
}

/// A line of the file; None if it was not written to its end.
fn read(line: &str) -> Option<(u64, String)> {
    let (name, row) = line.split_once(' ')?;
    Some((u64::from_str_radix(name, 16).ok()?, row.to_owned()))
}

/// One number for many things.
pub(crate) fn name_of(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}
