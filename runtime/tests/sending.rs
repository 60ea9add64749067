//! What becomes of sends that are made as they are handed over, over the real ring.

mod common;

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener as StdListener};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use bowline_runtime::net::{Stream, TcpStream, UnixAddr, UnixListener, UnixStream};
use bowline_runtime::{Runtime, Stage, metrics, spawn, spawn_at, yield_now};
use bytes::Bytes;
use common::{
    LONG, accept_one, listen, pattern, receive_exactly, rounds, run, run_on, run_without_timer,
};

#[test]
fn a_message_and_its_answer_take_one_call_of_the_kernel() {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let mut message = [0; 64];
        while stream.read_exact(&mut message).is_ok() {
            stream.write_all(&message).unwrap();
        }
    });
    run(async {
        let stream = TcpStream::connect(address, LONG).await.unwrap();
        let messages = rounds(1000);
        let before = metrics();
        for round in 0..messages {
            let message = pattern(64, round);
            stream.send(&message);
            assert_eq!(stream.receive().await.unwrap().unwrap()[..], message);
        }
        let calls = metrics().enters - before.enters;
        // Two would be one to send, which returns as that is done, and one to wait.
        assert!(calls < messages as u64 * 3 / 2 + 10, "{calls} calls for {messages} messages");
        assert_eq!(metrics().sends - before.sends, messages as u64);
        assert_eq!(metrics().bytes_sent - before.bytes_sent, 64 * messages as u64);
    });
    peer.join().unwrap();
}

/// What one send takes along, in the tests that fill a socket.
const LENGTH: usize = 5000;

/// Sends a message that leaves at the end of this turn, and waits until it is told of.
async fn send_alone(stream: &Stream, number: usize) -> Vec<u8> {
    let message = pattern(LENGTH, number);
    stream.send(&message);
    yield_now().await;
    yield_now().await;
    message
}

/// Sends messages until one has found no room for all of it. Returns what was sent.
async fn fill(stream: &Stream) -> Vec<u8> {
    let mut sent = Vec::new();
    while stream.queued() == 0 {
        sent.extend(send_alone(stream, sent.len()).await);
    }
    sent
}

#[test]
fn what_finds_no_room_is_sent_when_there_is_some() {
    run(async {
        let (listener, address) = listen();
        let (client, server) = accept_one(&listener, address).await;
        for _ in 0..4 {
            let sent = fill(&client).await;
            let before = metrics().sends;
            for _ in 0..100 {
                yield_now().await;
            }
            assert!(metrics().sends <= before + 1, "it asks again and again");
            assert!(receive_exactly(&server, sent.len()).await == sent);
            client.drained(0).await.unwrap();
        }
    });
}

#[test]
fn a_completion_queue_that_overflows_does_not_hide_what_found_no_room() {
    const PEERS: usize = 64;
    // However slow the machine, one turn is to run all tasks.
    let builder = Runtime::builder().entries(16).completions(16).buffers(128, 8 << 10).budget(LONG);
    run_on(&builder.build().unwrap(), async {
        let name = UnixAddr::Name(format!("bowline-no-room-{}", std::process::id()).into());
        let listener = UnixListener::bind(&name).unwrap();
        let connect = async || {
            let name = name.clone();
            let connecting = spawn(async move { UnixStream::connect(&name, LONG).await.unwrap() });
            let receiver = listener.accept().await.unwrap();
            (connecting.await.unwrap(), receiver)
        };
        let (sender, _receiver) = connect().await;
        let fit = fill(&sender).await.len() / LENGTH - 1;
        let (sender, receiver) = connect().await;
        let mut sent = Vec::new();
        for number in 0..fit {
            sent.extend(send_alone(&sender, number).await);
        }
        assert_eq!(sender.queued(), 0);
        let mut reading = Vec::new();
        let mut crowd = Vec::new();
        for _ in 0..PEERS {
            let (one, reader) = connect().await;
            reading.push(spawn(async move { receive_exactly(&reader, 8 << 10).await.len() }));
            crowd.push(one);
        }
        yield_now().await;
        // All this leaves at once, by several calls of which the later make completions of what was
        // sent by the earlier: more than there is room for.
        let crowding = spawn_at(Stage::Work, async move {
            crowd.iter().for_each(|one| one.send(&[1; 8 << 10]));
            crowd
        });
        let last = pattern(LENGTH, fit);
        let sending = spawn_at(Stage::Work, {
            let (sender, last) = (sender.clone(), last.clone());
            async move { sender.send(&last) }
        });
        let crowd = crowding.await.unwrap();
        sending.await.unwrap();
        yield_now().await;
        assert!(metrics().overflows > 0, "the completion queue never overflowed");
        assert_eq!(sender.queued(), LENGTH, "it found room");
        sent.extend(last);
        assert!(receive_exactly(&receiver, sent.len()).await == sent);
        for reading in reading {
            assert_eq!(reading.await.unwrap(), 8 << 10);
        }
        drop(crowd);
    });
}

#[test]
fn who_waits_for_what_leaves_at_a_turn_s_end_hears_that_it_is_sent() {
    run_without_timer(Runtime::builder(), || async {
        let (listener, address) = listen();
        let (client, _server) = accept_one(&listener, address).await;
        client.send(b"the only message");
        client.drained(0).await.unwrap();
    });
}

#[test]
fn who_waits_for_what_left_in_the_middle_of_a_turn_hears_that_it_is_sent() {
    // However slow the machine, one turn is to run all tasks.
    run_without_timer(Runtime::builder().budget(LONG), || async {
        let (listener, address) = listen();
        let (client, _server) = accept_one(&listener, address).await;
        let sending = spawn_at(Stage::Work, {
            let client = client.clone();
            async move { client.send(&[1; 16 << 10]) }
        });
        let waiting = spawn_at(Stage::Work, {
            let client = client.clone();
            async move {
                assert!(client.queued() > 0, "it was told of before this turn's end");
                client.drained(0).await.unwrap();
            }
        });
        waiting.await.unwrap();
        sending.await.unwrap();
    });
}

/// Bytes that tell when they are let go of.
struct Told(Vec<u8>, Arc<Mutex<Result<(), Waker>>>);

impl AsRef<[u8]> for Told {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        if let Err(waker) = std::mem::replace(&mut *self.1.lock().unwrap(), Ok(())) {
            waker.wake();
        }
    }
}

#[test]
fn a_piece_is_let_go_of_when_it_is_sent_though_nothing_else_happens() {
    run_without_timer(Runtime::builder(), || async {
        let (listener, address) = listen();
        let (client, _server) = accept_one(&listener, address).await;
        let told = Arc::new(Mutex::new(Err(Waker::noop().clone())));
        client.send_piece(Bytes::from_owner(Told(pattern(4096, 1), told.clone())));
        poll_fn(|context| match &mut *told.lock().unwrap() {
            Ok(()) => Poll::Ready(()),
            Err(waker) => {
                waker.clone_from(context.waker());
                Poll::Pending
            }
        })
        .await;
    });
}

#[test]
fn the_end_is_sent_after_the_last_message_though_nothing_else_happens() {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = String::new();
        stream.read_to_string(&mut all).unwrap();
        stream.write_all(all.to_uppercase().as_bytes()).unwrap();
    });
    run(async {
        let stream = TcpStream::connect(address, LONG).await.unwrap();
        stream.send(b"all");
        stream.shutdown(Shutdown::Write);
        assert_eq!(stream.receive().await.unwrap().unwrap()[..], *b"ALL");
    });
    peer.join().unwrap();
}
