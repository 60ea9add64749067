//! SRV records, as the system's name servers have them. Names are asked for as they stand: no domain
//! of a search list is put behind them.
//!
//! A record that is asked for as one replica says where that is; records that are asked for as a set
//! say who is there. A replica's number is the same to all clients and servers, and no record has
//! one: it is the number at the end of the target's first label, as orchestrators name the members
//! of a set (`store-2.store.example` is replica 2). Targets of a lower priority are asked before
//! others, and those of one priority in proportion to their weights, as RFC 2782 has it.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rsdns::clients::ClientConfig;
use rsdns::clients::std::Client;
use rsdns::records::Class;
use rsdns::records::data::Srv;

use super::resolve::{Found, addresses, one_of};

/// Where the system's name servers stand.
const SERVERS: &str = "/etc/resolv.conf";
/// How long one of them is waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// The addresses of the targets that come first: those of the least priority, and of these the ones
/// of the greatest weight. (All clients are to find a replica at the same place, so that there is no
/// drawing of lots by weight as RFC 2782 has it.)
pub(super) fn by_record(name: &str, servers: &[SocketAddr]) -> Result<Vec<SocketAddr>, String> {
    let records = records(name, servers)?;
    let rank = |srv: &Srv| (srv.priority, u16::MAX - srv.weight);
    let best = records.iter().map(rank).min();
    let (mut found, mut failed) = (Vec::new(), None);
    for srv in records.iter().filter(|srv| Some(rank(srv)) == best) {
        let target = srv.target.as_str().trim_end_matches('.');
        if target.is_empty() {
            return Err(format!("{name:?} says that there is no such service"));
        }
        match addresses(&format!("{target}:{}", srv.port)) {
            Ok(addresses) => found.extend(addresses),
            Err(error) => failed = Some(error),
        }
    }
    failed.filter(|_| found.is_empty()).map_or(Ok(found), Err)
}

/// See [`super::resolve::find_set`].
pub(super) fn find_set(
    name: &str,
    servers: &[SocketAddr],
    used: impl Fn(u16) -> Option<SocketAddr>,
) -> Result<Vec<Found>, String> {
    let records = records(name, servers)?;
    let mut priorities: Vec<u16> = records.iter().map(|srv| srv.priority).collect();
    priorities.sort_unstable();
    priorities.dedup();
    let (mut found, mut failed) = (Vec::<Found>::new(), None);
    for srv in &records {
        let target = srv.target.as_str().trim_end_matches('.');
        let Some(id) = number(target) else {
            return Err(match target {
                "" => format!("{name:?} says that there is no such service"),
                _ => format!("{target:?} of {name:?} has no number at the end of its first label"),
            });
        };
        if found.iter().any(|other| other.id == id) {
            return Err(format!("{name:?} names replica {id} twice"));
        }
        let known = used(id);
        let address = match addresses(&format!("{target}:{}", srv.port)) {
            Ok(addresses) => one_of(addresses, known),
            Err(error) => {
                failed = Some(error);
                known
            }
        };
        let before = priorities.iter().position(|priority| *priority == srv.priority);
        let priority = before.unwrap_or_default().min(3) as u8;
        let weight = share(srv, &records);
        found.extend(address.map(|address| Found { id, address, priority, weight }));
    }
    if found.is_empty() {
        return Err(failed.unwrap_or_else(|| format!("{name:?} names nobody")));
    }
    // Name servers turn the records around.
    found.sort_by_key(|it| it.id);
    Ok(found)
}

/// The number at the end of a name's first label.
fn number(target: &str) -> Option<u16> {
    let label = target.split('.').next()?;
    let digits = label.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |last| last + 1);
    // A label of other letters may end in any, of several bytes.
    label.get(digits..)?.parse().ok()
}

/// A record's weight among those of its priority as a share from 1 to 32. Equal weights are equal
/// shares, of 1; and 0, which hardly ever is to be taken, is the least share that there is.
fn share(of: &Srv, records: &[Srv]) -> u8 {
    let weights = records.iter().filter(|srv| srv.priority == of.priority).map(|srv| srv.weight);
    let (least, most) = (weights.clone().min().unwrap_or(0), weights.max().unwrap_or(0));
    if least == most {
        return 1;
    }
    let scale = u32::from(most).max(32);
    (u32::from(of.weight) * 32 / scale).max(1) as u8
}

/// What the first name server says that says anything.
fn records(name: &str, servers: &[SocketAddr]) -> Result<Vec<Srv>, String> {
    let mut last = format!("{SERVERS} names no name server");
    for &server in servers {
        match ask(name, server) {
            Ok(records) => return Ok(records),
            Err(error) => last = format!("{server} says: {error}"),
        }
    }
    Err(format!("{name:?} has no SRV record that could be had; {last}"))
}

fn ask(name: &str, server: SocketAddr) -> rsdns::Result<Vec<Srv>> {
    let config = ClientConfig::with_nameserver(server).set_query_lifetime(PATIENCE);
    let mut client = Client::new(config)?;
    Ok(client.query_rrset::<Srv>(name, Class::IN)?.rdata)
}

