//! Large payloads: they arrive whole, small frames overtake them, and a cut one is gone.

use std::collections::BTreeMap;

use bowline_protocol::assembly::{Arrived, MOST_PARTS};
use bowline_protocol::outbox::Unsendable;
use bowline_protocol::{
    Assembly, AssemblyError, Attempt, Cancel, CancelReason, Cause, ClientId, Credit, CreditError,
    Cut, Features, Frame, Granter, Inbox, Label, Load, Method, OptionSet, Outbox, PayloadOf, Peer,
    ReplicaId, Reply, Request, Segment, Seq, Spender, Station, Status, Takes, Tie, Twin, codec,
};
use bowline_time::Instant;
use core::time::Duration;
use proptest::collection::vec;
use proptest::prelude::*;

const SEGMENT: usize = 1000;
const MOST_OPTIONS: usize = 200;

const fn attempt(seq: u64) -> Attempt {
    Attempt { client: ClientId(5), seq: Seq(seq), n: 0 }
}

fn reply(seq: u64) -> Reply {
    let load = Load { running: 1, queued: 2, wait: Duration::from_micros(3) };
    Reply { attempt: attempt(seq), status: Status::Ok, executed: true, load }
}

const fn request(seq: u64) -> Request {
    Request {
        attempt: attempt(seq),
        method: Method(1),
        remaining: Duration::from_millis(20),
        cause: Cause::First,
        idempotent: true,
        tie: None,
    }
}

const NOW: Instant = Instant::from_nanos(1_000_000_000);

/// A peer that takes segments.
fn peer() -> Peer {
    Peer {
        takes: Takes { frame: 1 << 16, payload: 1 << 26 },
        features: Features::OPTIONS.with(Features::SEGMENTS),
    }
}

fn payload(seq: u64, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u64 * 31 + seq) as u8).collect()
}

/// A receiver: what came, by its sequence number.
struct Receiver {
    inbox: Inbox,
    assembly: Assembly,
    whole: BTreeMap<u64, Vec<u8>>,
    refused: Vec<u64>,
    skipped: usize,
}

