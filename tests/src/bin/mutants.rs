//! Builds every mutation in a copy of the project and says what catches it.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use bowline_tests::mutations::{MUTATIONS, Mutation};
use clap::Parser;

/// Puts deliberate bugs into a copy of the project, one at a time, and lets the simulated worlds
/// find each: first by seeds, then by the tests of the worlds, then by the mutated crate's own;
/// those in a shell by whole shells on the simulated driver. Prints a table of what caught each,
/// after how many seeds. One that hangs is caught, too. Fails if one survives.
#[derive(Parser)]
struct Options {
    /// Only mutations whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Seeds to try before the tests are asked.
    #[arg(long, value_name = "N", default_value_t = 3000)]
    seeds: u64,
    /// Where the copy is made and built.
    #[arg(long, value_name = "DIR", default_value = "target/mutants")]
    dir: PathBuf,
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A build that takes longer than this hangs, on any machine.
const BUILD: Duration = Duration::from_secs(1800);
/// What the seeds may take of a processor: some ten times what they do.
const SEARCH: Duration = Duration::from_secs(500);
/// The same for tests.
const TESTS: Duration = Duration::from_secs(500);
/// Who sleeps for so many times that is not busy elsewhere, but hangs.
const PATIENCE: u32 = 10;

/// What caught a mutation.
enum Caught {
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no project")?;
    fs::create_dir_all(&options.dir)?;
    let copy = fs::canonicalize(&options.dir)?.join("project");
    copy_project(root, &copy)?;
    let (mut caught, mut survived) = (0, Vec::new());
    println!("{:<66} {:>5} {:>4}  caught by", "deliberate bug", "seeds", "s");
    for mutation in MUTATIONS.iter().filter(|mutation| mutation.name.contains(&options.only)) {
        let start = Instant::now();
        let result = try_one(mutation, &copy, options)?;
        let seconds = start.elapsed().as_secs();
        let (by, seeds) = match &result {
            Caught::Seed(rule, seeds) => (rule.clone(), seeds.to_string()),
            Caught::Test(name) => (format!("test {name}"), "-".to_owned()),
            Caught::Hang => ("it hangs".to_owned(), "-".to_owned()),
            Caught::Unbuildable(why) => (format!("NOT BUILT: {why}"), "-".to_owned()),
            Caught::No => ("SURVIVED".to_owned(), "-".to_owned()),
        };
        println!("{:<66} {seeds:>5} {seconds:>4}  {by}", mutation.name);
        match result {
            Caught::Seed(..) | Caught::Test(_) | Caught::Hang => caught += 1,
            Caught::Unbuildable(_) | Caught::No => survived.push(mutation.name),
        }
    }
    println!("{caught} mutations were caught, {} were not: {survived:#?}", survived.len());
    Ok(survived.is_empty())
}

/// Copies what a build needs, leaves unchanged files alone, and removes those that are no more.
fn copy_project(from: &Path, to: &Path) -> Result<()> {
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
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (name, target) = (entry.file_name(), to.join(entry.file_name()));
        if name == "target" || name.to_string_lossy().starts_with('.') {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copy_project(&entry.path(), &target)?;
        } else if fs::read(entry.path())? != fs::read(&target).unwrap_or_default() {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

fn try_one(mutation: &Mutation, copy: &Path, options: &Options) -> Result<Caught> {
    let file = copy.join(mutation.file);
    let source = fs::read_to_string(&file)?;
    if source.matches(mutation.find).count() != 1 {
        return Ok(Caught::Unbuildable("its text is not there once".to_owned()));
    }
    fs::write(&file, source.replace(mutation.find, mutation.replace))?;
    let result = match mutation.is_in_a_shell() {
        true => run_shells(copy, options),
        false => catch(mutation, copy, options),
    };
    fs::write(&file, source)?;
    result
}

fn catch(mutation: &Mutation, copy: &Path, options: &Options) -> Result<Caught> {
    let build = cargo(copy, options, &["build", "-p", "bowline-tests", "--bin", "explore"])?;
    if !build.ok {
        return Ok(Caught::Unbuildable(first_error(&build)));
    }
    let seeds = options.seeds.to_string();
    let explore = fs::canonicalize(&options.dir)?.join("build/debug/explore");
    let mut search = Command::new(explore);
    // One thread takes them in their order.
    search.args(["--seeds", &seeds, "--for", "2h", "--threads", "1"]);
    let found = finish(search, SEARCH)?;
    if found.hangs {
        return Ok(Caught::Hang);
    }
    if !found.ok {
        let line = found.output.lines().find(|line| line.starts_with("seed "));
        let mut words = line.unwrap_or_default().split([' ', ';']).skip(1);
        let seed: u64 = words.next().and_then(|seed| seed.parse().ok()).unwrap_or_default();
        let rule = words.nth(1).unwrap_or("it crashed");
        let rule = match rule {
            "None" => "a panic",
            rule => rule.trim_start_matches("Some(").trim_end_matches(')'),
        };
        return Ok(Caught::Seed(rule.to_owned(), seed + 1));
    }
    let worlds = ["-p", "bowline-tests", "--test", "simulated"];
    match tests(copy, options, &worlds, &["rules::", "exhaustive::"])? {
        // The worlds can't tell: the crate's own tests may.
        Caught::No => tests(copy, options, &["-p", mutation.package(), "--lib"], &[]),
        caught => Ok(caught),
    }
}

/// Whole shells on the simulated driver.
fn run_shells(copy: &Path, options: &Options) -> Result<Caught> {
    tests(copy, options, &["-p", "bowline-tests", "--test", "shells"], &[])
}

/// Builds one program of tests, and runs those of its tests whose names contain one of these.
fn tests(copy: &Path, options: &Options, which: &[&str], names: &[&str]) -> Result<Caught> {
    let build = cargo(copy, options, &[&["test", "--no-run"], which].concat())?;
    if !build.ok {
        return Ok(Caught::Unbuildable(first_error(&build)));
    }
    // Cargo would run it, too; but who ends cargo does not end what it runs.
    let told = build.output.lines().find(|line| line.trim_start().starts_with("Executable"));
    let path = told.and_then(|line| line.rsplit_once('(')?.1.strip_suffix(')'));
    let path = path.ok_or("cargo did not say where the tests are")?;
    let mut program = Command::new(path);
    program.current_dir(copy.join("tests")).args(names);
    let run = finish(program, TESTS)?;
    if run.ok {
        return Ok(Caught::No);
    }
    let number = |line: &str| line.strip_prefix("again with BOWLINE_SEED=")?.parse::<u64>().ok();
    if let Some(seed) = run.output.lines().find_map(number) {
        return Ok(Caught::Seed("whole shells".to_owned(), seed + 1));
    }
    let failed = |line: &&str| line.starts_with("test ") && line.ends_with("FAILED");
    let name = run.output.lines().find(failed).and_then(|line| line.split(' ').nth(1));
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

/// What a program said and how it ended.
struct Finished {
    ok: bool,
    hangs: bool,
    output: String,
}

fn cargo(copy: &Path, options: &Options, arguments: &[&str]) -> Result<Finished> {
    let mut cargo = Command::new(env!("CARGO"));
    let target = fs::canonicalize(&options.dir)?.join("build");
    cargo.current_dir(copy).env("CARGO_TARGET_DIR", target).args(arguments);
    finish(cargo, BUILD)
}

/// Runs a program to its end, or until it has had so much of a processor, however many share that.
fn finish(mut command: Command, most: Duration) -> Result<Finished> {
    let out = tempfile()?;
    command.stdout(Stdio::from(out.0.try_clone()?)).stderr(Stdio::from(out.0));
    let mut child = command.spawn()?;
    let start = Instant::now();
    let (ok, hangs) = loop {
        if let Some(status) = child.try_wait()? {
            break (status.success(), false);
        }
        if ran(child.id())? > most || start.elapsed() > most * PATIENCE {
            child.kill()?;
            child.wait()?;
            break (false, true);
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let output = String::from_utf8_lossy(&fs::read(&out.1)?).into_owned();
    fs::remove_file(out.1)?;
    Ok(Finished { ok, hangs, output })
}

/// How long a process has run on a processor, on all its threads together.
fn ran(process: u32) -> Result<Duration> {
    /// What the kernel counts in, for user space, on every architecture: hundredths of a second.
    const TICK: Duration = Duration::from_millis(10);
    // It may have ended since it was last looked at, and is waited for: then it is still there.
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // Behind the name, which is in parentheses, utime is field 14 and stime 15 of proc(5).
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks = fields.skip(11).take(2).map(|field| field.parse::<u32>().unwrap_or(0));
    Ok(TICK * ticks.sum::<u32>())
}

fn tempfile() -> Result<(fs::File, PathBuf)> {
    let path = std::env::temp_dir().join(format!("bowline-mutants-{}", std::process::id()));
    Ok((fs::File::create(&path)?, path))
}
