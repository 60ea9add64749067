//! A file that is read again when it changes, or when the process is told to by SIGHUP; and names
//! that are looked up again.
//!
//! A thread of its own does it, since reading files and asking for names blocks. It looks a few
//! times a second at the file's date and length: an editor that replaces the file, a link that is
//! turned over, or a mounted map are all seen alike. What has changed is read once two looks in a row
//! find the same: the first half of a file that is still being written may well be valid. (Who pauses
//! for longer in the midst of it writes another file, and renames that.)

use std::fs;
use std::mem;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use signal_hook::SigId;
use signal_hook::consts::SIGHUP;
use tracing::{info, warn};

use super::config::{Config, ConnectError, Replica};
use super::file::{FileError, Found, find_set, line_of_idempotent, resolve};
use super::live::Live;

/// How often is looked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchConfig {
    /// How often the file is looked at, and whether a signal came. A change is read at the second look
    /// that finds it, after a signal at the first.
    pub look: Duration,
    /// How often names of replicas are looked up again.
    pub resolve: Duration,
}

impl Default for WatchConfig {
    /// Four times a second, and every 30 s.
    fn default() -> Self {
        WatchConfig { look: Duration::from_millis(250), resolve: Duration::from_secs(30) }
    }
}

/// Why a file is not watched.
#[derive(thiserror::Error)]
pub enum WatchError {
    /// The file can't be read, or has an error.
    #[error(transparent)]
    File(#[from] FileError),
    /// What it says can't be had.
    #[error("{path}: {}{error}", line.map_or(String::new(), |line| format!("line {line}: ")))]
    Config {
        /// Which file.
        path: String,
        /// Where it says so, from 1, if that is one place.
        line: Option<usize>,
        /// What is wrong.
        error: ConnectError,
    },
    /// There can be no thread, or no handler for the signal.
    #[error("the file can't be watched: {0}")]
    System(#[from] std::io::Error),
}

/// Watches a file; dropped, it stops.
#[derive(Debug)]
pub struct Watch {
    thread: Option<JoinHandle<()>>,
    signal: SigId,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    signalled: Arc<AtomicBool>,
    loaded: AtomicU64,
    refused: AtomicU64,
}

impl Live {
    /// Reads the configuration from a file, and goes on reading it: when it changes, and when the
    /// process gets SIGHUP. What can't be read or is not valid is logged, with the line, and changes
    /// nothing. `adapt` sees every configuration before it is put in place, and may set what no file
    /// says.
    ///
    /// # Errors
    ///
    /// [`WatchError`], if there is nothing to begin with.
    pub fn watch(
        path: impl Into<PathBuf>,
        watch: WatchConfig,
        adapt: impl Fn(Config) -> Config + Send + 'static,
    ) -> Result<(Live, Watch), WatchError> {
        let mut source = Source::new(path.into(), watch.resolve);
        let live =
            Live::new(adapt(source.read(&[])?)).map_err(|error| located(&source.path, error))?;
        let shared = Arc::new(Shared::default());
        let signal = signal_hook::flag::register(SIGHUP, shared.signalled.clone())?;
        let (of, target) = (shared.clone(), live.clone());
        let watching = move || {
            while !of.stop.load(Relaxed) {
                thread::park_timeout(watch.look);
                let told = of.signalled.swap(false, Relaxed);
                let found = source.next(told, &target.config());
                of.take(found, &source.path, &target, &adapt);
            }
        };
        let thread = thread::Builder::new().name("bowline-config".to_owned()).spawn(watching)?;
        Ok((live, Watch { thread: Some(thread), signal, shared }))
    }
}

impl Watch {
    /// How often a configuration was put in place since the first.
    pub fn loaded(&self) -> u64 {
        self.shared.loaded.load(Relaxed)
    }

    /// How often there was one that could not be read or was not valid.
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        signal_hook::low_level::unregister(self.signal);
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It does not panic; if it did, that was shown already.
            let _ = thread.join();
        }
    }
}

/// With the file that says what can't be had, and the line if it is one setting.
fn located(path: &Path, error: ConnectError) -> WatchError {
    let line = match error {
        ConnectError::NotIdempotent { method, .. } => line_of_idempotent(path, method),
        _ => None,
    };
    WatchError::Config { path: path.display().to_string(), line, error }
}

