//! Where peers are found: an address, or a name that is looked up again whenever one is dialled.
//!
//! Looking up a name blocks, for many seconds if nobody answers. It is done on a thread of its own,
//! one for each name at a time and a second, and none while nobody asks: however many cores of this
//! server miss however many of a peer's, they share what one of them has asked.

use std::borrow::ToOwned;
use std::boxed::Box;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::string::{String, ToString};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use std::vec::Vec;

use bowline_runtime::channel::{Receiver, Sender, bounded};
use bowline_runtime::{now, timeout_at};
use bowline_time::Instant;

/// How long a name is waited for from when it was asked, and for how long the answer is good. What is
/// found later is there when somebody asks again.
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(1);

/// Where a peer is: `10.0.0.2:7000`, or `store-2.example:7000`, which is looked up again when it is
/// dialled, at most once a second.
///
/// ```
/// use bowline_server::io::PeerAddress;
/// use std::net::SocketAddr;
///
/// let named: PeerAddress = "store-2.example:7000".parse().unwrap();
/// assert_eq!(named.to_string(), "store-2.example:7000");
/// let at: PeerAddress = SocketAddr::from(([10, 0, 0, 2], 7000)).into();
/// assert_eq!(at, "10.0.0.2:7000".parse().unwrap());
/// assert!("store-2.example".parse::<PeerAddress>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress(Where);

/// What was to be a [`PeerAddress`], and is none.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{written:?} is no address of a peer: write HOST:PORT, such as 10.0.0.2:7000 or \
     [2001:db8::2]:7000, and no port 0"
)]
pub struct PeerAddressError {
    written: String,
}

/// What `main` prints of an error that it returns: with the cure, as Display has it.
impl fmt::Debug for PeerAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Where {
    At(SocketAddr),
    /// All cores share it.
    Named(Arc<Name>),
}

impl PeerAddress {
    /// The addresses that are known so far.
    pub(super) fn known(&self) -> Vec<SocketAddr> {
        match &self.0 {
            Where::At(address) => [*address].into(),
            Where::Named(name) => name.state().known.clone(),
        }
    }

    /// Looks it up. Returns the addresses that are known then, found now or before, and why none
    /// were found now. That a name server is down cuts nobody off whose peers are where they were.
    pub(super) async fn find(&self) -> (Vec<SocketAddr>, Option<io::Error>) {
        let failed = match &self.0 {
            Where::At(_) => None,
            Where::Named(name) => name.look_up().await.err(),
        };
        (self.known(), failed)
    }
}

impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> PeerAddress {
        PeerAddress(Where::At(address))
    }
}

/// `HOST:PORT`, of which the port is not 0, and an IPv6 address stands in brackets.
impl FromStr for PeerAddress {
    type Err = PeerAddressError;

