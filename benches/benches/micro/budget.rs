//! The bucket of tokens that pays for extra copies: one atomic word for all cores.

use core::hint::black_box;

use bowline_client::core::{Budget, BudgetConfig, Token};
use criterion::Criterion;

pub(crate) fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("budget");
    let budget = Budget::new(BudgetConfig::default()).expect("the defaults are valid");
    group.bench_function("take a token and give it back", |b| {
        b.iter(|| {
            black_box(&budget).reserve(Token::Paid).expect("the bucket is full");
            budget.settle(1, 0, 0);
        });
    });
    let empty = BudgetConfig { burst: 0, ..BudgetConfig::default() };
    let empty = Budget::new(empty).expect("a bucket may be empty");
    group.bench_function("be denied", |b| {
        b.iter(|| black_box(&empty).reserve(Token::Paid));
    });
    group.finish();
}
