//! Two ends of a connection in virtual time, with a wire between them that can be slow or cut.

use std::collections::VecDeque;

use bowline_protocol::link::LinkEvent;
use bowline_protocol::{
    ClientId, Credit, Features, Frame, Goodbye, GoodbyeReason, Hello, HelloAck, Identity, Inbox,
    Link, LinkConfig, LinkError, Method, MethodInfo, Ping, ReplicaId, ServiceInfo, Station, codec,
};
use bowline_time::{Duration, Instant};
use proptest::prelude::*;

use crate::made::{BLOCKS, any_frame};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn server(replica: u16) -> Hello {
    Hello::server(Station { replica: ReplicaId(replica), core: 1 }, vec![7000, 7001])
}

fn client() -> Hello {
    Hello::client(ClientId(0xc0ffee))
}

/// One end: a link, what it has received, and what is under way to it.
struct End {
    link: Link,
    inbox: Inbox,
    arriving: VecDeque<(Instant, Vec<u8>)>,
    events: Vec<LinkEvent>,
    ended: Option<(Instant, LinkError)>,
}

impl End {
    fn new(link: Link) -> End {
        let (inbox, arriving) = (Inbox::new(1 << 16), VecDeque::new());
        End { link, inbox, arriving, events: Vec::new(), ended: None }
    }

    fn next(&self) -> Instant {
        if self.ended.is_some() {
            return Instant::FAR_FUTURE;
        }
        let arrival = self.arriving.front().map_or(Instant::FAR_FUTURE, |(at, _)| *at);
        arrival.min(self.link.next_timeout())
    }

    fn run(&mut self, now: Instant) {
        let result = self.receive(now).and_then(|()| self.link.on_timeout(now));
        if let Err(error) = result {
            self.ended.get_or_insert((now, error));
        }
    }

    fn receive(&mut self, now: Instant) -> Result<(), LinkError> {
        while self.arriving.front().is_some_and(|(at, _)| *at <= now) {
            let (_, bytes) = self.arriving.pop_front().expect("one is there");
            let mut frames = self.inbox.feed(&bytes);
            while let Some(frame) = frames.next().expect("the other end is sound") {
                self.events.push(self.link.on_frame(&frame, now)?);
            }
        }
        Ok(())
    }
}

struct Pair {
    now: Instant,
    delay: Duration,
    /// Whether what the first and the second end send arrives.
    wires: [bool; 2],
    ends: [End; 2],
}

impl Pair {
    fn new(dialled: Link, accepted: Link) -> Pair {
        let ends = [End::new(dialled), End::new(accepted)];
        Pair { now: start(), delay: ms(1), wires: [true; 2], ends }
    }

    /// Who says hello on each side: the first dials, whoever `wanted` is.
    fn of(dials: Hello, wanted: Option<ReplicaId>, accepts: Hello) -> Pair {
        let config = LinkConfig::default();
        Pair::new(
            Link::dialled(dials, wanted, config, start()),
            Link::accepted(accepts, config, start()),
        )
    }

    /// A client core and a server core, with the features of today.
    fn client_and_server() -> Pair {
        Pair::of(client(), Some(ReplicaId(2)), server(2))
    }

    /// Two replicas' cores.
    fn mesh() -> Pair {
        Pair::of(server(1), Some(ReplicaId(2)), server(2))
    }

    fn transmit(&mut self) {
        for from in 0..2 {
            while self.ends[from].ended.is_none()
                && let Some(frame) = self.ends[from].link.poll_transmit(self.now)
            {
                self.send(from, &frame);
            }
        }
    }

    fn send(&mut self, from: usize, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        codec::encode(frame, &mut bytes);
        if self.wires[from] {
            self.ends[1 - from].arriving.push_back((self.now + self.delay, bytes));
        }
    }

    fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            self.transmit();
            let next = self.ends[0].next().min(self.ends[1].next());
            if next > until {
                break;
            }
            self.now = self.now.max(next);
            self.ends.iter_mut().for_each(|end| end.run(self.now));
        }
        self.now = until;
    }

    fn error(&self, end: usize) -> &LinkError {
        &self.ends[end].ended.as_ref().expect("the link ended").1
    }

    fn both_up(&self) -> bool {
        self.ends.iter().all(|end| end.link.is_up() && end.ended.is_none())
    }
}

