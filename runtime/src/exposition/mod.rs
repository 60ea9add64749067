//! Numbers for whoever watches, over HTTP: one page, made anew whenever somebody asks for it.
//!
//! It is served by a thread of its own, so that neither making the page nor a watcher that is slow
//! ever holds up a core. What it serves is up to the caller: usually what an OpenMetrics encoder
//! writes, of numbers that the cores handed over.
//!
//! ```
//! use bowline_runtime::exposition::{Exposition, fetch};
//!
//! let mut asked = 0;
//! let numbers = Exposition::serve("127.0.0.1:0".parse()?, move || {
//!     asked += 1;
//!     format!("# TYPE asked counter\nasked_total {asked}\n# EOF\n")
//! })?;
//! assert!(fetch(numbers.address())?.contains("asked_total 1"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Whoever asks is not trusted: a request may have 8 KiB and take two seconds, reading the page may
//! take as long again, there is no body, and the connection is closed after one answer. Watchers are
//! served one after the other, so a hostile one makes the others wait, and nobody else.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// As much as a request may have, in bytes: many times what a watcher sends.
const REQUEST_MAX: usize = 8 << 10;
/// So long a request may take, and so long reading the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// As much of a page as [`fetch`] reads, in bytes.
const PAGE_MAX: u64 = 64 << 20;
/// After an error of accept (descriptors ran out, most likely) nobody is served for so long.
const PAUSE: Duration = Duration::from_millis(100);

const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A page that is served until this is dropped.
#[derive(Debug)]
pub struct Exposition {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Exposition {
    /// Serves a page at `/metrics` of this address; port 0 lets the kernel choose one. The closure
    /// makes the page, on the thread that serves it, and may block.
    ///
    /// # Errors
    ///
    /// If the address or a thread can't be had.
    pub fn serve(
        address: SocketAddr,
        page: impl FnMut() -> String + Send + 'static,
    ) -> io::Result<Exposition> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let thread = thread::Builder::new()
            .name("bowline-metrics".into())
            .spawn(move || attend(&listener, page, &ends))?;
        Ok(Exposition { address, over, thread: Some(thread) })
    }

    /// Where it is served.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Exposition {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        let mut itself = self.address;
        if itself.ip().is_unspecified() {
            itself.set_ip(match itself {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        // It waits for somebody to come. If nobody can, it is left behind, with the process's end.
        let came = TcpStream::connect_timeout(&itself, PATIENCE);
        if came.is_ok()
            && let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of a page of metrics panicked");
        }
    }
}

fn attend(listener: &TcpListener, mut page: impl FnMut() -> String, over: &AtomicBool) {
    loop {
        let came = listener.accept();
        if over.load(Ordering::Acquire) {
            return;
        }
        match came {
            // Whoever is cut off has only itself to blame.
            Ok((stream, _)) => _ = answer(&stream, &mut page),
            Err(error) => {
                tracing::warn!(%error, "can't accept who asks for metrics");
                thread::sleep(PAUSE);
            }
        }
    }
}

fn answer(mut stream: &TcpStream, page: &mut impl FnMut() -> String) -> io::Result<()> {
    let mut request = [0; REQUEST_MAX];
    let read = read_head(stream, &mut request)?;
    let (status, body) = match Request::parse(read) {
        Ok(Request { with_body, .. }) => {
            let page = page();
            let head = head("200 OK", TYPE, page.len());
            (head, if with_body { page } else { String::new() })
        }
        Err(status) => (head(status, "text/plain", status.len()), status.to_string()),
    };
    let whole = status + &body;
    let end = Instant::now() + PATIENCE;
    let mut rest = whole.as_bytes();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(end)?))?;
        match stream.write(rest)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => rest = &rest[written..],
        }
    }
    stream.flush()
}

/// Reads up to the empty line that ends a request's head, or as much as may be.
fn read_head<'a>(mut stream: &TcpStream, into: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let end = Instant::now() + PATIENCE;
    let mut filled = 0;
    while filled < into.len() && !into[..filled].windows(4).any(|four| four == b"\r\n\r\n") {
        stream.set_read_timeout(Some(left(end)?))?;
        match stream.read(&mut into[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(&into[..filled])
}

fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// What somebody asks for, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Request {
    /// GET, not HEAD.
    with_body: bool,
}

impl Request {
    /// The request, or the status that it deserves.
    fn parse(head: &[u8]) -> Result<Request, &'static str> {
        if head.len() >= REQUEST_MAX {
            return Err("431 Request Header Fields Too Large");
        }
        let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let mut words = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err("400 Bad Request");
        };
        if !version.starts_with(b"HTTP/1.") || !head.ends_with(b"\r\n\r\n") {
            return Err("400 Bad Request");
        }
        let path = target.split(|byte| *byte == b'?').next();
        match (method, path) {
            (_, path) if path != Some(b"/metrics") => Err("404 Not Found"),
            (b"GET", _) => Ok(Request { with_body: true }),
            (b"HEAD", _) => Ok(Request { with_body: false }),
            _ => Err("405 Method Not Allowed"),
        }
    }
}

fn head(status: &str, content: &str, length: usize) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content}\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n"
    )
}

/// Asks for the page at an address.
///
/// # Errors
///
/// If it can't be reached within two seconds, or the answer is not a page.
pub fn fetch(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(2 * PATIENCE))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nhost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    (&mut stream).take(PAGE_MAX).read_to_string(&mut answer)?;
    let Some((head, page)) = answer.split_once("\r\n\r\n") else {
        return Err(io::Error::other("the answer has no end of its head"));
    };
    let status = head.lines().next().unwrap_or_default();
    if !status.ends_with(" 200 OK") {
        return Err(io::Error::other(format!("the answer is {status:?}")));
    }
    Ok(page.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve() -> Exposition {
        Exposition::serve("127.0.0.1:0".parse().unwrap(), || "knots 9\n# EOF\n".into()).unwrap()
    }

    fn ask(numbers: &Exposition, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(numbers.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // One that is cut off while it writes has its answer all the same.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    #[test]
    fn the_page_is_served_again_and_again() {
        let numbers = serve();
        for _ in 0..3 {
            assert_eq!(fetch(numbers.address()).unwrap(), "knots 9\n# EOF\n");
        }
    }

    #[test]
    fn a_head_alone_has_the_pages_length_and_not_the_page() {
        let answer = ask(&serve(), b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.contains("content-length: 14") && answer.ends_with("\r\n\r\n"), "{answer}");
    }

    #[test]
    fn what_is_not_a_request_for_the_page_is_refused_and_harms_nobody() {
        let numbers = serve();
        for (request, status) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"\r\n\r\n", "400"),
            (b"GET /metrics SPDY/3\r\n\r\n", "400"),
        ] {
            let answer = ask(&numbers, request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        }
        assert!(fetch(numbers.address()).is_ok());
    }

    #[test]
    fn a_head_without_end_is_refused_at_its_bound() {
        let numbers = serve();
        let answer = ask(&numbers, &vec![b'a'; REQUEST_MAX]);
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
        assert!(fetch(numbers.address()).is_ok());
    }

    #[test]
    fn who_says_nothing_is_given_up() {
        let numbers = serve();
        let silent = TcpStream::connect(numbers.address()).unwrap();
        assert!(fetch(numbers.address()).is_ok(), "the next one is served in the end");
        drop(silent);
    }

    #[test]
    fn it_ends_when_it_is_dropped() {
        let numbers = serve();
        let address = numbers.address();
        drop(numbers);
        assert!(TcpStream::connect(address).is_err());
    }
}
