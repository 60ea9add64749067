//! Runs seeds for as long as asked, on all cores, and shows what breaks.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bowline_tests::judge::{self, Totals};
use bowline_tests::world::Report;
use bowline_time::parse_duration;
use clap::Parser;

/// Searches simulated worlds for a broken rule: each seed draws its own mix of sizes, policies,
/// loads and faults. Ends at the first finding, with a small scenario and a timeline; the seed
/// makes it again, on any machine.
#[derive(Parser)]
struct Options {
    /// How long to search: 90s, 10min, 1h.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, default_value = "60s")]
    time: Duration,
    /// Stop after so many seeds, if that comes first.
    #[arg(long, value_name = "N", default_value_t = u64::MAX)]
    seeds: u64,
    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Threads; all cores if not given.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Go on after a finding.
    #[arg(long)]
    keep_going: bool,
}

/// What the threads share.
struct Search {
    next: AtomicU64,
    stop: AtomicBool,
    findings: AtomicU64,
    totals: Mutex<Totals>,
}

/// Runs the world of a seed: what it came to, or what to read.
type Judge = fn(u64) -> Result<Report, String>;

impl Search {
    fn run(&self, options: &Options, until: Option<Instant>, judge: Judge) {
        let last = options.from.saturating_add(options.seeds);
        let is_late = || until.is_some_and(|until| Instant::now() >= until);
        while !self.stop.load(Relaxed) && !is_late() {
            let seed = self.next.fetch_add(1, Relaxed);
            if seed >= last {
                break;
            }
            match judge(seed) {
                Ok(report) => match self.totals.lock() {
                    Ok(mut totals) => totals.add(&report),
                    Err(_) => return,
                },
                Err(story) => {
                    println!("{story}");
                    self.findings.fetch_add(1, Relaxed);
                    self.stop.store(!options.keep_going, Relaxed);
                }
            }
        }
    }
}

/// Searches as the options say. Returns what all worlds came to that broke no rule, and how many did.
fn explore(options: &Options, threads: usize, start: Instant, judge: Judge) -> (Totals, u64) {
    let search = Search {
        next: AtomicU64::new(options.from),
        stop: AtomicBool::new(false),
        findings: AtomicU64::new(0),
        totals: Mutex::default(),
    };
    // What is later than can be told, never is.
    let until = start.checked_add(options.time);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| search.run(options, until, judge));
        }
    });
    let totals = search.totals.lock().map(|totals| *totals).unwrap_or_default();
    (totals, search.findings.load(Relaxed))
}

fn main() -> ExitCode {
    let options = Options::parse();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.unwrap_or(cores);
    // A machine that panics is a finding, and is told like the others.
    std::panic::set_hook(Box::new(|_| {}));
    let start = Instant::now();
    let (totals, findings) = explore(&options, threads, start, judge::seed);
    let seconds = start.elapsed().as_secs_f64();
    let per_second = |count: u64| count as f64 / seconds;
    println!(
        "{} seeds from {} in {seconds:.1} s on {threads} threads: {findings} broke a rule\n\
         {:.0} seeds, {:.0} calls, {:.0} copies, {:.0} frames, {:.0} faults a second",
        totals.seeds + findings,
        options.from,
        per_second(totals.seeds),
        per_second(totals.calls),
        per_second(totals.sends),
        per_second(totals.frames),
        per_second(totals.faults),
    );
    if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seed 12 is the one that breaks a rule.
    fn judge(seed: u64) -> Result<Report, String> {
        if seed == 12 { Err("seed 12 breaks it".to_owned()) } else { judge::seed(seed) }
    }

    fn explored(threads: usize, arguments: &[&str]) -> (u64, u64) {
        let options = Options::parse_from([&["explore"], arguments].concat());
        let (totals, findings) = explore(&options, threads, Instant::now(), judge);
        (totals.seeds, findings)
    }

    #[test]
    fn so_many_seeds_are_tried_as_are_asked_for_each_once() {
        assert_eq!(explored(2, &["--seeds", "3", "--for", "1h"]), (3, 0));
        assert_eq!(explored(2, &["--seeds", "20", "--for", "1h", "--keep-going"]), (19, 1));
    }

    #[test]
    fn the_first_finding_ends_the_search() {
        assert_eq!(explored(1, &["--from", "10", "--for", "1h"]), (2, 1));
    }

    #[test]
    fn when_its_time_is_over_the_search_is_too() {
        assert_eq!(explored(2, &["--for", "0s"]), (0, 0));
    }
}
