//! What a runtime can do here: one of each of the operations that it is made of.

use std::hash::{BuildHasher, RandomState};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use bowline_time::Duration;

use super::{Answer, Feature, Use, row};
use crate::clock::Source;
use crate::error::Error;
use crate::fs::{File, OpenOptions};
use crate::net::{ListenOptions, TcpListener, TcpStream};
use crate::runtime::Runtime;
use crate::{buffer, metrics, spawn, timeout};

/// Longer than anything on this machine takes that is not blocked.
const LIMIT: Duration = Duration::from_secs(5);

/// Builds a runtime and has it do everything.
pub(super) fn features() -> Result<(Source, Vec<Feature>), Error> {
    let runtime =
        Runtime::builder().entries(8).buffers(1, 4096).registered_buffers(1, 4096).build()?;
    let mut features = runtime.block_on(async {
        // That a sleep ends shows that requests go in, waits end in time, and the thread wakes.
        crate::sleep(Duration::from_micros(100)).await;
        let mut features = network().await;
        features.extend(files(&unguessable()).await);
        features
    });
    let clock = runtime.clock_source();
    drop(runtime);
    let runtime = Runtime::builder().entries(8).buffers(1, 4096).zero_copy(Some(1)).build()?;
    features.push(runtime.block_on(without_copy()));
    Ok((clock, features))
}

/// Runs one of the attempts.
async fn attempt<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(LIMIT, work).await?
}

/// Sends bytes over loopback, from one place and from several.
async fn network() -> Vec<Feature> {
    let mut features = Vec::new();
    let mut add = |name, since, answer| {
        features.push(row(name, since, answer, Use::Required, "nothing: connections need it"));
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0).into(), ListenOptions::default());
    let address = listener.as_ref().ok().and_then(|listener| listener.local_addr().ok());
    let (Ok(listener), Some(address)) = (listener, address) else {
        add("CONNECT", "5.5", Answer::Refused(libc::EACCES));
        return features;
    };
    let accepting = spawn(async move { attempt(listener.accept()).await });
    let client = attempt(TcpStream::connect(address, LIMIT)).await;
    add("CONNECT", "5.5", Answer::of(client.as_ref().map_err(copy)));
    let Ok(client) = client else { return features };
    let server = accepting.await.unwrap_or_else(|error| Err(io::Error::other(error.to_string())));
    add("ACCEPT, multishot", "5.19", Answer::of(server.as_ref().map_err(copy)));
    let Ok(server) = server else { return features };
    client.send(b"?");
    let sent = attempt(async {
        client.drained(0).await?;
        Ok(())
    });
    add("SEND", "5.6", Answer::of(sent.await));
    let received = attempt(async {
        server.receive().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(())
    });
    add("RECV, multishot", "6.0", Answer::of(received.await));
    add("SENDMSG", "5.3", Answer::of(attempt(send_from_two_places(&client, &server)).await));
    features
}

/// Sends bytes and a piece of memory that is not copied to them.
async fn send_from_two_places(from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    const PIECE: usize = 4096;
    from.send(b"?");
    from.send_piece(buffer::take(PIECE));
    let mut left = 1 + PIECE;
    while left > 0 {
        left = left.saturating_sub(to.receive().await?.ok_or(io::ErrorKind::UnexpectedEof)?.len());
    }
    from.drained(0).await
}

/// Sends from two places without a copy, as a runtime does that is asked to.
async fn without_copy() -> Feature {
    let sent = attempt(async {
        let any = (Ipv4Addr::LOCALHOST, 0).into();
        let listener = TcpListener::bind(any, ListenOptions::default())?;
        let address = listener.local_addr()?;
        let accepting = spawn(async move { listener.accept().await });
        let client = TcpStream::connect(address, LIMIT).await?;
        let accepted = accepting.await.map_err(|error| io::Error::other(error.to_string()))?;
        send_from_two_places(&client, &accepted?).await?;
        let counted = metrics();
        match counted.zero_copy_sends > 0 && counted.zero_copy_refused == 0 {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        }
    });
    row("SENDMSG_ZC", "6.1", Answer::of(sent.await), Use::OnDemand, "SENDMSG, which copies")
}

