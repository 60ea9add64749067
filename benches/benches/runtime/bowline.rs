//! Bowline's runtime.

use core::time::Duration;
use std::path::Path;
use std::time::Instant;

use bowline_runtime::fs::{File, OpenOptions};
use bowline_runtime::net::{ListenOptions, TcpListener, TcpStream};
use bowline_runtime::{Runtime, Stage, buffer, channel, sleep, spawn, spawn_at, timeout};

use crate::{BLOCK, Contestant, FAR, FRAME, NAP, offset_of, on_two_cores};

pub(crate) const CONTESTANT: Contestant = Contestant {
    name: "bowline",
    task,
    cancelled,
    fired,
    cross_core: Some(cross_core),
    buffer: Some(buffers),
    echo,
    read,
};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = Runtime::builder().registered_buffers(1, BLOCK).build().expect("io_uring");
    runtime.block_on(work)
}

fn task(count: u64) -> Duration {
    block_on(async {
        let start = Instant::now();
        for n in 0..count {
            assert_eq!(spawn(async move { n }).await.expect("an output"), n);
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

fn cross_core(count: u64) -> Duration {
    let (send, mut requests) = channel::bounded(1);
    let (reply, mut replies) = channel::bounded(1);
    let mut answer = async move || {
        while let Some(request) = requests.receive().await {
            reply.send(request).await.expect("somebody who waits");
        }
    };
    let mut ask = async move || {
        let start = Instant::now();
        for n in 0..count {
            send.send(n).await.expect("the other thread");
            assert_eq!(replies.receive().await, Some(n));
        }
        start.elapsed()
    };
    on_two_cores(move || block_on(ask()), move || block_on(answer()))
}

fn buffers(count: u64) -> Duration {
    block_on(async {
        let start = Instant::now();
        for _ in 0..count {
            drop(core::hint::black_box(buffer::take(BLOCK)));
        }
        start.elapsed()
    })
}

fn echo(count: u64) -> Duration {
    block_on(async {
        let address = "127.0.0.1:0".parse().expect("an address");
        let listener = TcpListener::bind(address, ListenOptions::default()).expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = spawn_at(Stage::Input, async move {
            let stream = listener.accept().await.expect("a connection");
            while let Ok(Some(bytes)) = stream.receive().await {
                stream.send(&bytes);
            }
        });
        let stream = TcpStream::connect(address, FAR).await.expect("a connection");
        let start = Instant::now();
        for _ in 0..count {
            stream.send(&FRAME);
            let mut missing = FRAME.len();
            while missing > 0 {
                let bytes = stream.receive().await.expect("an echo").expect("an echo");
                missing -= bytes.len();
            }
        }
        let time = start.elapsed();
        drop(stream);
        server.await.expect("the end");
        time
    })
}

fn read(path: &Path, count: u64) -> Duration {
    block_on(async {
        let options = OpenOptions::new().read(true).direct(true).registered(true);
        let file = File::open(path, options).await.expect("direct I/O");
        let start = Instant::now();
        for n in 0..count {
            file.read_exact_at(buffer::take(BLOCK), offset_of(n)).await.0.expect("a block");
        }
        start.elapsed()
    })
}
