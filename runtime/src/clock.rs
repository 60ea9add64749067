//! The clock of a core: CLOCK_MONOTONIC, read by way of the CPU's counter where that is sound.
//!
//! Reading the counter costs less than half of a call to the kernel's clock. But a counter may be
//! unstable, or stop, or differ between sockets; the kernel watches for that, and picks another
//! clock source if so. Therefore the counter is used only where the kernel itself uses it.
//!
//! The counter's rate is known to some 30 parts in a million at first. So the clock is anchored
//! anew to CLOCK_MONOTONIC now and then, and takes its rate from the last two anchors. Instants
//! are nanoseconds of CLOCK_MONOTONIC, and what the kernel is told to wait for needs no conversion.
//! A counter that steps, as on a migrated virtual machine, is given up for good when the next anchor
//! shows it, or at once if it is then before the last. Until then, for a second at most, the clock
//! is off by the step, or stands still.
//! A thread never sees its clock go back; nothing is said about clocks of two threads.

use std::cell::Cell;
use std::fmt;

use bowline_time::Instant;

#[cfg(feature = "simulated-driver")]
use crate::driver::sim::World;
use crate::driver::switch::Driver;

/// What a runtime's clock reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The CPU's counter (TSC, CNTVCT), as the kernel does.
    Counter,
    /// CLOCK_MONOTONIC, by a call into the vDSO: the kernel doesn't trust the counter, or it was
    /// caught straying.
    Kernel,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Counter => "CPU counter",
            Source::Kernel => "CLOCK_MONOTONIC",
        })
    }
}

/// What the clock of the current runtime reads.
///
/// # Panics
///
/// Outside a runtime.
pub fn source() -> Source {
    crate::core::with(|core| core.clock.source())
}

/// Nanoseconds of CLOCK_MONOTONIC.
fn monotonic_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes to the struct that is given. It cannot fail for a clock that
    // every kernel has.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Whether the kernel's own clock is made of the counter that [`quanta::Clock::raw`] reads.
fn kernel_trusts_counter() -> bool {
    const CURRENT: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(CURRENT).is_ok_and(|current| is_counter(&current))
}

/// Whether that is the counter, which the kernel names as its clock source.
fn is_counter(current: &str) -> bool {
    let trusted = if cfg!(target_arch = "x86_64") { "tsc" } else { "arch_sys_counter" };
    current.trim() == trusted
}

pub(crate) struct Clock {
    counter: Option<quanta::Clock>,
    /// CLOCK_MONOTONIC, in nanoseconds.
    kernel: fn() -> u64,
    anchor: Cell<Anchor>,
    /// Set once the counter was caught straying.
    strayed: Cell<bool>,
    latest: Cell<u64>,
    /// The clock of a simulated world, and whose it is there: it is read in place of all others.
    #[cfg(feature = "simulated-driver")]
    simulated: Option<(std::sync::Arc<World>, usize)>,
}

impl Clock {
    /// The clock that a core with this driver is to use.
    pub(crate) fn of(driver: &Driver) -> Clock {
        #[cfg(feature = "simulated-driver")]
        if let Driver::Sim(sim) = driver {
            return Clock { simulated: sim.clock(), ..Clock::new() };
        }
        let _ = driver;
        Clock::new()
    }

    fn new() -> Clock {
        // Creating a quanta::Clock calibrates it, once in a process, within some milliseconds.
        Clock::with(kernel_trusts_counter().then(quanta::Clock::new), monotonic_nanos)
    }

    fn with(counter: Option<quanta::Clock>, kernel: fn() -> u64) -> Clock {
        let anchor = counter.as_ref().map_or(Anchor::new(0, 0, 0), |counter| {
            let (ticks, nanos) = simultaneous(counter, kernel);
            Anchor::new(ticks, nanos, counter.delta_as_nanos(0, 1 << RATE_BITS))
        });
        Clock {
            counter,
            kernel,
            anchor: Cell::new(anchor),
            strayed: Cell::new(false),
            latest: Cell::new(0),
            #[cfg(feature = "simulated-driver")]
            simulated: None,
        }
    }

