//! The loop.

use bowline_time::{Duration, Instant};

use crate::core::Core;
use crate::notify::wake;
use crate::task::Stage;

/// How often a turn looks for more input before it goes on with what it has.
const INPUT_ROUNDS: usize = 64;
/// For how many budgets it does. A peer that sends faster than it is read would else hold off the
/// timers, and all work, for as long as it likes.
const INPUT_BUDGETS: u32 = 2;
/// For how many budgets that which was reaped is applied, as it is to be before anything is
/// decided. Peers can't make it that long, for the receive buffers are few: this ends tasks that
/// wake each other without end.
const APPLY_BUDGETS: u32 = 64;
/// A task's poll is much shorter than a budget: the clock is read once for so many.
const POLLS_PER_LOOK: u32 = 8;

impl Core {
    /// One turn of the loop.
    ///
    /// Its order is a promise, and part of the tied protocol: a copy whose cancel has arrived is
    /// never started. All that has arrived is applied before anything is decided on it, and what
    /// was decided is in the kernel's hands before any work begins.
    pub(crate) fn turn(&self) {
        self.counters.turns.add(1);
        let began = self.clock.now();
        self.now.set(began);
        self.tasks.begin_turn();
        self.take_remote();

        if self.apply_input() {
            self.decide_and_work(began);
        }
        // What was sent before this turn's end is to be told first: tasks that ran since may wait for it.
        let untold = self.driver.borrow().has_untold();
        self.flush();
        self.unpark();
        match self.is_idle() && !untold {
            true => self.sleep(),
            false => self.submit(),
        }
    }

    /// Reaps completions and lets readers apply them, until the sockets are dry, or there is nothing
    /// to decide on what arrived: then what else there is comes in with what leaves, by one call of
    /// the kernel for both. What was reaped is applied in any case; if time or rounds are up, the
    /// next turn goes on with the rest. True if there is something to decide.
    fn apply_input(&self) -> bool {
        let began = self.now.get();
        let mut now = began;
        let mut rounds = 0;
        let decides = loop {
            self.reap();
            self.run(Stage::Input, now, APPLY_BUDGETS);
            now = self.clock.now();
            if !self.has_to_decide(now) {
                break false;
            }
            if !self.look_again() {
                break true;
            }
            rounds += 1;
            if rounds == INPUT_ROUNDS || self.is_over(began, INPUT_BUDGETS, now) {
                self.counters.inputs_cut_short.add(1);
                break true;
            }
        };
        // It may have taken a while: what fell due meanwhile is not to wait for another turn.
        self.now.set(now);
        decides
    }

    /// Does what is to be done in this turn with its input applied, in the order of the stages.
    #[inline(never)]
    fn decide_and_work(&self, began: Instant) {
        let started = if self.expire_timers() { self.clock.now() } else { self.now.get() };
        self.run(Stage::Decide, started, 1);

        if self.tasks.is_ready(Stage::Work) {
            self.submit();
            self.run(Stage::Work, self.clock.now(), 1);
        }
        if self.tasks.is_ready(Stage::Background) {
            self.run_background(began);
        }
    }

    /// Whether anything but input is to be done in this turn.
    fn has_to_decide(&self, now: Instant) -> bool {
        self.tasks.is_ready_after(Stage::Input) || self.is_timer_due(now)
    }

    /// Has the kernel look again at the sockets that it was not watching: those that were paused or
    /// are to be watched anew, and those that ran out of buffers, now that some came back. True if
    /// there may be more input than was applied.
    fn look_again(&self) -> bool {
        if self.unpark() | self.rearmed.take() {
            // Without a flush: what was written leaves together, later, unless some of it was much.
            self.driver.borrow_mut().submit(&self.counters);
        }
        // Readers whose time was used up are not done yet.
        self.tasks.is_ready(Stage::Input) || self.driver.borrow_mut().has_completions()
    }

    /// Whether so many budgets of time are over.
    fn is_over(&self, since: Instant, budgets: u32, now: Instant) -> bool {
        now - since >= self.settings.budget.saturating_mul(budgets)
    }

    /// Runs a stage's ready tasks until there are none, or so many budgets of time are over.
    fn run(&self, stage: Stage, since: Instant, budgets: u32) {
        let mut polls = 0_u32;
        while let Some(next) = self.tasks.next(stage) {
            self.poll(next);
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(POLLS_PER_LOOK)
                && self.is_over(since, budgets, self.clock.now())
            {
                self.counters.budgets_exhausted.add(1);
                return;
            }
        }
    }

