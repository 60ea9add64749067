//! The end of a runtime beside others. The numbers that runtimes get matter here, so that these
//! tests stand in a binary of their own and run one at a time.

mod common;

use std::cell::Cell;
use std::future::{Future, pending, poll_fn};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bowline_runtime::signal::{Signal, Signals};
use bowline_runtime::{Runtime, spawn, timeout, yield_now};
use common::{run, run_on};

static ALONE: Mutex<()> = Mutex::new(());

/// When it is woken it has another thread make a runtime, and wakes a task of that.
struct WakeStranger(mpsc::Sender<bool>);

impl Wake for WakeStranger {
    fn wake(self: Arc<Self>) {
        let (give, take) = mpsc::channel::<Waker>();
        let told = self.0.clone();
        let stranger = std::thread::spawn(move || {
            let mut polled = false;
            let woken = poll_fn(move |context| {
                if std::mem::replace(&mut polled, true) {
                    return Poll::Ready(());
                }
                give.send(context.waker().clone()).unwrap();
                Poll::Pending
            });
            let runtime = Runtime::builder().build().unwrap();
            let limit = Duration::from_secs(5);
            // In a task of its own, which nothing but its waker has polled again.
            let woken = runtime.spawn(woken);
            told.send(runtime.block_on(timeout(limit, woken)).is_ok()).unwrap();
        });
        take.recv().unwrap().wake();
        stranger.join().unwrap();
    }
}

#[test]
fn a_runtime_that_ends_takes_no_wake_that_is_meant_for_the_next() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = Runtime::builder().build().unwrap();
    let (told, tells) = mpsc::channel();
    let waker = Waker::from(Arc::new(WakeStranger(told)));
    let mut signals = Signals::new(&[Signal::HangUp]).unwrap();
    let mut next = Box::pin(signals.next());
    run_on(&runtime, async {
        // Its request is in flight until the runtime ends, and then wakes a waker of no runtime.
        assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        yield_now().await;
    });
    drop(runtime);
    assert!(tells.try_recv().expect("the request ends with its runtime"), "the wake was lost");
}

/// Spawns a task when it is dropped.
struct SpawnOnDrop(Rc<Cell<bool>>);

impl Drop for SpawnOnDrop {
    fn drop(&mut self) {
        let ran = self.0.clone();
        drop(spawn(async move { ran.set(true) }));
    }
}

#[test]
fn destructors_of_a_runtime_that_ends_inside_another_see_their_own() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let inner = Runtime::builder().build().unwrap();
    let ran = Rc::new(Cell::new(false));
    let guard = SpawnOnDrop(ran.clone());
    drop(inner.spawn(async move {
        let _guard = guard;
        pending::<()>().await;
    }));
    inner.block_on(yield_now());
    run(async move {
        drop(inner);
        assert_eq!(spawn(async { 5 }).await.unwrap(), 5, "the outer one is there again");
        yield_now().await;
        assert!(!ran.get(), "a task of the inner runtime went to the outer one");
    });
}
