//! The one task that drives all of a client's timers.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bowline_runtime::{Instant, sleep_until};

use super::logged;
use super::shell::Shell;

/// Tells the machine of the time whenever it asked to be told.
pub(super) async fn drive(shell: Rc<Shell>) {
    let mut sleep = pin!(sleep_until(Instant::FAR_FUTURE));
    loop {
        let next = {
            let mut state = shell.state.borrow_mut();
            state.armed = state.calls.next_timeout().unwrap_or(Instant::FAR_FUTURE);
            state.armed
        };
        sleep.reset(next);
        let mut sooner = pin!(shell.sooner.notified());
        let due = poll_fn(|context| {
            if sleep.as_mut().poll(context).is_ready() {
                return Poll::Ready(true);
            }
            sooner.as_mut().poll(context).map(|()| false)
        });
        if due.await {
            let now = shell.now();
            shell.state.borrow_mut().calls.on_timeout(now);
            shell.pump();
        }
        logged::log(&shell);
    }
}
