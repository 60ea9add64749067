//! Files, and what happens when their operations are dropped.

mod common;

use std::future::Future;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Mutex;
use std::task::{Context, Waker};
use std::time::Duration;

use bowline_runtime::buffer::Buffer;
use bowline_runtime::fs::{Batch, File, OpenOptions};
use bowline_runtime::{Runtime, buffer, metrics, spawn, timeout, yield_now};
use common::{pattern, poll_pinned, run, run_on};

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
        assert_eq!(block.len(), 5, "nothing shows but what was read");
        let block = buffer::take(6);
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
        let opened = std::fs::File::open(&path).unwrap();
        // SAFETY: all bits zero is a valid statx; it and the path live longer than the call.
        let told = unsafe {
            let mut told: libc::statx = std::mem::zeroed();
            let (fd, empty, mask) = (opened.as_raw_fd(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN);
            assert_eq!(libc::statx(fd, c"".as_ptr(), empty, mask, &raw mut told), 0);
            told
        };
        if told.stx_mask & libc::STATX_DIOALIGN != 0 {
            assert_eq!(alignment.memory, told.stx_dio_mem_align);
            assert_eq!(alignment.offset, told.stx_dio_offset_align);
        }
        assert_eq!(buffer::ALIGNMENT % alignment.memory as usize, 0);
        let step = alignment.offset as usize;
        let (result, block) = file.read_at(buffer::take(step), step as u64).await;
        assert_eq!(result.unwrap(), step);
        assert!(block[..] == pattern(64 << 10, 2)[step..2 * step]);
    });
}

#[test]
fn a_batch_goes_to_the_kernel_at_once_and_wakes_its_task_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(64 * 4096, 3)).unwrap();
    run(async {
        let file = File::open(&path, OpenOptions::new().read(true)).await.unwrap();
        let mut batch = Batch::new();
        assert!(batch.next().await.is_none());
        let before = metrics();
        for block in 0..64 {
            batch.read(&file, buffer::take(4096), block * 4096);
        }
        let mut blocks = 0;
        while let Some((result, block)) = batch.next().await {
            result.unwrap();
            assert!(block[..] == pattern(64 * 4096, 3)[blocks * 4096..][..4096]);
            blocks += 1;
        }
        let after = metrics();
        assert_eq!((blocks, batch.len()), (64, 0));
        // They are in the page cache: one call hands all over and brings all back. Once in a while
        // the kernel is interrupted, and takes a few more.
        let enters = after.enters - before.enters;
        assert!(enters <= 16, "{enters} calls for 64 reads");
    });
}

#[test]
fn a_batch_tells_each_error_in_its_place_and_gives_all_buffers_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    run(async {
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = File::open(&path, options).await.unwrap();
        let mut batch = Batch::new();
        let mut block = buffer::take(1000);
        block.fill(9);
        batch.write(&file, block, 0);
        batch.next().await.unwrap().0.unwrap();
        batch.read(&file, buffer::take(1000), 0);
        batch.read(&file, buffer::take(1000), 500);
        batch.read(&file, buffer::take(0), 500);
        batch.read(&file, buffer::take(10), 990);
        let mut kinds = Vec::new();
        while let Some((result, block)) = batch.next().await {
            kinds.push((result.map_err(|error| error.kind()), block.len()));
        }
        let short = Err(std::io::ErrorKind::UnexpectedEof);
        assert_eq!(kinds, [(Ok(()), 1000), (short, 1000), (Ok(()), 0), (Ok(()), 10)]);
        assert_eq!(metrics().short_transfers, 1);
    });
}

#[test]
fn registered_buffers_are_for_transfers_only() {
    let runtime = Runtime::builder().registered_buffers(1, 4096).build().unwrap();
    run_on(&runtime, async {
        let file = File::open("/dev/zero", OpenOptions::new().read(true)).await.unwrap();
        let mut asking = Box::pin(file.status());
        poll_pinned(asking.as_mut());
        assert!(buffer::take(4096).is_registered(), "whoever asks for a status has it");
        assert!(!asking.await.unwrap().is_regular);
    });
}

