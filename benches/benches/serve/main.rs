//! What a server makes of its cores, and of its slots.
//!
//! `cargo bench --bench serve`, on a machine that has nothing else to do; `-- cores` or `-- slots` for
//! one of the two. Contestants take turns within each round, and each round begins with another one.
//! Figures are medians of the rounds, with the least and the greatest beside them. The load is a closed
//! loop: so many calls are always under way. It fails if two cores are of little more use than one.

mod cores;
mod load;
mod slots;

use std::process::ExitCode;

/// How long things take, and how often they are repeated.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    /// Parts of what a measurement takes otherwise: a fiftieth to see that it runs.
    permille: u32,
}

impl Effort {
    fn time(self, millis: u64) -> std::time::Duration {
        std::time::Duration::from_millis(millis) * self.permille / 1000
    }

    /// What comes of it means something.
    const fn is_whole(self) -> bool {
        self.permille == 1000
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let said = |word: &str| words.iter().any(|said| said == word);
    let effort = match said("--bench") {
        true => Effort { rounds: 5, permille: 1000 },
        // Without cargo bench it is only to be seen that it runs.
        false => Effort { rounds: 2, permille: 20 },
    };
    let scales = said("slots") || cores::measure(effort);
    if !said("cores") {
        slots::measure(effort);
    }
    if scales { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The median of some figures, and between which they lie.
fn spread(mut figures: Vec<f64>, decimals: usize) -> String {
    let median = median(&mut figures);
    let (least, most) = (figures[0], figures[figures.len() - 1]);
    format!("{median:.decimals$} ({least:.decimals$}-{most:.decimals$})")
}

/// The median of some figures, which are in order then.
fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