fn start() -> Instant {
    Instant::from_nanos(1_000_000_000)
}

#[test]
fn both_ends_come_up_after_two_one_way_delays_and_know_each_other() {
    let mut pair = Pair::client_and_server();
    pair.run_for(ms(1));
    assert!(!pair.ends[0].link.is_up() && !pair.ends[1].link.is_up(), "known is not up");
    pair.run_for(ms(1));
    assert!(pair.both_up());
    assert_eq!(pair.ends[0].events[..2], [LinkEvent::Known, LinkEvent::Up]);
    assert_eq!(pair.ends[0].link.peer().unwrap().station().unwrap().replica, ReplicaId(2));
    assert_eq!(pair.ends[1].link.peer().unwrap().identity, Identity::Client(ClientId(0xc0ffee)));
}

#[test]
fn the_round_trip_is_known_as_soon_as_a_link_is_used() {
    let mut pair = Pair::client_and_server();
    pair.run_for(ms(4));
    assert_eq!(pair.ends[0].link.rtt(), Some(ms(2)));
    assert_eq!(pair.ends[1].link.rtt(), Some(ms(2)));
}

#[test]
fn a_quiet_link_stays_up_and_its_round_trip_follows_the_wire() {
    let mut pair = Pair::client_and_server();
    pair.run_for(ms(10_000));
    assert!(pair.both_up());
    pair.delay = ms(5);
    pair.run_for(ms(20_000));
    assert!(pair.both_up());
    let rtt = pair.ends[0].link.rtt().unwrap();
    assert!(rtt > ms(9) && rtt <= ms(10), "{rtt:?}");
}

#[test]
fn a_busy_link_measures_its_round_trip_too() {
    let mut pair = Pair::client_and_server();
    pair.run_for(ms(100));
    pair.delay = ms(5);
    for _ in 0..200 {
        pair.send(0, &Frame::Credit(Credit::default()));
        pair.send(1, &Frame::Credit(Credit::default()));
        pair.run_for(ms(100));
    }
    assert!(pair.ends[0].link.rtt().unwrap() > ms(9));
}

#[test]
fn no_common_version_is_said_by_name() {
    let old = Hello { oldest: 2, newest: 3, ..server(2) };
    let mut pair = Pair::client_and_server();
    pair.ends[1].link = Link::accepted(old, LinkConfig::default(), start());
    pair.run_for(ms(5));
    assert_eq!(pair.error(0), &LinkError::NoCommonVersion { oldest: 2, newest: 3 });
    assert_eq!(pair.error(0).goodbye(), Some(Goodbye { reason: GoodbyeReason::Protocol }));
}

#[test]
fn a_newer_side_that_still_speaks_this_version_is_welcome() {
    let newer = Hello { oldest: 1, newest: 9, ..server(2) };
    let mut pair = Pair::client_and_server();
    pair.ends[1].link = Link::accepted(newer, LinkConfig::default(), start());
    pair.run_for(ms(5));
    assert!(pair.both_up());
}

#[test]
fn another_replica_than_the_configured_one_is_a_stranger_and_so_is_a_client() {
    for (hello, expected) in [(server(3), ReplicaId(2)), (client(), ReplicaId(2))] {
        let found = hello.identity;
        let mut pair = Pair::client_and_server();
        pair.ends[1].link = Link::accepted(hello, LinkConfig::default(), start());
        pair.run_for(ms(5));
        assert_eq!(pair.error(0), &LinkError::Stranger { expected, found });
        assert!(!pair.error(0).to_string().contains('('), "{}", pair.error(0));
        assert!(!pair.ends[0].link.is_up() && !pair.ends[0].link.obeys_cancels());
    }
}

#[test]
fn who_says_nothing_is_given_up_when_the_hello_is_due() {
    let mut pair = Pair::client_and_server();
    pair.wires = [false, true];
    pair.run_for(ms(5_000));
    let (at, error) = pair.ends[1].ended.clone().unwrap();
    assert_eq!((at - start(), error), (ms(2_000), LinkError::Silent(ms(2_000))));
    assert!(!pair.ends[0].link.is_up(), "its hello was never acknowledged");
}

