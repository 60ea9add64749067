//! What a replica is told: by options, by a TOML file, by default, in this order.

use core::fmt;
use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use bowline_server::io::{PeerAddress, PeerAddressError};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use thiserror::Error;
use toml::Spanned;

use crate::cli::{Peer, ServeArgs, host_and_port};

/// Where a replica listens unless told otherwise: this host only.
const DEFAULT_LISTEN: &str = "127.0.0.1:7000";
/// Folder of data files unless told otherwise; `cargo clean` removes it.
const DEFAULT_DATA: &str = "target/bowline-data";

/// One replica's place in the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Its number.
    pub replica: u16,
    /// Its data file.
    pub file: PathBuf,
    /// Where it tells what it does.
    pub metrics: Option<SocketAddr>,
    /// The other replicas, by number: `HOST:PORT`, which is looked up whenever one is dialled, so that
    /// a name that leads nowhere yet holds nothing up.
    pub peers: Vec<(u16, PeerAddress)>,
}

/// Why the configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read --config {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The file is not what it has to be.
    #[error("{path}: {}{why}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where, from 1, if it is one place.
        line: Option<usize>,
        /// What is wrong.
        why: String,
    },
    /// What a peer is called in a file is no number.
    #[error("peer {given:?} is not the number of a replica, such as 1 = \"10.0.0.2:7000\"")]
    Number {
        /// What it is called.
        given: String,
    },
    /// A host or an address that leads nowhere.
    #[error(
        "cannot resolve {address:?}: {why}; give another name, or an address such as 10.0.0.2:7000"
    )]
    Address {
        /// What was given.
        address: String,
        /// The resolver's answer.
        why: String,
    },
    /// An address of a peer that is none.
    #[error(transparent)]
    PeerAddress(#[from] PeerAddressError),
    /// The data file is to stand in a folder that is not there: most likely a misspelt one, or a disk
    /// that is not mounted, whose place the file must not take.
    #[error(
        "there is no folder {folder} for the data file {file}: make it, mount what is to be there, or \
         name another file with --file FILE"
    )]
    NoFolder {
        /// The folder.
        folder: PathBuf,
        /// The file.
        file: PathBuf,
    },
    /// A number that two replicas have.
    #[error(
        "replica {replica} is named twice; each replica, this one included, has another number"
    )]
    Duplicate {
        /// The number.
        replica: u16,
    },
}

/// The file. An unknown key is an error, since it is most likely a misspelt one.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    listen: Option<Spanned<String>>,
    replica: Option<Number>,
    file: Option<Spanned<String>>,
    #[serde(default)]
    peers: Peers,
}

/// A replica's number.
#[derive(Debug)]
struct Number(u16);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Number, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "the number of a replica, 0 to {}", u16::MAX)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Number, E> {
                let wrong = |_| E::invalid_value(Unexpected::Signed(number), &self);
                number.try_into().map(Number).map_err(wrong)
            }
        }
        input.deserialize_i64(Reader)
    }
}

/// Addresses by the numbers of their replicas, as written.
#[derive(Debug, Default)]
struct Peers(BTreeMap<String, Spanned<String>>);

impl<'de> Deserialize<'de> for Peers {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Peers, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Peers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of peers, such as [peers] and below it 1 = \"10.0.0.2:7000\"")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Peers, A::Error> {
                BTreeMap::deserialize(MapAccessDeserializer::new(map)).map(Peers)
            }
        }
        input.deserialize_map(Reader)
    }
}

/// What the file says, with its own names resolved; of what may turn out to be wrong beside the
/// options, with its place.
#[derive(Debug, Default)]
struct Said {
    listen: Option<SocketAddr>,
    replica: Option<u16>,
    file: Option<(PathBuf, Place)>,
    peers: Vec<(Peer, Place)>,
}

/// Where something is said: on the command line, or in a file.
#[derive(Clone, Debug)]
enum Place {
    Options,
    Line(PathBuf, usize),
}

impl Place {
    /// What is wrong there.
    fn blamed(&self, error: ConfigError) -> ConfigError {
        match self {
            Place::Options => error,
            Place::Line(path, line) => ConfigError::Malformed {
                path: path.clone(),
                line: Some(*line),
                why: error.to_string(),
            },
        }
    }
}

impl ConfigError {
    /// Whether it is the command line that is wrong, rather than a file or what it names.
    pub fn is_usage(&self) -> bool {
        matches!(self, ConfigError::Duplicate { .. })
    }
}