/// The system's name servers, in their order.
pub(super) fn name_servers() -> Vec<SocketAddr> {
    in_file(&fs::read_to_string(SERVERS).unwrap_or_default())
}

fn in_file(text: &str) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        words.next().filter(|word| *word == "nameserver")?;
        words.next()?.parse().ok()
    };
    let servers = text.lines().filter_map(server);
    servers.map(|server: IpAddr| SocketAddr::new(server, 53)).collect()
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::thread;

    use super::*;

    /// A name as messages have it.
    fn labels(name: &str) -> Vec<u8> {
        let label = |label: &str| [&[label.len() as u8], label.as_bytes()].concat();
        let labels = name.split('.').filter(|it| !it.is_empty()).flat_map(label);
        labels.chain([0]).collect()
    }

    /// A name server that answers one question with these records: priority, weight, port, target.
    fn server(records: &[(u16, u16, u16, &str)]) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let records: Vec<Vec<u8>> = records
            .iter()
            .map(|&(priority, weight, port, target)| {
                let numbers = [priority, weight, port].map(u16::to_be_bytes).concat();
                let data = [numbers, labels(target)].concat();
                // The question's name, SRV, IN, a minute.
                let head = [&[0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 60][..]].concat();
                [head, (data.len() as u16).to_be_bytes().to_vec(), data].concat()
            })
            .collect();
        drop(thread::spawn(move || {
            let mut question = [0; 512];
            let (_, from) = socket.recv_from(&mut question).unwrap();
            let name = question[12..].iter().position(|&byte| byte == 0).unwrap();
            let asked = &question[12..12 + name + 5];
            let head = [&question[..2], &[0x81, 0x80, 0, 1, 0, records.len() as u8]].concat();
            let answer = [head, vec![0; 4], asked.to_vec(), records.concat()].concat();
            socket.send_to(&answer, from).unwrap();
        }));
        address
    }

    const NAME: &str = "_bowline._tcp.r1.example";

    #[test]
    fn a_record_says_where_and_the_first_of_several_counts() {
        let records =
            [(2, 9, 7002, "127.0.0.2"), (1, 1, 7001, "127.0.0.1"), (1, 5, 7000, "localhost")];
        let found = by_record(NAME, &[server(&records)]).unwrap();
        assert!(!found.is_empty());
        assert!(found.iter().all(|at| at.port() == 7000 && at.ip().is_loopback()), "{found:?}");
    }

    #[test]
    fn the_records_of_a_set_say_who_is_there_how_near_and_with_which_share() {
        let records = [
            (10, 100, 7000, "10.0.0.1"),
            (10, 50, 7000, "11.0.0.1"),
            (10, 0, 7000, "12.0.0.1"),
            (20, 7, 7001, "13.0.0.1"),
            (30, 0, 7000, "no-such-host-14.invalid"),
        ];
        let found = find_set(NAME, &[server(&records)], |_| None).unwrap();
        let found: Vec<_> = found.iter().map(|it| (it.id, it.priority, it.weight)).collect();
        assert_eq!(found, [(10, 0, 32), (11, 0, 16), (12, 0, 1), (13, 1, 1)]);
        let used: SocketAddr = "10.9.9.9:7000".parse().unwrap();
        let found = find_set(NAME, &[server(&records)], |_| Some(used)).unwrap();
        let last = found.last().unwrap();
        assert_eq!((last.id, last.address, last.priority), (14, used, 2), "it is where it was");
        assert_eq!(found[0].address, "10.0.0.1:7000".parse().unwrap(), "and that has moved");
    }

    #[test]
    fn a_set_without_numbers_or_with_one_twice_is_refused_by_name() {
        let found = |records: &[_]| find_set(NAME, &[server(records)], |_| None).unwrap_err();
        let unnamed = found(&[(1, 1, 7000, "localhost")]);
        assert!(unnamed.contains("has no number at the end of its first label"), "{unnamed}");
        let twice = found(&[(1, 1, 7000, "10.0.0.1"), (1, 1, 7000, "10.0.0.2")]);
        assert!(twice.ends_with("names replica 10 twice"), "{twice}");
        assert_eq!(number("store-2.store.example"), Some(2));
        assert_eq!((number("r12"), number("r70000"), number("")), (Some(12), None, None));
    }

    #[test]
    fn a_service_that_is_not_there_and_a_name_without_a_server_are_told_apart() {
        let gone = by_record(NAME, &[server(&[(0, 0, 0, ".")])]).unwrap_err();
        assert!(gone.ends_with("says that there is no such service"), "{gone}");
        let none = by_record(NAME, &[]).unwrap_err();
        assert!(none.ends_with("/etc/resolv.conf names no name server"), "{none}");
    }

    #[test]
    fn name_servers_are_read_in_their_order() {
        let text =
            "# by hand\nnameserver 10.0.0.2 # first\nsearch x\n nameserver\t::1\nnameserver nine\n";
        let servers = ["10.0.0.2:53", "[::1]:53"].map(|it| it.parse().unwrap());
        assert_eq!(in_file(text), servers);
    }
}
