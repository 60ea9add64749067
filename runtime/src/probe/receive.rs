//! The ways to fill receive buffers that have to be asked for, each seen at work: what is sent has
//! to arrive as it was, in as many buffers and completions as that way takes.

use std::io;
use std::net::Ipv4Addr;

use bowline_time::Duration;

use super::Answer;
use crate::driver::provided::ReceiveMode;
use crate::net::{Lease, ListenOptions, TcpListener, TcpStream};
use crate::runtime::Runtime;
use crate::{metrics, timeout};

/// Longer than anything on this machine takes that is not blocked.
const LIMIT: Duration = Duration::from_secs(5);
/// Buffers, and the bytes of each.
const BUFFERS: u16 = 16;
const SIZE: u32 = 1024;

/// Two messages, the first of which is kept, take one buffer.
pub(super) fn piece_by_piece() -> Answer {
    attempt(ReceiveMode::Incremental, async |sender, receiver| {
        let mut kept = Vec::new();
        for message in [b"one", b"two"] {
            sender.send(message);
            kept.push(receive(receiver).await?);
        }
        let whole = *kept[0] == *b"one" && *kept[1] == *b"two";
        Ok(whole && metrics().free_buffers == usize::from(BUFFERS))
    })
}

/// What takes several buffers comes in fewer completions.
pub(super) fn in_bundles() -> Answer {
    attempt(ReceiveMode::Bundles, async |sender, receiver| {
        let message: Vec<u8> = (0..8 * SIZE).map(|n| (n / 5) as u8).collect();
        sender.send(&message);
        sender.drained(0).await?;
        // Nobody has asked for it yet: by now it is there as a whole.
        let before = metrics().completions;
        let mut bytes = Vec::new();
        while bytes.len() < message.len() {
            bytes.extend_from_slice(&receive(receiver).await?);
        }
        Ok(bytes == message && metrics().completions - before < 8)
    })
}

async fn receive(stream: &TcpStream) -> io::Result<Lease> {
    stream.receive().await?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Has two ends of a connection do something, with buffers that are filled that way.
fn attempt(
    mode: ReceiveMode,
    work: impl AsyncFnOnce(&TcpStream, &TcpStream) -> io::Result<bool>,
) -> Answer {
    let builder = Runtime::builder().entries(16).buffers(BUFFERS, SIZE).receive_mode(mode);
    let runtime = match builder.build() {
        Ok(runtime) if runtime.receive_mode() == mode => runtime,
        _ => return Answer::told(false),
    };
    let worked = runtime.block_on(timeout(LIMIT, async {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0).into(), ListenOptions::default())?;
        let sender = TcpStream::connect(listener.local_addr()?, LIMIT).await?;
        let receiver = listener.accept().await?;
        work(&sender, &receiver).await
    }));
    match worked {
        Ok(Ok(true)) => Answer::Works,
        Ok(Ok(false)) => Answer::Refused(libc::EIO),
        Ok(Err(error)) => Answer::of::<()>(Err(error)),
        Err(_) => Answer::Refused(libc::ETIMEDOUT),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_way_to_fill_buffers_that_does_not_do_what_it_is_for_is_not_told_to_work() {
        let single = |works| attempt(ReceiveMode::Single, async move |_, _| Ok(works));
        assert_eq!(single(true), Answer::Works);
        assert_eq!(single(false), Answer::Refused(libc::EIO));
        let failed = attempt(ReceiveMode::Single, async |_, _| {
            Err(io::Error::from_raw_os_error(libc::ENOMEM))
        });
        assert_eq!(failed, Answer::Refused(libc::ENOMEM));
    }
}
