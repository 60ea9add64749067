//! What caught each mutation, kept in a file from one run to the next.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
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
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        // A line that was not written to its end says nothing, and the next must not follow it.
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let file = File::options().create(true).append(true).open(path)?;
        file.set_len(whole as u64)?;
        let known = String::from_utf8_lossy(&text[..whole]).lines().filter_map(read).collect();
        Ok(Results { known, file })
    }

    /// The row that is known by this name.
    pub(crate) fn find(&self, name: u64) -> Option<&str> {
        self.known.get(&name).map(String::as_str)
    }

    /// Keeps a row.
    pub(crate) fn keep(&mut self, name: u64, row: &str) -> Result<()> {
        self.known.insert(name, row.to_owned());
        Ok(writeln!(self.file, "{name:x} {row}")?)
    }
}

/// A line of the file; None if it is none of ours.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_off_is_no_result_and_spoils_no_other() -> Result<()> {
        let dir = std::env::temp_dir().join(format!("bowline-results-{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        let row = "a bug   1  2  test a::b";
        Results::open(&dir)?.keep(1, row)?;
        Results::open(&dir)?.keep(2, row)?;
        let file = dir.join("results");
        for cut in 1..format!("2 {row}").len() {
            let mut text = format!("1 {row}\n2 {row}");
            text.truncate(text.len() - cut);
            fs::write(&file, text)?;
            let mut results = Results::open(&dir)?;
            assert_eq!((results.find(1), results.find(2)), (Some(row), None));
            results.keep(3, row)?;
            assert_eq!(Results::open(&dir)?.find(3), Some(row));
        }
        Ok(fs::remove_dir_all(dir)?)
    }
}