#[test]
fn a_cut_wire_is_noticed_within_the_time_set_for_it() {
    let mut pair = Pair::client_and_server();
    pair.run_for(ms(10));
    pair.wires = [true, false];
    let cut = pair.now;
    pair.run_for(ms(3_000));
    let (at, error) = pair.ends[0].ended.clone().unwrap();
    assert_eq!(error, LinkError::Silent(ms(1_000)));
    assert!(at - cut <= ms(1_000), "{:?}", at - cut);
    assert_eq!(error.goodbye(), Some(Goodbye { reason: GoodbyeReason::Silent }));
}

#[test]
fn who_slept_asks_before_it_gives_up() {
    let mut pair = Pair::client_and_server();
    pair.run_for(ms(10));
    // The whole process was stopped for a minute; nothing came, for nothing was asked.
    pair.now += ms(60_000);
    pair.ends.iter_mut().for_each(|end| end.arriving.clear());
    pair.run_for(ms(2_000));
    assert!(pair.both_up());
}

#[test]
fn a_ping_that_can_not_be_sent_is_no_reason_to_live() {
    let config = LinkConfig::default();
    let mut link = Link::accepted(server(1), config, start());
    link.on_frame(&Frame::Hello(client()), start()).unwrap();
    let ack = HelloAck { obeys_cancels: false, grant: None };
    link.on_frame(&Frame::HelloAck(ack), start()).unwrap();
    // Output is blocked: nobody asks for what is to be sent.
    let mut now = start();
    let mut wakes = 0;
    let error = loop {
        now = now.max(link.next_timeout());
        wakes += 1;
        if let Err(error) = link.on_timeout(now) {
            break error;
        }
        assert!(wakes < 10, "a timer that is always due");
    };
    assert_eq!((error, now - start()), (LinkError::Silent(ms(1_000)), ms(1_000)));
}

/// A link that has just asked for a sign of life behind so many bytes, after two thousand that were
/// acknowledged, and when it asked.
fn asking(ahead: u64) -> (Link, Instant) {
    let mut pair = Pair::client_and_server();
    pair.run_for(ms(10));
    let now = pair.now + LinkConfig::default().ping_after;
    let mut link = pair.ends.into_iter().next().expect("two of them").link;
    link.on_timeout(now).expect("it is only quiet");
    let Some(Frame::Ping(_)) = link.poll_transmit(now) else { panic!("no ping") };
    assert!(link.wants_delivery(now));
    link.on_delivery(2_000, ahead, now);
    assert!(!link.wants_delivery(now));
    (link, now)
}

/// For how long a link lives that is never answered, after it has asked: where `each` millisecond so
/// many bytes are acknowledged, and so many at most: those up to the question, and then others.
fn lives(ahead: u64, each: u64, most: u64) -> Duration {
    let (mut link, asked) = asking(ahead);
    for millis in 0..60_000 {
        let now = asked + ms(millis);
        if link.wants_delivery(now) {
            let acknowledged = (millis * each).min(most);
            link.on_delivery(2_000 + acknowledged, ahead, now);
        }
        if link.on_timeout(now).is_err() {
            return ms(millis);
        }
    }
    panic!("it is never given up")
}

#[test]
fn who_goes_on_acknowledging_what_lies_before_the_ping_is_not_silent_until_that_is_there() {
    let LinkConfig { ping_after, dead_after, .. } = LinkConfig::default();
    let grace = dead_after - ping_after;
    // It is there at once, or never comes on.
    assert_eq!(lives(1, 1, u64::MAX), grace);
    assert_eq!(lives(1_000_000, 0, u64::MAX), grace);
    // It takes ten seconds to be there, and has its time to be answered then.
    let lived = lives(10_000_000, 1_000, u64::MAX);
    assert!(lived >= ms(10_000) + grace && lived < ms(10_000) + 3 * grace, "{lived:?}");
    // On its way all comes to a stop.
    let stopped = lives(10_000_000, 1_000, 4_000_000);
    assert!(stopped >= ms(4_000) && stopped < ms(4_000) + 3 * grace, "{stopped:?}");
}

