//! Signals interrupt system calls all the time, and nobody notices.
//!
//! `ROUNDS` sets how many signals have to come, one a millisecond.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline_runtime::fs::{File, OpenOptions};
use bowline_runtime::{Stage, buffer, clock_now, sleep, spawn_at};
use common::{accept_one, listen, pattern, rounds, run};

static INTERRUPTS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: libc::c_int) {
    INTERRUPTS.fetch_add(1, Ordering::Relaxed);
}

/// Has SIGALRM come a thousand times a second, without SA_RESTART.
fn interrupt_all_the_time() {
    // SAFETY: all bits zero is a valid sigaction; the handler only adds to an atomic number.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()), 0);
        let every = libc::timeval { tv_sec: 0, tv_usec: 1000 };
        let timer = libc::itimerval { it_interval: every, it_value: every };
        assert_eq!(libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()), 0);
    }
}

#[test]
fn nothing_fails_or_is_early_while_signals_rain() {
    interrupt_all_the_time();
    let directory = tempfile::tempdir().unwrap();
    // The main thread of a test binary only waits; the signals go to any thread that lets them.
    run(async {
        let (listener, address) = listen();
        let (client, server) = accept_one(&listener, address).await;
        drop(spawn_at(Stage::Input, async move {
            while let Ok(Some(lease)) = server.receive().await {
                server.send(&lease);
            }
        }));
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = File::open(directory.path().join("file"), options).await.unwrap();
        let mut block = buffer::take(100_000);
        let mut round = 0;
        let signals = rounds(500) as u64;
        while INTERRUPTS.load(Ordering::Relaxed) < signals {
            let start = clock_now();
            sleep(Duration::from_micros(1500)).await;
            assert!(clock_now() - start >= Duration::from_micros(1500));
            client.send(&pattern(64, round));
            assert_eq!(client.receive().await.unwrap().unwrap()[..], pattern(64, round));
            block.copy_from_slice(&pattern(100_000, round));
            let (result, same) = file.write_all_at(block, 0).await;
            result.unwrap();
            let (result, same) = file.read_exact_at(same, 0).await;
            result.unwrap();
            assert!(same[..] == pattern(100_000, round));
            block = same;
            round += 1;
        }
    });
}
