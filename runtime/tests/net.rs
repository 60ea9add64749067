//! Connections, over the real ring.
//!
//! `ROUNDS` sets how often many peers go through one buffer.

mod common;

use std::cell::Cell;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline_runtime::net::{ListenOptions, TcpListener, TcpStream};
use bowline_runtime::{Runtime, Stage, metrics, spawn, spawn_at, yield_now};
use common::{LONG, accept_one, listen, pattern, receive_exactly, rounds, run, run_on};

/// Sends everything back until the peer has said all.
async fn echo(stream: TcpStream) -> std::io::Result<()> {
    while let Some(bytes) = stream.receive().await? {
        stream.send(&bytes);
    }
    Ok(())
}

fn serve_echo(listener: TcpListener) {
    drop(spawn_at(Stage::Input, async move {
        while let Ok(stream) = listener.accept().await {
            drop(spawn_at(Stage::Input, echo(stream)));
        }
    }));
}

/// Receives so many bytes; what comes beyond them goes to, and first comes from, `rest`.
async fn receive_at_most(stream: &TcpStream, rest: &mut Vec<u8>, length: usize) -> Vec<u8> {
    while rest.len() < length {
        rest.extend_from_slice(&stream.receive().await.unwrap().expect("the peer sends so many"));
    }
    let more = rest.split_off(length);
    std::mem::replace(rest, more)
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address, LONG).await.unwrap()
}

/// One after the other, `rounds` messages go out and come back.
async fn ping(address: SocketAddr, rounds: usize, length: usize) {
    let stream = connect(address).await;
    for round in 0..rounds {
        let message = pattern(length, round);
        stream.send(&message);
        assert!(receive_exactly(&stream, length).await == message, "round {round}");
    }
}

#[test]
fn many_frames_come_back_as_they_went() {
    run(async {
        let (listener, address) = listen();
        serve_echo(listener);
        ping(address, 20_000, 64).await;
    });
}

#[test]
fn a_megabyte_at_once_comes_back_whole() {
    run(async {
        let (listener, address) = listen();
        serve_echo(listener);
        ping(address, 8, 1 << 20).await;
    });
}

#[test]
fn what_is_sent_in_one_turn_leaves_in_one_request() {
    run(async {
        let (listener, address) = listen();
        let (sender, receiver) = accept_one(&listener, address).await;
        let before = metrics().sends;
        for byte in 0..100_u8 {
            sender.send(&[byte]);
        }
        let bytes = receive_exactly(&receiver, 100).await;
        assert!(bytes.iter().copied().eq(0..100));
        assert_eq!(metrics().sends - before, 1);
    });
}

#[test]
fn much_that_is_sent_does_not_wait_for_the_end_of_the_turn() {
    // However slow the machine, one turn is to run all tasks.
    let runtime = Runtime::builder().budget(LONG).build().unwrap();
    run_on(&runtime, async {
        let (listener, address) = listen();
        let (sender, receiver) = accept_one(&listener, address).await;
        let before = metrics();
        let sends: Vec<_> = (0..20_u8)
            .map(|byte| {
                let sender = sender.clone();
                spawn(async move {
                    sender.send(&[byte; 1024]);
                    (metrics().turns, metrics().sends)
                })
            })
            .collect();
        let mut seen = Vec::new();
        for send in sends {
            seen.push(send.await.unwrap());
        }
        assert!(seen.iter().all(|(turns, _)| *turns == seen[0].0), "one turn runs them all");
        // The eighth fills 8 KiB, which the ninth task finds sent.
        assert_eq!(seen[7].1, before.sends);
        assert_eq!(seen[8].1, before.sends + 1);
        let bytes = receive_exactly(&receiver, 20 << 10).await;
        assert!(bytes.iter().copied().eq((0..20_u8).flat_map(|byte| [byte; 1024])));
    });
}

