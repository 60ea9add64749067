use super::*;

fn budget(fraction: f64, burst: u32, outstanding: u32) -> Budget {
    Budget::new(BudgetConfig { fraction, burst, outstanding, drain: 1.0 }).unwrap()
}

#[test]
fn it_grants_the_burst_and_no_more() {
    let budget = budget(0.1, 3, 100);
    for _ in 0..3 {
        budget.reserve().unwrap();
    }
    assert_eq!(budget.reserve(), Err(NoToken::Empty));
}

#[test]
fn the_cap_on_outstanding_copies_is_apart_from_the_level() {
    let budget = budget(0.1, 10, 2);
    budget.reserve().unwrap();
    budget.reserve().unwrap();
    assert_eq!(budget.reserve(), Err(NoToken::Outstanding));
    budget.settle(1, 0);
    budget.reserve().unwrap();
    assert_eq!((budget.level(), budget.outstanding()), (7, 2));
}

#[test]
fn an_unused_token_comes_back_and_a_spent_one_does_not() {
    let budget = budget(0.1, 10, 10);
    budget.reserve().unwrap();
    budget.reserve().unwrap();
    budget.settle(1, 1);
    assert_eq!((budget.level(), budget.outstanding()), (9, 0));
}

#[test]
fn successes_refill_it_by_their_fraction_up_to_the_burst() {
    let budget = budget(0.25, 2, 10);
    budget.reserve().unwrap();
    budget.reserve().unwrap();
    budget.settle(2, 0);
    let mut purse = Purse::default();
    for _ in 0..4 {
        assert_eq!(budget.level(), 0);
        purse.on_success(&budget);
    }
    assert_eq!(budget.level(), 1);
    for _ in 0..1000 {
        purse.on_success(&budget);
    }
    assert_eq!(budget.level(), 2, "an idle bucket does not grow without end");
}

#[test]
fn what_is_outstanding_keeps_its_place_in_the_bucket() {
    let budget = budget(1.0, 2, 10);
    budget.reserve().unwrap();
    let mut purse = Purse::default();
    (0..10).for_each(|_| purse.on_success(&budget));
    assert_eq!(budget.level(), 1, "else three could be spent within a moment");
    budget.settle(0, 1);
    assert_eq!(budget.level(), 2);
}

#[test]
fn failures_drain_it_fast_and_successes_bring_it_back() {
    let budget = budget(0.5, 4, 10);
    let mut purse = Purse::default();
    for _ in 0..10 {
        purse.on_failure(&budget);
    }
    assert_eq!(budget.reserve(), Err(NoToken::Empty));
    purse.on_success(&budget);
    purse.on_success(&budget);
    budget.reserve().unwrap();
}

#[test]
fn threads_that_race_never_overspend_it() {
    let budget = budget(0.0, 1000, 1 << 20);
    let taken: u32 = std::thread::scope(|scope| {
        let take = || (0..1000).filter(|_| budget.reserve().is_ok()).count() as u32;
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((taken, budget.level(), budget.outstanding()), (1000, 0, 1000));
}

#[test]
fn a_setting_out_of_range_is_refused_by_name() {
    let config = BudgetConfig { fraction: 1.5, ..BudgetConfig::default() };
    let error = Budget::new(config).unwrap_err();
    assert_eq!(error.to_string(), "budget.fraction is 1.5, but must be 0, or 1/2048 to 1");
}

#[test]
fn what_would_be_rounded_to_nothing_is_refused_and_nothing_is_not() {
    let ok = BudgetConfig::default();
    let of = |fraction| BudgetConfig { fraction, ..ok }.validate();
    assert_eq!(of(0.0), Ok(()));
    assert_eq!(of(1.0 / 2048.0), Ok(()));
    assert_eq!(of(0.0004).unwrap_err().field, "budget.fraction");
    let error = BudgetConfig { drain: 0.0004, ..ok }.validate().unwrap_err();
    assert_eq!(error.field, "budget.drain");
    let error = BudgetConfig { outstanding: u32::MAX, ..ok }.validate().unwrap_err();
    assert_eq!(error.field, "budget.outstanding");
}

#[test]
fn no_more_is_outstanding_than_the_burst_whatever_the_cap() {
    let budget = budget(0.5, 2, 100);
    assert_eq!([(); 3].map(|()| budget.reserve()), [Ok(()), Ok(()), Err(NoToken::Empty)]);
}