    pub(crate) fn source(&self) -> Source {
        if self.trusted_counter().is_some() { Source::Counter } else { Source::Kernel }
    }

    fn trusted_counter(&self) -> Option<&quanta::Clock> {
        self.counter.as_ref().filter(|_| !self.strayed.get())
    }

    /// The time now. Never before what it said last.
    pub(crate) fn now(&self) -> Instant {
        #[cfg(feature = "simulated-driver")]
        if let Some((world, core)) = &self.simulated {
            return world.clock(*core);
        }
        let nanos = match self.trusted_counter() {
            Some(counter) => {
                let (ticks, anchor) = (counter.raw(), self.anchor.get());
                match anchor.is_stale(ticks) {
                    true => self.renew(counter),
                    false => anchor.nanos(ticks),
                }
            }
            None => (self.kernel)(),
        };
        let latest = self.latest.get().max(nanos);
        self.latest.set(latest);
        Instant::from_nanos(latest)
    }

    /// Anchors the clock anew, or gives the counter up. The time now.
    #[cold]
    #[inline(never)]
    fn renew(&self, counter: &quanta::Clock) -> u64 {
        let (ticks, nanos) = simultaneous(counter, self.kernel);
        match self.anchor.get().renewed(ticks, nanos) {
            Ok(renewed) => self.anchor.set(renewed),
            Err(Strayed) => {
                // Before it is told: who listens may ask for the time.
                self.strayed.set(true);
                tracing::warn!("the CPU's counter strays: using the kernel's clock");
            }
        }
        nanos
    }
}

/// Ticks and nanoseconds that belong together: of some tries, the one in which least time passed
/// between two readings of the counter, so that an interrupt in the middle does no harm.
fn simultaneous(counter: &quanta::Clock, kernel: fn() -> u64) -> (u64, u64) {
    let read = |_| {
        let before = counter.raw();
        let nanos = kernel();
        let apart = counter.raw().saturating_sub(before);
        (apart, before + apart / 2, nanos)
    };
    let (_, ticks, nanos) = (0..4).map(read).min().unwrap_or_default();
    (ticks, nanos)
}

/// Fractional bits of a rate, which is nanoseconds a tick.
const RATE_BITS: u32 = 32;
/// An anchor holds this long at first, and twice as long each time, as the rate gets better known.
const FIRST_AGE: u64 = 10_000_000;
const LAST_AGE: u64 = 1_000_000_000;
/// Counters of two CPUs may differ by so much without harm, in nanoseconds: the clock stands still
/// for as long. What is further before an anchor than that is a step back.
const SLACK: u64 = 1_000_000;
/// A rate that changes by more than one part in so many is not a rate. Quanta's first guess is good
/// to 1 in 30 000; NTP slews CLOCK_MONOTONIC by at most 1 in 2 000.
const TOLERANCE: u64 = 400;

/// The counter was seen to run unevenly.
#[derive(Debug, PartialEq)]
struct Strayed;

/// A moment at which both clocks were read, and the rate since.
#[derive(Clone, Copy)]
struct Anchor {
    ticks: u64,
    nanos: u64,
    /// In 2^-32 nanoseconds a tick.
    rate: u64,
    /// For how many nanoseconds the anchor is good.
    age: u64,
    /// The ticks at which that ends.
    stale: u64,
    /// Fewer ticks than these can only be seen if the counter stepped back.
    earliest: u64,
}

impl Anchor {
    fn new(ticks: u64, nanos: u64, rate: u64) -> Anchor {
        Anchor { ticks, nanos, rate, age: 0, stale: 0, earliest: 0 }.with_age(FIRST_AGE)
    }

    fn with_age(mut self, age: u64) -> Anchor {
        self.age = age;
        self.stale = self.ticks.saturating_add(self.ticks_in(age));
        self.earliest = self.ticks.saturating_sub(self.ticks_in(SLACK));
        self
    }