impl Shared {
    fn take(
        &self,
        found: Option<Result<Config, FileError>>,
        path: &Path,
        live: &Live,
        adapt: impl Fn(Config) -> Config,
    ) {
        let Some(found) = found else { return };
        let set = found.map_err(WatchError::from);
        let put = |config| live.set(adapt(config)).map_err(|error| located(path, error));
        match set.and_then(put) {
            Ok(()) => {
                self.loaded.fetch_add(1, Relaxed);
                info!(generation = live.generation(), "the configuration was loaded");
            }
            Err(error) => {
                self.refused.fetch_add(1, Relaxed);
                warn!("the configuration stays as it was: {error}");
            }
        }
    }
}

/// With so much time gone for names, none is asked for any more in that round: the file has to be
/// looked at again.
const MOST_ASKING: Duration = Duration::from_secs(3);

/// Where configurations come from.
struct Source {
    path: PathBuf,
    /// As it was when it was read, and as it was found by the last look.
    read: Option<Stamp>,
    found: Option<Stamp>,
    every: Duration,
    resolved: Instant,
    /// What it said then could not be had.
    is_refused: bool,
}

impl Source {
    fn new(path: PathBuf, every: Duration) -> Source {
        let resolved = Instant::now();
        Source { path, read: None, found: None, every, resolved, is_refused: false }
    }

    /// What the file says now. Names whose addresses are known have their turn later.
    fn read(&mut self, known: &[Replica]) -> Result<Config, FileError> {
        // Before it is read: what changes meanwhile is read the next time.
        self.read = stamp(&self.path);
        let read = Config::from_file_again(&self.path, known);
        self.is_refused = read.is_err();
        read
    }

    /// Another configuration, if there is a reason for one.
    fn next(&mut self, told: bool, now: &Config) -> Option<Result<Config, FileError>> {
        let found = stamp(&self.path);
        let is_settled = mem::replace(&mut self.found, found) == found;
        if told || is_settled && found != self.read {
            return Some(self.read(&now.replicas));
        }
        if self.resolved.elapsed() < self.every {
            return None;
        }
        self.resolved = Instant::now();
        // It may have been a name that could not be looked up. What else is wrong was told already.
        let may_be_had = self.is_refused && found == self.read;
        let again = may_be_had.then(|| self.read(&now.replicas)).filter(Result::is_ok);
        again.or_else(|| moved(now).map(Ok))
    }
}

/// When a file was changed, and how long it is.
type Stamp = (SystemTime, u64);

/// None if it is not there.
fn stamp(path: &Path) -> Option<Stamp> {
    let about = fs::metadata(path).ok()?;
    Some((about.modified().ok()?, about.len()))
}

/// The same configuration with the addresses that names have now, and the members that sets have;
/// None if they are as they were. What can't be looked up stays.
fn moved(config: &Config) -> Option<Config> {
    let mut moved = config.clone();
    let began = Instant::now();
    renew_sets(&mut moved, |name, used| find_set(name, used));
    let mut any = moved.replicas != config.replicas;
    for replica in &mut moved.replicas {
        let Some(host) = &replica.host else { continue };
        if began.elapsed() > MOST_ASKING {
            warn!("names take long to be looked up; the others keep their addresses");
            break;
        }
        match resolve(host, Some(replica.address)) {
            Ok(address) => {
                any |= address != replica.address;
                replica.address = address;
            }
            Err(error) => warn!(replica = replica.id.0, "{error}"),
        }
    }
    any.then_some(moved)
}

