//! Sockets whose other side was told goodbye, and is given time to read it.
//!
//! If this side closed at once with something unread, the kernel would take back what the other side
//! has not got yet. Such a socket no longer has a place among the connections; so that nobody can
//! have the server hold any number of them, there are so many at a time, and others are cut off.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bowline_runtime::net::{Shutdown, TcpStream};
use bowline_runtime::{spawn, timeout};

/// What the other side has to read a goodbye and close.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(1);
/// So many sockets wait for that at once.
const MOST: u32 = 64;

#[derive(Default)]
pub(super) struct Farewells(Rc<Cell<u32>>);

impl Farewells {
    /// Waits for the other side to close; it is not listened to. False if there are too many that
    /// do: it was cut off.
    pub(super) fn see_off(&self, stream: TcpStream) -> bool {
        let count = self.0.clone();
        if count.get() == MOST {
            stream.abort();
            return false;
        }
        count.set(count.get() + 1);
        stream.shutdown(Shutdown::Write);
        drop(spawn(async move {
            let other_side = async { while let Ok(Some(_)) = stream.receive().await {} };
            if timeout(LAST_WORDS, other_side).await.is_err() {
                // It has had its chance.
                stream.abort();
            }
            count.set(count.get() - 1);
        }));
        true
    }
}
