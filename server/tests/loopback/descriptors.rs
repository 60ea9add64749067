//! A server that runs out of descriptors says so, and serves on once it has some.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use std::{env, thread};

use bowline_runtime::exposition::fetch;
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::peer::{Peer, plain};
use crate::service::Hands;
use crate::told::Printer;
use crate::{PATIENCE, eventually};

const ROLE: &str = "BOWLINE_FEW_DESCRIPTORS";
/// So many descriptors the server's process may have: enough for itself, and a few clients.
const DESCRIPTORS: u64 = 64;
/// So often somebody is served meanwhile: far more often than it is worth asking for descriptors. In
/// each turn of the loop, were there no pauses.
const ROUND_TRIPS: u64 = 2_000;

/// Not a test: what the server's process runs, until it is killed.
#[test]
fn server() {
    if env::var(ROLE).is_err() {
        return;
    }
    tracing::subscriber::set_global_default(Printer).unwrap();
    let limit = Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let server =
        Hands::default().serve_with(|builder| builder.metrics("127.0.0.1:0".parse().unwrap()));
    println!("\nserves {} {}", server.address(), server.metrics_address().unwrap());
    thread::park_timeout(3 * PATIENCE);
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_without_descriptors_serves_on_once_it_has_some() {
    let begun = Instant::now();
    let mut server = Command::new(env::current_exe().unwrap());
    server.args(["descriptors::server", "--exact", "--nocapture"]).env(ROLE, "");
    let mut server = Killed(server.stdout(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(server.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let warned = said.find(|line| line.contains("too few open files")).unwrap();
    assert!(warned.starts_with("WARN") && warned.contains(" may=64"), "{warned}");
    let addresses = said.find_map(|line| Some(line.strip_prefix("serves ")?.to_owned())).unwrap();
    let addresses: Vec<SocketAddr> =
        addresses.split(' ').map(|address| address.parse().unwrap()).collect();
    let mut first = Peer::client(addresses[0]);
    // The kernel takes them all in; the server can't.
    let crowd = || -> Vec<TcpStream> {
        (0..2 * DESCRIPTORS).map(|_| TcpStream::connect(addresses[0]).unwrap()).collect()
    };
    let here = crowd();
    for seq in 1..=ROUND_TRIPS {
        first.request(plain(seq), b"who is here is served");
        assert_eq!(first.reply().2, b"who is here is served");
    }
    let cure = said.find(|line| line.contains("can't accept connections")).unwrap();
    assert!(cure.starts_with("WARN") && cure.contains("ulimit -n"), "{cure}");
    drop(here);
    let serves_the_late = || {
        let mut late = Peer::client(addresses[0]);
        late.request(plain(1), b"and who comes later");
        assert_eq!(late.reply().2, b"and who comes later");
    };
    serves_the_late();
    let errors = || -> Option<u64> {
        let page = fetch(addresses[1]).ok()?;
        let counted = page.lines().find(|line| line.contains("what=\"accept_errors\""))?;
        counted.rsplit(' ').next()?.parse().ok()
    };
    let mut before = None;
    eventually("the errors are counted", || {
        before = errors();
        before.is_some_and(|before| before > 0)
    });
    let errors_so_far = before.unwrap();
    assert!(errors_so_far < ROUND_TRIPS, "{errors_so_far} errors: it asks again without a pause");
    eventually("it runs out once more", || {
        drop(crowd());
        serves_the_late();
        errors() > before
    });
    drop(server);
    let again = said.filter(|line| line.contains("can't accept connections")).count();
    let minutes = begun.elapsed().as_secs() / 60;
    assert!(again as u64 <= minutes, "told {again} times more in {minutes} minutes");
}
