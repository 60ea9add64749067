//! A copy of the project, in which one bug at a time is built.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bowline_tests::mutations::Mutation;

use crate::Result;
use crate::program::{Finished, finish};

/// A build that takes longer than this hangs, on any machine.
const BUILD: Duration = Duration::from_secs(1800);

/// The copy, and where it is built.
pub(crate) struct Project {
    copy: PathBuf,
    target: PathBuf,
    state: u64,
}

impl Project {
    /// Copies this project into a folder, or what of it has changed since it was copied there.
    pub(crate) fn copy(dir: &Path) -> Result<Project> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no project")?;
        fs::create_dir_all(dir)?;
        let dir = fs::canonicalize(dir)?;
        let (copy, mut hasher) = (dir.join("project"), DefaultHasher::new());
        copy_folder(root, &copy, &mut hasher)?;
        Ok(Project { copy, target: dir.join("build"), state: hasher.finish() })
    }

    /// Stands for the source as it is, the list of mutations left out.
    pub(crate) const fn state(&self) -> u64 {
        self.state
    }

    /// Where a test of the worlds has to run.
    pub(crate) fn tests(&self) -> PathBuf {
        self.copy.join("tests")
    }

    /// Where a program is once it is built.
    pub(crate) fn built(&self, program: &str) -> PathBuf {
        self.target.join("debug").join(program)
    }

    /// Puts a bug in. Returns what the file was before; None if the bug does not fit.
    pub(crate) fn mutate(&self, mutation: &Mutation) -> Result<Option<String>> {
        let file = self.copy.join(mutation.file);
        let source = fs::read_to_string(&file)?;
        if source.matches(mutation.find).count() != 1 {
            return Ok(None);
        }
        fs::write(&file, source.replace(mutation.find, mutation.replace))?;
        Ok(Some(source))
    }

    /// Takes it out again.
    pub(crate) fn restore(&self, mutation: &Mutation, source: &str) -> Result<()> {
        Ok(fs::write(self.copy.join(mutation.file), source)?)
    }

    /// Runs cargo in the copy.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Result<Finished> {
        // Who runs this names it; by itself, it is the one of the path.
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut cargo = Command::new(cargo);
        // Nobody looks at a stack: what is built so often is built without lines.
        cargo.env("CARGO_PROFILE_DEV_DEBUG", "false");
        cargo.current_dir(&self.copy).env("CARGO_TARGET_DIR", &self.target).args(arguments);
        finish(&cargo, BUILD)
    }
}

/// Copies what a build needs, leaves unchanged files alone, and removes those that are no more.
fn copy_folder(from: &Path, to: &Path, hasher: &mut DefaultHasher) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if !from.join(entry.file_name()).exists() {
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(entry.path())?,
                false => fs::remove_file(entry.path())?,
            }
        }
    }
    let mut entries = fs::read_dir(from)?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (name, target) = (entry.file_name(), to.join(entry.file_name()));
        if name == "target" || name.to_string_lossy().starts_with('.') {
            continue;
        }
        if entry.file_type()?.is_dir() {
            // Each mutation stands for itself.
            let mut no_one = DefaultHasher::new();
            let hasher = if name == "mutations" { &mut no_one } else { &mut *hasher };
            copy_folder(&entry.path(), &target, hasher)?;
            continue;
        }
        let content = fs::read(entry.path())?;
        (name, &content).hash(hasher);
        if content != fs::read(&target).unwrap_or_default() {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