#[test]
fn version_six_works_too() {
    run(async {
        let listener =
            TcpListener::bind("[::1]:0".parse().unwrap(), ListenOptions::default()).unwrap();
        let address = listener.local_addr().unwrap();
        let (client, server) = accept_one(&listener, address).await;
        assert_eq!(client.local_addr().unwrap(), server.peer_addr().unwrap());
        client.send(b"six");
        assert_eq!(receive_exactly(&server, 3).await, b"six");
    });
}

#[test]
fn several_listeners_share_a_port_if_they_say_so() {
    run(async {
        let options = ListenOptions::default().reuse_port(true);
        let first = TcpListener::bind("127.0.0.1:0".parse().unwrap(), options.clone()).unwrap();
        let address = first.local_addr().unwrap();
        let second = TcpListener::bind(address, options).unwrap();
        assert_eq!(second.local_addr().unwrap(), address);
        let exclusive = TcpListener::bind(address, ListenOptions::default());
        assert_eq!(exclusive.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
        // The kernel deals connections out by their addresses, of which none is like another.
        let accepted = [first, second].map(|listener| {
            let accepted = Rc::new(Cell::new(0));
            drop(spawn({
                let accepted = accepted.clone();
                async move {
                    while let Ok(stream) = listener.accept().await {
                        accepted.set(accepted.get() + 1);
                        drop(stream);
                    }
                }
            }));
            accepted
        });
        while accepted.iter().any(|accepted| accepted.get() == 0) {
            drop(TcpStream::connect(address, LONG).await.unwrap());
        }
    });
}

#[test]
fn a_refused_connection_and_one_that_takes_too_long_are_errors() {
    run(async {
        let (listener, address) = listen();
        drop(listener);
        yield_now().await;
        let refused = TcpStream::connect(address, LONG).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        // A listener whose queue is full lets connections hang.
        let full = TcpListener::bind("127.0.0.1:0".parse().unwrap(), {
            let mut options = ListenOptions::default();
            options.backlog = 0;
            options
        })
        .unwrap();
        let address = full.local_addr().unwrap();
        let first = connect(address).await;
        let hanging = TcpStream::connect(address, Duration::from_millis(20)).await;
        let error = hanging.expect_err("the queue is full");
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        drop(first);
    });
}

#[test]
fn a_dropped_receive_loses_nothing() {
    run(async {
        let (listener, address) = listen();
        let (sender, receiver) = accept_one(&listener, address).await;
        for round in 0..500 {
            let never = bowline_runtime::timeout(Duration::from_micros(50), receiver.receive());
            assert!(never.await.is_err(), "nothing was sent in round {round}");
            sender.send(&pattern(10, round));
            assert_eq!(receive_exactly(&receiver, 10).await, pattern(10, round));
        }
    });
}

#[test]
fn what_was_queued_arrives_after_the_stream_was_dropped() {
    run(async {
        let (listener, address) = listen();
        let (sender, receiver) = accept_one(&listener, address).await;
        let message = pattern(4 << 20, 3);
        sender.send(&message);
        drop(sender);
        assert!(receive_exactly(&receiver, message.len()).await == message);
        assert!(receiver.receive().await.unwrap().is_none());
        drop(receiver);
        drop(listener);
        while metrics().live_connections > 0 {
            yield_now().await;
        }
    });
}

#[test]
fn a_peer_that_never_reads_does_not_keep_a_dropped_stream_for_ever() {
    let runtime = Runtime::builder().linger(Duration::from_millis(20)).build().unwrap();
    run_on(&runtime, async {
        let (listener, address) = listen();
        let (sender, receiver) = accept_one(&listener, address).await;
        sender.send(&vec![1; 64 << 20]);
        drop(sender);
        while metrics().live_connections > 1 {
            yield_now().await;
        }
        drop(receiver);
    });
}

#[test]
fn shutting_down_one_way_leaves_the_other() {
    run(async {
        let (listener, address) = listen();
        let (client, server) = accept_one(&listener, address).await;
        client.send(b"question");
        client.shutdown(std::net::Shutdown::Write);
        assert_eq!(receive_exactly(&server, 8).await, b"question");
        assert!(server.receive().await.unwrap().is_none());
        server.send(b"answer");
        assert_eq!(receive_exactly(&client, 6).await, b"answer");
        client.send(b"too late");
        assert_eq!(client.queued(), 0);
    });
}

#[test]
fn a_failed_connection_tells_reader_and_writer() {
    run(async {
        let (listener, address) = listen();
        let (client, server) = accept_one(&listener, address).await;
        let waiting = spawn({
            let client = client.clone();
            async move { client.receive().await.map(|lease| lease.is_some()) }
        });
        yield_now().await;
        client.abort();
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionAborted);
        client.send(b"forgotten");
        assert_eq!(client.queued(), 0);
        assert!(client.drained(0).await.is_err());
        assert!(client.error().is_some());
        drop(client);
        assert!(!matches!(server.receive().await, Ok(Some(_))));
    });
}

