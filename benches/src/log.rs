//! A log that holds nobody up: lines wait for a thread that writes them. Where whoever reads them
//! stands still, lines are lost rather than time, and the log says how many once it goes on.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// Lines that may wait; more are lost.
const MOST: usize = 4096;
/// So long what waits may take to be written at the end.
const PATIENCE: Duration = Duration::from_millis(500);

/// Takes the lines, each in one piece.
#[derive(Clone, Debug)]
pub struct Log {
    lines: Sender<Option<Vec<u8>>>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: AtomicUsize,
    lost: AtomicUsize,
}

/// Writes what waits, when it is dropped.
#[derive(Debug)]
pub struct Ending {
    log: Log,
    ended: Receiver<()>,
}

impl Log {
    /// A log that a thread of its own writes to `output`, until the other value is dropped.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn to(output: impl Write + Send + 'static) -> io::Result<(Log, Ending)> {
        let (lines, taken) = channel();
        let (end, ended) = channel();
        let log = Log { lines, shared: Arc::default() };
        let shared = Arc::clone(&log.shared);
        thread::Builder::new().name("bowline-log".into()).spawn(move || {
            write_all(&taken, &shared, output);
            drop(end);
        })?;
        Ok((log.clone(), Ending { log, ended }))
    }
}

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.shared.waiting.fetch_add(1, Ordering::Relaxed) < MOST {
            // The thread goes after the last line alone.
            self.lines.send(Some(line.to_vec())).ok();
        } else {
            self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_all(lines: &Receiver<Option<Vec<u8>>>, shared: &Shared, mut output: impl Write) {
    while let Ok(Some(line)) = lines.recv() {
        // Where it can't be written, there is nobody left to tell.
        output.write_all(&line).ok();
        shared.waiting.fetch_sub(1, Ordering::Relaxed);
        let lost = shared.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            writeln!(output, "{lost} lines of this log are lost: more come than are read").ok();
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.log.lines.send(None).ok();
        self.ended.recv_timeout(PATIENCE).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{SyncSender, sync_channel};

    use super::*;

    /// Hands on each piece when somebody takes it.
    struct Slow(SyncSender<Vec<u8>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stands_still_costs_lines_that_are_counted_and_no_time() {
        let (output, read) = sync_channel(0);
        let (mut log, ending) = Log::to(Slow(output)).expect("a thread");
        for n in 0..MOST + 5 {
            log.write_all(format!("line {n}\n").as_bytes()).expect("it takes all");
        }
        let reader = thread::spawn(move || read.into_iter().flatten().collect::<Vec<u8>>());
        drop((ending, log));
        let text = String::from_utf8(reader.join().expect("no panic")).expect("text");
        assert!(text.starts_with("line 0\n5 lines of this log are lost"), "{text:.200}");
        assert!(text.ends_with(&format!("\nline {}\n", MOST - 1)));
    }

    #[test]
    fn a_reader_that_never_comes_back_holds_up_no_end() {
        let (output, read) = sync_channel(0);
        let (mut log, ending) = Log::to(Slow(output)).expect("a thread");
        log.write_all(b"line\n").expect("it takes all");
        drop(ending);
        drop(read);
    }
}
