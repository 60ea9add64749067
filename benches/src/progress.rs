//! A bar on the terminal while a run lasts; nothing where standard error is not a terminal.

use core::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::say;

/// How far a piece of work is.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar for work that takes `total` of time.
    pub fn of_time(total: Duration) -> Self {
        let bar = ProgressBar::new(total.as_millis() as u64);
        bar.set_style(style("{bar:32.cyan/dim} {percent:>3}%  {msg:<24} {eta} left"));
        Progress { bar }
    }

    /// A bar for `total` bytes to write.
    pub fn of_bytes(total: u64) -> Self {
        let bar = ProgressBar::new(total);
        bar.set_style(style("{bar:32.cyan/dim} {percent:>3}%  {msg} ({bytes} of {total_bytes})"));
        Progress { bar }
    }

    /// A bar for so many calls.
    pub fn of_calls(total: u64) -> Self {
        let bar = ProgressBar::new(total);
        bar.set_style(style("{bar:32.cyan/dim} {percent:>3}%  {msg:<28} {eta} left"));
        Progress { bar }
    }

    /// Says what is being done.
    pub fn doing(&self, what: impl Into<String>) {
        self.bar.set_message(what.into());
    }

    /// Moves the bar to `elapsed`.
    pub fn at(&self, elapsed: Duration) {
        self.bar.set_position(elapsed.as_millis() as u64);
    }

    /// Moves the bar on by so many bytes or calls.
    pub fn advance(&self, by: u64) {
        self.bar.inc(by);
    }

    /// Takes the bar away while something else is written.
    pub fn hidden<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }

    /// Prints a line above the bar, or plainly where there is none.
    pub fn note(&self, line: &str) {
        if self.bar.is_hidden() {
            say(line);
        } else {
            self.bar.println(line);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .expect("the templates are constants that the crate accepts")
        .progress_chars("━━─")
}
