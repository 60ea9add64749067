//! How long is waited before somebody is dialled again, and what of that is news.

use core::time::Duration;

use bowline_protocol::{Backoff, Loss, NextDial, Redial};

const MS: fn(u64) -> Duration = Duration::from_millis;

#[test]
fn who_is_lost_as_soon_as_it_is_there_is_dialled_ever_less_often_and_told_of_once() {
    let mut redial = Redial::new(MS(10), MS(1000), 1);
    assert!(redial.after(Loss::Broken(MS(0))).is_news);
    for _ in 0..10 {
        assert!(!redial.after(Loss::Broken(MS(900))).is_news);
    }
    assert!(redial.after(Loss::Broken(MS(2))).wait >= MS(500));
    let NextDial { wait, is_news } = redial.after(Loss::Broken(MS(1000)));
    assert!(!is_news && wait <= MS(10), "it was there, and is not any more: {wait:?}");
}

#[test]
fn each_kind_of_loss_is_news_once() {
    let mut redial = Redial::new(MS(10), MS(1000), 1);
    let kinds = [Loss::Unreachable, Loss::Unresolved, Loss::Handshake, Loss::Broken(MS(1))];
    for (known, kind) in kinds.into_iter().enumerate() {
        assert!(redial.after(kind).is_news, "{kind:?} hides behind {:?}", &kinds[..known]);
        assert!(kinds[..=known].iter().all(|told| !redial.after(*told).is_news), "{kind:?}");
    }
}

#[test]
fn what_was_told_is_news_again_once_it_was_well_for_a_minute() {
    let mut redial = Redial::new(MS(10), MS(1000), 1);
    assert!(redial.after(Loss::Unreachable).is_news);
    assert!(
        redial.after(Loss::Broken(MS(59_999))).is_news && !redial.after(Loss::Unreachable).is_news
    );
    assert!(
        redial.after(Loss::Broken(MS(60_000))).is_news && redial.after(Loss::Unreachable).is_news
    );
}

#[test]
fn waits_double_up_to_the_cap_and_start_over_after_a_success() {
    let (first, max) = (MS(10), MS(80));
    let mut backoff = Backoff::new(first, max, 1);
    for span in [10, 20, 40, 80, 80, 80] {
        let (wait, span) = (backoff.next_wait(), MS(span));
        assert!(wait >= span / 2 && wait <= span, "{wait:?} is not in the half below {span:?}");
    }
    backoff.reset();
    assert!(backoff.next_wait() <= first);
}
