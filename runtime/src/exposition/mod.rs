//! Numbers for whoever watches, over HTTP: one page, made anew whenever somebody asks for it.
//!
//! It is served by a thread of its own, so that neither making the page nor a watcher that is slow
//! ever holds up a core. What it serves is up to the caller: usually what an OpenMetrics encoder
//! writes, of numbers that the cores handed over.
//!
//! ```
//! use bowline_runtime::exposition::{Exposition, fetch};
//!
//! let numbers = Exposition::serve("127.0.0.1:0".parse()?, |visits| {
//!     format!("# TYPE visits counter\nvisits_total {}\n# EOF\n", visits.admitted)
//! })?;
//! assert!(fetch(numbers.address())?.contains("visits_total 1"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Whoever asks is not trusted: a request may have 8 KiB and take two seconds, reading the page may
//! take as long again, there is no body, and the connection is closed after one answer. Watchers do
//! not wait for each other, but for the page that is being made: a hundred a second at most, and who
//! asks meanwhile shares the next one. Beyond 64 at a time, one gives way to who comes: of those that
//! said nothing for 10 ms, the first that came; if all have asked, the first of all. The page can
//! show how many did ([`Visits`]), and a warning tells of it: once, until nobody had to for a minute.

mod fetch;
mod guests;
mod request;

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bowline_time::Trouble;
use bytes::Bytes;
use crossbeam::channel::{Receiver as Ending, RecvTimeoutError};

use crate::builder::Builder;
use crate::channel::{Receiver, Sender, bounded};
use crate::contain::{describe, tell};
use crate::net::{ListenOptions, TcpListener, TcpStream};
use crate::notify::Notify;
use crate::runtime::Runtime;
use crate::{now, sleep, spawn, timeout};

pub use fetch::fetch;
pub use guests::Visits;
use guests::{Guests, Place};

/// As much as a request may have, in bytes: many times what a watcher sends.
const REQUEST_MAX: usize = 8 << 10;
/// So long a request may take, and so long reading the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between a page and the next one. So whoever asks how often costs the cores, which have to tell
/// their numbers for each page, next to nothing.
const BREATH: Duration = Duration::from_millis(10);
/// After an error of accept (descriptors ran out, most likely) nobody is accepted for so long.
const PAUSE: Duration = Duration::from_millis(100);

const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A page that is served until this is dropped.
///
/// Dropping it waits for a page that is being made, but no longer than two seconds. After that the
/// thread is left behind, and ends with its page.
#[derive(Debug)]
pub struct Exposition {
    address: SocketAddr,
    stop: Option<Sender<Infallible>>,
    ending: Ending<Infallible>,
    thread: Option<JoinHandle<()>>,
}

impl Exposition {
    /// Serves a page at `/metrics` of this address; port 0 lets the kernel choose one. The closure
    /// makes the page, on the thread that serves it; it is told who has come so far. It may block, but
    /// not run a runtime, as one runs it. If it panics, whoever asked is told of an error, and the
    /// next one is served.
    ///
    /// # Errors
    ///
    /// If the address, a thread or a runtime can't be had.
    pub fn serve(
        address: SocketAddr,
        page: impl FnMut(Visits) -> String + Send + 'static,
    ) -> io::Result<Exposition> {
        Exposition::serve_patiently(address, PATIENCE, page)
    }

    fn serve_patiently(
        address: SocketAddr,
        patience: Duration,
        page: impl FnMut(Visits) -> String + Send + 'static,
    ) -> io::Result<Exposition> {
        let (stop, stopped) = bounded(1);
        let (ends, ending) = crossbeam::channel::bounded(0);
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let thread = thread::Builder::new().name("bowline-metrics".into()).spawn(move || {
            let _ends = ends;
            unpin();
            match small(patience).build() {
                Ok(runtime) => runtime.block_on(serve(address, patience, page, stopped, tell)),
                // Whoever waits for it is there until told.
                Err(error) => _ = tell.send(Err(io::Error::other(error))),
            }
        })?;
        let address = told.recv().map_err(io::Error::other)??;
        Ok(Exposition { address, stop: Some(stop), ending, thread: Some(thread) })
    }

    /// Where it is served.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Exposition {
    fn drop(&mut self) {
        self.stop.take();
        let ended = self.ending.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Disconnected);
        if ended
            && let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of a page of metrics panicked");
        }
    }
}