    fn from_str(written: &str) -> Result<PeerAddress, PeerAddressError> {
        let is_named = |(host, port): (&str, &str)| {
            let is_host = !host.is_empty() && !host.contains([':', '[', ']']);
            is_host && port.parse::<u16>().is_ok_and(|port| port != 0)
        };
        match written.parse::<SocketAddr>() {
            Ok(address) if address.port() != 0 => Ok(address.into()),
            Err(_) if written.rsplit_once(':').is_some_and(is_named) => {
                let resolve = |name: &str| Ok(name.to_socket_addrs()?.collect());
                Ok(PeerAddress(Where::Named(Arc::new(Name::new(written, resolve)))))
            }
            _ => Err(PeerAddressError { written: written.to_owned() }),
        }
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

/// Has a thread look a name up.
type Begin = fn(Arc<Name>) -> io::Result<()>;
/// Looks a name and a port up, and may block.
type Resolve = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

struct Name {
    written: String,
    resolve: Box<Resolve>,
    begin: Begin,
    /// How long it is waited for.
    patience: Duration,
    good_for: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// As it was found last.
    known: Vec<SocketAddr>,
    /// Why the last look-up found nothing, if it did not.
    failed: Option<io::Error>,
    /// When it was asked last.
    asked: Option<Instant>,
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
        let (written, resolve) = (written.to_owned(), Box::new(resolve));
        let begin = |name: Arc<Name>| {
            let thread = thread::Builder::new().name("bowline-names".into());
            thread.spawn(move || name.answer()).map(drop)
        };
        let [patience, good_for] = [LOOK_UP_TIMEOUT; 2];
        Name { written, resolve, begin, patience, good_for, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that it has been looked up not long ago.
    async fn look_up(self: &Arc<Self>) -> io::Result<()> {
        if let Some((mut told, asked)) = self.ask()?
            && timeout_at(asked + self.patience, told.receive()).await.is_err()
        {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no name server answers"));
        }
        match &self.state().failed {
            Some(failed) => Err(once_more(failed)),
            None => Ok(()),
        }
    }

    /// Joins the look-up that is under way, or begins one, if what was found last is too old. What is
    /// returned is told of its end; with it, when it began.
    fn ask(self: &Arc<Self>) -> io::Result<Option<(Receiver<()>, Instant)>> {
        let mut state = self.state();
        let asked = match state.asked {
            Some(asked) if state.is_under_way => asked,
            Some(asked) if now() - asked < self.good_for => return Ok(None),
            _ => {
                (self.begin)(self.clone())?;
                state.is_under_way = true;
                *state.asked.insert(now())
            }
        };
        let (tell, told) = bounded(1);
        // Those who gave up ask again, and the look-up may take for ever.
        state.waiting.retain(|waits| !waits.is_closed());
        state.waiting.push(tell);
        Ok(Some((told, asked)))
    }

    /// Looks it up, and tells all who have asked by then.
    fn answer(&self) {
        let found = (self.resolve)(&self.written);
        let mut state = self.state();
        state.failed = match found {
            Ok(found) if found.is_empty() => {
                Some(io::Error::new(io::ErrorKind::NotFound, "it has no address"))
            }
            Ok(found) => {
                state.known = found;
                None
            }
            Err(error) => Some(error),
        };
        state.is_under_way = false;
        state.waiting.drain(..).for_each(|waits| _ = waits.try_send(()));
    }
}

/// The same error, for another who has it. What helps against it is known by its number.
fn once_more(error: &io::Error) -> io::Error {
    let made = || io::Error::new(error.kind(), error.to_string());
    error.raw_os_error().map_or_else(made, io::Error::from_raw_os_error)
}

/// Of the same name.
impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.written == other.written
    }
}

impl Eq for Name {}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.written.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_runtime::{Runtime, yield_now};
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::sync::mpsc;

    const NEW: &str = "10.0.0.2:7000";
    /// For longer no machine stands still.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn named(
        good_for: Duration,
        resolve: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> PeerAddress {
        let name = Name { good_for, patience: PATIENCE, ..Name::new("store-2:7000", resolve) };
        PeerAddress(Where::Named(Arc::new(name)))
    }

    /// What is known, and why nothing was found, in words.
    fn find(peer: &PeerAddress) -> (Vec<SocketAddr>, Option<String>) {
        let (found, failed) = Runtime::builder().build().unwrap().block_on(peer.find());
        (found, failed.map(|error| error.to_string()))
    }

    #[test]
    fn an_address_is_never_looked_up_and_a_name_has_a_host_and_a_port() {
        let at: PeerAddress = NEW.parse().unwrap();
        assert_eq!(find(&at), (vec![NEW.parse().unwrap()], None));
        for good in ["store-2:7000", "[::1]:7000", "10.0.0.2:7000"] {
            assert_eq!(good.parse::<PeerAddress>().unwrap().to_string(), good);
        }
        for bad in [
            "store-2",
            ":7000",
            "store-2:70000",
            "store-2:",
            "store-2:0",
            "10.0.0.2:0",
            "2001:db8::2",
            "[2001:db8::2]",
            "[store-2]:7000",
        ] {
            let error = bad.parse::<PeerAddress>().unwrap_err();
            // As `main` prints what it returns.
            let error = std::format!("{error:?}");
            assert!(error.contains(bad) && error.contains("HOST:PORT"), "{error}");
        }
    }

    #[test]
    fn a_name_is_looked_up_again_and_its_last_address_kept_while_nobody_knows_it() {
        let (tell, told) = mpsc::channel();
        let told = Mutex::new(told);
        let peer = named(Duration::ZERO, move |_| told.lock().unwrap().recv().unwrap());
        let refused = || Err(io::Error::new(io::ErrorKind::NotFound, "no such host"));
        tell.send(refused()).unwrap();
        assert_eq!(find(&peer), (Vec::new(), Some("no such host".to_owned())));
        for address in ["10.0.0.1:7000", NEW] {
            let address: SocketAddr = address.parse().unwrap();
            tell.send(Ok([address].into())).unwrap();
            assert_eq!(find(&peer), (vec![address], None));
        }
        for (nothing, why) in [(refused(), "no such host"), (Ok(Vec::new()), "it has no address")] {
            tell.send(nothing).unwrap();
            assert_eq!(find(&peer), (vec![NEW.parse().unwrap()], Some(why.to_owned())));
        }
    }

