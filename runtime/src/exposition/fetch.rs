//! Asking for a page, from a thread that may block.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// So long all of it may take: the request, making the page, and the answer.
const PATIENCE: Duration = Duration::from_secs(6);
/// As much of an answer as is read, in bytes.
const ANSWER_MAX: usize = 64 << 20;
const END_OF_HEAD: &str = "\r\n\r\n";

/// Asks for the page at an address.
///
/// # Errors
///
/// If the whole page is not there within six seconds, or the answer is none: `TimedOut`,
/// `UnexpectedEof` if it ends before its length, `InvalidData` if it is not text, `FileTooLarge`
/// above 64 MiB.
pub fn fetch(address: SocketAddr) -> io::Result<String> {
    fetch_within(address, PATIENCE)
}

fn fetch_within(address: SocketAddr, patience: Duration) -> io::Result<String> {
    let end = Instant::now() + patience;
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_write_timeout(Some(left(end)?))?;
    // In one piece: whoever answers may do so, and close, as soon as it has read some of it.
    stream.write_all(format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes())?;
    let answer = read_all(&mut stream, end)?;
    let mut answer = String::from_utf8(answer)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the answer is not text"))?;
    let Some((head, page)) = answer.split_once(END_OF_HEAD) else {
        return Err(io::Error::other("the answer has no end of its head"));
    };
    let status = head.lines().next().unwrap_or_default();
    if !status.ends_with(" 200 OK") {
        return Err(io::Error::other(format!("the answer is {status:?}")));
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    if length.is_some_and(|length| length != page.len().to_string()) {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the page is cut off"));
    }
    // A page may be large: it is there once.
    answer.drain(..head.len() + END_OF_HEAD.len());
    Ok(answer)
}

/// Reads what comes until the peer's end.
fn read_all(stream: &mut TcpStream, end: Instant) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        stream.set_read_timeout(Some(left(end)?))?;
        match stream.read(&mut piece) {
            Ok(0) => return Ok(all),
            Ok(read) => all.extend_from_slice(&piece[..read]),
            // What a time limit on a socket ends with.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if all.len() > ANSWER_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
}

fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Somebody who answers with these bytes, and then with one byte after the other for as long
    /// as they are read, or not at all.
    fn answering(with: &'static [u8], and_on: bool) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1000]);
            stream.write_all(with).unwrap();
            while and_on && stream.write_all(b"x").is_ok() {}
        });
        address
    }

    #[test]
    fn an_answer_without_end_is_given_up() {
        let address = answering(b"HTTP/1.1 200 OK\r\n\r\n", true);
        let error = fetch_within(address, Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    }

    #[test]
    fn a_page_that_is_cut_off_is_not_taken_for_whole() {
        let address = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nknots", false);
        let error = fetch(address).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
    }
}
