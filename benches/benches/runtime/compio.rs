//! compio, on io_uring. It has no channel between threads of its own.

use core::time::Duration;
use std::path::Path;
use std::time::Instant;

use compio::BufResult;
use compio::buf::{IntoInner, IoBuf};
use compio::fs::OpenOptions;
use compio::io::{AsyncRead, AsyncReadAtExt, AsyncReadExt, AsyncWriteExt};
use compio::net::{TcpListener, TcpStream};
use compio::runtime::{Runtime, spawn};
use compio::time::{sleep, timeout};
use rustix::fs::OFlags;

use crate::{BLOCK, Contestant, FAR, FRAME, NAP, offset_of};

pub(crate) const CONTESTANT: Contestant = Contestant {
    name: "compio",
    task,
    cancelled,
    fired,
    cross_core: None,
    buffer: None,
    echo,
    read,
};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    Runtime::new().expect("io_uring").block_on(work)
}

fn task(count: u64) -> Duration {
    block_on(async {
        let start = Instant::now();
        for n in 0..count {
            assert_eq!(spawn(async move { n }).await.ok(), Some(n));
        }
        start.elapsed()
    })
}

fn cancelled(count: u64) -> Duration {
    block_on(async {
        let start = Instant::now();
        for _ in 0..count {
            let mut polled = false;
            let pending_once = core::future::poll_fn(|context| {
                if core::mem::replace(&mut polled, true) {
                    return core::task::Poll::Ready(());
                }
                context.waker().wake_by_ref();
                core::task::Poll::Pending
            });
            timeout(FAR, pending_once).await.expect("in time");
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

fn echo(count: u64) -> Duration {
    block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut bytes = Vec::with_capacity(16 << 10);
            loop {
                let BufResult(read, filled) = stream.read(bytes).await;
                if !matches!(read, Ok(1..)) {
                    return;
                }
                let BufResult(written, emptied) = stream.write_all(filled).await;
                written.expect("a peer");
                bytes = emptied;
                bytes.clear();
            }
        });
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let (mut frame, mut bytes) = (FRAME.to_vec(), Vec::with_capacity(FRAME.len()));
        let start = Instant::now();
        for _ in 0..count {
            let BufResult(written, sent) = stream.write_all(frame).await;
            written.expect("a peer");
            frame = sent;
            let BufResult(read, filled) = stream.read_exact(bytes).await;
            read.expect("an echo");
            bytes = filled;
            bytes.clear();
        }
        let time = start.elapsed();
        drop(stream);
        server.await.ok();
        time
    })
}

fn read(path: &Path, count: u64) -> Duration {
    block_on(async {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(OFlags::DIRECT.bits() as i32);
        let file = options.open(path).await.expect("direct I/O");
        let mut memory = vec![0; 2 * BLOCK];
        let start = Instant::now();
        for n in 0..count {
            let from = memory.as_ptr().align_offset(BLOCK);
            let block = memory.slice(from..from + BLOCK);
            let BufResult(read, block) = file.read_exact_at(block, offset_of(n)).await;
            read.expect("a block");
            memory = block.into_inner();
        }
        start.elapsed()
    })
}
