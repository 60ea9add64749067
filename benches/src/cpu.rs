//! CPU time that processes have used.

use core::time::Duration;
use std::fs;

/// Clock ticks a second in `/proc/PID/stat`: the kernel's interface has always had 100.
const TICKS_PER_S: u64 = 100;

/// CPU time of a process so far, its own and the kernel's for it, to 10 ms; none if it is not there.
pub fn used_by(process_id: u32) -> Option<Duration> {
    parse(&fs::read_to_string(format!("/proc/{process_id}/stat")).ok()?)
}

/// CPU time of this process so far, to 10 ms.
pub fn used_by_us() -> Duration {
    used_by(std::process::id()).unwrap_or_default()
}

/// CPU time of this thread so far, to 10 ms.
pub fn used_by_this_thread() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/stat").ok();
    stat.and_then(|stat| parse(&stat)).unwrap_or_default()
}

/// The 14th and 15th field; the second, the name, may hold spaces and parentheses.
fn parse(stat: &str) -> Option<Duration> {
    let after_name = &stat[stat.rfind(')')? + 1..];
    let mut times = after_name.split_ascii_whitespace().skip(11).map(str::parse::<u64>);
    let ticks = times.next()?.ok()? + times.next()?.ok()?;
    Some(Duration::from_millis(ticks * 1000 / TICKS_PER_S))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_a_name_with_spaces_and_parentheses() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 300 0 0 0 150 25 7 8 20 0 4 0";
        assert_eq!(parse(stat), Some(Duration::from_millis(1750)));
        assert_eq!(parse("42 (a) S 1"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn this_process_is_there() {
        assert!(used_by(std::process::id()).is_some());
        assert!(used_by(u32::MAX).is_none());
        // It has not begun to use any; so it goes on until it has.
        while used_by_this_thread().is_zero() {
            core::hint::spin_loop();
        }
    }
}