/// A runtime for few connections, of which little is to be had: each has one receive and one send
/// under way at a time.
fn small(linger: Duration) -> Builder {
    Runtime::builder().entries(64).buffers(64, 1024).linger(linger)
}

/// Has this thread run on whatever CPU is free: whoever began it may be pinned to that of a core.
fn unpin() {
    // SAFETY: a set of CPUs is bits, of which any are valid, and it lives as long as the call.
    let result = unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        (0..libc::CPU_SETSIZE as usize).for_each(|cpu| libc::CPU_SET(cpu, &mut all));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const all)
    };
    if result != 0 {
        let error = io::Error::last_os_error();
        tracing::warn!(%error, "the page of metrics is made on the CPU of whoever serves it");
    }
}

/// A page, or the status in its place.
type Page = Result<Bytes, &'static str>;

/// Where those who are served get their page.
struct Desk {
    patience: Duration,
    /// Who waits for the next page.
    waiting: RefCell<Vec<Sender<Page>>>,
    asked: Notify,
}

async fn serve(
    address: SocketAddr,
    patience: Duration,
    page: impl FnMut(Visits) -> String + 'static,
    mut stopped: Receiver<Infallible>,
    tell: std::sync::mpsc::SyncSender<io::Result<SocketAddr>>,
) {
    let listener = TcpListener::bind(address, ListenOptions::default());
    let bound = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
    // Whoever waits for it is there until told.
    match bound {
        Ok((address, listener)) => {
            let desk =
                Rc::new(Desk { patience, waiting: RefCell::default(), asked: Notify::new() });
            let guests = Rc::<Guests>::default();
            drop(spawn(make_pages(desk.clone(), guests.clone(), page)));
            drop(spawn(attend(listener, desk, guests)));
            let _ = tell.send(Ok(address));
            stopped.receive().await;
        }
        Err(error) => _ = tell.send(Err(error)),
    }
}

async fn attend(listener: TcpListener, desk: Rc<Desk>, guests: Rc<Guests>) {
    let mut refused = Trouble::default();
    loop {
        match listener.accept().await {
            Ok(stream) => {
                let place = guests.admit(stream.clone()).await;
                let desk = desk.clone();
                drop(spawn(async move { desk.answer(&stream, &place).await }));
            }
            Err(error) => {
                if refused.is_news(now()) {
                    tracing::warn!(%error, "can't accept who asks for metrics, and goes on trying");
                }
                sleep(PAUSE).await;
            }
        }
    }
}

/// Makes one page for all who have asked, whenever somebody has.
async fn make_pages(desk: Rc<Desk>, guests: Rc<Guests>, mut page: impl FnMut(Visits) -> String) {
    loop {
        desk.asked.notified().await;
        let waiting = desk.waiting.take();
        let page = make(|| page(guests.visits()));
        // Who has gone meanwhile does not miss it.
        waiting.iter().for_each(|waits| _ = waits.try_send(page.clone()));
        sleep(BREATH).await;
    }
}

fn make(page: impl FnOnce() -> String) -> Page {
    let made = catch_unwind(AssertUnwindSafe(page));
    made.map(Bytes::from).map_err(|payload| {
        tell(|| tracing::error!(panic = describe(&*payload), "making a page of metrics panicked"));
        "500 Internal Server Error"
    })
}

impl Desk {
    async fn answer(&self, stream: &TcpStream, place: &Place) {
        match timeout(self.patience, read_head(stream)).await {
            Ok(Ok(head)) => {
                place.has_asked();
                self.reply(stream, &head).await;
            }
            // Whoever is cut off has only itself to blame.
            _ => return stream.abort(),
        }
        stream.shutdown(Shutdown::Write);
        if timeout(self.patience, seen_off(stream)).await.is_err() {
            stream.abort();
        }
    }

    async fn reply(&self, stream: &TcpStream, request: &[u8]) {
        let page = match request::check(request) {
            Ok(()) => self.next_page().await,
            Err(status) => Err(status),
        };
        let (status, content, body) = match page {
            Ok(page) => ("200 OK", TYPE, page),
            Err(status) => (status, "text/plain", Bytes::from(status)),
        };
        stream.send(request::head(status, content, body.len()).as_bytes());
        if !request.starts_with(b"HEAD ") {
            stream.send_piece(body);
        }
    }

    /// A page that is made from now on.
    async fn next_page(&self) -> Page {
        let (made, mut page) = bounded(1);
        self.waiting.borrow_mut().push(made);
        self.asked.notify();
        page.receive().await.unwrap_or(Err("503 Service Unavailable"))
    }
}

