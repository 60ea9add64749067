//! The tasks of a core that are there from its start to its end.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bowline_protocol::Backoff;
use bowline_runtime::net::TcpListener;
use bowline_runtime::{Sleep, Stage, now, sleep, sleep_until, spawn_at};
use bowline_time::Trouble;

use super::cures;
use super::service::Service;
use super::shell::Shell;

/// Takes connections in, until it is aborted.
pub(super) async fn accept<S: Service>(shell: Rc<Shell<S>>, listener: TcpListener) {
    // When descriptors run out it helps nobody to ask again at once.
    let mut backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(1), 0);
    let mut trouble = Trouble::default();
    loop {
        match listener.accept().await {
            Ok(stream) => {
                backoff.reset();
                if let Some(connection) = shell.accept(stream) {
                    let shell = shell.clone();
                    drop(spawn_at(Stage::Input, async move {
                        connection.run(&shell).await;
                    }));
                }
            }
            Err(error) => {
                shell.count(|io| io.accept_errors += 1);
                if !concerns_one(&error) {
                    if trouble.is_news(now()) {
                        let cure = cures::of_limit(&error);
                        tracing::warn!(%error, "can't accept connections, and goes on trying{cure}");
                    }
                    sleep(backoff.next_wait()).await;
                }
            }
        }
    }
}

/// An error of the connection that was about to be accepted, and of no other: its other side gave up.
fn concerns_one(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

/// Decides, whenever something has changed or the time for something has come. To be run at the
/// stage of decisions: then all that has arrived has been applied, and what this sends is in the
/// kernel's hands before any handler runs.
pub(super) async fn decide<S: Service>(shell: Rc<Shell<S>>) {
    let mut alarm: Option<Sleep> = None;
    loop {
        poll_fn(|task| {
            if Pin::new(&mut shell.changed.notified()).poll(task).is_ready() {
                return Poll::Ready(());
            }
            match alarm.as_mut().map(|alarm| Pin::new(alarm).poll(task)) {
                Some(Poll::Ready(())) => {
                    alarm = None;
                    Poll::Ready(())
                }
                _ => Poll::Pending,
            }
        })
        .await;
        shell.bound_outgoing();
        shell.dispatch();
        let next = shell.core.borrow().next_timeout();
        let next = [next, shell.next_look()].into_iter().flatten().min();
        // An alarm that is too early costs one look, and less than setting it anew every turn.
        if let Some(next) = next
            && alarm.as_ref().is_none_or(|alarm| next < alarm.deadline())
        {
            alarm = Some(sleep_until(next));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn one_that_gave_up_before_it_was_accepted_holds_nobody_up_and_a_lack_of_descriptors_does() {
        assert!(concerns_one(&Errno::CONNABORTED.into()));
        assert!(!concerns_one(&Errno::MFILE.into()));
    }
}