    fn ticks_in(&self, nanos: u64) -> u64 {
        ((u128::from(nanos) << RATE_BITS) / u128::from(self.rate.max(1))) as u64
    }

    fn is_stale(&self, ticks: u64) -> bool {
        ticks >= self.stale || ticks < self.earliest
    }

    fn nanos(&self, ticks: u64) -> u64 {
        let since = ticks.saturating_sub(self.ticks);
        self.nanos + ((u128::from(since) * u128::from(self.rate)) >> RATE_BITS) as u64
    }

    /// The anchor for the next while, with the rate of the last.
    fn renewed(&self, ticks: u64, nanos: u64) -> Result<Anchor, Strayed> {
        let passed_ticks = ticks.saturating_sub(self.ticks);
        let passed_nanos = nanos.saturating_sub(self.nanos);
        if passed_ticks == 0 {
            return Err(Strayed);
        }
        let rate = ((u128::from(passed_nanos) << RATE_BITS) / u128::from(passed_ticks)) as u64;
        if rate.abs_diff(self.rate) > self.rate / TOLERANCE {
            return Err(Strayed);
        }
        let age = (self.age * 2).min(LAST_AGE);
        Ok(Anchor { ticks, nanos, rate, ..*self }.with_age(age))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    thread_local! {
        /// What the kernel's clock shows to this test.
        static KERNEL: Cell<u64> = const { Cell::new(0) };
    }

    /// A clock on a counter and a kernel that are told what time it is.
    struct Fake {
        clock: Clock,
        counter: Arc<quanta::Mock>,
        latest: Instant,
    }

    impl Fake {
        fn new() -> Fake {
            let (counter, mock) = quanta::Clock::mock();
            mock.increment(5_000_000_000);
            KERNEL.set(7_000_000_000);
            let clock = Clock::with(Some(counter), || KERNEL.get());
            let latest = clock.now();
            Fake { clock, counter: mock, latest }
        }

        /// Time passes: so many nanoseconds, during which the counter counts so many.
        fn pass(&self, nanos: u64, ticks: u64) {
            KERNEL.set(KERNEL.get() + nanos);
            self.counter.increment(ticks);
        }

        /// By how many nanoseconds the clock, which is not to go back, is off.
        fn error(&mut self) -> u64 {
            let now = self.clock.now();
            assert!(now >= self.latest, "it went back by {:?}", self.latest - now);
            self.latest = now;
            now.as_nanos().abs_diff(KERNEL.get())
        }
    }

    #[test]
    fn a_counter_whose_rate_changes_is_followed_and_the_clock_never_goes_back() {
        let mut fake = Fake::new();
        let mut worst = 0;
        // It is 500 millionths fast in one second, and slow in the next.
        for step in 0..200_000_u64 {
            let ticks = if step / 10_000 % 2 == 0 { 100_050 } else { 99_950 };
            fake.pass(100_000, ticks);
            worst = worst.max(fake.error());
        }
        assert_eq!(fake.clock.source(), Source::Counter);
        // A thousandth of an anchor's age.
        assert!((500_000..=1_000_000).contains(&worst), "{worst} ns off");
    }

    #[test]
    fn a_counter_that_steps_forward_is_given_up_at_the_next_reading() {
        let mut fake = Fake::new();
        fake.pass(1_000, 1_000_001_000);
        assert_eq!(fake.error(), 0);
        assert_eq!(fake.clock.source(), Source::Kernel);
        fake.pass(2_000_000_000, 17);
        assert_eq!(fake.error(), 0);
    }

    #[test]
    fn a_counter_that_steps_back_is_given_up_at_the_next_reading() {
        let mut fake = Fake::new();
        fake.pass(1_000, 1_000);
        fake.error();
        fake.counter.decrement(1_000_000_000_u64);
        fake.pass(1_000, 1_000);
        assert_eq!(fake.error(), 0);
        assert_eq!(fake.clock.source(), Source::Kernel);
    }

    #[test]
    fn a_counter_that_stood_still_is_given_up_at_the_next_anchor() {
        let mut fake = Fake::new();
        fake.pass(300_000_000, 0);
        assert_eq!(fake.error(), 300_000_000, "it cannot know");
        for _ in 0..FIRST_AGE / 100_000 {
            fake.pass(100_000, 100_000);
            fake.error();
        }
        assert_eq!(fake.clock.source(), Source::Kernel);
        fake.pass(1_000, 0);
        assert_eq!(fake.error(), 0);
    }

    #[test]
    fn a_clock_that_was_ahead_stands_still_until_it_is_not() {
        let mut fake = Fake::new();
        // So little too fast that it is a rate, and no stray.
        fake.pass(FIRST_AGE - 20_000, FIRST_AGE - 1_000);
        assert_eq!(fake.error(), 19_000);
        fake.pass(1_000, 1_000);
        assert_eq!(fake.error(), 18_000, "the anchor is new, and the time what it was");
        assert_eq!(fake.clock.source(), Source::Counter);
        fake.pass(30_000, 30_000);
        assert!(fake.error() < 100);
    }

    #[test]
    fn only_the_counter_that_is_the_kernels_clock_source_is_read() {
        let own = if cfg!(target_arch = "x86_64") { "tsc\n" } else { "arch_sys_counter\n" };
        assert!(is_counter(own));
        for other in ["hpet\n", "acpi_pm\n", "kvm-clock\n", "tsc-early\n", "jiffies\n", ""] {
            assert!(!is_counter(other), "{other:?}");
        }
        let clock = Clock::with(None, || 17);
        assert_eq!((clock.source(), clock.now()), (Source::Kernel, Instant::from_nanos(17)));
    }

    /// Nanoseconds a tick of a counter that runs at 3 GHz.
    const RATE: u64 = (1 << RATE_BITS) / 3;

    #[test]
    fn drift_is_bounded_by_the_last_interval() {
        // The counter runs 28 millionths faster than was thought.
        let true_nanos = |ticks: u64| 5_000 + (u128::from(ticks) * 1_000_028 / 3_000_000) as u64;
        let mut anchor = Anchor::new(0, 5_000, RATE);
        let mut worst_late = 0;
        for step in 1..100_000_u64 {
            let ticks = step * 1_000_000;
            if anchor.is_stale(ticks) {
                anchor = anchor.renewed(ticks, true_nanos(ticks)).unwrap();
            }
            let error = anchor.nanos(ticks).abs_diff(true_nanos(ticks));
            assert!(error < 400, "{error} ns off at step {step}");
            if step > 1_000 {
                worst_late = worst_late.max(error);
            }
        }
        assert!(worst_late < 20, "{worst_late} ns off with the rate known");
    }

    #[test]
    fn a_step_of_the_counter_is_caught() {
        let anchor = Anchor::new(0, 0, RATE);
        assert_eq!(anchor.renewed(30_000_000, 10_500_000).err(), Some(Strayed));
        assert_eq!(anchor.renewed(0, 10_000_000).err(), Some(Strayed));
        assert!(anchor.renewed(30_000_000, 10_000_300).is_ok());
    }

    #[test]
    fn a_counter_that_steps_back_is_not_waited_for() {
        let anchor = Anchor::new(30_000_000_000, 10_000_000_000, RATE);
        assert!(!anchor.is_stale(30_000_000_000 - 100), "another CPU's counter");
        let stepped = 29_000_000_000;
        assert!(anchor.is_stale(stepped), "the clock would stand still for a third of a second");
        assert_eq!(anchor.renewed(stepped, 10_000_000_500).err(), Some(Strayed));
    }

    #[test]
    fn the_clock_follows_the_kernels_and_never_goes_back() {
        let clock = Clock::new();
        let mut last = clock.now();
        for _ in 0..200_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        let before = monotonic_nanos();
        let read = clock.now().as_nanos();
        // Within what 30 ppm make of the age of an anchor, and a preemption between the two.
        assert!(read + 100_000 > before, "behind by {} ns", before - read);
    }
}
