//! Files, and what happens when their operations are dropped.

mod common;

use bowline_runtime::fs::{File, OpenOptions};
use bowline_runtime::{Runtime, buffer, metrics, yield_now};
use common::{pattern, poll_once, run, run_on};

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

#[test]
fn a_dropped_read_never_writes_into_memory_that_is_used_again() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![0xff; 4 << 20]).unwrap();
    for round in 0..common::rounds(20) {
        let runtime = Runtime::builder().entries(64).build().unwrap();
        run_on(&runtime, async {
            let options = OpenOptions::new().read(true).direct(true);
            let file = File::open(&path, options).await.unwrap();
            for _ in 0..16 {
                poll_once(file.read_at(buffer::take(1 << 20), 0));
            }
            if round % 2 == 0 {
                yield_now().await;
            }
            // Taken from the pool, or from the system, right after the reads were dropped.
            let mut canaries: Vec<_> = (0..32).map(|_| buffer::take(1 << 20)).collect();
            canaries.iter_mut().for_each(|canary| canary.fill(0x55));
            if round % 4 < 2 {
                while metrics().requests_in_flight > 1 {
                    yield_now().await;
                }
            }
            for canary in &canaries {
                assert!(canary.iter().all(|&byte| byte == 0x55), "round {round}");
            }
            drop(file);
        });
        drop(runtime);
        let memory: Vec<_> = (0..32).map(|_| vec![0x55_u8; 1 << 20]).collect();
        for canary in &memory {
            assert!(canary.iter().all(|&byte| byte == 0x55), "round {round}, after the end");
        }
    }
}
