//! Signals, which are the whole process's: these tests stand in a binary of their own and run one at a
//! time.

mod common;

use std::pin::pin;
use std::sync::{Mutex, PoisonError};

use bowline_runtime::signal::{Signal, Signals};
use bowline_runtime::{spawn, yield_now};
use common::{poll_once, poll_pinned, run};

static ALONE: Mutex<()> = Mutex::new(());

/// Runs a test's future while no other test does.
fn run_alone(future: impl Future<Output = ()>) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    run(future);
}

/// Has a signal come to this process. It has been handled when this returns.
fn raise(number: i32) {
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::raise(number) }, 0);
}

#[test]
fn a_signal_wakes_who_waits_for_it_already() {
    run_alone(async {
        let all = [Signal::Interrupt, Signal::Terminate, Signal::HangUp];
        let mut signals = Signals::new(&all).unwrap();
        let numbers = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
        for (signal, number) in all.into_iter().zip(numbers) {
            let mut next = pin!(signals.next());
            // It has seen that none came: only the handler can make it look again.
            poll_pinned(next.as_mut());
            raise(number);
            assert_eq!(next.await.unwrap(), signal);
        }
    });
}

#[test]
fn a_signal_is_told_to_all_who_wait_for_it_and_to_nobody_else() {
    run_alone(async {
        let wait = |signal| async move { Signals::new(&[signal]).unwrap().next().await.unwrap() };
        let waiting = [Signal::HangUp; 2].map(|signal| spawn(wait(signal)));
        let other = spawn(wait(Signal::Interrupt));
        yield_now().await;
        raise(libc::SIGHUP);
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap(), Signal::HangUp);
        }
        assert!(!other.is_finished());
        other.abort();
    });
}

#[test]
fn signals_that_nobody_looked_at_are_one_and_a_dropped_future_loses_none() {
    run_alone(async {
        let mut signals = Signals::new(&[Signal::Terminate, Signal::HangUp]).unwrap();
        poll_once(signals.next());
        raise(libc::SIGHUP);
        raise(libc::SIGTERM);
        raise(libc::SIGHUP);
        assert_eq!(signals.next().await.unwrap(), Signal::Terminate);
        assert_eq!(signals.next().await.unwrap(), Signal::HangUp);
        poll_once(signals.next());
    });
}

#[test]
fn places_are_used_again_and_bring_nothing_from_before() {
    run_alone(async {
        let make = || Signals::new(&[Signal::Terminate]);
        let mut all: Vec<_> = (0..64).map(|_| make().unwrap()).collect();
        assert_eq!(make().err().unwrap().kind(), std::io::ErrorKind::QuotaExceeded);
        // Whoever has a place next finds that its event has happened.
        raise(libc::SIGTERM);
        drop(all.pop());
        let mut next = make().unwrap();
        let mut waiting = pin!(next.next());
        for _ in 0..100 {
            poll_pinned(waiting.as_mut());
            yield_now().await;
        }
        raise(libc::SIGTERM);
        assert_eq!(waiting.await.unwrap(), Signal::Terminate);
    });
}