#[test]
fn a_sender_can_wait_for_a_slow_reader() {
    run(async {
        let (listener, address) = listen();
        let (sender, receiver) = accept_one(&listener, address).await;
        let total = 32 << 20;
        let reading = spawn(async move { receive_exactly(&receiver, total).await.len() });
        let mut most = 0;
        for _ in 0..total / (64 << 10) {
            sender.send(&[5; 64 << 10]);
            most = most.max(sender.queued());
            sender.drained(256 << 10).await.unwrap();
        }
        assert!(most <= (256 << 10) + (64 << 10), "{most} bytes were queued");
        assert_eq!(reading.await.unwrap(), total);
    });
}

#[test]
fn readers_that_lag_starve_nobody() {
    let runtime = Runtime::builder().buffers(16, 1024).build().unwrap();
    run_on(&runtime, async {
        let (listener, address) = listen();
        let mut laggards = Vec::new();
        for _ in 0..8 {
            let (flooder, lagging) = accept_one(&listener, address).await;
            // Once, so that a receive is armed; then never again for a while.
            flooder.send(&[0; 10]);
            receive_exactly(&lagging, 10).await;
            flooder.send(&vec![9; 1 << 20]);
            laggards.push((flooder, lagging));
        }
        let (listener, address) = listen();
        serve_echo(listener);
        ping(address, 200, 100).await;
        assert!(metrics().pauses > 0);
        for (_, lagging) in &laggards {
            assert!(receive_exactly(lagging, 1 << 20).await.iter().all(|&byte| byte == 9));
        }
    });
}

#[test]
fn one_buffer_serves_many_connections() {
    let runtime = Runtime::builder().buffers(1, 256).build().unwrap();
    run_on(&runtime, async {
        let (listener, address) = listen();
        serve_echo(listener);
        let peers: Vec<_> = (0..40).map(|_| spawn(ping(address, rounds(30), 1000))).collect();
        for peer in peers {
            peer.await.unwrap();
        }
        assert!(metrics().parks > 0, "there was a buffer for everyone all the time");
    });
}

#[test]
fn leases_that_are_held_starve_nobody() {
    for count in [1, 2, 8, 16] {
        let runtime = Runtime::builder().buffers(count, 256).build().unwrap();
        run_on(&runtime, async {
            let (listener, address) = listen();
            let mut held = Vec::new();
            // Each keeps what it got until all have something, which they are sent one by one.
            for number in 0..40 {
                let (client, server) = accept_one(&listener, address).await;
                client.send(&pattern(100, number));
                let lease = server.receive().await.unwrap().unwrap();
                held.push((client, server, lease));
            }
            for (number, (.., lease)) in held.iter().enumerate() {
                assert_eq!(lease[..], pattern(100, number));
            }
            assert!(metrics().copies > 0, "40 leases of {count} buffers");
            assert!(metrics().free_buffers > 0);
        });
    }
}

#[test]
fn readers_that_keep_up_are_given_no_copies() {
    run(async {
        let (listener, address) = listen();
        serve_echo(listener);
        let peers: Vec<_> = (0..16).map(|_| spawn(ping(address, 50, 40_000))).collect();
        for peer in peers {
            peer.await.unwrap();
        }
        assert_eq!(metrics().copies, 0);
    });
}

