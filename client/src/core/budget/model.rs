//! The bucket under every interleaving of a few threads (`--cfg loom`).

use loom::sync::Arc;
use loom::thread;

use super::*;

fn budget(burst: u32, outstanding: u32) -> Arc<Budget> {
    let config = BudgetConfig { fraction: 1.0, per_second: 0.0, burst, outstanding, drain: 1.0 };
    Arc::new(Budget::new(config).unwrap())
}

#[test]
fn it_is_never_overspent() {
    loom::model(|| {
        let budget = budget(1, 8);
        let take = |budget: Arc<Budget>| move || u32::from(budget.reserve(Token::Paid).is_ok());
        let threads = [0, 1].map(|_| thread::spawn(take(budget.clone())));
        let mine = take(budget.clone())();
        let taken: u32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(taken + mine, 1);
        assert_eq!((budget.level(), budget.outstanding()), (0, 1));
    });
}

#[test]
fn no_token_is_lost_or_made_when_reserving_races_settling_and_earning() {
    loom::model(|| {
        let budget = budget(2, 8);
        budget.reserve(Token::Paid).unwrap();
        let other = budget.clone();
        let settling = thread::spawn(move || other.settle(1, 0, 1));
        let other = budget.clone();
        let earning = thread::spawn(move || Purse::default().on_success(&other));
        let reserved = u32::from(budget.reserve(Token::Paid).is_ok());
        settling.join().unwrap();
        earning.join().unwrap();
        assert_eq!(reserved, 1);
        assert_eq!(budget.outstanding(), 1);
        // What was earned while the bucket was full, with its outstanding tokens, is lost.
        assert!(budget.level() <= 1);
        budget.settle(1, 0, 0);
        assert!(budget.level() + budget.outstanding() as i32 <= 2);
    });
}

#[test]
fn the_cap_on_outstanding_tokens_holds() {
    loom::model(|| {
        let budget = budget(8, 1);
        let other = budget.clone();
        let thread = thread::spawn(move || u32::from(other.reserve(Token::Paid).is_ok()));
        let mine = u32::from(budget.reserve(Token::Paid).is_ok());
        assert_eq!(thread.join().unwrap() + mine, 1);
        assert_eq!((budget.level(), budget.outstanding()), (7, 1));
    });
}

#[test]
fn what_was_lent_is_charged_once_and_a_debt_is_never_above_the_cap() {
    loom::model(|| {
        let budget = budget(1, 2);
        let tie = |budget: Arc<Budget>| {
            move || {
                let lent = u32::from(budget.reserve(Token::Lent).is_ok());
                budget.settle(0, lent, lent);
                lent as i32
            }
        };
        let threads = [0, 1].map(|_| thread::spawn(tie(budget.clone())));
        let ran: i32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!((budget.level(), budget.outstanding()), (1 - ran, 0));
        assert!(budget.level() >= -1);
    });
}
