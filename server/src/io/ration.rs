//! How many lines of the log others may cause.

use std::cell::Cell;
use std::time::Duration;

use bowline_runtime::Instant;

const MINUTE: Duration = Duration::from_secs(60);
/// So many lines tell of who comes, goes and is disconnected over what it does not read.
const LINES_A_MINUTE: u32 = 60;

/// So many lines a minute, and no more.
#[derive(Debug, Default)]
pub(super) struct Ration {
    /// How many there were in the minute that began then.
    given: Cell<(Instant, u32)>,
}

impl Ration {
    pub(super) fn allows(&self, now: Instant) -> bool {
        let (since, given) = match self.given.get() {
            (since, _) if now >= since + MINUTE => (now, 0),
            given => given,
        };
        self.given.set((since, given + 1));
        given < LINES_A_MINUTE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_and_goes_fills_no_log() {
        let ration = Ration::default();
        let start = Instant::EPOCH + 5 * MINUTE;
        let mut lines = 0;
        for second in 0..600 {
            for _ in 0..10 {
                lines += u32::from(ration.allows(start + Duration::from_secs(second)));
            }
        }
        assert_eq!(lines, 10 * LINES_A_MINUTE);
    }
}