#[test]
fn queues_of_two_lose_no_request() {
    let runtime = Runtime::builder().entries(2).completions(2).build().unwrap();
    run_on(&runtime, async {
        let (listener, address) = listen();
        serve_echo(listener);
        let peers: Vec<_> = (0..64).map(|_| spawn(ping(address, 40, 500))).collect();
        for peer in peers {
            peer.await.unwrap();
        }
        assert!(metrics().overflows > 0, "the completion queue never overflowed");
    });
}

#[test]
fn a_writer_that_panics_leaves_what_was_queued_before() {
    run(async {
        let (listener, address) = listen();
        let (client, server) = accept_one(&listener, address).await;
        client.send(b"before, ");
        let panicked = spawn({
            let client = client.clone();
            async move {
                client.send_with(|out| {
                    out.extend_from_slice(b"half a frame");
                    panic!("as planned");
                });
            }
        });
        assert!(panicked.await.unwrap_err().is_panic());
        client.send(b"after");
        client.send_with(|out| {
            out.extend_from_slice(b", within");
            client.send(b" and");
        });
        assert_eq!(receive_exactly(&server, 25).await, b"before, after, within and");
    });
}

struct SendOnDrop(TcpStream);

impl Drop for SendOnDrop {
    fn drop(&mut self) {
        self.0.send(b"never flushed");
    }
}

#[test]
fn a_runtime_that_ends_closes_its_connections() {
    use std::io::Read;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let runtime = Runtime::builder().build().unwrap();
    run_on(&runtime, async {
        let stream = connect(address).await;
        // One waits in a task; on the other, a task's destructor sends what no turn will flush.
        let other = SendOnDrop(connect(address).await);
        drop(spawn(async move { stream.receive().await.map(drop) }));
        drop(spawn(async move {
            let _other = other;
            std::future::pending::<()>().await;
        }));
        yield_now().await;
    });
    drop(runtime);
    for _ in 0..2 {
        let (mut peer, _) = listener.accept().unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut bytes = Vec::new();
        // An end or a reset, but it comes.
        if let Err(error) = peer.read_to_end(&mut bytes) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
    }
}

#[test]
fn streams_may_outlive_their_runtime() {
    let runtime = Runtime::builder().build().unwrap();
    let kept = Rc::new(std::cell::RefCell::new(Vec::new()));
    run_on(&runtime, {
        let kept = kept.clone();
        async move {
            let (listener, address) = listen();
            let (client, server) = accept_one(&listener, address).await;
            client.send(b"bytes");
            let lease = server.receive().await.unwrap().unwrap();
            kept.borrow_mut().push((client, server, lease));
        }
    });
    drop(runtime);
    let (client, server, lease) = kept.borrow_mut().pop().unwrap();
    assert_eq!(&lease[..], b"bytes");
    assert!(client.error().is_some());
    client.send(b"nobody sends this");
    assert_eq!(client.queued(), 0);
    drop((client, lease, server));
}

#[test]
fn what_was_queued_before_a_shutdown_leaves_though_more_is_sent_after() {
    run(async {
        let (listener, address) = listen();
        let (client, server) = accept_one(&listener, address).await;
        // More than fits on the way, so that a send is in flight; the rest waits behind it.
        let large = pattern(16 << 20, 5);
        client.send(&large);
        yield_now().await;
        assert!(client.queued() > 0);
        client.send(b"the end");
        client.shutdown(std::net::Shutdown::Write);
        client.send(b"too late");
        let received = receive_exactly(&server, large.len() + 7).await;
        assert!(received[..large.len()] == large);
        assert_eq!(&received[large.len()..], b"the end");
        assert!(server.receive().await.unwrap().is_none());
    });
}

