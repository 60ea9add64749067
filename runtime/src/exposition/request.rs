//! What somebody asks for, as far as it matters, and the head of an answer.

use super::REQUEST_MAX;

/// Whether this is a request for the page, or the status that it deserves.
pub(super) fn check(head: &[u8]) -> Result<(), &'static str> {
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
        (b"GET" | b"HEAD", _) => Ok(()),
        _ => Err("405 Method Not Allowed"),
    }
}

pub(super) fn head(status: &str, content: &str, length: usize) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content}\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n"
    )
}