impl ServeConfig {
    /// Puts options, file and defaults together.
    ///
    /// # Errors
    /// [`ConfigError`], which names what is wrong, and the file and line if it is there.
    pub fn from_args(args: &ServeArgs) -> Result<Self, ConfigError> {
        let said = args.config.as_deref().map_or_else(|| Ok(Said::default()), read)?;
        let replica = args.replica.or(said.replica).unwrap_or(0);
        let listen = match (&args.listen, said.listen) {
            (Some(given), _) => resolve(given)?,
            (None, Some(listen)) => listen,
            (None, None) => resolve(DEFAULT_LISTEN)?,
        };
        let metrics = args.metrics.as_deref().map(resolve).transpose()?;

        // Peers by option replace those of the file: half of one list and half of another is
        // what nobody means.
        let given = args.peers.iter().map(|peer| (peer.clone(), Place::Options)).collect();
        let peers: Vec<(Peer, Place)> = if args.peers.is_empty() { said.peers } else { given };
        for (n, ((number, _), place)) in peers.iter().enumerate() {
            let mut before = peers[..n].iter().map(|((number, _), _)| number);
            if *number == replica || before.any(|other| other == number) {
                return Err(place.blamed(ConfigError::Duplicate { replica: *number }));
            }
        }
        let file = args.file.clone().map(|file| (file, Place::Options)).or(said.file);
        if let Some((file, place)) = &file {
            folder_is_there(file).map_err(|error| place.blamed(error))?;
        }
        let default_file = || Path::new(DEFAULT_DATA).join(format!("replica-{replica}.dat"));
        let file = file.map_or_else(default_file, |(file, _)| file);
        let peers = peers.into_iter().map(|(peer, _)| peer).collect();
        Ok(ServeConfig { listen, replica, file, metrics, peers })
    }

    /// Which peers it has, in words.
    pub fn peers_named(&self) -> String {
        let numbers: Vec<String> = self.peers.iter().map(|(n, _)| format!("replica {n}")).collect();
        if numbers.is_empty() { "none".to_owned() } else { numbers.join(", ") }
    }
}

/// A file that somebody names belongs into a folder that is there.
fn folder_is_there(file: &Path) -> Result<(), ConfigError> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => {
            Err(ConfigError::NoFolder { folder: folder.to_owned(), file: file.to_owned() })
        }
        _ => Ok(()),
    }
}

/// The first address of `HOST:PORT`.
///
/// # Errors
/// [`ConfigError::Address`].
pub fn resolve(address: &str) -> Result<SocketAddr, ConfigError> {
    let unresolved = |why: String| ConfigError::Address { address: address.to_owned(), why };
    host_and_port(address).map_err(unresolved)?;
    let mut found = address.to_socket_addrs().map_err(|error| unresolved(error.to_string()))?;
    found.next().ok_or_else(|| unresolved("the name has no address".into()))
}