#[test]
fn a_peer_gets_all_of_a_reply_though_its_own_bytes_were_not_read() {
    run(async {
        let (listener, address) = listen();
        for length in [100, 8 << 20] {
            let (client, server) = accept_one(&listener, address).await;
            let reply = pattern(length, 9);
            server.send(&reply);
            client.send(&[1; 100_000]);
            if length == 100 {
                // Taken by the kernel before the last handle goes.
                server.drained(0).await.unwrap();
            }
            drop(server);
            for round in 0..3 {
                client.send(&[2; 100_000]);
                yield_now().await;
                assert!(client.error().is_none(), "reset in round {round}");
            }
            assert!(receive_exactly(&client, length).await == reply);
            assert!(client.receive().await.unwrap().is_none());
        }
    });
}

#[test]
fn a_listener_that_outlives_its_runtime_says_so_every_time() {
    let runtime = Runtime::builder().build().unwrap();
    let listener = run_on(&runtime, async { listen().0 });
    drop(runtime);
    for _ in 0..3 {
        let mut accepting = std::pin::pin!(listener.accept());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let std::task::Poll::Ready(Err(error)) = accepting.as_mut().poll(&mut context) else {
            panic!("it waits for what never comes");
        };
        assert_eq!(error.raw_os_error(), Some(125));
    }
}

#[test]
fn pieces_arrive_in_their_places_among_small_messages() {
    run(async {
        let (listener, address) = listen();
        let (client, server) = accept_one(&listener, address).await;
        let sends = metrics().sends;
        let mut expected = Vec::new();
        for round in 0..20 {
            let large = pattern(5_000 + round * 700, round);
            client.send(&pattern(10, round));
            expected.extend_from_slice(&pattern(10, round));
            match round % 4 {
                0 => client.send_piece(large.clone()),
                1 => client.send_piece(bytes::Bytes::from(large.clone())),
                2 => client.send_piece(Rc::<[u8]>::from(large.clone())),
                _ => {
                    let mut buffer = bowline_runtime::buffer::take(large.len());
                    buffer.copy_from_slice(&large);
                    client.send_piece(buffer);
                }
            }
            expected.extend_from_slice(&large);
        }
        assert_eq!(client.queued(), expected.len());
        assert!(receive_exactly(&server, expected.len()).await == expected);
        assert!(metrics().sends - sends <= 2, "they do not travel together");
        assert_eq!(client.queued(), 0);
    });
}

/// Bytes that count themselves while they live.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl Counted {
    fn piece(bytes: Vec<u8>, live: &Arc<AtomicUsize>) -> bytes::Bytes {
        live.fetch_add(1, Ordering::Relaxed);
        bytes::Bytes::from_owner(Counted(bytes, live.clone()))
    }
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn a_piece_is_kept_until_the_kernel_has_it_and_not_longer() {
    let live = Arc::new(AtomicUsize::new(0));
    run(async {
        let (listener, address) = listen();
        let (client, server) = accept_one(&listener, address).await;
        let length = 4 << 20;
        let send = |seed| client.send_piece(Counted::piece(pattern(length, seed), &live));
        for seed in 0..8 {
            send(seed);
        }
        yield_now().await;
        assert!(live.load(Ordering::Relaxed) > 2, "more than fits on the way");
        let mut rest = Vec::new();
        for seed in 0..8 {
            assert!(receive_at_most(&server, &mut rest, length).await == pattern(length, seed));
        }
        assert_eq!(client.queued(), 0);
        assert_eq!(live.load(Ordering::Relaxed), 0);
        // Those that are never sent go when the connection fails, but for what the kernel has.
        for seed in 0..8 {
            send(seed);
        }
        yield_now().await;
        client.abort();
        drop((client, server));
        while metrics().live_connections > 0 {
            yield_now().await;
        }
        assert_eq!(live.load(Ordering::Relaxed), 0);
    });
}

/// Counts its clones.
struct Counts(std::sync::Arc<()>);

impl std::task::Wake for Counts {
    fn wake(self: std::sync::Arc<Self>) {
        let _ = &self.0;
    }
}

