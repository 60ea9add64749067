//! Futures that are dropped before they are done, and what came for them: it is there for the next.

mod common;

use std::pin::pin;

use bowline_runtime::channel::bounded;
use bowline_runtime::fs::{Batch, File, OpenOptions};
use bowline_runtime::net::TcpStream;
use bowline_runtime::{Notify, buffer, metrics, yield_now};
use common::{LONG, listen, poll_once, poll_pinned, run};

#[test]
fn a_connection_that_came_for_a_dropped_accept_is_accepted_by_the_next() {
    run(async {
        let (listener, address) = listen();
        {
            let mut accept = pin!(listener.accept());
            poll_pinned(accept.as_mut());
            let before = metrics().completions;
            let _client = TcpStream::connect(address, LONG).await.unwrap();
            // The accept's completion has come too, and there is somebody to hear of it, who does not.
            while metrics().completions < before + 2 {
                yield_now().await;
            }
        }
        assert!(listener.accept().await.is_ok());
    });
}

#[test]
fn a_message_that_came_for_a_dropped_receive_is_received_by_the_next() {
    run(async {
        let (sender, mut receiver) = bounded(1);
        {
            let mut receive = pin!(receiver.receive());
            poll_pinned(receive.as_mut());
            sender.try_send(7).unwrap();
        }
        assert_eq!(receiver.receive().await, Some(7));
    });
}

#[test]
fn what_happened_to_a_dropped_wait_is_there_for_the_next() {
    run(async {
        let event = Notify::new();
        {
            let mut notified = pin!(event.notified());
            poll_pinned(notified.as_mut());
            event.notify();
        }
        event.notified().await;
        poll_once(event.notified());
    });
}

#[test]
fn a_transfer_that_ended_for_a_dropped_wait_is_told_to_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, [3; 4096]).unwrap();
    run(async {
        let file = File::open(&path, OpenOptions::new().read(true)).await.unwrap();
        let mut batch = Batch::new();
        batch.read(&file, buffer::take(4096), 0);
        poll_once(batch.next());
        while metrics().requests_in_flight > 1 {
            yield_now().await;
        }
        let (result, block) = batch.next().await.unwrap();
        result.unwrap();
        assert_eq!(block[..], [3; 4096]);
    });
}