    #[test]
    fn why_a_name_can_not_be_looked_up_is_told_to_all_by_its_number() {
        for error in [io::Error::from_raw_os_error(24), io::Error::other("no such host")] {
            let told = once_more(&once_more(&error));
            assert_eq!(told.raw_os_error(), error.raw_os_error());
            assert_eq!((told.kind(), told.to_string()), (error.kind(), error.to_string()));
        }
    }

    #[test]
    fn an_answer_is_good_for_a_while_whatever_it_says() {
        for found in [Ok(()), Err(())] {
            let asked = Arc::new(AtomicU32::new(0));
            let count = asked.clone();
            let peer = named(Duration::from_secs(3600), move |_| {
                count.fetch_add(1, Ordering::Relaxed);
                found.map(|()| [NEW.parse().unwrap()].into()).map_err(|()| io::Error::other("no"))
            });
            let first = find(&peer);
            assert_eq!(first.1.is_some(), found.is_err());
            assert_eq!((0..20).map(|_| find(&peer)).find(|it| *it != first), None);
            assert_eq!(asked.load(Ordering::Relaxed), 1);
        }
    }

    /// The core's own tasks go on, and all who ask meanwhile share one look-up.
    #[test]
    fn a_look_up_that_takes_long_holds_no_core_up_and_is_shared() {
        let begun = Arc::new(AtomicU32::new(0));
        let (tell, told) = mpsc::channel::<()>();
        let (count, told) = (begun.clone(), Mutex::new(told));
        let peer = named(LOOK_UP_TIMEOUT, move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            // Until the sender is dropped.
            let _ = told.lock().unwrap().recv();
            Ok([NEW.parse().unwrap()].into())
        });
        let Where::Named(name) = &peer.0 else { unreachable!() };
        Runtime::builder().build().unwrap().block_on(async {
            let asks = [0; 3].map(|_| {
                let peer = peer.clone();
                bowline_runtime::spawn(async move { peer.find().await })
            });
            while name.state().waiting.len() < 3 {
                yield_now().await;
            }
            drop(tell);
            for ask in asks {
                assert_eq!(ask.await.unwrap().0, [NEW.parse().unwrap()]);
            }
        });
        assert_eq!(begun.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn where_no_thread_can_be_had_that_is_told_and_the_last_address_kept_and_it_is_asked_again() {
        static NO_THREAD: AtomicBool = AtomicBool::new(false);
        let again = io::Error::from_raw_os_error(11);
        let name = Name::new("store-2:7000", |_| Ok([NEW.parse().unwrap()].into()));
        let begin = |name: Arc<Name>| match NO_THREAD.load(Ordering::Relaxed) {
            true => Err(io::Error::from_raw_os_error(11)),
            false => {
                thread::spawn(move || name.answer());
                Ok(())
            }
        };
        let name = Name { begin, good_for: Duration::ZERO, patience: PATIENCE, ..name };
        let peer = PeerAddress(Where::Named(Arc::new(name)));
        let known = vec![NEW.parse().unwrap()];
        for no_thread in [true, false, true, true, false] {
            NO_THREAD.store(no_thread, Ordering::Relaxed);
            let (found, failed) = Runtime::builder().build().unwrap().block_on(peer.find());
            let kind = failed.map(|error| error.kind());
            assert_eq!(kind, no_thread.then_some(again.kind()));
            assert!(found == known || found.is_empty() && no_thread);
        }
        assert_eq!(peer.known(), known);
    }

    /// Nobody answers: who has an old address goes there at once, from so long after it was asked on.
    #[test]
    fn a_look_up_that_takes_too_long_is_not_waited_for_again() {
        let (tell, told) = mpsc::channel();
        let told = Mutex::new(told);
        let peer =
            named(Duration::ZERO, move |_| told.lock().unwrap().recv().map_err(io::Error::other));
        tell.send([NEW.parse().unwrap()].into()).unwrap();
        assert_eq!(find(&peer).1, None);
        let Where::Named(name) = &peer.0 else { unreachable!() };
        Runtime::builder().build().unwrap().block_on(async {
            let _told = name.ask().unwrap().unwrap();
            let long_ago = now() - PATIENCE;
            name.state().asked = Some(long_ago);
            let begun = now();
            let (found, failed) = peer.find().await;
            assert_eq!(found, [NEW.parse().unwrap()]);
            assert_eq!(failed.unwrap().kind(), io::ErrorKind::TimedOut);
            assert!(now() - begun < PATIENCE, "it has waited");
        });
        drop(tell);
    }
}