/// Reads up to the empty line that ends a request's head, or as much as may be. What does not begin as
/// a request does (somebody has taken this for another port) has no such end.
async fn read_head(stream: &TcpStream) -> io::Result<Vec<u8>> {
    const END: &[u8] = b"\r\n\r\n";
    let mut head = Vec::new();
    while head.len() < REQUEST_MAX {
        let Some(bytes) = stream.receive().await? else { break };
        // It may have begun with the bytes before.
        let from = head.len().saturating_sub(END.len() - 1);
        head.extend_from_slice(&bytes);
        if !head[0].is_ascii_uppercase() {
            break;
        }
        if let Some(at) = head[from..].windows(END.len()).position(|four| four == END) {
            // What follows is nothing that is answered.
            head.truncate(from + at + END.len());
            break;
        }
    }
    Ok(head)
}

/// Waits until the peer has all, and ends. Were the connection closed while bytes come that nobody
/// asked for, the peer might not get to read the answer.
async fn seen_off(stream: &TcpStream) -> io::Result<()> {
    stream.drained(0).await?;
    while stream.receive().await?.is_some() {}
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::mpsc;

    use super::guests::GUESTS;
    use super::*;

    /// Longer than anything here takes.
    const LONG: Duration = Duration::from_secs(60);
    const PAGE: &str = "knots 9\n# EOF\n";

    fn local() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    fn serve() -> Exposition {
        Exposition::serve_patiently(local(), LONG, |_| PAGE.into()).unwrap()
    }

    fn connect(numbers: &Exposition) -> TcpStream {
        let stream = TcpStream::connect(numbers.address()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    fn read(mut stream: TcpStream) -> String {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn ask(numbers: &Exposition, request: &[u8]) -> String {
        let mut stream = connect(numbers);
        stream.write_all(request).unwrap();
        read(stream)
    }

    #[test]
    fn the_page_is_served_again_and_again() {
        let numbers = serve();
        for _ in 0..3 {
            assert_eq!(fetch(numbers.address()).unwrap(), PAGE);
        }
    }

    #[test]
    fn a_head_alone_has_the_pages_length_and_not_the_page() {
        let answer = ask(&serve(), b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.contains("content-length: 14") && answer.ends_with("\r\n\r\n"), "{answer}");
        let answer = ask(&serve(), b"HEAD / HTTP/1.1\r\n\r\n");
        assert!(answer.contains("404") && answer.ends_with("\r\n\r\n"), "{answer}");
    }

    #[test]
    fn what_follows_a_request_at_once_does_not_hide_its_end() {
        let numbers = serve();
        for more in ["GET /metrics HTTP/1.1\r\n\r\n", "a body"] {
            let request = format!("GET /metrics HTTP/1.1\r\n\r\n{more}");
            assert!(ask(&numbers, request.as_bytes()).ends_with(PAGE));
        }
    }

    #[test]
    fn what_is_not_a_request_for_the_page_is_refused_and_harms_nobody() {
        let numbers = serve();
        for (request, status) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"\r\n\r\n", "400"),
            // As a client of the service begins, which would then wait for an answer.
            (b"\x00\x00\x00\x2cGET /metrics", "400"),
            (b"GET /metrics SPDY/3\r\n\r\n", "400"),
        ] {
            let answer = ask(&numbers, request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        }
        assert!(fetch(numbers.address()).is_ok());
    }

    #[test]
    fn a_head_without_end_is_refused_at_its_bound_however_much_follows() {
        let numbers = serve();
        let answer = ask(&numbers, &vec![b'A'; 2 * REQUEST_MAX]);
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
        assert!(fetch(numbers.address()).is_ok());
    }

    #[test]
    fn a_slow_watcher_holds_up_no_other() {
        let numbers = serve();
        let mut slow = connect(&numbers);
        slow.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
        assert!(fetch(numbers.address()).is_ok());
        slow.write_all(b"\r\n").unwrap();
        assert!(read(slow).ends_with(PAGE));
    }

    #[test]
    fn those_who_say_nothing_give_way_to_who_asks_and_the_first_of_them_first() {
        let page = |visits: Visits| format!("gave_way {}\n", visits.gave_way);
        let numbers = Exposition::serve_patiently(local(), LONG, page).unwrap();
        let mut reader = connect(&numbers);
        reader.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        reader.read_exact(&mut [0]).unwrap();
        let mut silent: Vec<_> = (0..3 * GUESTS).map(|_| connect(&numbers)).collect();
        // One too many were here, of whom the reader and who fetches have asked.
        let gave_way = 2 * GUESTS + 2;
        assert_eq!(fetch(numbers.address()).unwrap(), format!("gave_way {gave_way}\n"));
        // All are cut off but as many as may be here, less the two that have asked.
        let late = silent.split_off(gave_way);
        for mut stream in silent {
            assert!(stream.read(&mut [0]).map_or(true, |read| read == 0));
        }
        for mut stream in late {
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            assert!(read(stream).ends_with(&format!("gave_way {gave_way}\n")));
        }
        assert!(read(reader).ends_with("gave_way 0\n"));
    }

    #[test]
    fn those_who_do_not_read_give_way_when_nobody_is_silent() {
        let page = |_| "knots 9\n".repeat(1 << 20);
        let numbers = Exposition::serve_patiently(local(), LONG, page).unwrap();
        let ask = |mut stream: TcpStream| {
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            // It is being answered.
            stream.read_exact(&mut [0]).unwrap();
            stream
        };
        let _slow: Vec<_> = (0..GUESTS).map(|_| ask(connect(&numbers))).collect();
        assert_eq!(fetch(numbers.address()).unwrap().len(), 8 << 20);
    }

    #[test]
    fn those_who_ask_while_a_page_is_made_share_the_next_one() {
        let (made, making) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let mut pages = 0;
        let numbers = Exposition::serve_patiently(local(), LONG, move |_| {
            pages += 1;
            made.send(()).unwrap();
            let _ = wait.recv();
            format!("page {pages}\n# EOF\n")
        });
        let numbers = numbers.unwrap();
        let ask = || {
            let mut stream = connect(&numbers);
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            stream
        };
        let first = ask();
        making.recv_timeout(LONG).unwrap();
        let others: Vec<_> = (0..9).map(|_| ask()).collect();
        drop(go);
        assert!(read(first).ends_with("page 1\n# EOF\n"));
        // All nine come in one turn, or in a few.
        let pages: BTreeSet<String> = others.into_iter().map(read).collect();
        assert!(pages.len() < 9 && !pages.iter().any(|page| page.contains("page 1\n")));
    }

    #[test]
    fn those_who_say_nothing_are_given_up_though_there_is_room() {
        let patience = Duration::from_millis(1);
        let numbers = Exposition::serve_patiently(local(), patience, |_| PAGE.into()).unwrap();
        let silent: Vec<_> = (0..GUESTS / 2).map(|_| connect(&numbers)).collect();
        for mut stream in silent {
            // Cut off, be it by an end or by an error.
            assert!(stream.read(&mut [0]).map_or(true, |read| read == 0));
        }
    }

    #[test]
    fn a_page_that_panics_is_an_error_to_who_asked_and_the_next_one_is_served() {
        let mut asked = 0;
        let numbers = Exposition::serve_patiently(local(), LONG, move |_| {
            asked += 1;
            if asked == 1 {
                // Without the hook, which prints a trace.
                std::panic::resume_unwind(Box::new("as planned"));
            }
            PAGE.into()
        });
        let numbers = numbers.unwrap();
        let error = fetch(numbers.address()).unwrap_err();
        assert!(error.to_string().contains("500 Internal Server Error"), "{error}");
        assert_eq!(fetch(numbers.address()).unwrap(), PAGE);
    }

    #[test]
    fn it_ends_when_it_is_dropped() {
        let numbers = serve();
        let address = numbers.address();
        let silent = connect(&numbers);
        drop(numbers);
        assert!(TcpStream::connect(address).is_err());
        drop(silent);
    }

    #[test]
    fn a_page_that_takes_for_ever_does_not_hold_up_who_drops_it() {
        let (made, making) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let numbers = Exposition::serve_patiently(local(), LONG, move |_| {
            made.send(()).unwrap();
            // Until the sender is dropped.
            let _ = wait.recv();
            PAGE.into()
        });
        let numbers = numbers.unwrap();
        let mut stream = connect(&numbers);
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        making.recv_timeout(LONG).unwrap();
        drop(numbers);
        drop(go);
    }

    #[test]
    fn an_address_that_is_taken_is_an_error() {
        let taken = serve();
        let error = Exposition::serve(taken.address(), |_| String::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
