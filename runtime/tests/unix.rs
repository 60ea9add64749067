//! Unix sockets, over the real ring.

mod common;

use std::io::ErrorKind;
use std::net::Shutdown;
use std::path::Path;
use std::time::Duration;

use bowline_runtime::net::{UnixAddr, UnixListener, UnixStream};
use bowline_runtime::{metrics, spawn, yield_now};
use common::{LONG, pattern, receive_exactly, run};

async fn connect(address: &UnixAddr) -> UnixStream {
    UnixStream::connect(address, LONG).await.unwrap()
}

/// An address of the abstract namespace that no other test has.
fn name(test: &str) -> UnixAddr {
    UnixAddr::Name(format!("bowline-{test}-{}", std::process::id()).into())
}

async fn both_ends(listener: &UnixListener) -> (UnixStream, UnixStream) {
    let address = listener.local_addr().clone();
    let connecting = spawn(async move { connect(&address).await });
    let server = listener.accept().await.unwrap();
    (connecting.await.unwrap(), server)
}

#[test]
fn bytes_go_both_ways_by_path_and_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    for address in [UnixAddr::from(&*path), name("both-ways")] {
        run(async {
            let listener = UnixListener::bind(&address).unwrap();
            let (client, server) = both_ends(&listener).await;
            for length in [1, 10_000, 3 << 20] {
                client.send(b"head");
                client.send_piece(pattern(length, 1));
                let received = receive_exactly(&server, 4 + length).await;
                assert_eq!(received[..4], *b"head");
                assert!(received[4..] == pattern(length, 1));
                server.send(&pattern(length, 2));
                assert!(receive_exactly(&client, length).await == pattern(length, 2));
            }
        });
    }
    assert!(!path.exists(), "the path is left behind");
}

#[test]
fn one_way_ends_and_the_other_goes_on() {
    run(async {
        let listener = UnixListener::bind(&name("half-close")).unwrap();
        let (client, server) = both_ends(&listener).await;
        client.send(b"question");
        client.shutdown(Shutdown::Write);
        assert_eq!(receive_exactly(&server, 8).await, b"question");
        assert!(server.receive().await.unwrap().is_none());
        server.send(b"answer");
        drop(server);
        assert_eq!(receive_exactly(&client, 6).await, b"answer");
        assert!(client.receive().await.unwrap().is_none());
        drop((client, listener));
        while metrics().live_connections > 0 {
            yield_now().await;
        }
    });
}

/// As a server that was killed leaves it.
fn leave_stale(path: &Path) {
    drop(std::os::unix::net::UnixListener::bind(path).unwrap());
    assert!(path.exists());
}

#[test]
fn a_path_that_a_killed_server_left_is_taken_over_and_one_in_use_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    leave_stale(&path);
    run(async {
        let address = UnixAddr::from(&*path);
        let refused = UnixStream::connect(&address, LONG).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert!(refused.to_string().contains("nobody listens"), "{refused}");
        let listener = UnixListener::bind(&address).unwrap();
        let second = UnixListener::bind(&address).unwrap_err();
        assert_eq!(second.kind(), ErrorKind::AddrInUse);
        assert!(second.to_string().contains("somebody listens there already"), "{second}");
        // The second has looked whether anybody listens.
        let looked = listener.accept().await.unwrap();
        assert!(looked.receive().await.unwrap().is_none());
        let (client, server) = both_ends(&listener).await;
        client.send(b"still here");
        assert_eq!(receive_exactly(&server, 10).await, b"still here");
    });
}

#[test]
fn of_many_that_bind_a_stale_path_at_once_one_gets_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    for _ in 0..common::rounds(20) {
        leave_stale(&path);
        let barrier = std::sync::Barrier::new(4);
        let bound = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        run(async {
                            barrier.wait();
                            let bound = UnixListener::bind(&UnixAddr::from(&*path));
                            barrier.wait();
                            bound.is_ok()
                        })
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).filter(|&bound| bound).count()
        });
        assert_eq!(bound, 1);
        assert!(!path.exists());
    }
}

#[test]
fn a_stranger_that_locks_the_directory_holds_nobody_up_for_ever() {
    let directory = tempfile::tempdir().unwrap();
    let stranger = std::fs::File::open(directory.path()).unwrap();
    stranger.lock().unwrap();
    run(async {
        let address = UnixAddr::from(&*directory.path().join("socket"));
        let listener = UnixListener::bind(&address).unwrap();
        both_ends(&listener).await;
    });
    drop(stranger);
}

#[test]
fn a_name_has_1_to_107_bytes_of_any_value_and_a_path_is_not_empty() {
    run(async {
        for address in ["@", ""] {
            let error = UnixListener::bind(&UnixAddr::from(address)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{address:?}: {error}");
        }
        let of = |length| {
            let mut name = format!("bowline\0{}", std::process::id()).into_bytes();
            name.resize(length, 0);
            UnixListener::bind(&UnixAddr::Name(name))
        };
        of(107).unwrap();
        assert_eq!(of(108).unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn a_path_that_another_took_is_not_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    run(async {
        let listener = UnixListener::bind(&UnixAddr::from(&*path)).unwrap();
        std::fs::remove_file(&path).unwrap();
        let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(listener);
        assert!(path.exists());
        drop(other);
    });
}

#[test]
fn errors_name_the_address_and_the_cure() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, b"precious").unwrap();
    run(async {
        let error = UnixListener::bind(&UnixAddr::from(&*file)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert!(error.to_string().contains("no socket"), "{error}");
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");

        let missing = UnixAddr::from(&*directory.path().join("missing"));
        let error = UnixStream::connect(&missing, LONG).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains(&missing.to_string()), "{error}");

        for address in [UnixAddr::Name(vec![b'x'; 200]), UnixAddr::from("/x".repeat(100).as_str())]
        {
            let error = UnixListener::bind(&address).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("107 bytes"), "{error}");
        }
    });
}

#[test]
fn a_connection_to_a_listener_whose_queue_is_full_takes_its_time_and_no_more() {
    run(async {
        let address = name("full");
        // One that accepts nothing, with the shortest queue there is.
        let full =
            socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
        let UnixAddr::Name(bytes) = &address else { unreachable!() };
        let path = String::from_utf8([b"\0", &bytes[..]].concat()).unwrap();
        full.bind(&socket2::SockAddr::unix(path).unwrap()).unwrap();
        full.listen(0).unwrap();
        let mut queued = Vec::new();
        loop {
            match UnixStream::connect(&address, Duration::from_millis(50)).await {
                Ok(stream) => queued.push(stream),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
                    break;
                }
            }
        }
        assert!(!queued.is_empty());
    });
}
