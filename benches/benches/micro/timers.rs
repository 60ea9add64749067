//! Timers, of which nearly all are cancelled: a deadline, a hedge delay and a stagger for each call.

use core::hint::black_box;

use bowline_time::{Instant, Wheel};
use criterion::{BatchSize, BenchmarkId, Criterion};

/// Timers that are armed beside the one that is looked at.
const CROWDS: [u64; 2] = [0, 10_000];

fn at_us(us: u64) -> Instant {
    Instant::from_nanos(us * 1000)
}

pub(crate) fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("timers");
    for crowd in CROWDS {
        let mut wheel = Wheel::with_capacity(crowd as usize + 1);
        for n in 0..crowd {
            wheel.arm(at_us(50_000 + 7 * n), n);
        }
        group.bench_function(BenchmarkId::new("wheel: arm and cancel, beside", crowd), |b| {
            b.iter(|| {
                let key = wheel.arm(black_box(at_us(81_234)), 0);
                wheel.cancel(key)
            });
        });
    }
    group.bench_function("wheel: arm 1000 and let them fire", |b| {
        b.iter_batched_ref(
            || Wheel::with_capacity(1000),
            |wheel| {
                for n in 0..1000 {
                    wheel.arm(at_us(100 + 13 * n), n);
                }
                while wheel.expire(at_us(20_000)).is_some() {}
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}
