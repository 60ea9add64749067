#![no_main]

use std::collections::VecDeque;
use std::time::Duration;

use bowline_fuzz::{LIMIT, next, next_frame};
use bowline_protocol::{
    ClientId, Credit, Features, Hello, Inbox, Link, LinkConfig, ReplicaId, Station, codec,
};
use bowline_time::Instant;
use libfuzzer_sys::fuzz_target;

struct End {
    link: Link,
    inbox: Inbox,
    sent: VecDeque<Vec<u8>>,
    alive: bool,
}

impl End {
    fn new(link: Link) -> End {
        End { link, inbox: Inbox::new(LIMIT), sent: VecDeque::new(), alive: true }
    }

    fn receive(&mut self, bytes: &[u8], now: Instant) {
        let mut frames = self.inbox.feed(bytes);
        while self.alive {
            match frames.next() {
                Ok(Some(frame)) => self.alive = self.link.on_frame(&frame, now).is_ok(),
                Ok(None) => break,
                Err(_) => self.alive = false,
            }
        }
    }

    fn turn(&mut self, now: Instant) {
        self.alive = self.alive && self.link.on_timeout(now).is_ok();
        while self.alive
            && let Some(frame) = self.link.poll_transmit(now)
        {
            let mut bytes = Vec::new();
            codec::encode(&frame, &mut bytes);
            self.sent.push_back(bytes);
        }
        assert!(!self.alive || self.link.next_timeout() > now, "a timer that is always due");
    }
}

fn ends(kind: u8) -> [End; 2] {
    let (config, now) = (LinkConfig::default(), Instant::EPOCH);
    let server = |replica| Hello {
        features: Features::from_bits(kind),
        ..Hello::server(Station { replica: ReplicaId(replica), core: 0 }, vec![1, 2])
    };
    let me = if kind & 0x80 == 0 { Hello::client(ClientId(9)) } else { server(1) };
    let expected = (kind & 0x40 == 0).then_some(ReplicaId(2));
    let accepted = Link::accepted(server(2), config, now).with_grant(Credit::default());
    [End::new(Link::dialled(me, expected, config, now)), End::new(accepted)]
}

// Two links and a wire that delays, cuts, loses and forges. No panic, no timer that is always due,
// and nobody obeys a cancel but the side that dialled.
fuzz_target!(|data: &[u8]| {
    let mut data = data;
    let mut ends = ends(next(&mut data));
    let mut now = Instant::EPOCH;
    while !data.is_empty() {
        let step = next(&mut data);
        let (to, from) = if step & 1 == 0 { (0, 1) } else { (1, 0) };
        match step >> 1 & 7 {
            0..=2 => {
                if let Some(bytes) = ends[from].sent.pop_front() {
                    let (head, tail) = bytes.split_at(usize::from(step) % bytes.len());
                    ends[to].receive(head, now);
                    ends[to].receive(tail, now);
                }
            }
            3 => drop(ends[from].sent.pop_front()),
            4 => {
                let forged = next_frame(&mut data);
                ends[to].receive(&forged, now);
            }
            5 => ends[to].link.leave(Duration::from_millis(u64::from(next(&mut data))), now),
            _ => now += Duration::from_millis(u64::from(next(&mut data)) * 4),
        }
        ends.iter_mut().for_each(|end| end.turn(now));
        assert!(!ends[1].link.obeys_cancels(), "it was dialled");
        assert!(ends.iter().all(|end| end.link.is_up() || !end.link.peer_obeys_cancels()));
    }
});