#[test]
fn what_is_written_behind_the_ping_and_acknowledged_is_no_sign_of_life() {
    let (mut link, asked) = asking(100);
    let mut now = asked;
    let error = loop {
        now += ms(1);
        if link.wants_delivery(now) {
            link.on_delivery(2_100 + (now - asked).as_millis() as u64, 50, now);
        }
        if let Err(error) = link.on_timeout(now) {
            break error;
        }
    };
    let LinkConfig { ping_after, dead_after, .. } = LinkConfig::default();
    assert_eq!((error, now - asked), (LinkError::Silent(dead_after), dead_after - ping_after));
}

#[test]
fn a_frame_that_takes_its_time_to_come_in_is_no_silence() {
    let mut link = Link::accepted(server(1), LinkConfig::default(), start());
    link.on_frame(&Frame::Hello(client()), start()).unwrap();
    let ack = HelloAck { obeys_cancels: false, grant: None };
    link.on_frame(&Frame::HelloAck(ack), start()).unwrap();
    let mut now = start();
    for _ in 0..50 {
        now += ms(100);
        link.on_bytes(4096, now);
        link.on_timeout(now).unwrap();
        while link.poll_transmit(now).is_some() {}
    }
    // But a byte now and then is: it might go on for ever.
    for _ in 0..9 {
        now += ms(100);
        link.on_bytes(1, now);
        link.on_timeout(now).unwrap();
        while link.poll_transmit(now).is_some() {}
    }
    now += ms(100);
    link.on_bytes(1, now);
    assert_eq!(link.on_timeout(now), Err(LinkError::Silent(ms(1_000))));
}

#[test]
fn only_the_side_that_dialled_a_configured_peer_obeys_cancels_and_only_when_up() {
    let mut pair = Pair::mesh();
    pair.run_for(ms(1));
    let [dialled, accepted] = &pair.ends;
    assert!(!dialled.link.obeys_cancels() && !accepted.link.peer_obeys_cancels());
    pair.run_for(ms(1));
    let [dialled, accepted] = &pair.ends;
    assert!(dialled.link.obeys_cancels() && accepted.link.peer_obeys_cancels());
    assert!(!accepted.link.obeys_cancels() && !dialled.link.peer_obeys_cancels());
}

#[test]
fn half_a_mesh_never_counts_as_up() {
    for wires in [[true, false], [false, true]] {
        let mut pair = Pair::mesh();
        pair.run_for(Duration::ZERO);
        pair.ends.iter_mut().for_each(|end| end.arriving.clear());
        pair.wires = wires;
        pair.run_for(ms(1_999));
        for end in &pair.ends {
            assert!(!end.link.is_up() && !end.link.peer_obeys_cancels());
        }
        pair.run_for(ms(10));
        assert!(pair.ends.iter().any(|end| end.ended.is_some()));
    }
}

#[test]
fn who_has_heard_a_hello_and_not_that_its_own_was_heard_is_not_up() {
    for wires in [[true, false], [false, true]] {
        let mut pair = Pair::mesh();
        // Both hellos are under way; of what answers them only one arrives.
        pair.run_for(Duration::ZERO);
        pair.wires = wires;
        pair.run_for(ms(1_000));
        assert!(pair.ends.iter().all(|end| end.link.peer().is_some()));
        assert_eq!(pair.ends.iter().filter(|end| end.link.is_up()).count(), 1, "{wires:?}");
    }
}

#[test]
fn who_dialled_without_a_name_obeys_nobody() {
    let mut pair = Pair::of(client(), None, server(2));
    pair.run_for(ms(5));
    assert!(pair.both_up());
    assert!(!pair.ends[0].link.obeys_cancels() && !pair.ends[1].link.peer_obeys_cancels());
}

