//! What shells and the runtime may get wrong, which only run on the simulated driver.

use super::{Mutation, mutation};

const SENDING: &str = "runtime/src/net/sending.rs";
const OUTGOING: &str = "runtime/src/net/outgoing.rs";
const RECEIVING: &str = "runtime/src/net/receiving.rs";
const TURN: &str = "runtime/src/turn.rs";
const RING: &str = "runtime/src/driver/ring.rs";
const RUNTIME: &str = "runtime/src/runtime.rs";
const OPERATION: &str = "runtime/src/operation.rs";
const DOZE: &str = "runtime/src/doze.rs";
const CLOCK: &str = "runtime/src/clock.rs";
const AT_ONCE: &str = "runtime/src/driver/at_once.rs";
const SENDER: &str = "server/src/io/sender.rs";
const PACE: &str = "server/src/io/pace.rs";
const CONNECTION: &str = "server/src/io/connection.rs";
const READER: &str = "server/src/io/reader.rs";

pub(super) const ALL: &[Mutation] = &[
    mutation(
        "who takes a byte now and then counts as reading",
        READER,
        "        let some = (waiting / SOME_PART).max(1) as u64;",
        "        let some = 1u64;",
    )
    .held_by("io::reader::tests::who_took_next_to_nothing_is_idle_while_something_waits"),
    mutation(
        "who was sent most just now goes after who reads",
        READER,
        "        waiting as u128 * (AT_LEAST + behind).as_nanos()",
        "        waiting as u128 * behind.as_nanos()",
    )
    .held_by("io::reader::tests::who_was_sent_most_this_moment_keeps_more_than_who_reads"),
    mutation(
        "the rest of a short send is lost",
        SENDING,
        "        self.let_go_of(taken);",
        "        let all = self.sending.out.borrow().batch.queued();\n        self.let_go_of(if taken > 0 { all } else { 0 });",
    ),
    mutation(
        "who found no buffer is not asked to receive again",
        RECEIVING,
        "                self.core().parked.borrow_mut().push_back(self.clone());",
        "",
    ),
    mutation(
        "what arrives for a connection that closes keeps its buffer",
        RECEIVING,
        "            false => buffers.release(part),",
        "            false => {}",
    ),
    mutation(
        "the end of a connection leaves its copies where they are",
        CONNECTION,
        "            shell.on_closed(conn);",
        "            let _ = conn;",
    ),
    mutation(
        "a large request gives way to every smaller one",
        PACE,
        "one.assembly.borrow().len() > 1",
        "!one.assembly.borrow().is_empty()",
    )
    .held_in(
        "loopback",
        "large::a_large_request_that_is_alone_on_its_connection_comes_through_beside_small_ones",
    ),
    mutation(
        "large requests leave no room to small ones",
        "server/src/io/builder.rs",
        "if is_small { self.assembly_bytes / SMALL } else { 0 }",
        "if is_small { 0 } else { 0 }",
    )
    .held_in(
        "loopback",
        "large::a_large_request_that_is_alone_on_its_connection_comes_through_beside_small_ones",
    ),
    mutation(
        "who knows no segments gets all of its large replies at once",
        SENDER,
        "letter.answer.len() <= room.min(SEGMENT as usize)",
        "letter.answer.len() <= if to.features.has(Features::SEGMENTS) { room.min(SEGMENT as usize) } else { room }",
    )
    .held_in(
        "loopback",
        "large::who_understands_no_segments_may_ask_for_more_at_once_than_may_wait_too",
    ),
    mutation(
        "a large reply counts among the small frames of which too many cut off",
        SENDER,
        "            self.poured.set(self.appended.get());",
        "",
    )
    .held_by("io::sender::tests::who_is_cut_off_over_small_frames_is_so_for_those_alone"),
    mutation(
        "a core sleeps though nobody was told what left in the middle of its turn",
        TURN,
        "        let untold = self.driver.borrow().has_untold();",
        "        let untold = false;",
    )
    .held_in("sending", "who_waits_for_what_left_in_the_middle_of_a_turn_hears_that_it_is_sent"),
    mutation(
        "a send at once counts as told before the kernel has taken it",
        AT_ONCE,
        "        self.sends.is_empty()",
        "        self.taken == 0",
    )
    .held_by("driver::at_once::tests::what_the_kernel_has_not_taken_is_not_told_of"),
    mutation(
        "who waits for what is sent is told of it whenever something else happens",
        SENDING,
        "        let mut is_awaited = self.sending.shut.get() || !self.sending.waiting.borrow().is_empty();",
        "        let mut is_awaited = self.sending.shut.get();",
    )
    .held_in("sending", "who_waits_for_what_leaves_at_a_turn_s_end_hears_that_it_is_sent"),
    mutation(
        "the end of what is sent waits until something else happens",
        SENDING,
        "        let mut is_awaited = self.sending.shut.get() || !self.sending.waiting.borrow().is_empty();",
        "        let mut is_awaited = !self.sending.waiting.borrow().is_empty();",
    )
    .held_in("sending", "the_end_is_sent_after_the_last_message_though_nothing_else_happens"),
    mutation(
        "a piece that others wait for is kept until something else happens",
        OUTGOING,
        "                false if self.batch.is_kept() && !is_awaited => SendWay::AtOnce,",
        "                false if !is_awaited => SendWay::AtOnce,",
    )
    .held_in("sending", "a_piece_is_let_go_of_when_it_is_sent_though_nothing_else_happens"),
    mutation(
        "a send that found no room passes for done while what says so overflows",
        RING,
        "        if self.at_once.done() == 0 || self.submission().cq_overflow() {",
        "        if self.at_once.done() == 0 {",
    )
    .held_in("sending", "a_completion_queue_that_overflows_does_not_hide_what_found_no_room"),
    mutation(
        "a signal breaks the ring that it finds waiting",
        RING,
        "                counters.interrupted.add(1);\n                Ok(false)",
        "                counters.interrupted.add(1);\n                Err(error)",
    )
    .held_in("interrupts", "nothing_fails_or_is_early_while_signals_rain"),
    mutation(
        "memory that the kernel still holds goes with its runtime",
        RUNTIME,
        "        let drained = self.core.close(self.patience);",
        "        let drained = self.core.close(self.patience) || true;",
    )
    .held_by(
        "runtime::tests::a_core_is_leaked_whose_memory_the_kernel_never_lets_go_and_freed_where_it_does",
    ),
    mutation(
        "a read that is given up lets go of its memory at once",
        OPERATION,
        "        let was = std::mem::replace(&mut slot.state, State::Orphaned);",
        "        let was = operations.remove(self.index);",
    )
    .held_in("files", "a_read_that_was_given_up_never_writes_into_memory_that_is_used_again"),
    mutation(
        "a core that is awake is woken all the same",
        DOZE,
        "        self.state.swap(CALLED, Ordering::Release) == ASLEEP",
        "        self.state.swap(CALLED, Ordering::Release) != CALLED",
    )
    .held_in("cores", "a_core_that_is_awake_is_woken_by_nobody"),
    mutation(
        "a counter that strayed is trusted all the same",
        CLOCK,
        "                self.strayed.set(true);",
        "",
    )
    .held_by("clock::tests::a_counter_that_steps_forward_is_given_up_at_the_next_reading"),
    mutation(
        "a core spins as long as ever though it finds nothing",
        TURN,
        "            spin.slept(self.clock.now() - began);",
        "",
    )
    .held_in("spinning", "a_core_whose_work_comes_rarely_gives_up_to_spin_for_it"),
    mutation(
        "a reply above what the caller takes passes for a handler that failed",
        SENDER,
        "                        (Status::TooLarge, format!(\"this reply can't be sent: {error}\"))",
        "                        (Status::Failed, format!(\"this reply can't be sent: {error}\"))",
    )
    .held_in(
        "loopback",
        "basics::a_reply_that_the_caller_does_not_take_is_told_and_breaks_no_connection",
    ),
    mutation(
        "the words for a reply above what the caller takes are above that, too",
        SENDER,
        ".filter(|why| why.len() <= room)",
        ".filter(|why| why.len() <= room + usize::MAX / 2)",
    )
    .held_in("loopback", "basics::who_takes_next_to_nothing_is_told_by_the_status_alone"),
    mutation(
        "a failure whose words its caller does not take passes for a reply that is too large",
        SENDER,
        "                    failed => (failed, String::new()),",
        "                    _ => (Status::TooLarge, String::new()),",
    )
    .held_in("loopback", "basics::who_takes_no_words_is_told_which_failure_it_was"),
    mutation(
        "a replica that moves is taken out of the set meanwhile",
        "client/src/io/members.rs",
        "            Some(_) => self.keeper.shell.state.borrow_mut().calls.move_replica(member.id),",
        "            Some(_) => self.keeper.shell.state.borrow_mut().calls.remove_replica(member.id),",
    )
    .held_in("loopback", "live::a_call_waits_for_the_only_replica_while_that_moves"),
    mutation(
        "what is about to be handed over to a replica as that leaves may begin to go there",
        "client/src/io/connection.rs",
        "        self.shell.pump();\n        let mut state = self.shell.state.borrow_mut();\n        while let",
        "        let mut state = self.shell.state.borrow_mut();\n        while let",
    )
    .held_in("loopback", "connections::a_large_request_that_was_to_go_to_a_replica_as_that_leaves_goes_elsewhere"),
    mutation(
        "a change of a replica goes on beside the one that follows it",
        "client/src/io/members.rs",
        "        member.change = Some(Owned(spawn_at(Stage::Input, change)));",
        "        drop(spawn_at(Stage::Input, change));",
    )
    .held_in("loopback", "live::a_replica_that_is_taken_out_while_it_moves_stays_out"),
    mutation(
        "of a reply that waits only what is left of it counts",
        SENDER,
        "        self.stream.queued() + self.outbox.borrow().held()",
        "        self.stream.queued() + self.outbox.borrow().waiting()",
    )
    .held_by("io::sender::tests::a_reply_waits_with_all_of_its_memory_however_much_of_it_is_read"),
];
