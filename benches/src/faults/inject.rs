//! Carries a plan out, and never leaves a replica stopped.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::plan::{Action, Plan, Step};

/// Something whose replicas can be stopped in mid-step and let go again.
pub trait Pausable: Send + Sync + 'static {
    /// Stops `replica` where it is, as SIGSTOP does.
    ///
    /// # Errors
    /// The replica is not there any more.
    fn pause(&self, replica: usize) -> io::Result<()>;

    /// Lets `replica` go on; harmless if it was not stopped.
    ///
    /// # Errors
    /// The replica is not there any more.
    fn resume(&self, replica: usize) -> io::Result<()>;
}

/// A thread that stops and continues replicas by a [`Plan`].
///
/// Dropping it ends the plan at once and continues every replica that it had stopped.
#[derive(Debug)]
pub struct Injector {
    thread: Option<JoinHandle<Carried>>,
    /// Its disconnection is the request to end.
    running: Option<Sender<()>>,
}

/// What became of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Stalls that were begun.
    pub begun: usize,
    /// Stalls that were to begin, and whose replica could not be stopped.
    pub failed: usize,
}

impl Injector {
    /// Starts to carry out `plan`, whose times count from `start`.
    pub fn start<P: Pausable>(plan: &Plan, start: Instant, replicas: Arc<P>) -> Self {
        let steps = plan.steps();
        let (running, ended) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut stopped = Stopped { replicas: &*replicas, which: Vec::new() };
            let mut carried = Carried::default();
            for step in &steps {
                let wait = (start + step.at).saturating_duration_since(Instant::now());
                match ended.recv_timeout(wait) {
                    Err(RecvTimeoutError::Timeout) => stopped.apply(step, &mut carried),
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            carried
        });
        Injector { thread: Some(thread), running: Some(running) }
    }

    /// Ends the plan now and says what became of it.
    pub fn finish(mut self) -> Carried {
        self.join()
    }

    fn join(&mut self) -> Carried {
        drop(self.running.take());
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Injector {
    fn drop(&mut self) {
        self.join();
    }
}

/// The replicas that are stopped now; continues them all when dropped, also by a panic.
struct Stopped<'a, P: Pausable> {
    replicas: &'a P,
    which: Vec<usize>,
}

impl<P: Pausable> Stopped<'_, P> {
    /// Carries out one step. A replica that cannot be stopped, for one because it has died, is
    /// counted and passed over.
    fn apply(&mut self, step: &Step, carried: &mut Carried) {
        match step.action {
            Action::Stop => {
                // Noted first: should the pause fail half-way, it is still undone.
                self.which.push(step.replica);
                match self.replicas.pause(step.replica) {
                    Ok(()) => carried.begun += 1,
                    Err(_) => carried.failed += 1,
                }
            }
            Action::Continue => {
                self.which.retain(|&replica| replica != step.replica);
                self.replicas.resume(step.replica).ok();
            }
        }
    }
}

impl<P: Pausable> Drop for Stopped<'_, P> {
    fn drop(&mut self) {
        for &replica in &self.which {
            self.replicas.resume(replica).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::sync::Mutex;
    use std::sync::mpsc::Receiver;

    use super::*;
    use crate::faults::{Pattern, StallModel};

    /// Notes what was done, and tells a channel, so that a test can await it.
    struct Notes {
        done: Mutex<Vec<(usize, Action)>>,
        told: Sender<Action>,
    }

    impl Notes {
        fn new() -> (Arc<Self>, Receiver<Action>) {
            let (told, heard) = mpsc::channel();
            (Arc::new(Notes { done: Mutex::new(Vec::new()), told }), heard)
        }

        fn note(&self, replica: usize, action: Action) -> io::Result<()> {
            self.done.lock().expect("no holder panics").push((replica, action));
            self.told.send(action).ok();
            Ok(())
        }
    }

    impl Pausable for Notes {
        fn pause(&self, replica: usize) -> io::Result<()> {
            self.note(replica, Action::Stop)
        }
        fn resume(&self, replica: usize) -> io::Result<()> {
            self.note(replica, Action::Continue)
        }
    }

    fn plan(length: Duration, slice: Duration) -> Plan {
        let model =
            StallModel { pattern: Pattern::Independent, length, gap: Duration::from_micros(200) };
        Plan::draw(1, &model, 3, slice)
    }

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn a_plan_is_carried_out_in_order() {
        let plan = plan(Duration::from_millis(1), Duration::from_millis(20));
        let (notes, heard) = Notes::new();
        let injector = Injector::start(&plan, Instant::now(), notes.clone());
        for _ in 0..2 * plan.stalls().len() {
            heard.recv_timeout(PATIENCE).expect("the plan goes on to its end");
        }
        let whole = Carried { begun: plan.stalls().len(), failed: 0 };
        assert_eq!(injector.finish(), whole);
        let expected: Vec<_> = plan.steps().iter().map(|s| (s.replica, s.action)).collect();
        assert_eq!(*notes.done.lock().expect("no holder panics"), expected);
    }

    /// A replica that has died.
    struct Gone(Sender<()>);

    impl Pausable for Gone {
        fn pause(&self, _: usize) -> io::Result<()> {
            self.0.send(()).ok();
            Err(io::ErrorKind::NotFound.into())
        }

        fn resume(&self, _: usize) -> io::Result<()> {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    #[test]
    fn a_replica_that_cannot_be_stopped_is_counted() {
        let plan = plan(Duration::from_millis(1), Duration::from_millis(5));
        let (tried, heard) = mpsc::channel();
        let injector = Injector::start(&plan, Instant::now(), Arc::new(Gone(tried)));
        for _ in plan.stalls() {
            heard.recv_timeout(PATIENCE).expect("every stall is tried");
        }
        assert_eq!(injector.finish(), Carried { begun: 0, failed: plan.stalls().len() });
    }

    #[test]
    fn ending_in_the_middle_of_a_stall_lets_the_replica_go_on() {
        // A stall of an hour: only the end of the injector can continue the replica.
        let plan = plan(Duration::from_secs(3600), Duration::from_secs(7200));
        let (notes, heard) = Notes::new();
        let injector = Injector::start(&plan, Instant::now(), notes.clone());
        assert_eq!(heard.recv_timeout(PATIENCE), Ok(Action::Stop));
        drop(injector);
        let done = notes.done.lock().expect("no holder panics");
        assert_eq!(done.len(), 2);
        assert_eq!(done[1], (done[0].0, Action::Continue));
    }
}
