//! Which signals may end a server, and when it was told so twice.

use std::time::{Duration, Instant};
use std::{format, io};

use signal_hook::consts::FORBIDDEN;
use signal_hook::iterator::Signals;

use super::server::Control;

/// What comes so soon after the first signal is the same wish: a terminal that closes sends a SIGHUP
/// twice (the shell does, and the kernel), a supervisor may send one behind its SIGTERM, and who wraps
/// a process passes a Ctrl-C on that it has heard, too.
const SAME_WISH: Duration = Duration::from_secs(1);

/// Signals that may be handled; asking for one of the others would panic.
pub(super) fn checked(signals: &[i32]) -> io::Result<&[i32]> {
    match signals.iter().find(|signal| FORBIDDEN.contains(signal)) {
        Some(signal) => {
            let told = format!("signal {signal} can't be handled");
            Err(io::Error::new(io::ErrorKind::InvalidInput, told))
        }
        None => Ok(signals),
    }
}

/// Ends the server when it is told so once more, `first` having been the first time.
pub(super) fn hurry_when_told_again(mut signals: Signals, first: Instant, control: &Control) {
    let heard = signals.forever().map(|signal| (signal, first.elapsed()));
    if let Some(signal) = told_again(heard) {
        tracing::warn!(signal, "told once more to end: it does not finish what is under way");
        control.shut_down(Duration::ZERO);
    }
}

/// The first of these signals that is a wish of its own, by how long after the first one they came.
fn told_again(heard: impl IntoIterator<Item = (i32, Duration)>) -> Option<i32> {
    heard.into_iter().find(|(_, after)| *after >= SAME_WISH).map(|(signal, _)| signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_within_a_second_of_the_first_is_the_same_wish() {
        let heard = |times: &[(i32, u64)]| {
            told_again(times.iter().map(|&(signal, at)| (signal, Duration::from_millis(at))))
        };
        assert_eq!(heard(&[(1, 0), (15, 0), (1, 999)]), None);
        assert_eq!(heard(&[(1, 0), (2, 1000), (15, 5000)]), Some(2));
        assert_eq!(heard(&[(2, 60_000)]), Some(2), "however late");
    }
}
