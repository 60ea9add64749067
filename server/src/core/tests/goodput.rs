//! A bad day: more comes than can be done. What is done is of use, everybody gets a share, and
//! afterwards all is as before.

use alloc::collections::BTreeMap;

use super::*;

/// How long a handler runs; there is one slot, so a thousand can be served in a second.
const SERVICE: Duration = ms(1);
const DEADLINE: Duration = ms(40);
const STEP: Duration = Duration::from_micros(50);

/// A server in a world in which clients send at even intervals.
struct Day {
    bench: Bench,
    running: Option<Start<u64>>,
    clients: Vec<Client>,
    /// Of which client a call is.
    of: BTreeMap<u64, usize>,
    next_seq: u64,
}

struct Client {
    conn: Conn,
    interval: Duration,
    next: Instant,
    sent: u64,
    in_time: u64,
}

impl Day {
    fn new(config: Config) -> Day {
        let bench = Bench::with(config);
        Day { bench, running: None, clients: vec![], of: BTreeMap::new(), next_seq: 1 }
    }

    fn client(&mut self, interval: Duration) -> usize {
        let conn = self.bench.core.on_opened().unwrap();
        let next = self.bench.now;
        self.clients.push(Client { conn, interval, next, sent: 0, in_time: 0 });
        self.clients.len() - 1
    }

    fn run(&mut self, time: Duration) {
        let end = self.bench.now + time;
        while self.bench.now < end {
            (0..self.clients.len()).for_each(|client| self.send(client));
            self.serve();
            self.bench.pass(STEP);
        }
    }

    fn send(&mut self, client: usize) {
        let now = self.bench.now;
        while self.clients[client].next <= now {
            let seq = self.next_seq;
            self.next_seq += 1;
            self.of.insert(seq, client);
            let Client { conn, interval, next, sent, .. } = &mut self.clients[client];
            (*next, *sent) = (*next + *interval, *sent + 1);
            let conn = *conn;
            self.bench.request_on(conn, Request { remaining: DEADLINE, ..plain(seq) });
        }
    }

    fn serve(&mut self) {
        let now = self.bench.now;
        let is_done =
            |start: &mut Start<u64>| now - (start.deadline - DEADLINE) - start.waited >= SERVICE;
        if let Some(start) = self.running.take_if(is_done) {
            let in_time = now <= start.deadline;
            if self.bench.finish(start.copy).is_some() && in_time {
                self.clients[self.of[&start.request.attempt.seq.0]].in_time += 1;
            }
        }
        self.running = self.bench.turn().starts.pop().or(self.running.take());
    }

    /// Forgets what was counted.
    fn count_from_here(&mut self) {
        self.clients.iter_mut().for_each(|client| (client.sent, client.in_time) = (0, 0));
    }
}

fn roomy() -> Config {
    Config { queue_requests: 200, ..config() }
}

#[test]
fn at_twice_the_load_nearly_all_that_is_done_is_of_use() {
    let mut day = Day::new(roomy());
    day.client(SERVICE / 2);
    day.run(Duration::from_secs(2));
    let client = &day.clients[0];
    assert!(client.in_time > 1_900, "{} of 2000 that could be", client.in_time);
}

#[test]
fn a_server_that_sheds_nothing_works_for_nobody() {
    let mut day = Day::new(Config { dark: true, overload: None, ..roomy() });
    day.client(SERVICE / 2);
    day.run(Duration::from_secs(2));
    assert!(day.clients[0].in_time < 400, "{} in time", day.clients[0].in_time);
}

#[test]
fn after_a_bad_time_all_is_as_before() {
    let mut day = Day::new(roomy());
    day.client(SERVICE * 2);
    day.run(Duration::from_secs(1));
    let flood = day.client(SERVICE / 4);
    day.run(Duration::from_secs(2));
    day.clients[flood].interval = Duration::from_secs(3_600);
    day.clients[flood].next = day.bench.now + Duration::from_secs(3_600);
    // As long as the longest that anybody waits.
    day.run(DEADLINE);
    day.count_from_here();
    let before = day.bench.core.stats();
    day.run(Duration::from_secs(1));
    let (client, after) = (&day.clients[0], day.bench.core.stats());
    assert!(client.in_time + 2 >= client.sent, "{} of {}", client.in_time, client.sent);
    assert_eq!(after.shed() + after.rejected(), before.shed() + before.rejected());
    assert!(!day.bench.core.is_overloaded());
}

#[test]
fn a_greedy_client_does_not_crowd_out_a_modest_one() {
    let mut day = Day::new(Config { queue_requests: 30, ..roomy() });
    let greedy = day.client(SERVICE / 4);
    let modest = day.client(SERVICE * 3);
    day.run(Duration::from_secs(2));
    let Client { in_time, sent, .. } = day.clients[modest];
    assert!(in_time * 10 >= sent * 9, "{in_time} of {sent}");
    assert!(day.clients[greedy].in_time > 1_000, "and the rest is the other's");
}