#[test]
fn registered_files_and_buffers_carry_the_same_bytes() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(64 << 10, 4)).unwrap();
    let runtime =
        Runtime::builder().registered_files(1).registered_buffers(4, 8192).build().unwrap();
    run_on(&runtime, async {
        let options = OpenOptions::new().read(true).write(true).direct(true).registered(true);
        let file = File::open(&path, options).await.unwrap();
        assert!(file.is_registered());
        let second = File::open(&path, options).await.unwrap();
        assert!(!second.is_registered(), "there is one place");
        assert_eq!(metrics().unregistered_files, 1);
        for file in [&file, &second] {
            for block in 0..8 {
                let buffer = buffer::take(8192);
                assert!(buffer.is_registered());
                let (result, buffer) = file.read_exact_at(buffer, block * 8192).await;
                result.unwrap();
                assert!(buffer[..] == pattern(64 << 10, 4)[block as usize * 8192..][..8192]);
                let (result, _) = file.write_all_at(buffer, block * 8192).await;
                result.unwrap();
            }
        }
        // More than there are registered, at once.
        let buffers: Vec<_> = (0..6).map(|_| buffer::take(8192)).collect();
        assert_eq!(buffers.iter().filter(|buffer| buffer.is_registered()).count(), 4);
        let mut batch = Batch::new();
        buffers.into_iter().for_each(|buffer| batch.read(&file, buffer, 8192));
        while let Some((result, buffer)) = batch.next().await {
            result.unwrap();
            assert!(buffer[..] == pattern(64 << 10, 4)[8192..][..8192]);
        }
        file.close().await.unwrap();
        drop(second);
        let third = File::open(&path, options).await.unwrap();
        assert!(third.is_registered(), "the place was given back");
    });
    let content = std::fs::read(&path).unwrap();
    assert!(content == pattern(64 << 10, 4));
}

#[test]
fn a_registered_buffer_serves_the_files_of_another_runtime_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(4096, 5)).unwrap();
    let build = || Runtime::builder().registered_buffers(2, 4096).build().unwrap();
    let first = build();
    let buffer = run_on(&first, async { buffer::take(4096) });
    assert!(buffer.is_registered());
    run_on(&build(), async {
        let file = File::open(&path, OpenOptions::new().read(true)).await.unwrap();
        let (result, buffer) = file.read_exact_at(buffer, 0).await;
        result.unwrap();
        assert!(buffer[..] == pattern(4096, 5));
    });
}

#[test]
fn a_direct_read_that_is_not_aligned_is_told_what_is_demanded() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let path = directory.path().join("file");
    // Its last block is not whole.
    std::fs::write(&path, pattern(10_000, 6)).unwrap();
    run(async {
        let options = OpenOptions::new().read(true).direct(true);
        let file = File::open(&path, options).await.unwrap();
        let (result, _) = file.read_exact_at(buffer::take(16_384), 0).await;
        assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
        let (result, block) = file.read_at(buffer::take(16_384), 0).await;
        assert_eq!(result.unwrap(), 10_000);
        assert!(block[..10_000] == pattern(10_000, 6));
        let Some(alignment) = file.direct_alignment().unwrap() else { return };
        let (result, _) = file.read_at(buffer::take(4096), 7).await;
        if let Err(error) = result {
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
            let text = error.to_string();
            assert!(text.contains(&format!("multiples of {} bytes", alignment.offset)), "{text}");
            assert!(text.contains("4096 bytes at offset 7"), "{text}");
        }
    });
}

