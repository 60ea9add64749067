//! What this kernel can do for the runtime, and what the runtime does where it can't.
//!
//! A ring is set up with each flag, each thing registered, and one operation of each kind done.
//! Newer features may be missing from a kernel, or be held back by a sandbox around it. From a
//! version nothing is concluded, but for bundles: what older kernels do wrong there shows under load
//! only.

mod receive;
mod ring;
mod work;

use std::fmt;
use std::io;
use std::sync::Once;

use crate::clock::Source;
use crate::driver::ring::Features;
use crate::error::{Error, OLDEST_KERNEL, kernel_release};

/// What became of the attempt to use a feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It works.
    Works,
    /// It was refused with this error number, or failed with it.
    Refused(i32),
}

impl Answer {
    fn of<T>(result: io::Result<T>) -> Answer {
        match result {
            Ok(_) => Answer::Works,
            Err(error) => Answer::Refused(error.raw_os_error().unwrap_or(match error.kind() {
                io::ErrorKind::TimedOut => libc::ETIMEDOUT,
                _ => libc::EIO,
            })),
        }
    }

    /// A feature of which the kernel tells.
    fn told(told: bool) -> Answer {
        if told { Answer::Works } else { Answer::Refused(libc::EOPNOTSUPP) }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Answer::Works => f.pad("works"),
            Answer::Refused(errno) => f.pad(&name_of(errno)),
        }
    }
}

/// An error's name, for those that the kernel gives here.
fn name_of(errno: i32) -> String {
    let name = match errno {
        libc::EPERM => "EPERM",
        libc::EIO => "EIO",
        libc::EBADF => "EBADF",
        libc::ENOMEM => "ENOMEM",
        libc::EACCES => "EACCES",
        libc::EINVAL => "EINVAL",
        libc::ENOSYS => "ENOSYS",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::EBADFD => "EBADFD",
        libc::ENOENT => "ENOENT",
        libc::ETIMEDOUT => "ETIMEDOUT",
        _ => return format!("error {errno}"),
    };
    name.into()
}

/// When the runtime uses a feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Always. There is no runtime without it.
    Required,
    /// Wherever it works.
    WhereItWorks,
    /// If the program asks for it.
    OnDemand,
    /// Never.
    Never,
}

/// One row of the [`Report`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feature {
    /// What the kernel calls it.
    pub name: &'static str,
    /// The release that has it first.
    pub since: &'static str,
    /// Whether it works here.
    pub answer: Answer,
    /// When it is used.
    pub used: Use,
    /// What is done in its place, where it is not used.
    pub instead: &'static str,
}

impl Feature {
    /// What the runtime does here.
    pub fn in_use(&self) -> &'static str {
        match (self.answer, self.used) {
            (Answer::Works, Use::Required | Use::WhereItWorks) => "used",
            (Answer::Works, Use::OnDemand) => "used on demand",
            (Answer::Refused(_), Use::Required) => "missing, and required",
            (Answer::Works, Use::Never) | (Answer::Refused(_), _) => self.instead,
        }
    }
}

/// What this kernel can do, as found by asking it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The kernel's release.
    pub release: String,
    /// What the clock reads.
    pub clock: Source,
    /// Each feature that is used, or could be.
    pub features: Vec<Feature>,
}

impl Report {
    /// What is required and does not work. A runtime may stand all the same, and fail at what it
    /// needs them for.
    pub fn missing(&self) -> impl Iterator<Item = &Feature> {
        self.features.iter().filter(|feature| {
            feature.used == Use::Required && matches!(feature.answer, Answer::Refused(_))
        })
    }
}

/// Asks the kernel, by setting rings up and having them do something. Takes some milliseconds.
///
/// # Errors
///
/// Why there can be no runtime here; inside a runtime, that there is one already.
pub fn probe() -> Result<Report, Error> {
    let mut features = Vec::new();
    let (clock, done) = work::features()?;
    features.extend(ring::features());
    features.extend(done);
    Ok(Report { release: kernel_release(), clock, features })
}

fn row(
    name: &'static str,
    since: &'static str,
    answer: Answer,
    used: Use,
    instead: &'static str,
) -> Feature {
    Feature { name, since, answer, used, instead }
}

/// What newer kernels have and this one has not, and what is done about it; None if nothing is
/// missing.
fn shortcomings(features: &Features) -> Option<String> {
    let missing: Vec<&str> = [
        (features.registered, "registered ring descriptor (5.18): each call looks the ring up"),
        (
            features.at_once || features.polled,
            "CQE_SKIP_SUCCESS (5.17): a core wakes to hear that its sends are done",
        ),
        (features.no_array, "NO_SQARRAY (6.6): requests go through an array of indices"),
        (features.absolute_wait, "ABS_TIMER (6.12): waits are relative, and end a little later"),
        (features.messages, "SEND_MSG_RING (6.13): cores wake each other by an eventfd"),
        (features.no_iowait, "NO_IOWAIT (6.15): sleep is counted as waiting for a disk"),
    ]
    .into_iter()
    .filter_map(|(there, what)| if there { None } else { Some(what) })
    .collect();
    (!missing.is_empty()).then(|| missing.join("; "))
}

/// Says once in a process what its kernel lacks.
pub(crate) fn tell_shortcomings(features: &Features) {
    static TOLD: Once = Once::new();
    if let Some(missing) = shortcomings(features) {
        TOLD.call_once(|| {
            let release = kernel_release();
            tracing::warn!(release, missing, "this kernel lacks what newer ones have");
        });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Linux {} (oldest supported: {OLDEST_KERNEL})", self.release)?;
        writeln!(f, "clock: {}", self.clock)?;
        writeln!(f, "{:<26} {:>5}  {:<10}  here", "feature", "since", "kernel")?;
        for feature in &self.features {
            let Feature { name, since, answer, .. } = feature;
            writeln!(f, "{name:<26} {since:>5}  {answer:<10}  {}", feature.in_use())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_lacks_is_told_with_what_it_costs() {
        let all = Features {
            at_once: true,
            no_array: true,
            registered: true,
            absolute_wait: true,
            no_iowait: true,
            messages: true,
            bundles: true,
            polled: false,
        };
        assert_eq!(shortcomings(&all), None);
        // Where sends wait for the kernel's thread, it is not the kernel that lacks something.
        assert_eq!(shortcomings(&Features { at_once: false, polled: true, ..all }), None);
        let text = shortcomings(&Features { absolute_wait: false, no_iowait: false, ..all });
        let text = text.unwrap();
        assert!(text.contains("ABS_TIMER (6.12)") && text.contains("NO_IOWAIT (6.15)"), "{text}");
        assert!(!text.contains("NO_SQARRAY"), "{text}");
        assert_eq!(shortcomings(&Features::default()).unwrap().split(';').count(), 6);
    }

    #[test]
    fn a_row_says_what_is_done_here() {
        let refused = Answer::Refused(libc::EINVAL);
        let feature = |answer, used| row("it", "9.9", answer, used, "something else").in_use();
        assert_eq!(feature(Answer::Works, Use::WhereItWorks), "used");
        assert_eq!(feature(Answer::Works, Use::Never), "something else");
        assert_eq!(feature(refused, Use::WhereItWorks), "something else");
        assert_eq!(feature(refused, Use::Required), "missing, and required");
        assert_eq!(
            (refused.to_string(), Answer::Works.to_string()),
            ("EINVAL".into(), "works".into())
        );
    }
}
