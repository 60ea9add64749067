//! Builds every mutation in a copy of the project and says what catches it.

mod program;
mod project;
mod results;

use std::collections::BTreeSet;
use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use bowline_tests::mutations::{self, Mutation};
use clap::Parser;

use crate::program::{Finished, finish};
use crate::project::Project;
use crate::results::{Caught, Results, name_of};

/// Puts deliberate bugs into a copy of the project, one at a time, and sees each caught: by the test
/// that is said to hold it, if one is; else by seeds, then by the tests of the worlds, then by the
/// mutated crate's own; those in a shell by whole shells on the simulated driver. Prints a table of
/// what caught each, after how many seeds. One that hangs is caught, too. Fails if one survives, or
/// if what is to catch them finds something where there is none.
///
/// What was caught is kept beside the copy, and not tried again while the source is the same: who was
/// interrupted starts again.
#[derive(Parser)]
struct Options {
    /// Only mutations whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Seeds to try before the tests are asked.
    #[arg(long, value_name = "N", default_value_t = 3000)]
    seeds: u64,
    /// Where the copy is made and built, and what was caught is kept.
    #[arg(long, value_name = "DIR", default_value = "target/mutants")]
    dir: PathBuf,
    /// Only see that each can be built: a second or two each.
    #[arg(long)]
    check: bool,
}

impl Options {
    fn mutations(&self) -> impl Iterator<Item = &'static Mutation> {
        mutations::all().filter(|mutation| mutation.name.contains(&self.only))
    }
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What the seeds may take of a processor: some five times what they do.
const SEARCH: Duration = Duration::from_secs(150);
/// The same for tests.
const TESTS: Duration = Duration::from_secs(300);
/// Why a mutation can't be put in.
const UNFIT: &str = "its text is not there once";

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mutants: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<bool> {
    let project = Project::copy(&options.dir)?;
    if options.check {
        return check(options, &project);
    }
    let mut results = Results::open(&options.dir)?;
    let of = |mutation: &Mutation| name_of((project.state(), mutation, options.seeds));
    let unknown = options.mutations().filter(|it| results.find(of(it)).is_none());
    let unknown: Vec<_> = unknown.collect();
    none_is_red(unknown.into_iter(), &project, &mut results, options.seeds)?;
    let (mut caught, mut survived) = (0, Vec::new());
    println!("{:<70} {:>5} {:>4}  caught by", "deliberate bug", "seeds", "s");
    for mutation in options.mutations() {
        let name = of(mutation);
        if let Some(row) = results.find(name) {
            println!("{row}");
            caught += 1;
            continue;
        }
        let (row, is_caught) = row(mutation, &project, options.seeds)?;
        println!("{row}");
        if is_caught {
            results.keep(name, &row)?;
            caught += 1;
        } else {
            survived.push(mutation.name);
        }
    }
    println!("{caught} mutations were caught, {} were not: {survived:#?}", survived.len());
    Ok(survived.is_empty())
}

/// Tries a mutation. Returns its row (its name, how many seeds and seconds that took, and what caught
/// it), and whether it was caught.
fn row(mutation: &Mutation, project: &Project, seeds: u64) -> Result<(String, bool)> {
    let start = Instant::now();
    let caught = try_one(mutation, project, seeds)?;
    let seconds = start.elapsed().as_secs();
    let seeds = match &caught {
        Caught::Seed(_, seeds) => seeds.to_string(),
        _ => "-".to_owned(),
    };
    let row = format!("{:<70} {seeds:>5} {seconds:>4}  {caught}", mutation.name);
    Ok((row, caught.is_caught()))
}

fn try_one(mutation: &Mutation, project: &Project, seeds: u64) -> Result<Caught> {
    let caught = with(mutation, project, || catch(mutation, project, seeds))?;
    Ok(caught.unwrap_or_else(|| Caught::Unbuildable(UNFIT.to_owned())))
}

/// Does something while the bug is in; None if its text is not there once.
fn with<T>(
    mutation: &Mutation,
    project: &Project,
    does: impl FnOnce() -> Result<T>,
) -> Result<Option<T>> {
    let Some(source) = project.mutate(mutation)? else { return Ok(None) };
    let result = does();
    project.restore(mutation, &source)?;
    result.map(Some)
}

/// Prints which can't be built.
fn check(options: &Options, project: &Project) -> Result<bool> {
    let (mut all, mut unfit) = (0, 0);
    for mutation in options.mutations() {
        let wrong = with(mutation, project, || {
            let build = project.cargo(&["check", "-p", mutation.package()])?;
            Ok((!build.ok).then(|| first_error(&build)))
        })?;
        all += 1;
        if let Some(why) = wrong.unwrap_or_else(|| Some(UNFIT.to_owned())) {
            println!("{:<70} NOT BUILT: {why}", mutation.name);
            unfit += 1;
        }
    }
    println!("{} of {all} mutations can be built", all - unfit);
    Ok(unfit == 0)
}

/// What may catch a mutation.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
enum Judge {
    /// The worlds of so many seeds.
    Seeds(u64),
    /// A program of tests, as cargo is told, and which of its tests.
    Tests(Vec<&'static str>, Vec<&'static str>),
}

