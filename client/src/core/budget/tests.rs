use super::*;

fn budget(fraction: f64, burst: u32, outstanding: u32) -> Budget {
    Budget::new(BudgetConfig { fraction, burst, outstanding, per_second: 0.0, drain: 1.0 }).unwrap()
}

#[test]
fn it_grants_the_burst_and_no_more() {
    let budget = budget(0.1, 3, 100);
    for _ in 0..3 {
        budget.reserve(Token::Paid).unwrap();
    }
    assert_eq!(budget.reserve(Token::Paid), Err(NoToken::Empty));
}

#[test]
fn the_cap_on_outstanding_copies_is_apart_from_the_level() {
    let budget = budget(0.1, 10, 2);
    budget.reserve(Token::Paid).unwrap();
    budget.reserve(Token::Paid).unwrap();
    assert_eq!(budget.reserve(Token::Paid), Err(NoToken::Outstanding));
    budget.settle(1, 0, 1);
    budget.reserve(Token::Paid).unwrap();
    assert_eq!((budget.level(), budget.outstanding()), (7, 2));
}

#[test]
fn an_unused_token_comes_back_and_a_spent_one_does_not() {
    let budget = budget(0.1, 10, 10);
    budget.reserve(Token::Paid).unwrap();
    budget.reserve(Token::Paid).unwrap();
    budget.settle(2, 0, 1);
    assert_eq!((budget.level(), budget.outstanding()), (9, 0));
}

#[test]
fn successes_refill_it_by_their_fraction_up_to_the_burst() {
    let budget = budget(0.25, 2, 10);
    budget.reserve(Token::Paid).unwrap();
    budget.reserve(Token::Paid).unwrap();
    budget.settle(2, 0, 2);
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
    budget.reserve(Token::Paid).unwrap();
    let mut purse = Purse::default();
    (0..10).for_each(|_| purse.on_success(&budget));
    assert_eq!(budget.level(), 1, "else three could be spent within a moment");
    budget.settle(1, 0, 0);
    assert_eq!(budget.level(), 2);
}

#[test]
fn failures_drain_it_fast_and_successes_bring_it_back() {
    let budget = budget(0.5, 4, 10);
    let mut purse = Purse::default();
    for _ in 0..10 {
        purse.on_failure(&budget);
    }
    assert_eq!(budget.reserve(Token::Paid), Err(NoToken::Empty));
    purse.on_success(&budget);
    purse.on_success(&budget);
    budget.reserve(Token::Paid).unwrap();
}

#[test]
fn threads_that_race_never_overspend_it() {
    let budget = budget(0.0, 1000, 100_000);
    let taken: i32 = std::thread::scope(|scope| {
        let take = || (0..1000).filter(|_| budget.reserve(Token::Paid).is_ok()).count() as i32;
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
    assert_eq!(
        [(); 3].map(|()| budget.reserve(Token::Paid)),
        [Ok(()), Ok(()), Err(NoToken::Empty)]
    );
}

#[test]
fn what_is_lent_is_bounded_by_the_cap_alone_until_copies_run() {
    let budget = budget(0.0, 1, 3);
    (0..3).for_each(|_| budget.reserve(Token::Lent).unwrap());
    assert_eq!(budget.reserve(Token::Lent), Err(NoToken::Outstanding));
    assert_eq!((budget.level(), budget.outstanding()), (1, 3));
    budget.settle(0, 2, 0);
    assert_eq!((budget.level(), budget.outstanding()), (1, 1), "neither of these ran");
    budget.settle(0, 1, 1);
    assert_eq!((budget.level(), budget.outstanding()), (0, 0));
    assert_eq!(budget.reserve(Token::Lent), Err(NoToken::Empty));
}

#[test]
fn a_debt_of_lent_tokens_is_no_larger_than_the_cap_and_is_earned_before_more_is_given() {
    let budget = budget(1.0, 1, 3);
    (0..3).for_each(|_| budget.reserve(Token::Lent).unwrap());
    budget.settle(0, 3, 3);
    assert_eq!(budget.level(), -2);
    let mut purse = Purse::default();
    for _ in 0..2 {
        assert_eq!(budget.reserve(Token::Lent), Err(NoToken::Empty));
        purse.on_success(&budget);
    }
    assert_eq!(budget.reserve(Token::Paid), Err(NoToken::Empty), "it is at zero");
    purse.on_success(&budget);
    budget.reserve(Token::Paid).unwrap();
}

#[test]
fn a_failure_puts_nobody_into_debt_nor_out_of_it() {
    let budget = budget(0.0, 2, 8);
    let mut purse = Purse::default();
    (0..4).for_each(|_| budget.reserve(Token::Lent).unwrap());
    (0..9).for_each(|_| purse.on_failure(&budget));
    assert_eq!(budget.level(), 0);
    budget.settle(0, 4, 4);
    purse.on_failure(&budget);
    assert_eq!(budget.level(), -4);
}

#[test]
fn time_refills_it_without_any_success_and_not_beyond_the_burst() {
    let config = BudgetConfig { per_second: 2.0, burst: 3, ..BudgetConfig::default() };
    let budget = Budget::new(config).unwrap();
    let mut purse = Purse::default();
    let start = Instant::from_nanos(1);
    (0..3).for_each(|_| budget.reserve(Token::Paid).unwrap());
    budget.settle(3, 0, 3);
    purse.on_time(&budget, start);
    // In steps that are far below a unit, too.
    for step in 1..=10_010 {
        purse.on_time(&budget, start + Duration::from_micros(step * 50));
    }
    assert_eq!(budget.level(), 1);
    purse.on_time(&budget, start + Duration::from_millis(1001));
    assert_eq!(budget.level(), 2);
    purse.on_time(&budget, start + Duration::from_secs(3600));
    assert_eq!(budget.level(), 3, "an idle bucket does not grow without end");
    budget.reserve(Token::Paid).unwrap();
    purse.on_time(&budget, start + Duration::from_secs(3600));
    assert_eq!(budget.level(), 2, "nor is an hour counted twice");
}
