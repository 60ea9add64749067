//! Deliberate bugs, each of which the simulated worlds or a test have to find.
//!
//! A mutation is a text to find in a source file, once, and what to put in its place: so the product
//! holds no trace of it. `cargo run -p bowline-tests --bin mutants` builds each in a copy of the
//! project and says what caught it; a test checks that every text is still there. How many seeds it
//! takes is known only of those that no test is said to hold: the others are shown to their test alone.

mod client;
mod protocol;
mod rules;
mod server;
mod shells;

/// A deliberate bug.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mutation {
    /// What goes wrong.
    pub name: &'static str,
    /// The file, from the project's root.
    pub file: &'static str,
    /// What is there.
    pub find: &'static str,
    /// What is put there.
    pub replace: &'static str,
    /// The test that goes red, where seeds can't tell (or not soon): one of the worlds' or of the
    /// mutated crate's own.
    pub held_by: Option<&'static str>,
    /// The program of the crate's tests that has it, if it is not the usual one.
    pub program: Option<&'static str>,
}

impl Mutation {
    /// It is in the shells or the runtime, which only run on the simulated driver.
    pub fn is_in_a_shell(&self) -> bool {
        self.file.starts_with("runtime/") || self.file.contains("/io/")
    }

    /// The crate that it is in.
    pub fn package(&self) -> &'static str {
        match self.file.split('/').next() {
            Some("client") => "bowline-client",
            Some("protocol") => "bowline-protocol",
            Some("runtime") => "bowline-runtime",
            _ => "bowline-server",
        }
    }

    /// Which tests are its crate's own, as cargo is told.
    pub fn own_tests(&self) -> Vec<&'static str> {
        match (self.program, self.package()) {
            (Some(program), package) => vec!["-p", package, "--test", program],
            // What it shows to others is all that it is.
            (None, "bowline-protocol") => vec!["-p", "bowline-protocol", "--test", "protocol"],
            (None, package) => vec!["-p", package, "--lib"],
        }
    }

    /// The test that holds it is one of the worlds'.
    pub fn is_held_by_the_worlds(&self) -> bool {
        let groups = ["rules::", "exhaustive::", "oracles::"];
        let is_one = |test: &str| groups.iter().any(|group| test.starts_with(group));
        self.program.is_none() && self.held_by.is_some_and(is_one)
    }

    const fn held_by(self, test: &'static str) -> Mutation {
        Mutation { held_by: Some(test), ..self }
    }

    /// Held by a test of one of the crate's other programs.
    const fn held_in(self, program: &'static str, test: &'static str) -> Mutation {
        Mutation { program: Some(program), ..self.held_by(test) }
    }
}

const fn mutation(
    name: &'static str,
    file: &'static str,
    find: &'static str,
    replace: &'static str,
) -> Mutation {
    Mutation { name, file, find, replace, held_by: None, program: None }
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Mutation> {
    [server::ALL, client::ALL, rules::ALL, protocol::ALL, shells::ALL].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a project around it").to_owned()
    }

    #[test]
    fn every_mutation_fits_the_code_as_it_is() {
        let mut unfit = Vec::new();
        for mutation in all() {
            let source = std::fs::read_to_string(root().join(mutation.file)).expect(mutation.file);
            let found = source.matches(mutation.find).count();
            if found != 1 {
                unfit.push(format!("{} is there {found} times: {}", mutation.file, mutation.name));
            }
        }
        assert!(unfit.is_empty(), "{unfit:#?}");
    }

    #[test]
    fn no_two_mutations_have_one_name() {
        let mut names: Vec<_> = all().map(|mutation| mutation.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:#?}");
    }

    #[test]
    fn every_test_that_is_said_to_hold_a_mutation_is_there() {
        for mutation in all() {
            let Some(test) = mutation.held_by else { continue };
            let name = test.rsplit("::").next().unwrap_or(test);
            let own = root().join(mutation.file.split('/').next().unwrap_or_default());
            let folder = match (mutation.is_held_by_the_worlds(), mutation.own_tests().pop()) {
                (true, _) => root().join("tests/tests/simulated"),
                (false, Some("--lib") | None) => own.join("src"),
                (false, Some(program)) => own.join("tests").join(program),
            };
            let text = format!("fn {name}() {{");
            assert!(is_in(&folder, &text), "{test} ({}) is not in {folder:?}", mutation.name);
        }
    }

    /// A text is in a file below that folder, or in the file that has its name.
    fn is_in(path: &Path, text: &str) -> bool {
        match std::fs::read_dir(path) {
            Ok(entries) => entries.flatten().any(|entry| is_in(&entry.path(), text)),
            Err(_) => [path, &path.with_extension("rs")]
                .into_iter()
                .any(|file| std::fs::read_to_string(file).is_ok_and(|it| it.contains(text))),
        }
    }
}
