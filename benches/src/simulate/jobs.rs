//! Work in parts that know nothing of each other, on as many threads as one likes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Does the parts `0..jobs` on so many threads, each part once, begun in order; what each gave, in
/// order. A part that gives nothing ends the work: those that have not begun then give nothing,
/// either.
///
/// # Panics
/// If a part does.
pub fn run_all<T: Send>(
    jobs: usize,
    threads: usize,
    work: impl Fn(usize) -> Option<T> + Sync,
) -> Vec<Option<T>> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new((0..jobs).map(|_| None).collect::<Vec<Option<T>>>());
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.max(1)) {
            scope.spawn(|| {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    if job >= jobs {
                        return;
                    }
                    match work(job) {
                        Some(result) => {
                            let mut results = results.lock().expect("no thread panics with it");
                            results[job] = Some(result);
                        }
                        None => next.store(jobs, Ordering::Relaxed),
                    }
                }
            });
        }
    });
    results.into_inner().expect("no thread panics with it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_parts_whatever_thread_had_them() {
        let squares: Vec<_> = (0..100).map(|n| Some(n * n)).collect();
        for threads in [1, 3, 200] {
            assert_eq!(run_all(100, threads, |n| Some(n * n)), squares);
        }
        assert_eq!(run_all(0, 2, Some), []);
    }

    #[test]
    fn a_part_that_gives_nothing_ends_the_work() {
        let results = run_all(1000, 1, |n| (n < 10).then_some(n));
        assert_eq!(results.iter().flatten().count(), 10);
        assert_eq!(results.len(), 1000);
    }
}
