//! Where peers are found: an address, or a name that is looked up again whenever one is dialled.
//!
//! Looking up a name blocks, for many seconds if nobody answers. It is done on a thread of its own,
//! one for each name at a time, and none while nobody asks.

use std::borrow::ToOwned;
use std::boxed::Box;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::string::{String, ToString};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use std::vec::Vec;

use bowline_runtime::channel::{Receiver, Sender, bounded};
use bowline_runtime::timeout;

/// How long a core waits for a name. What is found later is there when it asks again.
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(1);

/// Where a peer is: `10.0.0.2:7000`, or `store-2.example:7000`, which is looked up whenever it is
/// dialled.
#[derive(Clone, Debug)]
pub struct PeerAddress(Where);

#[derive(Clone, Debug)]
enum Where {
    At(SocketAddr),
    /// All cores share it.
    Named(Arc<Name>),
}

impl PeerAddress {
    /// Whether it is an address, or may become one.
    pub(super) fn is_well_formed(&self) -> bool {
        match &self.0 {
            Where::At(_) => true,
            Where::Named(name) => {
                let parts = name.written.rsplit_once(':');
                parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
            }
        }
    }

    /// The addresses that are known so far.
    pub(super) fn known(&self) -> Vec<SocketAddr> {
        match &self.0 {
            Where::At(address) => [*address].into(),
            Where::Named(name) => name.state().known.clone(),
        }
    }

    /// Looks it up, and returns what there is: what was found now or, if nothing was, before. That a
    /// name server is down cuts nobody off whose peers are where they were.
    pub(super) async fn find(&self) -> io::Result<Vec<SocketAddr>> {
        let Where::Named(name) = &self.0 else { return Ok(self.known()) };
        let mut told = name.look_up()?;
        let in_time = timeout(LOOK_UP_TIMEOUT, told.receive()).await.is_ok();
        let state = name.state();
        match &state.failed {
            _ if !state.known.is_empty() => Ok(state.known.clone()),
            Some((kind, why)) if in_time => Err(io::Error::new(*kind, why.clone())),
            _ => Err(io::Error::new(io::ErrorKind::TimedOut, "no name server answers")),
        }
    }
}

impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> PeerAddress {
        PeerAddress(Where::At(address))
    }
}

/// `HOST:PORT`, which is looked at when the server starts, and looked up when it dials.
impl From<&str> for PeerAddress {
    fn from(written: &str) -> PeerAddress {
        PeerAddress(match written.parse() {
            Ok(address) => Where::At(address),
            Err(_) => Where::Named(Arc::new(Name::new(written, |name| {
                Ok(name.to_socket_addrs()?.collect())
            }))),
        })
    }
}

impl From<String> for PeerAddress {
    fn from(written: String) -> PeerAddress {
        written.as_str().into()
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Where::At(address) => address.fmt(f),
            Where::Named(name) => name.written.fmt(f),
        }
    }
}

/// Looks a name and a port up, and may block.
type Resolve = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

struct Name {
    written: String,
    resolve: Box<Resolve>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// As it was found last.
    known: Vec<SocketAddr>,
    /// Why the last look-up found nothing, if it did not.
    failed: Option<(io::ErrorKind, String)>,
    /// A thread is looking it up.
    is_under_way: bool,
    /// Who is told when it has: each core's keepers of connections, at most.
    waiting: Vec<Sender<()>>,
}

impl Name {
    fn new(
        written: &str,
        resolve: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Name {
        Name { written: written.to_owned(), resolve: Box::new(resolve), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the look-up that is under way, or begins one. What is returned is told of its end.
    fn look_up(self: &Arc<Self>) -> io::Result<Receiver<()>> {
        let (tell, told) = bounded(1);
        let mut state = self.state();
        if !state.is_under_way {
            let name = self.clone();
            thread::Builder::new().name("bowline-names".into()).spawn(move || name.answer())?;
            state.is_under_way = true;
        }
        // Those who gave up ask again, and the look-up may take for ever.
        state.waiting.retain(|waits| !waits.is_closed());
        state.waiting.push(tell);
        Ok(told)
    }

    /// Looks it up, and tells all who have asked by then.
    fn answer(&self) {
        let found = (self.resolve)(&self.written);
        let mut state = self.state();
        state.failed = match found {
            Ok(found) if found.is_empty() => {
                Some((io::ErrorKind::NotFound, "it has no address".to_owned()))
            }
            Ok(found) => {
                state.known = found;
                None
            }
            Err(error) => Some((error.kind(), error.to_string())),
        };
        state.is_under_way = false;
        state.waiting.drain(..).for_each(|waits| _ = waits.try_send(()));
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.written.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_runtime::{Runtime, sleep};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    const NEW: &str = "10.0.0.2:7000";

    fn named(
        resolve: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> PeerAddress {
        PeerAddress(Where::Named(Arc::new(Name::new("store-2:7000", resolve))))
    }

    fn find(peer: &PeerAddress) -> io::Result<Vec<SocketAddr>> {
        Runtime::builder().build().unwrap().block_on(peer.find())
    }

    #[test]
    fn an_address_is_never_looked_up_and_a_name_has_a_host_and_a_port() {
        assert!(matches!(PeerAddress::from("[::1]:7000").0, Where::At(_)));
        assert_eq!(find(&NEW.into()).unwrap(), [NEW.parse().unwrap()]);
        for (written, good) in [
            ("store-2:7000", true),
            ("store-2", false),
            (":7000", false),
            ("store-2:70000", false),
            ("store-2:", false),
        ] {
            assert_eq!(PeerAddress::from(written).is_well_formed(), good, "{written}");
        }
    }

    #[test]
    fn a_name_is_looked_up_each_time_and_its_last_address_kept_while_nobody_knows_it() {
        let (tell, told) = mpsc::channel();
        let told = Mutex::new(told);
        let peer = named(move |_| told.lock().unwrap().recv().unwrap());
        let refused = || Err(io::Error::new(io::ErrorKind::NotFound, "no such host"));
        tell.send(refused()).unwrap();
        assert_eq!(find(&peer).unwrap_err().to_string(), "no such host");
        for address in ["10.0.0.1:7000", NEW] {
            let address: SocketAddr = address.parse().unwrap();
            tell.send(Ok([address].into())).unwrap();
            assert_eq!(find(&peer).unwrap(), [address]);
        }
        for nothing in [refused(), Ok(Vec::new())] {
            tell.send(nothing).unwrap();
            assert_eq!(find(&peer).unwrap(), [NEW.parse().unwrap()]);
        }
    }

    /// The core's own tasks go on, and all who ask meanwhile share one look-up.
    #[test]
    fn a_look_up_that_takes_long_holds_no_core_up_and_is_shared() {
        let begun = Arc::new(AtomicU32::new(0));
        let (tell, told) = mpsc::channel::<()>();
        let (count, told) = (begun.clone(), Mutex::new(told));
        let peer = named(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            // Until the sender is dropped.
            let _ = told.lock().unwrap().recv();
            Ok([NEW.parse().unwrap()].into())
        });
        Runtime::builder().build().unwrap().block_on(async {
            let asks = [0; 3].map(|_| {
                let peer = peer.clone();
                bowline_runtime::spawn(async move { peer.find().await })
            });
            // All of them have been polled by then.
            sleep(Duration::from_millis(1)).await;
            drop(tell);
            for ask in asks {
                assert_eq!(ask.await.unwrap().unwrap(), [NEW.parse().unwrap()]);
            }
        });
        assert_eq!(begun.load(Ordering::Relaxed), 1);
    }
}
