//! Calls that belong together: fanned out, and made on behalf of another.

use std::cell::{Cell, RefCell};
use std::task::{Poll, Waker};
use std::time::Duration;

use bowline_client::io::{Call, FanOut};
use bowline_protocol::{CancelReason, ErrorKind, Method, Parent, Status, TraceContext};
use bowline_runtime::{Instant, now};

use crate::server::{Answer, READ, World, run, tied};

const DEADLINE: Duration = Duration::from_secs(10);

/// Each replica serves a method of its own number.
async fn world() -> World {
    World::with(|config| {
        for replica in &mut config.replicas {
            replica.methods = Some(vec![Method(replica.id.0)]);
        }
    })
    .await
}

fn calls(world: &World) -> impl Iterator<Item = Call> {
    (1..=3).map(|method| world.client.call(Method(method), [method as u8]).deadline(DEADLINE))
}

#[test]
fn the_first_replies_are_enough_and_the_rest_is_cancelled() {
    run(async {
        let world = world().await;
        world.servers[1].answer.set(Answer::Silence);
        let mut two = FanOut::new(calls(&world)).first(2).await.unwrap();
        two.sort_by_key(|&(call, _)| call);
        let two: Vec<_> = two.iter().map(|(call, reply)| (*call, reply[0])).collect();
        assert_eq!(two, [(0, 1), (2, 3)]);
        world.servers[1].until(|server| server.cancels.borrow().len() == 1).await;
        assert_eq!(world.servers[1].cancels.borrow()[0].reason, CancelReason::CallerDone);
    });
}

#[test]
fn all_replies_come_in_the_order_of_the_calls_or_the_first_failure_ends_them() {
    run(async {
        let world = world().await;
        let all = FanOut::new(calls(&world)).all().await.unwrap();
        assert_eq!(all.iter().map(|reply| reply[0]).collect::<Vec<_>>(), [1, 2, 3]);
        world.servers[0].answer.set(Answer::Silence);
        world.servers[2].answer.set(Answer::Fail(Status::App(7)));
        let too_few = FanOut::new(calls(&world)).all().await.unwrap_err();
        assert_eq!((too_few.call, too_few.calls), (2, 3));
        assert_eq!(too_few.failure.error().kind, ErrorKind::App(7));
        let each = FanOut::new(calls(&world)).deadline(Duration::from_millis(20)).each().await;
        let kinds: Vec<_> =
            each.iter().map(|one| one.as_ref().err().map(|it| it.error().kind)).collect();
        assert_eq!(kinds, [Some(ErrorKind::DeadlineExceeded), None, Some(ErrorKind::App(7))]);
        assert!(FanOut::new([]).all().await.unwrap().is_empty());
    });
}

/// A handler's context.
#[derive(Default)]
struct Handler {
    deadline: Instant,
    extra: bool,
    trace: Option<TraceContext>,
    cancelled: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Parent for Handler {
    fn deadline(&self) -> Instant {
        self.deadline
    }
    fn is_extra(&self) -> bool {
        self.extra
    }
    fn trace(&self) -> Option<TraceContext> {
        self.trace
    }
    fn poll_cancelled(&self, waker: &Waker) -> Poll<()> {
        *self.waker.borrow_mut() = Some(waker.clone());
        if self.cancelled.get() { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[test]
fn a_call_on_behalf_of_another_has_its_deadline_and_is_not_doubled_if_that_is_an_extra_copy() {
    run(async {
        let world = World::new().await;
        let policy = world.client.register(tied()).unwrap();
        let mut handler = Handler { deadline: now() + DEADLINE / 2, ..Handler::default() };
        let call = || world.client.call(READ, b"x").idempotent().policy(policy).deadline(DEADLINE);
        assert!(call().within(&handler).await.unwrap().outcome().tied);
        let remaining = world.servers[0].requests.borrow()[0].0.remaining;
        assert!(remaining <= DEADLINE / 2, "{remaining:?}");
        handler.extra = true;
        assert!(!call().within(&handler).await.unwrap().outcome().tied);
        assert_eq!(world.client.counters().denied.from_extra, 1);
        handler.deadline = now();
        let late = call().within(&handler).await.unwrap_err();
        assert_eq!(late.error().kind, ErrorKind::DeadlineExceeded);
    });
}

#[test]
fn when_nobody_needs_the_parent_its_calls_are_cancelled_on_the_wire() {
    run(async {
        let world = World::new().await;
        let server = &world.servers[0];
        server.answer.set(Answer::Silence);
        let handler = Handler { deadline: Instant::FAR_FUTURE, ..Handler::default() };
        let ends = async {
            server.until(|server| server.seen() == 1).await;
            handler.cancelled.set(true);
            handler.waker.take().unwrap().wake();
        };
        let call = world.client.call(READ, b"x").deadline(DEADLINE).within(&handler);
        let (failure, ()) = join(call, ends).await;
        assert_eq!(failure.unwrap_err().error().kind, ErrorKind::Cancelled);
        server.until(|server| server.cancels.borrow().len() == 1).await;
    });
}

#[test]
fn the_first_replies_are_enough_though_others_fail_unless_too_few_are_left() {
    run(async {
        let world = world().await;
        // It fails at once, before any other is sent.
        let with_late = || {
            let late = world.client.call(Method(1), [1]).deadline(Duration::ZERO);
            FanOut::new([late].into_iter().chain(calls(&world).skip(1)))
        };
        let mut two = with_late().first(2).await.unwrap();
        two.sort_by_key(|&(call, _)| call);
        assert_eq!(
            two.iter().map(|(call, reply)| (*call, reply[0])).collect::<Vec<_>>(),
            [(1, 2), (2, 3)]
        );
        world.servers[1].answer.set(Answer::Fail(Status::App(7)));
        let too_few = with_late().first(2).await.unwrap_err();
        assert_eq!((too_few.call, too_few.calls), (1, 3), "it is the second that fails");
        assert_eq!(too_few.failure.error().kind, ErrorKind::App(7));
    });
}

async fn join<A: Future, B: Future>(one: A, two: B) -> (A::Output, B::Output) {
    let (mut one, mut two) = (std::pin::pin!(one), std::pin::pin!(two));
    let (mut first, mut second) = (None, None);
    std::future::poll_fn(|context| {
        if first.is_none()
            && let Poll::Ready(done) = one.as_mut().poll(context)
        {
            first = Some(done);
        }
        if second.is_none()
            && let Poll::Ready(done) = two.as_mut().poll(context)
        {
            second = Some(done);
        }
        if first.is_some() && second.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (first.unwrap(), second.unwrap())
}
