//! What is a user's and runs in the midst of the loop. If it panics that is told, and ends there:
//! the completions, timers and bytes that come after it are others'.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs it. If it panics, tells of that, and whose it was.
#[inline(never)]
pub(crate) fn contain(whose: &str, run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        tell(|| tracing::error!(panic = describe(&*payload), "{whose} panicked"));
        tell(|| drop(payload));
    }
}

/// Tells of a panic. Whoever hears of it may panic as well: nothing comes of that.
#[cold]
pub(crate) fn tell(log: impl FnOnce()) {
    let Err(payload) = catch_unwind(AssertUnwindSafe(log)) else { return };
    // What it panicked with may have a destructor, which may panic in turn, and so on without end:
    // only the first has its turn.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(payload);
    }
}

/// The message of a panic, if it has one.
pub(crate) fn describe(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "(no message)"
    }
}

#[cfg(test)]
mod tests {
    use super::tell;
    use std::panic::panic_any;

    #[test]
    fn what_panics_each_time_that_it_is_let_go_is_leaked_and_holds_nobody_up() {
        struct Again;
        impl Drop for Again {
            fn drop(&mut self) {
                panic_any(Again);
            }
        }
        tell(|| panic_any(Again));
    }
}
