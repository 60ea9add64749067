//! What went over the wires, read from outside: every copy that a server received ended with one
//! frame, and a story to read when it did not.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use bowline_protocol::{Attempt, Frame, Inbox, PayloadOf};
use bowline_runtime::{Lane, Traffic};

/// A frame, when its last byte was sent, and whether that was received.
struct Sent {
    at: Duration,
    text: String,
    attempt: Option<Attempt>,
    role: Role,
    received: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Request,
    /// The last word on a copy.
    End,
    Other,
}

/// What a frame is to its copy. `begun` are the replies of which segments bring the rest, and how
/// long each is: only the last segment is the last word, and there is none if the caller is done.
fn role(frame: &Frame<'_>, begun: &mut BTreeMap<Attempt, u32>) -> (Role, Option<Attempt>) {
    match frame {
        Frame::ReplyWith(reply, options, _) if options.total().is_some() => {
            begun.insert(reply.attempt, options.total().unwrap_or_default());
            (Role::Other, Some(reply.attempt))
        }
        Frame::Segment(segment, bytes) => {
            let end = segment.offset + bytes.len() as u32;
            let of_reply = segment.of == PayloadOf::Reply;
            let last = of_reply && begun.get(&segment.attempt) == Some(&end);
            (if last { Role::End } else { Role::Other }, Some(segment.attempt))
        }
        Frame::Request(request, _) | Frame::RequestWith(request, ..) => {
            (Role::Request, Some(request.attempt))
        }
        Frame::Reply(reply, _) | Frame::ReplyWith(reply, ..) => (Role::End, Some(reply.attempt)),
        Frame::Ended(ended) => (Role::End, Some(ended.attempt)),
        Frame::Overloaded(overloaded) => (Role::End, Some(overloaded.attempt)),
        Frame::Cancel(cancel) => (Role::Other, Some(cancel.attempt)),
        Frame::Started(started) => (Role::Other, Some(started.attempt)),
        _ => (Role::Other, None),
    }
}

/// The frames of a lane, up to the first that is not whole.
fn frames(lane: &Lane) -> Result<Vec<Sent>, String> {
    let mut inbox = Inbox::new(1 << 20);
    let (mut frames, mut fed, mut begun) = (Vec::new(), 0, BTreeMap::new());
    let mut pieces = lane.pieces.iter().peekable();
    // One byte after the other, so that each frame's end is known.
    for byte in &lane.sent {
        fed += 1;
        while pieces.peek().is_some_and(|(_, end)| *end < fed) {
            pieces.next();
        }
        let mut found = inbox.feed(std::slice::from_ref(byte));
        while let Some(frame) = found.next().map_err(|error| error.to_string())? {
            let (role, attempt) = role(&frame, &mut begun);
            let at = pieces.peek().map_or(Duration::MAX, |(at, _)| *at);
            let mut text = format!("{frame:?}");
            if let Some((cut, _)) = text.char_indices().nth(150) {
                text.truncate(cut);
            }
            frames.push(Sent { at, text, attempt, role, received: fed <= lane.received });
        }
    }
    Ok(frames)
}

/// Judges what went between the client (that core) and servers. Returns how many copies were
/// received.
pub(crate) fn judge(traffic: &[Traffic], client: usize) -> Result<u64, String> {
    let mut copies = 0;
    for connection in traffic {
        let [there, back] = [frames(&connection.lanes[0])?, frames(&connection.lanes[1])?];
        if connection.cores[0] != client {
            continue;
        }
        let mut ends: BTreeMap<Attempt, u32> = BTreeMap::new();
        for end in back.iter().filter(|sent| sent.role == Role::End) {
            *ends.entry(end.attempt.ok_or("an end of nothing")?).or_default() += 1;
        }
        for request in there.iter().filter(|sent| sent.role == Role::Request) {
            let attempt = request.attempt.ok_or("a request of nothing")?;
            let ends = ends.remove(&attempt).unwrap_or(0);
            copies += u64::from(request.received);
            let fine = match (request.received, connection.over) {
                (true, false) => ends == 1,
                (true, true) => ends <= 1,
                (false, _) => ends == 0,
            };
            if !fine {
                return Err(format!(
                    "{attempt:?} ended {ends} times on the connection that brought it\n{}",
                    story(traffic, attempt)
                ));
            }
        }
        if let Some((attempt, _)) = ends.pop_first() {
            return Err(format!(
                "{attempt:?} ended on a connection that did not bring it\n{}",
                story(traffic, attempt)
            ));
        }
    }
    Ok(copies)
}

/// Who sent what when, about one call.
fn story(traffic: &[Traffic], attempt: Attempt) -> String {
    let mut lines = Vec::new();
    for Traffic { cores: [dialler, dialled], lanes, .. } in traffic {
        for (from, to, lane) in [(dialler, dialled, &lanes[0]), (dialled, dialler, &lanes[1])] {
            let frames = frames(lane).unwrap_or_default();
            let about = |sent: &Sent| {
                sent.attempt.is_some_and(|a| (a.client, a.seq) == (attempt.client, attempt.seq))
            };
            for Sent { at, text, received, .. } in frames.into_iter().filter(about) {
                let lost = if received { "" } else { "   (not received)" };
                lines.push((at, format!("core {from} -> core {to}  {text}{lost}")));
            }
        }
    }
    lines.sort();
    let mut story = String::new();
    for (at, line) in lines {
        // Writing to a string cannot fail.
        let _ = writeln!(story, "{:>12.3} us  {line}", at.as_nanos() as f64 / 1e3);
    }
    story
}