#[test]
fn who_waits_for_a_stalled_peer_and_gives_up_leaves_nothing() {
    run(async {
        let (listener, address) = listen();
        let (client, _server) = accept_one(&listener, address).await;
        client.send(&vec![1; 32 << 20]);
        yield_now().await;
        let counts = std::sync::Arc::new(Counts(std::sync::Arc::new(())));
        let waker = std::task::Waker::from(counts.clone());
        for _ in 0..100 {
            let mut drained = Box::pin(client.drained(0));
            let mut context = std::task::Context::from_waker(&waker);
            assert!(drained.as_mut().poll(&mut context).is_pending());
            assert!(drained.as_mut().poll(&mut context).is_pending());
            assert_eq!(std::sync::Arc::strong_count(&counts), 3, "the test, its waker, a clone");
        }
        assert_eq!(std::sync::Arc::strong_count(&counts), 2, "wakers stay behind");
    });
}

#[test]
fn keepalive_and_the_limit_on_acknowledgements_reach_the_socket() {
    use bowline_runtime::net::Keepalive;
    run(async {
        let options = ListenOptions::default().keepalive(Some(Keepalive::default()));
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap(), options).unwrap();
        let address = listener.local_addr().unwrap();
        let (client, server) = accept_one(&listener, address).await;
        let (ours, theirs) = (socket2::SockRef::from(&*client), socket2::SockRef::from(&*server));
        assert!(theirs.keepalive().unwrap() && !ours.keepalive().unwrap());
        assert_eq!(theirs.tcp_keepalive_time().unwrap(), Duration::from_secs(10));
        let interval = Duration::from_millis(1);
        let keepalive = Keepalive { interval, probes: 0, ..Keepalive::default() };
        client.set_keepalive(Some(keepalive)).unwrap();
        assert_eq!(ours.tcp_keepalive_interval().unwrap(), Duration::from_secs(1));
        assert_eq!(ours.tcp_keepalive_retries().unwrap(), 1);
        client.set_keepalive(None).unwrap();
        assert!(!ours.keepalive().unwrap());
        client.set_user_timeout(Some(Duration::from_secs(3))).unwrap();
        assert_eq!(ours.tcp_user_timeout().unwrap(), Some(Duration::from_secs(3)));
    });
}

#[test]
fn memory_of_a_connection_that_is_aborted_is_not_used_again_while_it_is_sent() {
    const LENGTH: usize = 1 << 20;
    for round in 0..rounds(20) {
        run(async {
            let (listener, address) = listen();
            let mut peers = Vec::new();
            for _ in 0..4 {
                peers.push(accept_one(&listener, address).await);
            }
            for (client, _) in &peers {
                for _ in 0..6 {
                    let mut buffer = bowline_runtime::buffer::take(LENGTH);
                    buffer.fill(0x77);
                    client.send_piece(buffer);
                }
            }
            for _ in 0..round % 4 {
                yield_now().await;
            }
            let servers: Vec<_> = peers
                .into_iter()
                .map(|(client, server)| {
                    if round % 2 == 0 {
                        client.abort();
                    }
                    drop(client);
                    server
                })
                .collect();
            // What goes back to the pool is taken, and written over.
            let mut canaries = Vec::new();
            for server in servers {
                canaries.extend((0..8).map(|_| bowline_runtime::buffer::take(LENGTH)));
                canaries.iter_mut().for_each(|canary| canary.fill(0x11));
                while let Ok(Some(bytes)) = server.receive().await {
                    assert!(bytes.iter().all(|&byte| byte == 0x77), "round {round}");
                }
            }
        });
    }
}

/// Runs a test in which what is large is sent without a copy.
fn run_zero_copy(future: impl Future<Output = ()>) {
    run_on(&Runtime::builder().zero_copy(Some(16 << 10)).build().unwrap(), future);
}

