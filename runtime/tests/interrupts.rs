//! Signals interrupt system calls all the time, and nobody notices.
//!
//! `ROUNDS` sets how many calls of the ring have to be cut short, by a signal a millisecond.

mod common;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use bowline_runtime::fs::{File, OpenOptions};
use bowline_runtime::yield_now;
use bowline_runtime::{Builder, Runtime, Stage, buffer, clock_now, metrics, sleep, spawn_at};
use common::log::Ear;
use common::{accept_one, listen, pattern, rounds, run_on};
use tracing::{Event, Level};

extern "C" fn ignore(_: libc::c_int) {}

/// Signals that come to one thread, again and again, until dropped.
struct Rain(libc::timer_t);

impl Rain {
    /// On this thread: of signals that are the process's the kernel gives a thread that runs a test
    /// hardly any.
    fn begin(every: Duration) -> Rain {
        // SAFETY: all bits zero is valid for each of the structs, which live as long as the calls;
        // no SA_RESTART among the flags. The handler does nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ignore as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()), 0);
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGALRM;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer = std::ptr::null_mut();
            let made = libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer);
            assert_eq!(made, 0);
            let every = libc::timespec { tv_sec: 0, tv_nsec: every.subsec_nanos().into() };
            let times = libc::itimerspec { it_interval: every, it_value: every };
            assert_eq!(libc::timer_settime(timer, 0, &raw const times, std::ptr::null_mut()), 0);
            Rain(timer)
        }
    }
}

impl Drop for Rain {
    fn drop(&mut self) {
        // SAFETY: the timer was made, and is deleted here only.
        unsafe { libc::timer_delete(self.0) };
    }
}

fn nothing_fails_on(builder: &Builder) {
    let _rain = Rain::begin(Duration::from_millis(1));
    let directory = tempfile::tempdir().unwrap();
    run_on(&builder.build().unwrap(), async {
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
        let wanted = rounds(300) as u64;
        while metrics().interrupted < wanted {
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

#[test]
fn nothing_fails_or_is_early_while_signals_rain() {
    nothing_fails_on(&Runtime::builder());
}

#[test]
fn nothing_fails_or_is_early_while_signals_rain_and_the_kernel_takes_requests() {
    nothing_fails_on(&Runtime::builder().submission_thread(Some(Duration::from_millis(1))));
}

#[test]
fn a_runtime_waits_for_the_kernel_at_its_end_while_signals_rain() {
    const READS: usize = 32;
    const BYTES: usize = 1 << 20;
    let directory = tempfile::tempdir_in(".").unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![7; READS * BYTES]).unwrap();
    let told = Arc::new(AtomicBool::new(false));
    let ear = Ear(Level::ERROR, {
        let told = told.clone();
        move |_: &Event<'_>| told.store(true, Ordering::Relaxed)
    });
    tracing::subscriber::with_default(ear, || {
        for _ in 0..rounds(20) {
            let runtime = Runtime::builder().build().unwrap();
            let mut reads = Vec::new();
            run_on(&runtime, async {
                let options = OpenOptions::new().read(true).direct(true);
                let file = File::open(&path, options).await.unwrap();
                for offset in (0..READS * BYTES).step_by(BYTES) {
                    let file = file.clone();
                    let read =
                        async move { file.read_at(buffer::take(BYTES), offset as u64).await };
                    let mut read = Box::pin(read);
                    let _ = read.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                    reads.push(read);
                }
                yield_now().await;
            });
            // Rarely enough that a slow machine gets on between two of them.
            let _rain = Rain::begin(Duration::from_micros(500));
            drop(runtime);
        }
    });
    assert!(
        !told.load(Ordering::Relaxed),
        "it took a signal for the kernel's refusal, and leaked its memory"
    );
}
