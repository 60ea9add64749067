//! Files, and what happens when their operations are dropped.

mod common;

use std::future::Future;
use std::task::{Context, Waker};

use bowline_runtime::fs::{File, OpenOptions};
use bowline_runtime::{Runtime, buffer, metrics, yield_now};
use common::{pattern, run, run_on};

#[test]
fn what_was_written_is_read() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = File::open(directory.path().join("file"), options).await.unwrap();
        let mut block = buffer::take(100_000);
        block.copy_from_slice(&pattern(100_000, 1));
        let (result, block) = file.write_all_at(block, 5).await;
        result.unwrap();
        file.sync_data().await.unwrap();
        file.sync_all().await.unwrap();
        assert_eq!(file.size().unwrap(), 100_005);
        let (result, block) = file.read_exact_at(block, 5).await;
        result.unwrap();
        assert!(block[..] == pattern(100_000, 1));
        let (result, block) = file.read_at(block, 100_000).await;
        assert_eq!(result.unwrap(), 5, "the file ends there");
        let (result, _) = file.read_exact_at(block, 100_000).await;
        assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
        file.allocate(0, 200_000).await.unwrap();
        assert_eq!(file.size().unwrap(), 200_000);
    });
}

#[test]
fn errors_name_what_the_kernel_said() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let path = directory.path().join("absent");
        let error = File::open(&path, OpenOptions::new().read(true)).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        let error = File::open(&path, OpenOptions::new()).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        let options = OpenOptions::new().write(true).create_new(true);
        let file = File::open(&path, options).await.unwrap();
        let (result, _) = file.read_at(buffer::take(10), 0).await;
        assert_eq!(result.unwrap_err().raw_os_error(), Some(9), "it was not opened to be read");
        let error = File::open(&path, options).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    });
}

#[test]
fn direct_reads_go_by_the_alignment_that_the_file_tells() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(64 << 10, 2)).unwrap();
    run(async {
        let options = OpenOptions::new().read(true).direct(true);
        let file = File::open(&path, options).await.unwrap();
        let Some(alignment) = file.direct_alignment().unwrap() else { return };
        assert_eq!(buffer::ALIGNMENT % alignment.memory as usize, 0);
        let step = alignment.offset as usize;
        let (result, block) = file.read_at(buffer::take(step), step as u64).await;
        assert_eq!(result.unwrap(), step);
        assert!(block[..] == pattern(64 << 10, 2)[step..2 * step]);
    });
}

/// How many reads of how many bytes are dropped at once.
const READS: usize = 64;
const BYTES: usize = 1 << 20;

/// Memory that is taken as soon as the reads were dropped, from the pool and from the system.
fn canaries() -> (Vec<buffer::Buffer>, Vec<Vec<u8>>) {
    let mut pooled: Vec<_> = (0..READS).map(|_| buffer::take(BYTES)).collect();
    pooled.iter_mut().for_each(|canary| canary.fill(0x55));
    (pooled, (0..READS / 4).map(|_| vec![0x55; BYTES]).collect())
}

#[test]
fn a_dropped_read_never_writes_into_memory_that_is_used_again() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![0xff; READS * BYTES]).unwrap();
    for round in 0..common::rounds(8) {
        let runtime = Runtime::builder().build().unwrap();
        let kept = run_on(&runtime, async {
            let options = OpenOptions::new().read(true).direct(true);
            let file = File::open(&path, options).await.unwrap();
            let mut reads: Vec<_> = (0..READS)
                .map(|index| {
                    let offset = (index * BYTES) as u64;
                    let file = file.clone();
                    Box::pin(async move { file.read_at(buffer::take(BYTES), offset).await })
                })
                .collect();
            for read in &mut reads {
                let _ = read.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            }
            if round % 4 > 0 {
                // They are in flight now.
                yield_now().await;
            }
            drop(reads);
            let canaries = canaries();
            if round % 2 == 0 {
                while metrics().requests_in_flight > 1 {
                    yield_now().await;
                }
            }
            canaries
        });
        // In every other round the reads are in flight when the runtime ends.
        drop(runtime);
        let late = (0..READS / 4).map(|_| vec![0x55_u8; BYTES]).collect::<Vec<_>>();
        std::thread::yield_now();
        let all = kept.0.iter().map(|canary| &canary[..]);
        let all = all.chain(kept.1.iter().chain(&late).map(|canary| &canary[..]));
        for canary in all {
            assert!(canary.iter().all(|&byte| byte == 0x55), "round {round}");
        }
    }
}

#[test]
fn an_operation_begun_after_the_runtimes_end_fails() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, b"content").unwrap();
    let runtime = Runtime::builder().build().unwrap();
    let (file, block) = run_on(&runtime, async {
        let file = File::open(&path, OpenOptions::new().read(true)).await.unwrap();
        (file, buffer::take(10))
    });
    drop(runtime);
    let mut reading = std::pin::pin!(file.read_at(block, 0));
    let poll = reading.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let std::task::Poll::Ready((Err(error), block)) = poll else {
        panic!("it waits for what never comes");
    };
    assert_eq!(error.raw_os_error(), Some(125));
    assert_eq!(block.len(), 10, "the buffer comes back");
}