#[test]
fn what_is_sent_without_a_copy_arrives_and_is_told_from_what_is_small() {
    run_zero_copy(async {
        let (listener, address) = listen();
        let (client, server) = accept_one(&listener, address).await;
        client.send(b"small");
        assert_eq!(receive_exactly(&server, 5).await, b"small");
        assert_eq!(metrics().zero_copy_sends, 0);
        let mut rest = Vec::new();
        let rounds = rounds(30);
        for round in 0..rounds {
            let large = pattern(16_000 + round * 50_000, round);
            client.send(b"head");
            client.send_piece(large.clone());
            client.send(b"tail");
            assert_eq!(receive_at_most(&server, &mut rest, 4).await, b"head");
            assert!(receive_at_most(&server, &mut rest, large.len()).await == large);
            assert_eq!(receive_at_most(&server, &mut rest, 4).await, b"tail");
            client.drained(0).await.unwrap();
        }
        // All but the first are large.
        assert!(metrics().zero_copy_sends >= rounds as u64 - 1);
        assert_eq!(metrics().zero_copy_refused, 0);
    });
}

#[test]
fn a_peer_that_never_reads_keeps_no_connection_that_sends_without_a_copy() {
    let linger = Duration::from_millis(20);
    let builder = Runtime::builder().linger(linger).zero_copy(Some(1));
    let runtime = builder.build().unwrap();
    let live = Arc::new(AtomicUsize::new(0));
    let kept = run_on(&runtime, async {
        let (listener, address) = listen();
        let (client, server) = accept_one(&listener, address).await;
        client.send_piece(Counted::piece(vec![1; 64 << 20], &live));
        yield_now().await;
        drop(client);
        while metrics().live_connections > 1 {
            yield_now().await;
        }
        assert_eq!(live.load(Ordering::Relaxed), 0);
        // Nor does the end of the runtime wait for one, and then give up.
        let (other, other_server) = accept_one(&listener, address).await;
        other.send_piece(Counted::piece(vec![2; 64 << 20], &live));
        yield_now().await;
        (server, other, other_server)
    });
    drop(runtime);
    assert_eq!(live.load(Ordering::Relaxed), 0);
    drop(kept);
}

#[test]
fn what_the_kernel_has_taken_is_not_queued_any_more() {
    run(async {
        let (listener, address) = listen();
        let (client, _server) = accept_one(&listener, address).await;
        client.send(&vec![1; 64 << 20]);
        // The peer never reads, and some megabytes fit on the way.
        client.drained((64 << 20) - (1 << 20)).await.unwrap();
        assert!(client.queued() > 0);
    });
}

#[test]
fn a_listener_nobody_takes_from_is_stopped_once() {
    use bowline_runtime::net::{UnixAddr, UnixListener};
    use std::os::linux::net::SocketAddrExt;
    run(async {
        let name = format!("bowline-many-{}", std::process::id());
        let listener = UnixListener::bind(&UnixAddr::Name(name.clone().into())).unwrap();
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
        let connect = || std::os::unix::net::UnixStream::connect_addr(&address).unwrap();
        let peers: Vec<_> = (0..500).map(|_| connect()).collect();
        let before = metrics().completions;
        let first = listener.accept().await.unwrap();
        // Each accept and one cancellation; and the end of both requests, and what else there is.
        let completions = metrics().completions - before;
        assert!(completions < 510, "{completions} completions of 500 accepts");
        for _ in 1..500 {
            drop(listener.accept().await.unwrap());
        }
        drop((first, peers));
    });
}

#[test]
fn polling_of_network_cards_changes_nothing_but_time() {
    let runtime = Runtime::builder().busy_poll(Duration::from_micros(20)).build().unwrap();
    run_on(&runtime, async {
        let (listener, address) = listen();
        serve_echo(listener);
        ping(address, 200, 64).await;
    });
}

#[test]
fn what_is_much_leaves_before_the_turn_ends_whoever_sends_it() {
    run(async {
        let (listener, address) = listen();
        let (client, _server) = accept_one(&listener, address).await;
        for stage in [Stage::Decide, Stage::Work, Stage::Background] {
            let before = metrics().sends;
            let sending = spawn_at(stage, {
                let client = client.clone();
                async move { client.send(&[1; 16 << 10]) }
            });
            let looking = spawn_at(stage, async move { metrics().sends });
            sending.await.unwrap();
            assert!(looking.await.unwrap() > before, "{stage:?}");
            client.drained(0).await.unwrap();
        }
    });
}
