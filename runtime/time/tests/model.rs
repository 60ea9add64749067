//! The wheel against a model so naive that it is right: a list of all deadlines.

use bowline_time::{Duration, Instant, Wheel};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    /// Arm this long after now.
    Arm(u64),
    /// Arm at this very instant, which may be past.
    ArmAt(u64),
    /// Cancel, fired ones included, by the number in order of arming.
    Cancel(usize),
    Rearm(usize, u64),
    /// Let time pass and take all that is due.
    Pass(u64),
    /// Let time pass, and take but so many.
    PassAndTake(u64, usize),
    /// Jump to what `next` says.
    Jump,
}

/// Delays of every magnitude, and clusters of equal ones.
fn delay() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..200_u64,
        (0..64_u32, 0..64_u64).prop_map(|(shift, low)| (1_u64 << shift).wrapping_add(low)),
        Just(1_000_000),
        any::<u64>(),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let passing = prop_oneof![0..500_u64, (0..40_u32).prop_map(|shift| 1_u64 << shift)];
    prop_oneof![
        6 => delay().prop_map(Step::Arm),
        1 => any::<u64>().prop_map(Step::ArmAt),
        3 => any::<usize>().prop_map(Step::Cancel),
        1 => (any::<usize>(), delay()).prop_map(|(which, delay)| Step::Rearm(which, delay)),
        3 => passing.clone().prop_map(Step::Pass),
        1 => (passing, 0..4_usize).prop_map(|(time, count)| Step::PassAndTake(time, count)),
        3 => Just(Step::Jump),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_wheel_does_what_a_list_of_deadlines_does(
        start in prop_oneof![Just(0), any::<u64>(), Just(u64::MAX - 1_000)],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut wheel = Wheel::with_capacity(4);
        let mut now = Instant::from_nanos(start);
        let mut keys = Vec::new();
        let mut deadlines: Vec<Option<Instant>> = Vec::new();
        for step in steps {
            let mut take = usize::MAX;
            match step {
                Step::Arm(_) | Step::ArmAt(_) => {
                    let deadline = match step {
                        Step::Arm(delay) => now + Duration::from_nanos(delay),
                        Step::ArmAt(at) => Instant::from_nanos(at),
                        _ => unreachable!(),
                    };
                    keys.push(wheel.arm(deadline, keys.len()));
                    deadlines.push(Some(deadline));
                    take = 0;
                }
                Step::Cancel(which) if !keys.is_empty() => {
                    let which = which % keys.len();
                    let expected = deadlines[which].take().map(|_| which);
                    prop_assert_eq!(wheel.cancel(keys[which]), expected);
                    take = 0;
                }
                Step::Rearm(which, delay) if !keys.is_empty() => {
                    let which = which % keys.len();
                    let deadline = now + Duration::from_nanos(delay);
                    prop_assert_eq!(
                        wheel.rearm(keys[which], deadline),
                        deadlines[which].is_some()
                    );
                    deadlines[which] = deadlines[which].map(|_| deadline);
                    take = 0;
                }
                Step::Cancel(_) | Step::Rearm(..) => continue,
                Step::Pass(time) => now += Duration::from_nanos(time),
                Step::PassAndTake(time, count) => {
                    now += Duration::from_nanos(time);
                    take = count;
                }
                Step::Jump => now = now.max(wheel.next().unwrap_or(now)),
            }
            let mut taken = 0;
            while taken < take {
                let Some((due, which)) = wheel.expire_with_deadline(now) else { break };
                let deadline = deadlines[which].take();
                prop_assert_eq!(Some(due), deadline, "another timer's deadline");
                prop_assert!(deadline.is_some_and(|deadline| deadline <= now), "early or twice");
                prop_assert_eq!(wheel.get(keys[which]), None);
                taken += 1;
            }
            let first = deadlines.iter().flatten().min().copied();
            prop_assert_eq!(wheel.next().is_some(), first.is_some());
            if let (Some(next), Some(first)) = (wheel.next(), first) {
                prop_assert!(next <= first, "next is later than the first deadline");
            }
            if taken < take {
                prop_assert!(first.is_none_or(|first| first > now), "one that is due was kept");
                prop_assert!(wheel.next().is_none_or(|next| next > now), "time would stand");
            }
            prop_assert_eq!(wheel.len(), deadlines.iter().flatten().count());
        }
        for (which, deadline) in deadlines.iter().enumerate() {
            prop_assert_eq!(wheel.deadline(keys[which]), *deadline);
        }
    }
}

#[test]
fn without_cancellation_next_is_exact() {
    let mut wheel = Wheel::with_capacity(0);
    let mut deadlines: Vec<u64> = (0..4_000_u64).map(|i| i * i * 7_919 % 50_000_017).collect();
    for &deadline in &deadlines {
        wheel.arm(Instant::from_nanos(deadline), deadline);
    }
    deadlines.sort_unstable();
    deadlines.dedup();
    for deadline in deadlines {
        assert_eq!(wheel.next(), Some(Instant::from_nanos(deadline)));
        while let Some(fired) = wheel.expire(Instant::from_nanos(deadline)) {
            assert_eq!(fired, deadline);
        }
    }
    assert!(wheel.is_empty());
}

#[test]
fn a_key_of_old_finds_nothing_where_another_timer_lives_now() {
    let mut wheel = Wheel::with_capacity(1);
    let old = wheel.arm(Instant::from_nanos(10), "old");
    assert_eq!(wheel.expire(Instant::from_nanos(10)), Some("old"));
    let new = wheel.arm(Instant::from_nanos(20), "new");
    assert_eq!(wheel.cancel(old), None);
    assert!(!wheel.rearm(old, Instant::from_nanos(30)));
    assert_eq!(wheel.get(new), Some(&"new"));
}

#[test]
fn a_timer_that_is_due_can_still_be_cancelled() {
    let mut wheel = Wheel::with_capacity(2);
    let first = wheel.arm(Instant::from_nanos(10), 1);
    let second = wheel.arm(Instant::from_nanos(10), 2);
    let fired = wheel.expire(Instant::from_nanos(10)).unwrap();
    let other = if fired == 1 { second } else { first };
    assert!(wheel.cancel(other).is_some());
    assert_eq!(wheel.expire(Instant::from_nanos(10)), None);
    assert_eq!(wheel.next(), None);
}

#[test]
fn never_is_kept_and_does_not_fire() {
    let mut wheel = Wheel::with_capacity(1);
    wheel.arm(Instant::from_nanos(5) + Duration::MAX, ());
    assert_eq!(wheel.expire(Instant::from_nanos(u64::MAX - 1)), None);
    assert_eq!(wheel.next(), Some(Instant::FAR_FUTURE));
}
