//! tokio, on the current thread. It reads files on a pool of other threads.

use core::time::Duration;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::OFlags;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

use crate::{BLOCK, Contestant, FAR, FRAME, NAP, offset_of, on_two_cores};

pub(crate) const CONTESTANT: Contestant = Contestant {
    name: "tokio",
    task,
    cancelled,
    fired,
    cross_core: Some(cross_core),
    buffer: None,
    echo,
    read,
};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    LocalSet::new().block_on(&runtime.expect("a runtime"), work)
}

fn task(count: u64) -> Duration {
    block_on(async {
        let start = Instant::now();
        for n in 0..count {
            assert_eq!(spawn_local(async move { n }).await.expect("an output"), n);
        }
        start.elapsed()
    })
}

fn cancelled(count: u64) -> Duration {
    block_on(async {
        let start = Instant::now();
        for _ in 0..count {
            timeout(FAR, tokio::task::yield_now()).await.expect("in time");
        }
        start.elapsed()
    })
}

fn fired(count: u64) -> Duration {
    block_on(async {
        let start = Instant::now();
        for _ in 0..count {
            sleep(NAP).await;
        }
        start.elapsed()
    })
}

fn cross_core(count: u64) -> Duration {
    let (send, mut requests) = mpsc::channel(1);
    let (reply, mut replies) = mpsc::channel(1);
    let mut answer = async move || {
        while let Some(request) = requests.recv().await {
            reply.send(request).await.expect("somebody who waits");
        }
    };
    let mut ask = async move || {
        let start = Instant::now();
        for n in 0..count {
            send.send(n).await.expect("the other thread");
            assert_eq!(replies.recv().await, Some(n));
        }
        start.elapsed()
    };
    on_two_cores(move || block_on(ask()), move || block_on(answer()))
}

fn echo(count: u64) -> Duration {
    block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = spawn_local(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut bytes = [0; 16 << 10];
            while let Ok(length @ 1..) = stream.read(&mut bytes).await {
                stream.write_all(&bytes[..length]).await.expect("a peer");
            }
        });
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        let mut bytes = [0; FRAME.len()];
        let start = Instant::now();
        for _ in 0..count {
            stream.write_all(&FRAME).await.expect("a peer");
            stream.read_exact(&mut bytes).await.expect("an echo");
        }
        let time = start.elapsed();
        drop(stream);
        server.await.expect("the end");
        time
    })
}

fn read(path: &Path, count: u64) -> Duration {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlags::DIRECT.bits() as i32);
    let file = Arc::new(options.open(path).expect("direct I/O"));
    block_on(async {
        let mut memory = vec![0; 2 * BLOCK];
        let start = Instant::now();
        for n in 0..count {
            let file = file.clone();
            let reading = tokio::task::spawn_blocking(move || {
                let from = memory.as_ptr().align_offset(BLOCK);
                file.read_exact_at(&mut memory[from..from + BLOCK], offset_of(n)).map(|()| memory)
            });
            memory = reading.await.expect("a thread").expect("a block");
        }
        start.elapsed()
    })
}
