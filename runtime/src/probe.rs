//! What this kernel can do for the runtime, and what the runtime does where it can't.

use std::fmt;

use bowline_time::Duration;

use crate::clock::Source;
use crate::error::{Error, OLDEST_KERNEL, kernel_release};
use crate::runtime::Runtime;

/// One row of the [`Report`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feature {
    /// What it is.
    pub name: &'static str,
    /// The release that has it first.
    pub since: &'static str,
    /// Whether it is to be had here.
    pub available: bool,
    /// What is used where it is not.
    pub instead: &'static str,
}

/// What this kernel can do, as found by asking it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The kernel's release.
    pub release: String,
    /// What the clock reads.
    pub clock: Source,
    /// Each feature that is used if there is one.
    pub features: Vec<Feature>,
}

/// Asks the kernel, by building a runtime and having it do something.
///
/// # Errors
///
/// Why there can be no runtime here; inside a runtime, that there is one already.
pub fn probe() -> Result<Report, Error> {
    let runtime = Runtime::builder().entries(8).buffers(1, 4096).build()?;
    // That a sleep ends shows that requests go in, waits end in time, and the thread wakes.
    runtime.block_on(async { crate::sleep(Duration::from_micros(100)).await });
    let features = runtime.features();
    let row = |name, since, available, instead| Feature { name, since, available, instead };
    Ok(Report {
        release: kernel_release(),
        clock: runtime.clock_source(),
        features: vec![
            row("deferred task work, single issuer", "6.1", true, "nothing: required"),
            row("multishot receive, provided buffer ring", "6.0", true, "nothing: required"),
            row("registered ring descriptor", "5.18", features.registered, "a lookup per enter"),
            row("submission without index array", "6.6", features.no_array, "an index array"),
            row("absolute wait", "6.12", features.absolute_wait, "a relative wait"),
            row("wait not counted as iowait", "6.15", features.no_iowait, "counted as iowait"),
        ],
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Linux {} (oldest supported: {OLDEST_KERNEL})", self.release)?;
        writeln!(f, "clock: {}", self.clock)?;
        writeln!(f, "{:<42} {:>6}  {:<6} otherwise", "feature", "since", "here")?;
        for Feature { name, since, available, instead } in &self.features {
            let here = if *available { "yes" } else { "no" };
            writeln!(f, "{name:<42} {since:>6}  {here:<6} {instead}")?;
        }
        Ok(())
    }
}