/// An error has no copy; its number is what counts.
fn copy(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

/// A path in the directory for temporary files, which others may write to: it is not to be guessed,
/// and differs each time.
fn unguessable() -> PathBuf {
    let number = RandomState::new().hash_one(std::process::id());
    std::env::temp_dir().join(format!("bowline-probe-{number:016x}"))
}

/// Makes a file where there is none, does to it all that can be done, and removes it.
async fn files(path: &Path) -> Vec<Feature> {
    let mut features = Vec::new();
    let needed =
        |name, since, answer| row(name, since, answer, Use::Required, "nothing: files need it");
    // Not every file system can do these, whatever the kernel can: then they are an error to the
    // program that asks for them.
    let asked_for = |name, since, answer| {
        row(name, since, answer, Use::OnDemand, "an error; is it the file system?")
    };
    let options = OpenOptions::new().read(true).write(true).create_new(true);
    let file = match attempt(File::open(path, options)).await {
        Ok(file) => file,
        Err(error) => {
            features.push(needed("OPENAT", "5.6", Answer::of::<()>(Err(error))));
            return features;
        }
    };
    let plain = |length| buffer::take(length);
    // More than a block, so that it is not a registered one.
    let written = attempt(async { file.write_all_at(plain(8192), 0).await.0 }).await;
    let read = attempt(async { file.read_exact_at(plain(8192), 0).await.0 }).await;
    features.extend([
        needed("OPENAT", "5.6", Answer::Works),
        needed("WRITE", "5.6", Answer::of(written)),
        needed("READ", "5.6", Answer::of(read)),
        asked_for("FSYNC", "5.1", Answer::of(attempt(file.sync_data()).await)),
        asked_for("FALLOCATE", "5.6", Answer::of(attempt(file.allocate(0, 8192)).await)),
        needed("STATX", "5.6", Answer::of(attempt(file.status()).await)),
        needed("CLOSE", "5.6", Answer::of(attempt(file.close()).await)),
    ]);
    let [fixed_file, fixed_read, fixed_write] = fixed(path).await;
    let _ = fs::remove_file(path);
    features.push(row("fixed files", "5.19", fixed_file, Use::OnDemand, "a lookup per transfer"));
    let pins = "pages are pinned per transfer";
    features.push(row("READ_FIXED, fixed buffers", "5.1", fixed_read, Use::OnDemand, pins));
    features.push(row("WRITE_FIXED, fixed buffers", "5.1", fixed_write, Use::OnDemand, pins));
    features
}

/// Reads through a registered file, and into a registered buffer, and writes from one.
async fn fixed(path: &Path) -> [Answer; 3] {
    let options = OpenOptions::new().read(true).write(true).registered(true);
    let Ok(file) = attempt(File::open(path, options)).await else {
        return [Answer::told(false); 3];
    };
    let block = buffer::take(4096);
    let (registered_file, registered_buffer) = (file.is_registered(), block.is_registered());
    let answer = |registered, answer| if registered { answer } else { Answer::told(false) };
    let read = Answer::of(attempt(async { file.read_exact_at(block, 0).await.0 }).await);
    // Of the registered buffers there is one, which the read gave back.
    let block = buffer::take(4096);
    let written = Answer::of(attempt(async { file.write_all_at(block, 0).await.0 }).await);
    [
        answer(registered_file, read),
        answer(registered_buffer, read),
        answer(registered_buffer, written),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stranger_put_in_the_way_is_neither_followed_nor_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (precious, link) = (folder.path().join("precious"), folder.path().join("link"));
        fs::write(&precious, "data").unwrap();
        std::os::unix::fs::symlink(&precious, &link).unwrap();
        let features = Runtime::builder().build().unwrap().block_on(files(&link));
        assert_eq!(features.len(), 1);
        assert_eq!(features[0].answer, Answer::Refused(libc::EEXIST));
        assert_eq!(fs::read_to_string(&precious).unwrap(), "data");
        assert!(link.is_symlink());
        assert_ne!(unguessable(), unguessable());
    }
}