#[test]
fn frames_out_of_turn_end_the_link() {
    let ack = Frame::HelloAck(HelloAck { obeys_cancels: true, grant: None });
    let fresh = || Link::accepted(server(1), LinkConfig::default(), start());
    let ping = Frame::Ping(Ping { token: 1 });
    let early = [ack.clone(), ping, Frame::Credit(Credit::default())];
    for frame in early {
        let error = fresh().on_frame(&frame, start()).unwrap_err();
        assert!(matches!(error, LinkError::OutOfTurn(_)), "{frame:?}");
    }
    let mut link = fresh();
    link.on_frame(&Frame::Hello(client()), start()).unwrap();
    let second = link.on_frame(&Frame::Hello(client()), start()).unwrap_err();
    assert_eq!(second, LinkError::OutOfTurn("second hello"));
    link.on_frame(&ack, start()).unwrap();
    assert_eq!(link.on_frame(&ack, start()), Err(LinkError::OutOfTurn("second hello-ack")));
}

#[test]
fn a_pong_that_nobody_asked_for_says_nothing() {
    let mut pair = Pair::client_and_server();
    pair.run_for(ms(10));
    pair.delay = ms(40);
    for _ in 0..10 {
        // A ping is under way when they come.
        pair.run_for(ms(255));
        for token in [0, 1, 3, u64::MAX] {
            let frame = Frame::Pong(Ping { token });
            assert_eq!(pair.ends[0].link.on_frame(&frame, pair.now), Ok(LinkEvent::Handled));
        }
        pair.run_for(ms(100));
    }
    assert_eq!(pair.ends[0].link.rtt(), Some(ms(80)), "only the true ones count");
}

#[test]
fn a_goodbye_ends_a_link_with_its_reason() {
    let mut pair = Pair::client_and_server();
    pair.run_for(ms(5));
    let goodbye = Goodbye { reason: GoodbyeReason::Leaving };
    pair.send(1, &Frame::Goodbye(goodbye, b"until tomorrow"));
    pair.run_for(ms(5));
    assert_eq!(pair.error(0), &LinkError::Goodbye(GoodbyeReason::Leaving));
    assert_eq!(pair.error(0).goodbye(), None);
}

#[test]
fn who_leaves_says_so_and_goes_when_its_time_is_over() {
    let features = Features::GO_AWAY;
    let mut pair = Pair::of(Hello { features, ..client() }, None, Hello { features, ..server(2) });
    pair.run_for(ms(10));
    let said = pair.now;
    pair.ends[1].link.leave(ms(300), said);
    pair.run_for(ms(2));
    assert!(pair.ends[0].events.contains(&LinkEvent::Leaving));
    assert_eq!(pair.ends[0].link.peer_leaves(), Some(said + ms(301)));
    pair.run_for(ms(500));
    let (at, error) = pair.ends[1].ended.clone().unwrap();
    assert_eq!((at - said, &error), (ms(300), &LinkError::Drained));
    assert_eq!(error.goodbye(), Some(Goodbye { reason: GoodbyeReason::Leaving }));
}

#[test]
fn who_leaves_before_it_is_up_says_so_when_it_knows_whom_it_tells_and_nothing_else() {
    let features = Features::GO_AWAY;
    let hello = Hello { features, ..server(2) };
    let mut link = Link::accepted(hello, LinkConfig::default(), start());
    link.leave(ms(300), start());
    let said = |link: &mut Link| {
        let mut said = Vec::new();
        while let Some(frame) = link.poll_transmit(start()) {
            said.push(frame.name());
        }
        said
    };
    assert_eq!(said(&mut link), ["hello"]);
    let greeting = Frame::Hello(Hello { features, ..client() });
    link.on_frame(&greeting, start()).expect("a hello");
    assert!(!link.is_up());
    assert_eq!(said(&mut link), ["hello-ack", "ping", "go-away", "ping"]);
}

/// What the other side sent before it knew of the leave is here once it answers the ping behind it.
#[test]
fn a_leave_is_heard_when_the_ping_behind_it_is_answered() {
    let features = Features::GO_AWAY;
    let config = LinkConfig::default();
    let mut pair = Pair::of(Hello { features, ..client() }, None, Hello { features, ..server(2) });
    pair.run_for(ms(10));
    // One ping is out already, and its answer says nothing of the leave.
    let now = pair.now + config.ping_after;
    let link = &mut pair.ends[1].link;
    link.on_timeout(now).expect("it is only quiet");
    let Some(Frame::Ping(before)) = link.poll_transmit(now) else { panic!("no ping") };
    link.leave(ms(300), now);
    assert!(matches!(link.poll_transmit(now), Some(Frame::GoAway(_))));
    link.on_frame(&Frame::Pong(before), now).expect("a pong");
    let Some(Frame::Ping(behind)) = link.poll_transmit(now) else { panic!("no ping") };
    link.on_frame(&Frame::Pong(before), now).expect("a pong");
    assert!(!link.is_leave_heard());
    link.on_frame(&Frame::Pong(behind), now).expect("a pong");
    assert!(link.is_leave_heard());
}