#[test]
fn a_files_status_is_what_the_system_tells() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(10_000, 7)).unwrap();
    let known = std::fs::metadata(&path).unwrap();
    run(async {
        let file = File::open(&path, OpenOptions::new().read(true)).await.unwrap();
        let status = file.status().await.unwrap();
        assert_eq!(status.size, 10_000);
        assert_eq!(status.modified, known.modified().unwrap());
        assert!(status.is_regular);
        let device = File::open("/dev/null", OpenOptions::new().read(true)).await.unwrap();
        assert!(!device.status().await.unwrap().is_regular);
    });
}

/// How many reads of how many bytes are dropped at once.
const READS: usize = 64;
const BYTES: usize = 1 << 20;

/// Memory that is taken as soon as the reads were dropped, from the pool and from the system.
fn canaries() -> (Vec<Buffer>, Vec<Vec<u8>>) {
    let mut pooled: Vec<_> = (0..READS).map(|_| buffer::take(BYTES)).collect();
    pooled.iter_mut().for_each(|canary| canary.fill(0x55));
    (pooled, (0..READS / 4).map(|_| vec![0x55; BYTES]).collect())
}

/// How many reads were under way as they were given up, and how many were given up by a timeout.
#[derive(Default)]
struct GivenUp {
    in_flight: usize,
    timed_out: usize,
}

/// Gives reads up in the middle, in one of four ways, and then takes memory. Gives it back full of
/// what was put there.
async fn give_up(way: usize, path: &Path, seen: &mut GivenUp) -> (Vec<Buffer>, Vec<Vec<u8>>) {
    /// Where those are that were forgotten, so that who looks for leaks knows whose they are.
    static FORGOTTEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let options = OpenOptions::new().read(true).direct(true);
    let file = File::open(path, options).await.unwrap();
    let mut reads: Vec<_> = (0..READS)
        .map(|index| {
            let offset = (index * BYTES) as u64;
            let file = file.clone();
            Box::pin(async move { file.read_at(buffer::take(BYTES), offset).await })
        })
        .collect();
    if way == 3 {
        let limited = reads.drain(..).map(|read| spawn(timeout(Duration::from_micros(1), read)));
        for limited in limited.collect::<Vec<_>>() {
            seen.timed_out += usize::from(limited.await.unwrap().is_err());
        }
        return canaries();
    }
    for read in &mut reads {
        let _ = read.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
    if way > 0 {
        // They leave now; the core has one request of its own.
        yield_now().await;
        seen.in_flight += metrics().requests_in_flight - 1;
    }
    if way == 1 {
        let forgotten = reads.pop().unwrap();
        FORGOTTEN.lock().unwrap().push(std::ptr::from_ref(&*forgotten).expose_provenance());
        std::mem::forget(forgotten);
    }
    drop(reads);
    let canaries = canaries();
    if matches!(way, 0 | 2) {
        while metrics().requests_in_flight > 1 {
            yield_now().await;
        }
    }
    canaries
}

#[test]
fn a_read_that_was_given_up_never_writes_into_memory_that_is_used_again() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![0xff; READS * BYTES]).unwrap();
    let mut seen = GivenUp::default();
    let mut round = 0;
    // A disk that is quick may be done before they are given up.
    while round < common::rounds(8).max(4) || seen.in_flight == 0 || seen.timed_out == 0 {
        assert!(round < 1000, "none was ever under way");
        let runtime = Runtime::builder().build().unwrap();
        let kept = run_on(&runtime, give_up(round % 4, &path, &mut seen));
        // Of two ways the reads are in flight when the runtime ends.
        drop(runtime);
        let late = (0..READS / 4).map(|_| vec![0x55_u8; BYTES]).collect::<Vec<_>>();
        std::thread::yield_now();
        let all = kept.0.iter().map(|canary| &canary[..]);
        let all = all.chain(kept.1.iter().chain(&late).map(|canary| &canary[..]));
        for canary in all {
            assert!(canary.iter().all(|&byte| byte == 0x55), "round {round}");
        }
        round += 1;
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
