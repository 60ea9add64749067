//! Queues between threads: crossbeam's, but in a model one of which loom sees every step.

#[cfg(not(loom))]
pub(crate) use crossbeam::queue::{ArrayQueue, SegQueue};
#[cfg(loom)]
pub(crate) use model::{ArrayQueue, SegQueue};

#[cfg(loom)]
mod model {
    use std::sync::Mutex;

    use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// More than any model puts into one queue in all: no place is used twice.
    const PLACES: usize = 8;

    /// It orders no more than crossbeam's do, and less where these have fences of their own: what
    /// holds with it holds with them. Of progress it says nothing: where a pusher has a place and has
    /// not filled it yet, crossbeam's wait for it, and this finds nothing.
    pub(crate) struct ArrayQueue<T> {
        capacity: usize,
        head: AtomicUsize,
        tail: AtomicUsize,
        places: [Place<T>; PLACES],
    }

    struct Place<T> {
        full: AtomicBool,
        /// Not one of loom's, as it orders nothing: whoever locks it has it alone by then.
        value: Mutex<Option<T>>,
    }

    impl<T> ArrayQueue<T> {
        pub(crate) fn new(capacity: usize) -> Self {
            let place = |_| Place { full: AtomicBool::new(false), value: Mutex::new(None) };
            ArrayQueue {
                capacity,
                head: AtomicUsize::new(0),
                tail: AtomicUsize::new(0),
                places: std::array::from_fn(place),
            }
        }

        pub(crate) fn push(&self, value: T) -> Result<(), T> {
            let mut tail = self.tail.load(Ordering::Relaxed);
            loop {
                let head = self.head.load(Ordering::Relaxed);
                if tail.saturating_sub(head) >= self.capacity {
                    return Err(value);
                }
                match self.tail.compare_exchange(
                    tail,
                    tail + 1,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => break,
                    Err(now) => tail = now,
                }
            }
            *self.places[tail].value.lock().unwrap() = Some(value);
            self.places[tail].full.store(true, Ordering::Release);
            Ok(())
        }

        pub(crate) fn pop(&self) -> Option<T> {
            let mut head = self.head.load(Ordering::Relaxed);
            loop {
                let place = self.places.get(head)?;
                if !place.full.load(Ordering::Acquire) {
                    return None;
                }
                match self.head.compare_exchange(
                    head,
                    head + 1,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return place.value.lock().unwrap().take(),
                    Err(now) => head = now,
                }
            }
        }

        pub(crate) fn len(&self) -> usize {
            let head = self.head.load(Ordering::Relaxed);
            self.tail.load(Ordering::Relaxed).saturating_sub(head)
        }

        pub(crate) fn is_empty(&self) -> bool {
            self.len() == 0
        }
    }

    /// The same, without a bound.
    pub(crate) struct SegQueue<T>(ArrayQueue<T>);

    impl<T> SegQueue<T> {
        pub(crate) fn new() -> Self {
            SegQueue(ArrayQueue::new(PLACES))
        }

        pub(crate) fn push(&self, value: T) {
            assert!(self.0.push(value).is_ok(), "a model puts too much into a queue");
        }

        pub(crate) fn pop(&self) -> Option<T> {
            self.0.pop()
        }

        pub(crate) fn is_empty(&self) -> bool {
            self.0.is_empty()
        }
    }
}
