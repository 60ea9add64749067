//! What a keyed method does is done once, whoever dies and whoever asks again: real processes,
//! killed at any moment and at the two worst ones, and the effects counted in the data.
//!
//! A replica is killed a dozen times, so that nobody waits for long; `BOWLINE_KILLS=100 cargo test -p
//! bowline-server --test once` kills it a hundred times, as CI does.

mod replica;
mod wire;

use std::collections::BTreeMap;

use bowline_runtime::Runtime;
use bowline_server::io::once::{Ledger, Redb, Retention};
use tempfile::TempDir;

use replica::{Hold, Replica, count_of};
use wire::Caller;

/// New calls in each round.
const ROUND: u64 = 16;
/// How often a replica is killed, if nothing is said.
const KILLS: u64 = 12;

/// How often a replica is to be killed: BOWLINE_KILLS.
fn kills() -> u64 {
    std::env::var("BOWLINE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS)
}

/// What calls were answered, by call; and which are open.
#[derive(Default)]
struct Book {
    answers: BTreeMap<u64, Vec<u8>>,
    open: Vec<u64>,
    next: u64,
}

impl Book {
    /// New calls.
    fn begin_round(&mut self) {
        self.open.extend(self.next..self.next + ROUND);
        self.next += ROUND;
    }

    /// An answer came. One that came before must have been the same.
    fn answered(&mut self, call: u64, answer: Vec<u8>) {
        self.open.retain(|open| *open != call);
        let known = self.answers.entry(call).or_insert_with(|| answer.clone());
        assert_eq!(*known, answer, "call {call} was answered differently");
    }

    /// Every call has had its effect once, as the data says.
    fn check(&self, path: &std::path::Path) {
        let ledger = Ledger::open(Redb::open(path).unwrap(), Retention::default()).unwrap();
        Runtime::builder().build().unwrap().block_on(async {
            for call in 0..self.next {
                let key = count_of(call);
                let count = ledger.read(move |data| Ok(data.get(&key)?.unwrap_or_default())).await;
                assert_eq!(count.unwrap(), 1_u64.to_le_bytes(), "effects of call {call}");
            }
            let sum = ledger.read(|data| Ok(data.get(b"sum")?.unwrap_or_default())).await;
            assert_eq!(sum.unwrap(), self.next.to_le_bytes(), "effects of all calls");
        });
    }
}

#[test]
fn a_keyed_effect_is_had_once_however_often_its_replica_is_killed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("data.redb");
    let mut book = Book::default();
    for kill in 0..kills() {
        let effects = 1 + kill % ROUND;
        let hold = match kill % 3 {
            0 => Hold::No,
            1 => Hold::BeforeCommit(effects),
            _ => Hold::AfterCommit(effects),
        };
        let mut replica = Replica::start(&path, 1, hold);
        let mut caller = Caller::connect(replica.address);
        book.begin_round();
        // What was answered is asked for again, too: a reply may have been lost on its way.
        let again: Vec<u64> = book.answers.keys().rev().take(4).copied().collect();
        caller.send(again.into_iter().chain(book.open.iter().copied()));
        if hold == Hold::No {
            // In the middle: some have their answers, some have not.
            for _ in kill % ROUND..caller.under_way() as u64 {
                let (call, answer) = caller.answer().expect("it lives");
                book.answered(call, answer);
            }
        } else {
            replica.await_hold();
        }
        replica.kill();
        while let Some((call, answer)) = caller.answer() {
            book.answered(call, answer);
        }
    }
    let replica = Replica::start(&path, 1, Hold::No);
    let mut caller = Caller::connect(replica.address);
    // What had no answer so far: some had their effect, and some had none.
    let (known, open) = (book.answers.len() as u64, book.open.len() as u64);
    for first in (0..book.next).step_by(ROUND as usize) {
        caller.send(first..first + ROUND);
        for _ in 0..ROUND {
            let (call, answer) = caller.answer().expect("it lives");
            book.answered(call, answer);
        }
    }
    let (effects, prevented) = caller.stats();
    assert!(prevented >= known && effects <= open, "{prevented} of {known}, {effects} of {open}");
    assert!(known > 0 && effects + prevented == book.next);
    drop(replica);
    assert!(book.open.is_empty());
    book.check(&path);
}

#[test]
fn a_keyed_effect_is_had_once_though_both_replicas_of_a_shared_store_are_asked() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("data.redb");
    let mut replicas = [1, 2].map(|number| Replica::start_shared(&path, number));
    let mut book = Book::default();
    let mut callers = [0, 1].map(|at| Caller::connect(replicas[at].address));
    for round in 0..8 {
        book.begin_round();
        callers[round % 2].send(book.open.iter().copied());
        callers[1 - round % 2].hedge(book.open.iter().copied());
        if round == 5 {
            // One of them dies in the middle, and is asked again when it is back.
            replicas[0].kill();
            while let Some((call, answer)) = callers[0].answer() {
                book.answered(call, answer);
            }
            replicas[0] = Replica::start_shared(&path, 1);
            callers[0] = Caller::connect(replicas[0].address);
            let open = book.open.clone();
            callers[0].send(open.iter().copied());
        }
        let asked: Vec<usize> = callers.iter().map(Caller::under_way).collect();
        for (caller, answers) in callers.iter_mut().zip(asked) {
            for _ in 0..answers {
                let (call, answer) = caller.answer().expect("it lives");
                book.answered(call, answer);
            }
        }
        assert!(book.open.is_empty());
    }
    let stats: Vec<_> = callers.iter_mut().map(Caller::stats).collect();
    let (effects, prevented) = stats.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(prevented > 0 && effects > 0, "{stats:?}");
    drop(replicas);
    book.check(&path);
}

#[test]
fn a_key_that_comes_again_with_another_payload_is_refused_after_a_restart_too() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("data.redb");
    for expected in ["done", "another payload"] {
        let replica = Replica::start(&path, 1, Hold::No);
        let mut caller = Caller::connect(replica.address);
        let payload = if expected == "done" { 1 } else { 2 };
        caller.send_as(1, payload);
        let said = caller.said();
        match expected {
            "done" => assert_eq!(said, (true, 1_u64.to_le_bytes().to_vec())),
            why => assert!(!said.0 && String::from_utf8_lossy(&said.1).contains(why), "{said:?}"),
        }
    }
}