    /// Runs background tasks, for a budget at most: as long as nobody else is ready, and for what
    /// they have earned if somebody is.
    fn run_background(&self, began: Instant) {
        let start = self.clock.now();
        let mut share = self.share.get();
        share.earn(start - began);
        let mut last = start;
        loop {
            let others_wait = self.is_wanted(last);
            if others_wait && !share.is_earned() {
                break;
            }
            let Some(next) = self.tasks.next(Stage::Background) else { break };
            self.poll(next);
            let now = self.clock.now();
            if others_wait {
                share.spend(now - last);
                self.counters.background_nanos.add((now - last).as_nanos() as u64);
            }
            last = now;
            if last - start >= self.settings.budget {
                break;
            }
        }
        self.share.set(share);
    }

    /// Whether anything but background tasks is ready, or would be if it was looked for.
    fn is_wanted(&self, now: Instant) -> bool {
        self.tasks.is_urgent()
            || self.is_urgently_asked()
            || self.is_timer_due(now)
            || self.driver.borrow_mut().has_completions()
    }

    /// Polls a task, and submits what it sent if that is not to wait.
    fn poll(&self, index: u32) {
        self.poll_watched(index);
        if self.full_send.get() {
            self.submit();
        }
    }

    /// Polls a task; if asked to, watches how long it takes.
    fn poll_watched(&self, index: u32) {
        let Some(limit) = self.settings.stall else {
            return self.tasks.poll_counted(index, &self.counters);
        };
        let label = self.tasks.label(index);
        let start = self.clock.now();
        self.tasks.poll_counted(index, &self.counters);
        let held = self.clock.now() - start;
        if held >= limit {
            self.counters.stalls.add(1);
            let task = label.map(tracing::field::display);
            tracing::warn!(task, ?held, "a task held its core");
        }
    }

    fn is_timer_due(&self, now: Instant) -> bool {
        self.timers.borrow().next().is_some_and(|next| next <= now)
    }

    /// Wakes whose time has come. False if nobody's has.
    fn expire_timers(&self) -> bool {
        let now = self.now.get();
        let mut any = false;
        loop {
            let expired = self.timers.borrow_mut().expire_with_deadline(now);
            let Some((due, waker)) = expired else { return any };
            any = true;
            self.counters.timers.add(1);
            self.counters.timer_lateness.record((now - due).as_nanos() as u64);
            wake(waker);
        }
    }

    /// Whether there is nothing to do but wait.
    fn is_idle(&self) -> bool {
        !self.tasks.any_ready()
            && !self.tasks.adopted_ended()
            && !self.can_unpark()
            && !self.is_asked()
            && !self.driver.borrow_mut().has_completions()
    }

    /// Hands all that is queued to the kernel.
    fn submit(&self) {
        self.flush();
        self.driver.borrow_mut().submit(&self.counters);
    }

    /// Waits for completions, other threads, or the next timer; before that, spins if told to.
    fn sleep(&self) {
        let next = self.timers.borrow().next();
        match self.spin.get().is_allowed() {
            true => self.spin_and_park(next),
            false => self.park(next),
        }
    }

    #[inline(never)]
    fn spin_and_park(&self, next: Option<Instant>) {
        let began = self.clock.now();
        let mut spin = self.spin.get();
        if self.look(next, began, spin.span()) {
            spin.found();
        } else {
            self.park(next);
            spin.slept(self.clock.now() - began);
        }
        self.spin.set(spin);
    }

    /// Waits in the kernel.
    fn park(&self, next: Option<Instant>) {
        if self.remote.doze().fall_asleep() {
            self.driver.borrow_mut().wait(&self.counters, &self.clock, next);
        } else {
            self.driver.borrow_mut().submit(&self.counters);
        }
    }

    /// Looks for something to do for a while, without entering the kernel. True if it found it.
    fn look(&self, next: Option<Instant>, began: Instant, span: Duration) -> bool {
        if span.is_zero() {
            return false;
        }
        self.driver.borrow_mut().submit(&self.counters);
        self.counters.spins.add(1);
        let mut now = began;
        loop {
            if self.driver.borrow_mut().has_completions()
                || self.is_asked()
                || next.is_some_and(|next| next <= now)
            {
                return true;
            }
            if now - began >= span {
                self.counters.spins_in_vain.add(1);
                return false;
            }
            std::hint::spin_loop();
            now = self.clock.now();
        }
    }
}
