//! glommio, on io_uring. It reads past the page cache into buffers of its own.

use core::time::Duration;
use std::path::Path;
use std::time::Instant;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::channels::shared_channel;
use glommio::io::DmaFile;
use glommio::net::{TcpListener, TcpStream};
use glommio::timer::{Timer, timeout};
use glommio::{LocalExecutorBuilder, spawn_local};

use crate::{BLOCK, Contestant, FAR, FRAME, NAP, offset_of, on_two_cores};

pub(crate) const CONTESTANT: Contestant = Contestant {
    name: "glommio",
    task,
    cancelled,
    fired,
    cross_core: Some(cross_core),
    buffer: None,
    echo,
    read,
};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    LocalExecutorBuilder::default().make().expect("io_uring").run(work)
}

fn task(count: u64) -> Duration {
    block_on(async {
        let start = Instant::now();
        for n in 0..count {
            assert_eq!(spawn_local(async move { n }).await, n);
        }
        start.elapsed()
    })
}

fn cancelled(count: u64) -> Duration {
    block_on(async {
        let start = Instant::now();
        for _ in 0..count {
            let quick = async {
                glommio::executor().yield_now().await;
                Ok::<(), glommio::GlommioError<()>>(())
            };
            timeout(FAR, quick).await.expect("in time");
        }
        start.elapsed()
    })
}

fn fired(count: u64) -> Duration {
    block_on(async {
        let start = Instant::now();
        for _ in 0..count {
            Timer::new(NAP).await;
        }
        start.elapsed()
    })
}

fn cross_core(count: u64) -> Duration {
    let (send, requests) = shared_channel::new_bounded(1);
    let (reply, replies) = shared_channel::new_bounded(1);
    let answer = async move || {
        let (requests, reply) = (requests.connect().await, reply.connect().await);
        while let Some(request) = requests.recv().await {
            reply.send(request).await.expect("somebody who waits");
        }
    };
    let ask = async move || {
        let (send, replies) = (send.connect().await, replies.connect().await);
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
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = spawn_local(async move {
            let mut stream = listener.accept().await.expect("a connection");
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
        server.await;
        time
    })
}

fn read(path: &Path, count: u64) -> Duration {
    block_on(async {
        let file = DmaFile::open(path).await.expect("direct I/O");
        let start = Instant::now();
        for n in 0..count {
            let block = file.read_at_aligned(offset_of(n), BLOCK).await.expect("a block");
            assert_eq!(block.len(), BLOCK);
        }
        let time = start.elapsed();
        file.close().await.expect("the end");
        time
    })
}
