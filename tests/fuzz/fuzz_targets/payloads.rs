#![no_main]

use std::collections::BTreeMap;
use std::time::Duration;

use bowline_fuzz::{LIMIT, next, next_frame};
use bowline_protocol::{
    Arrived, Assembly, AssemblyError, Attempt, Cause, ClientId, Cut, Features, Frame, Inbox, Load,
    Method, OptionSet, Outbox, PayloadOf, Peer, Reply, Request, Seq, Status, Takes,
};
use bowline_time::Instant;
use libfuzzer_sys::fuzz_target;

const BUDGET: usize = 6_000;

fn attempt(seq: u64) -> Attempt {
    Attempt { client: ClientId(1), seq: Seq(seq), n: 0 }
}

fn push(outbox: &mut Outbox<Vec<u8>>, seq: u64, of: PayloadOf, length: usize, now: Instant) {
    let takes = Takes { frame: LIMIT, payload: 1 << 16 };
    let features = Features::OPTIONS.with(Features::SEGMENTS);
    let wants_sums = seq.is_multiple_of(2);
    let unsummed = if wants_sums { Features::NONE } else { Features::UNSUMMED };
    let peer = Peer { takes, features: features.with(unsummed) };
    let (bare, payload) = (OptionSet::default(), vec![seq.to_le_bytes()[0]; length]);
    let attempt = attempt(seq);
    let pushed = match of {
        PayloadOf::Reply => {
            let load = Load::default();
            let reply = Reply { attempt, status: Status::Ok, executed: true, load };
            outbox.push_reply(reply, &bare, payload, &peer)
        }
        PayloadOf::Request => {
            let (method, remaining) = (Method(1), Duration::from_micros(seq));
            let cause = Cause::First;
            let tie = None;
            let request = Request { attempt, method, remaining, cause, idempotent: true, tie };
            outbox.push_request(request, &bare, payload, &peer, now)
        }
    };
    pushed.expect("the peer takes it");
}

fn arrive(
    assembly: &mut Assembly,
    frame: &Frame<'_>,
    now: Instant,
) -> Result<Arrived, AssemblyError> {
    match frame {
        Frame::RequestWith(request, options, first) => {
            assembly.open_request(*request, options, first, Vec::new(), now)
        }
        Frame::ReplyWith(reply, options, first) => {
            assembly.open_reply(*reply, options, first, Vec::new())
        }
        Frame::Segment(segment, bytes) => assembly.segment(segment, bytes, now),
        _ => Ok(Arrived::UnderWay),
    }
}

// An outbox, an assembly, and forged frames between them: the budget holds, and what arrives is
// what was pushed, unless it was forged.
fuzz_target!(|data: &[u8]| {
    let mut data = data;
    let mut outbox = Outbox::new(u32::from(next(&mut data)) * 16);
    let mut inbox = Inbox::new(LIMIT).with_features(Features::UNSUMMED);
    let mut assembly = Assembly::new(1 << 16, BUDGET);
    let (mut pushed, mut forged) = (BTreeMap::new(), false);
    let mut now = Instant::from_nanos(1_000_000_000);
    while !data.is_empty() {
        let (step, number) = (next(&mut data), next(&mut data));
        let of = if step & 8 == 0 { PayloadOf::Reply } else { PayloadOf::Request };
        let mut wire = Vec::new();
        match step & 7 {
            0..=1 => {
                let seq = pushed.len() as u64 + 1;
                let length = usize::from(number) << (step >> 4 & 3);
                push(&mut outbox, seq, of, length, now);
                pushed.insert(seq, length);
            }
            2..=4 => drop(outbox.fill(&mut wire, usize::from(number) * 64, now)),
            5 => {
                let name = (attempt(u64::from(number)), of);
                if step & 16 != 0 {
                    assembly.discard(name.0);
                } else if let Cut::UnderWay(_) = outbox.cut(name.0, name.1) {
                    assembly.forget(name.0, name.1);
                }
            }
            6 => {
                forged = true;
                wire = next_frame(&mut data);
            }
            _ => {
                while outbox.poll_sent().is_some() {}
                now += Duration::from_micros(u64::from(number) / 64);
                while let Some((attempt, total)) = assembly.expire(now) {
                    assert!(forged || pushed[&attempt.seq.0] == total as usize);
                }
                assert!(assembly.next_timeout().is_none_or(|next| next > now));
            }
        }
        let mut frames = inbox.feed(&wire);
        loop {
            let Ok(frame) = frames.next() else { return };
            let Some(frame) = frame else { break };
            let Ok(news) = arrive(&mut assembly, &frame, now) else {
                assert!(forged, "{frame:?}");
                return;
            };
            if let Arrived::Reply(Reply { attempt, .. }, _, payload)
            | Arrived::Request(Request { attempt, .. }, _, payload) = news
                && !forged
            {
                assert_eq!(pushed[&attempt.seq.0], payload.len());
                assert!(payload.iter().all(|byte| *byte == attempt.seq.0.to_le_bytes()[0]));
            }
            assert!(assembly.held() <= BUDGET);
        }
    }
});
