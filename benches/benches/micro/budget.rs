//! The bucket of tokens that pays for extra copies: one atomic word for all cores.
//!
//! What a call pays for it: by itself, and while another core does nothing but the same with the
//! same bucket, or with one of its own. The difference of the last two is what sharing costs; with
//! one core there is nobody to share with, and they are left out. A core of a client earns in its
//! own purse and touches the bucket once in many calls, so that this is the worst there can be.

use core::hint::black_box;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::thread;

use bowline_client::core::{Budget, BudgetConfig, Token};
use criterion::Criterion;

/// Reserves a token, as a call with a second copy does, and gives it back.
fn take_and_give_back(budget: &Budget) {
    if black_box(budget).reserve(Token::Paid).is_ok() {
        budget.settle(1, 0, 0);
    }
}

/// Another core that does the same with a bucket, until it is dropped.
struct Other {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Other {
    fn start(budget: Arc<Budget>) -> Other {
        let stop = Arc::<AtomicBool>::default();
        let seen = stop.clone();
        let thread = thread::spawn(move || {
            while !seen.load(Relaxed) {
                take_and_give_back(&budget);
            }
        });
        Other { stop, thread: Some(thread) }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        // It does not panic.
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

fn full() -> Arc<Budget> {
    Arc::new(Budget::new(BudgetConfig::default()).expect("the defaults are valid"))
}

pub(crate) fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("budget");
    let budget = full();
    group.bench_function("take a token and give it back", |b| {
        b.iter(|| take_and_give_back(&budget));
    });
    let empty = BudgetConfig { burst: 0, ..BudgetConfig::default() };
    let empty = Budget::new(empty).expect("a bucket may be empty");
    group.bench_function("be denied", |b| {
        b.iter(|| black_box(&empty).reserve(Token::Paid));
    });
    if thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
        for (name, other) in [("its own", full()), ("the same", budget.clone())] {
            let _other = Other::start(other);
            let id = format!("take a token and give it back, another core at {name} bucket");
            group.bench_function(id, |b| b.iter(|| take_and_give_back(&budget)));
        }
    }
    group.finish();
}