fn read(path: &Path) -> Result<Said, ConfigError> {
    let text = fs::read_to_string(path)
        .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    let line = |at: usize| text.get(..at).map(|before| before.matches('\n').count() + 1);
    let File { listen, replica, file, peers } =
        toml::from_str(&text).map_err(|error| ConfigError::Malformed {
            path: path.to_owned(),
            line: error.span().and_then(|span| line(span.start)),
            why: error.message().to_owned(),
        })?;
    let place = |given: &Spanned<String>| {
        Place::Line(path.to_owned(), line(given.span().start).unwrap_or(1))
    };
    let address = |given: Spanned<String>| {
        resolve(given.get_ref()).map_err(|error| place(&given).blamed(error))
    };
    let peer = |(number, given): (String, Spanned<String>)| {
        let place = place(&given);
        let address =
            given.get_ref().parse().map_err(|it: PeerAddressError| place.blamed(it.into()))?;
        let unnumbered = |_| place.blamed(ConfigError::Number { given: number.clone() });
        Ok(((number.parse().map_err(unnumbered)?, address), place))
    };
    let file = file.map(|file| (file.get_ref().into(), place(&file)));
    let listen = listen.map(address).transpose()?;
    let peers = peers.0.into_iter().map(peer).collect::<Result<_, ConfigError>>()?;
    Ok(Said { listen, replica: replica.map(|Number(number)| number), file, peers })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, parse};

    fn args(line: &str) -> ServeArgs {
        match parse(line.split_whitespace()) {
            Ok(Command::Serve(args)) => *args,
            other => panic!("{line} gave {other:?}"),
        }
    }

    fn with_file(text: &str, options: &str) -> Result<ServeConfig, ConfigError> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("replica.toml");
        fs::write(&path, text).expect("writable");
        ServeConfig::from_args(&args(&format!("b serve --config {} {options}", path.display())))
    }

    const FILE: &str = "listen = \"127.0.0.1:7100\"\nreplica = 1\nfile = \"blocks.dat\"\n\n\
                        [peers]\n0 = \"127.0.0.1:7000\"\n2 = \"127.0.0.1:7200\"\n";

    #[test]
    fn without_anything_the_defaults_hold() {
        let config = ServeConfig::from_args(&args("b serve")).expect("defaults");
        assert_eq!(config.listen.to_string(), DEFAULT_LISTEN);
        assert_eq!(config.file, Path::new("target/bowline-data/replica-0.dat"));
        assert!(config.peers.is_empty());
    }

    #[test]
    fn a_file_says_all_that_options_can() {
        let config = with_file(FILE, "").expect("well-formed");
        assert_eq!((config.replica, config.listen.port()), (1, 7100));
        assert_eq!(config.file, Path::new("blocks.dat"));
        let at = |address: &str| address.parse().expect("an address");
        assert_eq!(config.peers, [(0, at("127.0.0.1:7000")), (2, at("127.0.0.1:7200"))]);
        assert_eq!(config.peers_named(), "replica 0, replica 2");
    }

    #[test]
    fn options_go_before_the_file() {
        let config =
            with_file(FILE, "--replica 5 --peer 6=127.0.0.1:1,7=127.0.0.1:2").expect("valid");
        assert_eq!((config.replica, config.listen.port()), (5, 7100));
        assert_eq!(config.peers.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [6, 7]);
    }

    #[test]
    fn a_misspelt_key_is_named_with_its_line() {
        let message =
            with_file("replica = 1\nlisten_on = \"x\"\n", "").expect_err("bad").to_string();
        assert!(message.contains("line 2") && message.contains("listen_on"), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }

    #[test]
    fn a_bad_address_of_a_file_is_named_with_its_line_and_an_example() {
        for (text, line, named) in [
            ("replica = 1\nlisten = \"nowhere\"\n", "line 2: ", "\"nowhere\""),
            ("[peers]\n0 = \"10.0.0.1:7000\"\n\n2 = \"10.0.0.3\"\n", "line 4: ", "\"10.0.0.3\""),
            ("[peers]\ntwo = \"10.0.0.3:7000\"\n", "line 2: ", "\"two\""),
            ("listen = 7000\n", "line 1: ", "string"),
            ("\nreplica = \"one\"\n", "line 2: ", "number of a replica, 0 to 65535"),
            ("replica = 70000\n", "line 1: ", "number of a replica, 0 to 65535"),
            ("replica = -1\n", "line 1: ", "number of a replica, 0 to 65535"),
            ("peers = 3\n", "line 1: ", "a table of peers, such as [peers]"),
            ("peers = [\"10.0.0.1:7000\"]\n", "line 1: ", "a table of peers, such as [peers]"),
            ("[peers]\n1 = 7000\n", "line 2: ", "string"),
            ("file = 3\n", "line 1: ", "a string"),
        ] {
            let message = with_file(text, "").expect_err("bad").to_string();
            assert!(message.contains("replica.toml: ") && message.contains(line), "{message}");
            assert!(message.contains(named) && !message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn a_file_in_a_folder_that_is_not_there_is_refused_by_the_folders_name() {
        let told =
            |found: Result<ServeConfig, ConfigError>| found.expect_err("no folder").to_string();
        let by_file = told(with_file("\nfile = \"no/such/folder/blocks.dat\"\n", ""));
        assert!(by_file.contains("replica.toml: line 2: there is"), "{by_file}");
        let by_option =
            told(ServeConfig::from_args(&args("b serve --file no/such/folder/blocks.dat")));
        for said in [by_file, by_option] {
            assert!(said.contains("no folder no/such/folder for"), "{said}");
            assert!(said.contains("mount") && said.contains("--file FILE"), "{said}");
        }
    }

    #[test]
    fn hosts_may_be_given_by_name() {
        let line = "b serve --listen localhost:7300 --metrics localhost:7301";
        let config = ServeConfig::from_args(&args(line)).expect("this host has a name");
        assert!(config.listen.ip().is_loopback() && config.listen.port() == 7300);
        assert_eq!(config.metrics.map(|address| address.port()), Some(7301));
        let config = with_file("listen = \"localhost:7400\"\n", "").expect("as in a file");
        assert_eq!(config.listen.port(), 7400);
    }

    #[test]
    fn a_peer_whose_name_leads_nowhere_yet_holds_nothing_up() {
        let line = "b serve --peer 1=store-1.invalid:7000";
        let config = ServeConfig::from_args(&args(line)).expect("it is looked up when dialled");
        assert_eq!(config.peers[0].1.to_string(), "store-1.invalid:7000");
        let config =
            with_file("[peers]\n2 = \"store-2.invalid:7000\"\n", "").expect("as in a file");
        assert_eq!(config.peers[0].1.to_string(), "store-2.invalid:7000");
    }

    #[test]
    fn two_replicas_never_share_a_number() {
        for (line, twice) in [
            ("b serve --replica 1 --peer 1=127.0.0.1:1", 1),
            ("b serve --peer 0=127.0.0.1:1", 0),
            ("b serve --peer 4=127.0.0.1:1 --peer 4=127.0.0.1:2", 4),
        ] {
            let error = ServeConfig::from_args(&args(line)).expect_err("twice");
            let told = format!("replica {twice} is named twice");
            assert!(error.to_string().starts_with(&told) && error.is_usage(), "{line}: {error}");
        }
    }

    #[test]
    fn a_number_that_a_file_gives_twice_is_named_with_its_file_and_line() {
        for (text, options) in [
            ("replica = 1\n[peers]\n1 = \"127.0.0.1:1\"\n", ""),
            ("replica = 4\n[peers]\n1 = \"127.0.0.1:1\"\n", "--replica 1"),
            ("[peers]\n01 = \"127.0.0.1:1\"\n1 = \"127.0.0.1:2\"\n", ""),
        ] {
            let error = with_file(text, options).expect_err("twice");
            let told = "replica.toml: line 3: replica 1 is named twice";
            assert!(error.to_string().contains(told) && !error.is_usage(), "{error}");
        }
    }
}
