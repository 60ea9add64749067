//! Runs seeds for as long as asked, on all cores, and shows what breaks.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bowline_tests::judge::{self, Totals};
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

impl Search {
    fn run(&self, options: &Options, until: Instant) {
        let last = options.from.saturating_add(options.seeds);
        while !self.stop.load(Relaxed) && Instant::now() < until {
            let seed = self.next.fetch_add(1, Relaxed);
            if seed >= last {
                break;
            }
            match judge::seed(seed) {
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

fn main() -> ExitCode {
    let options = Options::parse();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.unwrap_or(cores);
    // A machine that panics is a finding, and is told like the others.
    std::panic::set_hook(Box::new(|_| {}));
    let search = Search {
        next: AtomicU64::new(options.from),
        stop: AtomicBool::new(false),
        findings: AtomicU64::new(0),
        totals: Mutex::default(),
    };
    let start = Instant::now();
    let until = start + options.time;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| search.run(&options, until));
        }
    });
    let seconds = start.elapsed().as_secs_f64();
    let totals = search.totals.lock().map(|totals| *totals).unwrap_or_default();
    let findings = search.findings.load(Relaxed);
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