#[test]
fn a_leave_waits_for_none_who_can_not_hear_it_or_said_nothing_yet() {
    let mut stranger = Link::accepted(server(2), LinkConfig::default(), start());
    assert!(!stranger.is_leave_heard(), "it does not leave");
    stranger.leave(ms(300), start());
    assert!(stranger.is_leave_heard(), "a stranger has sent nothing");
    let mut pair = Pair::client_and_server();
    pair.run_for(ms(10));
    let (link, now) = (&mut pair.ends[1].link, pair.now);
    link.leave(ms(300), now);
    assert_eq!(link.poll_transmit(now), None);
    assert!(link.is_leave_heard(), "this one can't hear of it");
}

#[test]
fn who_can_not_hear_of_a_leave_is_not_told() {
    let mut pair = Pair::client_and_server();
    pair.run_for(ms(10));
    let said = pair.now;
    pair.ends[1].link.leave(ms(100), said);
    pair.run_for(ms(200));
    assert!(!pair.ends[0].events.contains(&LinkEvent::Leaving));
    assert_eq!(pair.error(1), &LinkError::Drained);
}

#[test]
fn a_grant_comes_with_the_acknowledgement_to_who_counts() {
    let credit = Credit { requests: 64, bytes: 1 << 20 };
    let config = LinkConfig::default();
    for (features, grant) in [(Features::CREDIT, Some(credit)), (Features::NONE, None)] {
        let mut pair = Pair::new(
            Link::dialled(Hello { features, ..client() }, None, config, start()),
            Link::accepted(server(2), config, start()).with_grant(credit),
        );
        pair.run_for(ms(5));
        assert_eq!(pair.ends[0].link.peer_grant(), grant);
        assert_eq!(pair.ends[1].link.peer_grant(), None);
    }
}

#[test]
fn methods_that_mean_two_things_are_an_error_by_name() {
    const RENAMED: &[MethodInfo] = &[MethodInfo::new(Method(7), "erase")];
    let theirs = ServiceInfo { name: "blocks", methods: RENAMED };
    let with =
        |hello: Hello, service: ServiceInfo| Hello { methods: Some(service.to_methods()), ..hello };
    let mut pair = Pair::of(with(client(), BLOCKS), None, with(server(2), theirs));
    pair.run_for(ms(5));
    assert_eq!(pair.error(0).to_string(), r#"method 7 is "erase" there and "write" here"#);
    let mut same = Pair::of(with(client(), BLOCKS), None, with(server(2), BLOCKS));
    same.run_for(ms(5));
    assert!(same.both_up());
}

proptest! {
    /// Whatever comes, a link never panics, never asks for a timer that is always due, and is up
    /// only after a hello and its acknowledgement.
    #[test]
    fn a_link_holds_whatever_comes(
        steps in prop::collection::vec((any_frame(10), 0..400_u64, any::<bool>()), 0..60),
    ) {
        let mut link = Link::accepted(server(1), LinkConfig::default(), start());
        let (mut now, mut hello, mut ack) = (start(), false, false);
        for (made, wait, polled) in steps {
            now += ms(wait);
            if link.on_timeout(now).is_err() {
                return Ok(());
            }
            while polled && link.poll_transmit(now).is_some() {}
            prop_assert!(!polled || link.next_timeout() > now);
            let frame = made.frame();
            if link.on_frame(&frame, now).is_err() {
                return Ok(());
            }
            hello |= matches!(frame, Frame::Hello(_));
            ack |= matches!(frame, Frame::HelloAck(_));
            prop_assert_eq!(link.is_up(), hello && ack);
        }
    }
}