/// Gives each set the members that `find` finds, in the place where it stood.
fn renew_sets(
    config: &mut Config,
    find: impl Fn(&str, &dyn Fn(u16) -> Option<SocketAddr>) -> Result<Vec<Found>, String>,
) {
    let replicas = &mut config.replicas;
    let mut sets: Vec<String> = replicas.iter().filter_map(|it| it.set.clone()).collect();
    sets.dedup();
    for set in sets {
        let of_set = |replica: &Replica| replica.set.as_ref() == Some(&set);
        let Some(at) = replicas.iter().position(of_set) else { continue };
        let known = |id| replicas.iter().find(|it| of_set(it) && it.id.0 == id);
        match find(&set, &|id| known(id).map(|member| member.address)) {
            Ok(found) => {
                let template = replicas[at].clone();
                replicas.retain(|replica| !of_set(replica));
                let members = found.into_iter().map(|found| template.clone().found(found));
                replicas.splice(at..at, members);
            }
            Err(error) => warn!(set, "{error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use bowline_protocol::{Method, MethodInfo, ServiceInfo};

    use super::*;

    fn written(port: u16) -> String {
        format!("[[replica]]\nid = 1\naddress = \"127.0.0.1:{port}\"\n")
    }

    fn source(text: &str) -> (tempfile::TempDir, PathBuf, Source, Config) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("replicas.toml");
        fs::write(&path, text).unwrap();
        let mut source = Source::new(path.clone(), Duration::from_secs(3600));
        let config = source.read(&[]).unwrap();
        (folder, path, source, config)
    }

    /// What the second look says of a file that has changed.
    fn settled(source: &mut Source, config: &Config) -> Option<Result<Config, FileError>> {
        assert!(source.next(false, config).is_none(), "it may still be written");
        source.next(false, config)
    }

    #[test]
    fn a_file_is_read_again_when_it_has_changed_or_when_told_and_not_else() {
        let (_folder, path, mut source, config) = source(&written(7000));
        assert!(source.next(false, &config).is_none());
        assert!(source.next(true, &config).unwrap().is_ok());
        fs::write(&path, written(17000)).unwrap();
        let found = settled(&mut source, &config).unwrap().unwrap();
        assert_eq!(found.replicas[0].address.port(), 17000);
        assert!(source.next(false, &config).is_none());
    }

    #[test]
    fn a_file_that_is_being_written_is_read_when_it_is_whole() {
        let (_folder, path, mut source, config) = source(&written(7000));
        // Each is valid, and says something else.
        let whole = format!("{}[[method]]\nid = 1\nidempotent = true\n", written(7000));
        for length in [written(7000).len(), whole.len() - "idempotent = true\n".len()] {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(source.next(false, &config).is_none(), "{length}");
        }
        fs::write(&path, &whole).unwrap();
        let found = settled(&mut source, &config).unwrap().unwrap();
        assert!(found.methods[0].1.idempotent);
    }

    #[test]
    fn what_a_service_does_not_have_so_is_told_with_its_file_and_line() {
        const METHODS: &[MethodInfo] = &[MethodInfo::new(Method(3), "pay").keyed()];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("replicas.toml");
        let methods = "[[method]]
id = 4
idempotent = true
[[method]]
id = 3
idempotent = true
";
        fs::write(&path, format!("{}{methods}", written(7000))).unwrap();
        let of = |config: Config| config.service(ServiceInfo::new("bank", METHODS));
        let refused = Live::watch(&path, WatchConfig::default(), of).err().unwrap().to_string();
        let line = 6 + written(7000).lines().count();
        let expected = format!("{}: line {line}: method 3 (\"pay\") is set to be", path.display());
        assert!(refused.starts_with(&expected), "{refused}");
    }

    #[test]
    fn what_is_wrong_or_gone_changes_nothing_and_is_counted_once() {
        let (_folder, path, mut source, config) = source(&written(7000));
        let (shared, live) = (Shared::default(), Live::new(config.clone()).unwrap());
        let look = |source: &mut Source| {
            shared.take(settled(source, &config), &path, &live, |config| config);
            (shared.loaded.load(Relaxed), shared.refused.load(Relaxed))
        };
        fs::write(&path, "[[replica]]\nid = 70000\n").unwrap();
        assert_eq!((look(&mut source), look(&mut source)), ((0, 1), (0, 1)));
        fs::remove_file(&path).unwrap();
        assert_eq!((look(&mut source), look(&mut source)), ((0, 2), (0, 2)));
        assert_eq!(live.config().replicas[0].address.port(), 7000);
        fs::write(&path, written(17000)).unwrap();
        assert_eq!((look(&mut source), look(&mut source)), ((1, 2), (1, 2)));
        assert_eq!(live.config().replicas[0].address.port(), 17000);
    }

    #[test]
    fn a_file_whose_names_could_not_be_looked_up_is_read_again_though_nobody_touches_it() {
        let (_folder, path, mut source, mut config) = source(&written(7000));
        let named = "[[replica]]\nid = 1\naddress = \"no such host:7000\"\n";
        fs::write(&path, format!("second_copies = false\n{named}")).unwrap();
        assert!(settled(&mut source, &config).unwrap().is_err());
        // It has an address from now on.
        config.replicas[0].host = Some("no such host:7000".to_owned());
        assert!(source.next(false, &config).is_none(), "not before names have their turn");
        source.every = Duration::ZERO;
        let found = source.next(false, &config).expect("it is read").unwrap();
        assert!(!found.core.switch.is_on());
        assert!(source.next(false, &config).is_none(), "and then not any more");
    }

    #[test]
    fn a_name_whose_address_has_changed_is_followed() {
        let mut replica = Replica::new(1, "10.9.9.9:7000".parse().unwrap());
        assert!(moved(&Config::new([replica.clone()])).is_none(), "it has no name");
        replica.host = Some("localhost:7000".to_owned());
        let moved_there = moved(&Config::new([replica])).unwrap();
        assert!(moved_there.replicas[0].address.ip().is_loopback());
        assert!(moved(&moved_there).is_none());
    }

    #[test]
    fn names_are_looked_up_again_in_their_turn_though_nobody_touches_the_file() {
        let (_folder, _, mut source, mut config) = source(&written(7000));
        let replica = Replica::new(1, "10.9.9.9:7000".parse().unwrap());
        config.replicas = vec![Replica { host: Some("localhost:7000".to_owned()), ..replica }];
        assert!(source.next(false, &config).is_none(), "not before names have their turn");
        source.every = Duration::ZERO;
        let found = source.next(false, &config).expect("it has moved").unwrap();
        assert!(found.replicas[0].address.ip().is_loopback());
        assert!(source.next(false, &found).is_none(), "and stays there");
    }

    #[test]
    fn a_set_has_the_members_that_are_found_now_and_all_of_them_while_none_are() {
        let single = Replica::new(9, "10.0.0.9:7000".parse().unwrap());
        let member = |id: u16, weight| Replica {
            set: Some("_s._tcp.x.".to_owned()),
            weight,
            ..Replica::new(id, format!("10.0.0.{id}:7000").parse().unwrap()).domain("rack")
        };
        let before = Config::new([member(1, 1), member(2, 1), single.clone()]);
        let mut config = before.clone();
        renew_sets(&mut config, |_, _| Err("no server".to_owned()));
        assert_eq!(config.replicas, before.replicas);
        renew_sets(&mut config, |name, used| {
            assert_eq!((name, used(2), used(9)), ("_s._tcp.x.", Some(member(2, 1).address), None));
            let found = |id, weight| {
                let address = used(id).unwrap_or_else(|| member(id, 1).address);
                Found { id, address, priority: 0, weight }
            };
            Ok(vec![found(2, 3), found(4, 1)])
        });
        assert_eq!(config.replicas, [member(2, 3), member(4, 1), single]);
    }

    #[test]
    fn a_file_that_is_read_again_waits_for_no_name_whose_address_is_known() {
        let named = "[[replica]]\nid = 1\naddress = \"no such host:7000\"\n";
        let (_folder, path, mut source, mut config) = source(&written(7000));
        config.replicas[0].host = Some("no such host:7000".to_owned());
        fs::write(&path, format!("second_copies = false\n{named}")).unwrap();
        let found = settled(&mut source, &config).unwrap().unwrap();
        assert!(!found.core.switch.is_on());
        assert_eq!(found.replicas[0].address, config.replicas[0].address);
    }

    #[test]
    fn what_main_prints_of_a_file_that_is_not_watched_shows_the_line_as_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("replicas.toml");
        fs::write(&path, "pick = first\n").unwrap();
        let read = format!("{:?}", Config::from_file(&path).unwrap_err());
        let adapt = |config| config;
        let watched = Live::watch(&path, WatchConfig::default(), adapt).map(|_| ()).unwrap_err();
        assert!(read.contains("\n1 | pick = first\n"), "{read}");
        assert_eq!(format!("{watched:?}"), read);
    }

    #[test]
    fn a_signal_has_the_file_read_at_once() {
        let (_folder, path, ..) = source(&written(7000));
        let every = Duration::from_millis(1);
        let adapt = |config: Config| Config { max_reply: 77, ..config };
        let watch = WatchConfig { look: every, ..WatchConfig::default() };
        let (live, watch) = Live::watch(path, watch, adapt).unwrap();
        signal_hook::low_level::raise(SIGHUP).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while watch.loaded() == 0 {
            assert!(Instant::now() < until, "it was not read");
            thread::yield_now();
        }
        assert_eq!((watch.loaded(), watch.refused(), live.config().max_reply), (1, 0, 77));
    }
}