impl Receiver {
    fn new(budget: usize) -> Receiver {
        Receiver {
            inbox: Inbox::new(1 << 16),
            assembly: Assembly::new(1 << 26, budget),
            whole: BTreeMap::new(),
            refused: Vec::new(),
            skipped: 0,
        }
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<(), AssemblyError> {
        let mut frames = self.inbox.feed(bytes);
        while let Some(frame) = frames.next().expect("sound bytes") {
            let (name, news) = match frame {
                Frame::Request(it, payload) => {
                    self.whole.insert(it.attempt.seq.0, payload.to_vec());
                    continue;
                }
                Frame::Reply(it, payload) => {
                    self.whole.insert(it.attempt.seq.0, payload.to_vec());
                    continue;
                }
                Frame::RequestWith(it, options, first) => {
                    (it.attempt, self.assembly.open_request(it, &options, first, Vec::new(), NOW)?)
                }
                Frame::ReplyWith(it, options, first) => {
                    (it.attempt, self.assembly.open_reply(it, &options, first, Vec::new())?)
                }
                Frame::Segment(it, bytes) => (it.attempt, self.assembly.segment(&it, bytes, NOW)?),
                other => panic!("{other:?}"),
            };
            match news {
                Arrived::Request(_, _, payload) | Arrived::Reply(_, _, payload) => {
                    self.whole.insert(name.seq.0, payload);
                }
                Arrived::NoRoom => self.refused.push(name.seq.0),
                Arrived::Skipped => self.skipped += 1,
                Arrived::UnderWay => {}
                Arrived::Discarded(..) => panic!("nothing was discarded"),
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push { length: usize, of: PayloadOf, label: bool },
    Fill { room: usize },
    Cut { which: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let of = prop_oneof![Just(PayloadOf::Request), Just(PayloadOf::Reply)];
    let length = prop_oneof![0..10_usize, 900..1100_usize, 0..20_000_usize];
    prop_oneof![
        3 => (length, of, any::<bool>())
            .prop_map(|(length, of, label)| Step::Push { length, of, label }),
        4 => (1..5_000_usize).prop_map(|room| Step::Fill { room }),
        1 => (0..20_usize).prop_map(|which| Step::Cut { which }),
    ]
}

proptest! {
    #[test]
    fn what_is_not_cut_arrives_whole_and_what_is_cut_leaves_nothing(steps in vec(step(), 0..60)) {
        let mut outbox = Outbox::new(SEGMENT as u32);
        let mut receiver = Receiver::new(1 << 30);
        let (mut pushed, mut sent) = (BTreeMap::new(), 0);
        let mut cut_under_way = Vec::new();
        for step in steps.into_iter().chain([Step::Fill { room: usize::MAX }]) {
            match step {
                Step::Push { length, of, label } => {
                    let seq = pushed.len() as u64 + 1;
                    let bytes = payload(seq, length);
                    let options = OptionSet { label: label.then(|| Label::new("x")), ..OptionSet::default() };
                    match of {
                        PayloadOf::Request => {
                            outbox.push_request(request(seq), &options, bytes.clone(), &peer(), NOW)
                        }
                        PayloadOf::Reply => {
                            outbox.push_reply(reply(seq), &options, bytes.clone(), &peer())
                        }
                    }
                    .expect("the peer takes it");
                    pushed.insert(seq, (of, Some(bytes)));
                }
                Step::Fill { room } => {
                    let mut wire = Vec::new();
                    let filled = outbox.fill(&mut wire, room, NOW);
                    prop_assert_eq!(filled, wire.len());
                    prop_assert!(filled < room.saturating_add(64 + SEGMENT + MOST_OPTIONS));
                    receiver.receive(&wire).expect("sound segments");
                }
                Step::Cut { which } => {
                    let seq = which as u64;
                    let Some((of, bytes)) = pushed.get_mut(&seq) else { continue };
                    match outbox.cut(attempt(seq), *of) {
                        Cut::Absent => {}
                        Cut::Unsent(given_back) => {
                            prop_assert_eq!(bytes.take(), Some(given_back));
                        }
                        Cut::UnderWay(given_back) => {
                            prop_assert_eq!(bytes.take(), Some(given_back));
                            prop_assert!(receiver.assembly.forget(attempt(seq), *of).is_some());
                            cut_under_way.push(seq);
                        }
                    }
                }
            }
            while let Some(done) = outbox.poll_sent() {
                let seq = done.attempt.seq.0;
                prop_assert_eq!(Some(done.payload), pushed[&seq].1.clone());
                sent += 1;
            }
        }
        let expected: BTreeMap<u64, Vec<u8>> =
            pushed.into_iter().filter_map(|(seq, (_, bytes))| Some((seq, bytes?))).collect();
        prop_assert_eq!(sent, expected.len());
        prop_assert_eq!(receiver.whole, expected);
        prop_assert_eq!((outbox.waiting(), outbox.held(), outbox.len()), (0, 0, 0));
        prop_assert_eq!((receiver.assembly.held(), receiver.assembly.len()), (0, 0));
    }

    /// Whatever segments come, nothing panics, nothing exceeds the budget, and what is forgotten
    /// is given back.
    #[test]
    fn an_assembly_holds_whatever_comes(
        steps in vec((0..3_u64, 0..4_u8, 0..3000_u32, 0..2000_usize), 0..60),
    ) {
        let budget = 5_000;
        let mut assembly = Assembly::new(2_500, budget);
        for (seq, what, number, length) in steps {
            let bytes = payload(seq, length);
            let options = OptionSet::default().opening(number);
            let options = options.as_options();
            let result = match what {
                0 => assembly.open_reply(reply(seq), &options, &bytes, Vec::new()),
                1 => assembly.open_request(request(seq), &options, &bytes, Vec::new(), NOW),
                2 => {
                    let of = PayloadOf::Reply;
                    let segment = Segment { attempt: attempt(seq), of, offset: number };
                    assembly.segment(&segment, &bytes, NOW)
                }
                _ => {
                    assembly.forget(attempt(seq), PayloadOf::Request);
                    Ok(Arrived::UnderWay)
                }
            };
            if let Ok(Arrived::Reply(_, _, payload) | Arrived::Request(_, _, payload)) = result {
                prop_assert!(payload.len() <= 2_500);
            }
            prop_assert!(assembly.held() <= budget);
        }
        for seq in 0..3 {
            assembly.forget(attempt(seq), PayloadOf::Request);
            assembly.forget(attempt(seq), PayloadOf::Reply);
        }
        prop_assert_eq!((assembly.held(), assembly.is_empty()), (0, true));
    }

    /// Whatever is sent and given back, a client that asks first is never found wanting.
    #[test]
    fn who_keeps_to_its_credit_is_never_at_fault(
        window in (1..20_u64, 100..5_000_u64),
        steps in vec((any::<bool>(), 0..100_usize), 0..200),
    ) {
        let window = Credit { requests: window.0, bytes: window.1 };
        let mut granter = Granter::new(window);
        let mut spender = Spender::new(Some(granter.granted()));
        let mut under_way = Vec::new();
        for (send, bytes) in steps {
            if send && spender.try_request(bytes) {
                prop_assert_eq!(granter.on_request(bytes), Ok(()));
                under_way.push(bytes);
            } else if let Some(bytes) = under_way.pop() {
                granter.give_back(Credit { requests: 1, bytes: bytes as u64 });
                if let Some(credit) = granter.poll_grant() {
                    spender.on_credit(credit);
                }
            }
            prop_assert!(under_way.len() as u64 <= window.requests);
            prop_assert!(under_way.iter().sum::<usize>() as u64 <= window.bytes);
        }
        for bytes in under_way {
            granter.give_back(Credit { requests: 1, bytes: bytes as u64 });
            if let Some(credit) = granter.poll_grant() {
                spender.on_credit(credit);
            }
        }
        // At rest more than half of the window is there: nothing can wait for ever.
        let left = spender.left();
        prop_assert!(left.requests > 0 && left.requests * 2 >= window.requests);
        prop_assert!(left.bytes * 2 >= window.bytes);
    }
}

/// How many bytes lie before a small frame that is written as early as it can be, while payloads of
/// 4 MiB are on their way: those of the turn that was handed over just before.
fn most_ahead_of_a_small_frame(peer: &Peer) -> usize {
    let (turn, segment) = (16 << 10, 4 << 10);
    let mut outbox = Outbox::new(segment);
    let mut most = 0;
    for seq in 0..20 {
        if outbox.len() < 3 {
            outbox.push_reply(reply(seq), &OptionSet::default(), vec![1; 4 << 20], peer).unwrap();
        }
        most = most.max(outbox.fill(&mut Vec::new(), turn, NOW));
    }
    most
}

#[test]
fn a_small_frame_waits_for_one_turn_of_a_large_payload_and_not_for_all_of_it() {
    let in_one_frame = Takes { frame: 8 << 20, payload: 8 << 20 };
    let in_one_frame = Peer { takes: in_one_frame, features: Features::NONE };
    assert!(most_ahead_of_a_small_frame(&in_one_frame) > 4 << 20);
    assert!(most_ahead_of_a_small_frame(&peer()) < (16 << 10) + (5 << 10));
}

/// Pushes replies, as many segments long as these say, and returns whose segments leave, in their
/// order: after two of them one of a single segment comes.
fn order(lengths: &[usize]) -> Vec<u64> {
    let mut outbox = Outbox::new(SEGMENT as u32);
    let push = |outbox: &mut Outbox<Vec<u8>>, seq: usize, segments: usize| {
        let bytes = vec![0; segments * SEGMENT];
        outbox.push_reply(reply(seq as u64), &OptionSet::NONE, bytes, &peer()).unwrap();
    };
    lengths.iter().enumerate().for_each(|(at, &segments)| push(&mut outbox, at + 1, segments));
    let mut order = Vec::new();
    while !outbox.is_empty() {
        let mut wire = Vec::new();
        outbox.fill(&mut wire, 1, NOW);
        let (frame, _) = codec::decode(&wire, 1 << 16).unwrap().expect("it is whole");
        order.push(match frame.expect("it is known") {
            Frame::Reply(reply, _) | Frame::ReplyWith(reply, ..) => reply.attempt.seq.0,
            Frame::Segment(segment, _) => segment.attempt.seq.0,
            other => panic!("{other:?}"),
        });
        if order.len() == 2 {
            push(&mut outbox, 9, 1);
        }
    }
    order
}

#[test]
fn large_payloads_of_one_length_leave_one_after_the_other() {
    assert_eq!(order(&[3, 3, 3]), [1, 1, 1, 2, 9, 2, 2, 3, 3, 3]);
}

#[test]
fn a_short_payload_goes_past_long_ones_and_the_oldest_of_those_gets_every_other_segment() {
    assert_eq!(order(&[6, 4, 4]), [2, 1, 9, 1, 2, 1, 2, 1, 2, 1, 1, 3, 3, 3, 3]);
}

#[test]
fn a_payload_takes_its_memory_until_all_of_it_is_sent_or_it_is_cut() {
    let mut outbox = Outbox::new(SEGMENT as u32);
    for seq in 1..=2 {
        outbox.push_reply(reply(seq), &OptionSet::NONE, vec![0; 2 * SEGMENT], &peer()).unwrap();
    }
    let mut held = Vec::new();
    while outbox.waiting() > SEGMENT {
        outbox.fill(&mut Vec::new(), 1, NOW);
        held.push((outbox.waiting() / SEGMENT, outbox.held() / SEGMENT));
    }
    assert_eq!(held, [(3, 4), (2, 2), (1, 2)]);
    assert!(matches!(outbox.cut(attempt(2), PayloadOf::Reply), Cut::UnderWay(_)));
    assert_eq!((outbox.waiting(), outbox.held()), (0, 0));
}

#[test]
fn what_a_request_waits_to_leave_is_taken_from_its_time() {
    let mut outbox = Outbox::new(SEGMENT as u32);
    outbox.push_request(request(1), &OptionSet::NONE, vec![7; 10], &peer(), NOW).unwrap();
    let mut wire = Vec::new();
    outbox.fill(&mut wire, 1, NOW + Duration::from_millis(5));
    let (frame, _) = codec::decode(&wire, 1 << 16).unwrap().expect("it is whole");
    let Some(Frame::Request(left, _)) = frame else { panic!("{frame:?}") };
    assert_eq!(left.remaining, request(1).remaining - Duration::from_millis(5));
}

#[test]
fn what_fits_in_one_piece_is_a_plain_frame() {
    let mut outbox = Outbox::new(SEGMENT as u32);
    outbox.push_reply(reply(1), &OptionSet::default(), vec![7; SEGMENT], &peer()).unwrap();
    let (mut wire, mut plain) = (Vec::new(), Vec::new());
    outbox.fill(&mut wire, 1, NOW);
    codec::encode(&Frame::Reply(reply(1), &[7; SEGMENT]), &mut plain);
    assert_eq!(wire, plain);
}

#[test]
fn a_payload_that_the_peer_does_not_take_is_refused_before_it_is_sent() {
    let mut outbox = Outbox::new(SEGMENT as u32);
    let takes = Takes { frame: 2_000, payload: 10_000 };
    let old = Peer { takes, features: Features::NONE };
    let new = Peer { takes, features: peer().features };
    let bare = OptionSet::default();
    let labelled = OptionSet { label: Some(Label::new("x")), ..bare };
    let too_large = |length, limit| Err(Unsendable::TooLarge { length, limit });
    let mut push = |length, options, to| {
        outbox.push_request(request(length as u64), options, vec![0; length], to, NOW)
    };
    assert_eq!(push(2_001, &bare, &old), too_large(2_001, 2_000));
    assert_eq!(push(2_000, &bare, &old), Ok(()));
    assert_eq!(push(10, &labelled, &old), Err(Unsendable::Options));
    assert_eq!(push(10_001, &labelled, &new), too_large(10_001, 10_000));
    assert_eq!(push(10_000, &labelled, &new), Ok(()));
    // Segments that would be little but their headers are not sent.
    let [tiny, small] = [1_023, 1_024].map(|frame| Peer { takes: Takes { frame, ..takes }, ..new });
    assert_eq!(push(1_023, &bare, &tiny), Ok(()));
    assert_eq!(push(1_024, &bare, &tiny), too_large(1_024, 1_023));
    assert_eq!(push(1_025, &bare, &small), Ok(()));
    // And no frame is larger than the peer takes, whatever the segment.
    let mut large = Outbox::new(1 << 20);
    large.push_request(request(1), &labelled, vec![0; 10_000], &new, NOW).unwrap();
    let mut wire = Vec::new();
    large.fill(&mut wire, usize::MAX, NOW);
    let mut inbox = Inbox::new(takes.frame);
    let mut frames = inbox.feed(&wire);
    while frames.next().expect("within the limit").is_some() {}
}

#[test]
fn what_the_budget_has_no_room_for_is_refused_and_its_segments_skipped() {
    // As a sender would send them that lets all of its payloads take turns.
    let mut outboxes = [1, 2, 3].map(|seq| {
        let mut outbox = Outbox::new(SEGMENT as u32);
        outbox.push_reply(reply(seq), &OptionSet::default(), payload(seq, 4_000), &peer()).unwrap();
        outbox
    });
    let mut receiver = Receiver::new(9_000);
    let mut wire = Vec::new();
    for _ in 0..4 {
        outboxes.iter_mut().for_each(|outbox| _ = outbox.fill(&mut wire, 1, NOW));
    }
    receiver.receive(&wire).unwrap();
    assert_eq!(receiver.refused, [3]);
    assert_eq!(receiver.skipped, 3);
    assert_eq!(receiver.whole.keys().copied().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(receiver.assembly.held(), 0);
}

#[test]
fn segments_that_do_not_follow_are_errors_by_name() {
    let opened = |total| {
        let mut assembly = Assembly::new(1_000, 10_000);
        let options = OptionSet::default().opening(total);
        let opened = assembly.open_reply(reply(1), &options.as_options(), &[1; 10], Vec::new());
        (assembly, opened)
    };
    let segment = |offset| Segment { attempt: attempt(1), of: PayloadOf::Reply, offset };
    let attempt = attempt(1);
    assert_eq!(
        opened(1_001).1,
        Err(AssemblyError::TooLarge { attempt, total: 1_001, limit: 1_000 })
    );
    let (mut assembly, first) = opened(20);
    assert_eq!(first, Ok(Arrived::UnderWay));
    let options = OptionSet::default().opening(20);
    assert_eq!(
        assembly.open_reply(reply(1), &options.as_options(), &[], Vec::new()),
        Err(AssemblyError::Twice(attempt))
    );
    for found in [0, 9, 11] {
        let gap = AssemblyError::Gap { attempt, expected: 10, found };
        assert_eq!(assembly.segment(&segment(found), &[1], NOW), Err(gap));
    }
    let overrun = AssemblyError::Overrun { attempt, total: 20 };
    assert_eq!(assembly.segment(&segment(10), &[1; 11], NOW), Err(overrun));
    assert_eq!(
        assembly.segment(&Segment { of: PayloadOf::Request, ..segment(10) }, &[1], NOW),
        Ok(Arrived::Skipped)
    );
    let whole = assembly.segment(&segment(10), &[2; 10], NOW).unwrap();
    let Arrived::Reply(_, _, payload) = whole else { panic!("{whole:?}") };
    assert_eq!(payload, [[1; 10], [2; 10]].concat());
}

#[test]
fn a_request_s_deadline_counts_from_its_first_part() {
    let ms = Duration::from_millis;
    let mut assembly: Assembly = Assembly::new(1_000, 10_000);
    let mut open = |seq, total, remaining| {
        let options = OptionSet::default().opening(total);
        let request = Request { remaining, ..request(seq) };
        assembly.open_request(request, &options.as_options(), &[1; 10], Vec::new(), NOW).unwrap()
    };
    assert_eq!(open(1, 20, ms(50)), Arrived::UnderWay);
    assert_eq!(open(2, 30, ms(40)), Arrived::UnderWay);
    assert_eq!(assembly.next_timeout(), Some(NOW + ms(40)));
    let segment = Segment { attempt: attempt(1), of: PayloadOf::Request, offset: 10 };
    let whole = assembly.segment(&segment, &[2; 10], NOW + ms(30)).unwrap();
    let Arrived::Request(request, ..) = whole else { panic!("{whole:?}") };
    assert_eq!(request.remaining, ms(20));
    assert_eq!(assembly.expire(NOW + ms(39)), None);
    assert_eq!(assembly.expire(NOW + ms(40)), Some((attempt(2), 30)));
    assert_eq!(assembly.expire(NOW + ms(40)), None);
    assert_eq!((assembly.next_timeout(), assembly.held()), (None, 0));
}

#[test]
fn a_cancel_stops_the_request_that_it_names_on_its_way_and_a_twin_s_only_its_own() {
    let twin = |replica, n| Twin { station: Station { replica: ReplicaId(replica), core: 0 }, n };
    let mut assembly: Assembly = Assembly::new(1_000, 10_000);
    for seq in 1..=2 {
        let options = OptionSet::default().opening(30);
        let tie = (seq == 1).then_some(Tie { twin: twin(2, 1), window: Duration::ZERO });
        let request = Request { tie, ..request(seq) };
        assembly.open_request(request, &options.as_options(), &[1; 10], Vec::new(), NOW).unwrap();
    }
    let cancel = |seq, reason| Cancel { attempt: attempt(seq), reason, lifetime: Duration::ZERO };
    let started = |by| CancelReason::TwinStarted { by };
    for by in [twin(2, 2), twin(3, 1)] {
        assert_eq!(assembly.stop(&cancel(1, started(by))), None, "{by:?} is not its twin");
    }
    assert_eq!(assembly.stop(&cancel(2, started(twin(2, 1)))), None, "it is not tied");
    assert_eq!(assembly.stop(&cancel(3, CancelReason::CallerDone)), None);
    assert_eq!(assembly.stop(&cancel(1, started(twin(2, 1)))), Some(30));
    assert_eq!(assembly.stop(&cancel(2, CancelReason::CallerDone)), Some(30));
    assert_eq!((assembly.len(), assembly.held()), (0, 0));
}

#[test]
fn a_sender_that_sends_nothing_more_of_any_of_its_requests_is_given_up_on() {
    let ms = Duration::from_millis;
    let mut assembly: Assembly = Assembly::new(1_000, 10_000).with_patience(ms(50));
    for seq in 1..=2 {
        let options = OptionSet::default().opening(30);
        let request = Request { remaining: Duration::MAX, ..request(seq) };
        assembly.open_request(request, &options.as_options(), &[1; 10], Vec::new(), NOW).unwrap();
    }
    let segment = |offset| Segment { attempt: attempt(1), of: PayloadOf::Request, offset };
    assembly.segment(&segment(10), &[2; 10], NOW + ms(30)).unwrap();
    assembly.segment(&segment(20), &[], NOW + ms(40)).unwrap();
    assert_eq!(assembly.next_timeout(), Some(NOW + ms(80)), "an empty segment is nothing");
    assert_eq!(assembly.stalled(NOW + ms(79)), None);
    assert_eq!(assembly.stalled(NOW + ms(80)), Some((attempt(1), 30)));
    assert_eq!(assembly.stalled(NOW + ms(80)), Some((attempt(2), 30)));
    assert_eq!(assembly.stalled(NOW + ms(80)), None);
    assert_eq!(assembly.held(), 0);
}

#[test]
fn a_request_is_slow_once_its_pace_says_that_all_of_it_takes_too_long() {
    let ms = Duration::from_millis;
    let mut assembly: Assembly = Assembly::new(1_000, 10_000).with_patience(ms(50));
    let options = OptionSet::default().opening(100);
    let mut open = |seq, at| {
        assembly
            .open_request(request(seq), &options.as_options(), &[1; 10], Vec::new(), at)
            .unwrap()
    };
    assert_eq!(open(1, NOW), Arrived::UnderWay);
    assert_eq!(open(2, NOW), Arrived::UnderWay);
    assert_eq!(open(3, NOW + ms(30)), Arrived::UnderWay);
    let segment = Segment { attempt: attempt(1), of: PayloadOf::Request, offset: 10 };
    assembly.segment(&segment, &[2; 10], NOW + ms(40)).unwrap();
    assert_eq!(assembly.slow(ms(500), NOW + ms(50)), None, "nobody is hurried before");
    // A tenth of the second came in 51 ms, of the first a fifth, and the third has just begun.
    assert_eq!(assembly.slow(ms(511), NOW + ms(51)), None);
    assert_eq!(assembly.slow(ms(509), NOW + ms(51)), Some(attempt(2)));
    assembly.forget(attempt(2), PayloadOf::Request);
    assert_eq!(assembly.slow(ms(509), NOW + ms(51)), None);
    assert_eq!(assembly.slow(ms(254), NOW + ms(51)), Some(attempt(1)));
}

#[test]
fn a_discarded_reply_takes_no_room_and_still_comes_to_its_end() {
    let mut assembly: Assembly = Assembly::new(1 << 20, 1 << 20);
    let options = OptionSet::default().opening(1 << 20);
    let opened =
        assembly.open_reply(reply(1), &options.as_options(), &[1; 1000], Vec::new()).unwrap();
    assert_eq!((opened, assembly.held()), (Arrived::UnderWay, 1 << 20));
    assembly.discard(attempt(1));
    assert!(assembly.held() < 1000, "{}", assembly.held());
    let segment = |offset| Segment { attempt: attempt(1), of: PayloadOf::Reply, offset };
    let rest = vec![1; (1 << 20) - 1001];
    assert_eq!(assembly.segment(&segment(1000), &rest, NOW), Ok(Arrived::UnderWay));
    let end = assembly.segment(&segment((1 << 20) - 1), &[1], NOW);
    assert_eq!((end, assembly.held()), (Ok(Arrived::Discarded(reply(1), OptionSet::NONE)), 0));
}

#[test]
fn so_many_payloads_are_under_way_and_no_more() {
    let mut assembly: Assembly = Assembly::new(1_000, usize::MAX);
    let options = OptionSet::default().opening(20);
    let mut open =
        |seq| assembly.open_reply(reply(seq), &options.as_options(), &[1; 10], Vec::new()).unwrap();
    for seq in 0..MOST_PARTS as u64 {
        assert_eq!(open(seq), Arrived::UnderWay);
    }
    assert_eq!(open(MOST_PARTS as u64), Arrived::NoRoom);
}

#[test]
fn memory_follows_what_has_arrived_and_not_what_was_announced() {
    let mut assembly = Assembly::new(1 << 26, 1 << 30);
    let options = OptionSet::default().opening(1 << 20);
    assembly.open_reply(reply(1), &options.as_options(), &[1; 100], Vec::new()).unwrap();
    let mut offset = 100;
    let whole = loop {
        let piece = vec![1; ((1 << 20) - offset as usize).min(60_000)];
        let segment = Segment { attempt: attempt(1), of: PayloadOf::Reply, offset };
        offset += piece.len() as u32;
        if let Arrived::Reply(_, _, whole) = assembly.segment(&segment, &piece, NOW).unwrap() {
            break whole;
        }
    };
    assert_eq!((whole.len(), whole.capacity()), (1 << 20, 1 << 20));
}

#[test]
fn who_ignores_its_credit_is_named() {
    let mut granter = Granter::new(Credit { requests: 2, bytes: 100 });
    assert_eq!(granter.on_request(60), Ok(()));
    let mut bytes = granter;
    let error = bytes.on_request(41).unwrap_err();
    assert_eq!(error, CreditError::Bytes(101, 100));
    assert_eq!(error.goodbye().reason.code(), 4);
    assert_eq!(granter.on_request(40), Ok(()));
    assert_eq!(granter.on_request(0), Err(CreditError::Requests(3, 2)));
}

#[test]
fn no_more_is_given_back_than_came() {
    let window = Credit { requests: 2, bytes: 100 };
    let mut granter = Granter::new(window);
    assert_eq!(granter.on_request(60), Ok(()));
    granter.give_back(Credit { requests: 2, bytes: 1_000 });
    assert_eq!(granter.under_way(), Credit::default());
    assert_eq!(granter.poll_grant(), Some(Credit { requests: 3, bytes: 160 }));
    assert_eq!(granter.left(), window);
}

#[test]
fn there_can_be_credit_for_as_much_as_there_once_was_at_a_time() {
    let mut spender = Spender::new(Some(Credit { requests: 9, bytes: 100 }));
    assert!(spender.try_request(90));
    assert!(spender.has_allowed(100) && !spender.has_allowed(101));
    // All of a window of 100, and then one of 150: the rest is under way.
    spender.on_credit(Credit { requests: 18, bytes: 190 });
    assert!(spender.has_allowed(100) && !spender.has_allowed(101));
    spender.on_credit(Credit { requests: 18, bytes: 240 });
    assert!(spender.has_allowed(150) && !spender.has_allowed(151));
    assert!(Spender::new(None).has_allowed(usize::MAX), "nothing is counted");
}

#[test]
fn what_was_not_sent_after_all_costs_no_credit() {
    let mut spender = Spender::new(Some(Credit { requests: 1, bytes: 100 }));
    assert!(spender.allows(100) && !spender.allows(101));
    assert!(spender.try_request(60));
    assert!(!spender.allows(0));
    spender.refund(60);
    assert_eq!(spender.left(), Credit { requests: 1, bytes: 100 });
}

#[test]
fn credit_comes_back_by_halves_of_the_window() {
    let mut granter = Granter::new(Credit { requests: 8, bytes: 1_000 });
    for _ in 0..8 {
        granter.on_request(10).unwrap();
    }
    let one = Credit { requests: 1, bytes: 10 };
    for _ in 0..3 {
        assert!(!granter.would_grant(one));
        granter.give_back(one);
        assert_eq!(granter.poll_grant(), None);
    }
    assert!(granter.would_grant(one));
    granter.give_back(one);
    assert_eq!(granter.poll_grant(), Some(Credit { requests: 12, bytes: 1_040 }));
    assert_eq!(granter.poll_grant(), None);
}

#[test]
fn an_older_grant_takes_nothing_back_and_none_counts_nothing() {
    let mut spender = Spender::new(Some(Credit { requests: 10, bytes: 10 }));
    spender.on_credit(Credit { requests: 5, bytes: 20 });
    assert_eq!(spender.left(), Credit { requests: 10, bytes: 20 });
    assert!(!spender.try_request(21));
    assert!(spender.try_request(20) && spender.try_request(0) && !spender.try_request(1));
    let mut free = Spender::new(None);
    assert!((0..1000).all(|_| free.try_request(1 << 30)));
}