impl Judge {
    /// Those of a mutation, in the order in which they are asked.
    fn all_of(mutation: &Mutation, seeds: u64) -> Vec<Judge> {
        let worlds = || vec!["-p", "bowline-tests", "--test", "simulated"];
        if let Some(test) = mutation.held_by {
            let of_worlds = mutation.is_held_by_the_worlds();
            let program = if of_worlds { worlds() } else { mutation.own_tests() };
            return vec![Judge::Tests(program, vec!["--exact", test])];
        }
        if mutation.is_in_a_shell() {
            return vec![Judge::Tests(vec!["-p", "bowline-tests", "--test", "shells"], vec![])];
        }
        vec![
            Judge::Seeds(seeds),
            // The worlds can't tell by chance: tests that were made for it may.
            Judge::Tests(worlds(), vec!["rules::", "exhaustive::"]),
            Judge::Tests(mutation.own_tests(), vec![]),
        ]
    }

    fn ask(&self, project: &Project) -> Result<Caught> {
        match self {
            Judge::Seeds(seeds) => search(project, *seeds),
            Judge::Tests(which, arguments) => tests(project, which, arguments),
        }
    }
}

fn catch(mutation: &Mutation, project: &Project, seeds: u64) -> Result<Caught> {
    for judge in Judge::all_of(mutation, seeds) {
        match judge.ask(project)? {
            Caught::No => {}
            caught => return Ok(caught),
        }
    }
    Ok(Caught::No)
}

/// Asks the judges of all that is to be tried about the project as it is: one that is red anyhow would
/// catch everything.
fn none_is_red<'a>(
    mutations: impl Iterator<Item = &'a Mutation>,
    project: &Project,
    results: &mut Results,
    seeds: u64,
) -> Result<()> {
    let judges: BTreeSet<Judge> = mutations.flat_map(|it| Judge::all_of(it, seeds)).collect();
    for judge in judges {
        let name = name_of((project.state(), &judge));
        if results.find(name).is_some() {
            continue;
        }
        match judge.ask(project)? {
            Caught::No => results.keep(name, &format!("{judge:?} finds nothing without a bug"))?,
            red => return Err(format!("red without any mutation ({judge:?}): {red}").into()),
        }
    }
    Ok(())
}

/// Runs the worlds of so many seeds, in their order.
fn search(project: &Project, seeds: u64) -> Result<Caught> {
    let build = project.cargo(&["build", "-p", "bowline-tests", "--bin", "explore"])?;
    if !build.ok {
        return Ok(Caught::Unbuildable(first_error(&build)));
    }
    let mut search = Command::new(project.built("explore"));
    // One thread takes them in their order.
    search.args(["--seeds", &seeds.to_string(), "--for", "2h", "--threads", "1"]);
    let found = finish(&search, SEARCH)?;
    if found.hangs {
        return Ok(Caught::Hang);
    }
    if found.ok {
        return Ok(Caught::No);
    }
    let line = found.output.lines().find(|line| line.starts_with("seed "));
    let mut words = line.unwrap_or_default().split([' ', ';']).skip(1);
    let seed: u64 = words.next().and_then(|seed| seed.parse().ok()).unwrap_or_default();
    let rule = words.nth(1).unwrap_or("it crashed");
    let rule = match rule {
        "None" => "a panic",
        rule => rule.trim_start_matches("Some(").trim_end_matches(')'),
    };
    Ok(Caught::Seed(rule.to_owned(), seed + 1))
}

/// Builds one program of tests, and runs it with these arguments.
fn tests(project: &Project, which: &[&str], arguments: &[&str]) -> Result<Caught> {
    let build = project.cargo(&[&["test", "--no-run"], which].concat())?;
    if !build.ok {
        return Ok(Caught::Unbuildable(first_error(&build)));
    }
    // Cargo would run it, too; but who ends cargo does not end what it runs.
    let told = build.output.lines().find(|line| line.trim_start().starts_with("Executable"));
    let path = told.and_then(|line| line.rsplit_once('(')?.1.strip_suffix(')'));
    let path = path.ok_or("cargo did not say where the tests are")?;
    let mut program = Command::new(path);
    program.current_dir(project.tests()).args(arguments);
    let run = finish(&program, TESTS)?;
    if run.ok {
        return Ok(Caught::No);
    }
    let number = |line: &str| line.strip_prefix("again with BOWLINE_SEED=")?.parse::<u64>().ok();
    if let Some(seed) = run.output.lines().find_map(number) {
        return Ok(Caught::Seed("whole shells".to_owned(), seed + 1));
    }
    let failed = |line: &&str| line.starts_with("test ") && line.ends_with("FAILED");
    // Tests run side by side: the first by name is the same each time.
    let name = run.output.lines().filter(failed).filter_map(|line| line.split(' ').nth(1)).min();
    Ok(match name {
        Some(name) => Caught::Test(name.to_owned()),
        None if run.hangs => Caught::Hang,
        None => Caught::Test("a crash of its tests".to_owned()),
    })
}

fn first_error(build: &Finished) -> String {
    let error = build.output.lines().find(|line| line.starts_with("error"));
    error.unwrap_or("cargo failed").to_owned()
}
