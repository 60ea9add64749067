//! A managed replica's side: it ends with its parent, and learns its peers from it.
//!
//! Parent and child talk by lines. The child writes `ready ADDRESS` to its standard output; the
//! parent, when it has heard all of them, writes `peers N=ADDRESS ...` to each one's standard
//! input; the child writes `serving` when it does. The end of standard input asks it to end.

use std::io::{self, BufRead, Error, ErrorKind, Write};
use std::net::SocketAddr;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Has the kernel kill this process when the thread that started it ends, even while stopped.
///
/// # Errors
/// The parent has ended already, or the kernel refuses.
pub fn die_with_parent(parent: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Had the parent ended before that call, nobody would send the signal.
    let alive = getppid().map(Pid::as_raw_pid).and_then(|pid| u32::try_from(pid).ok());
    if alive == Some(parent) {
        Ok(())
    } else {
        Err(Error::new(ErrorKind::NotFound, "the process that started this replica has ended"))
    }
}

/// Tells the parent where this replica listens.
///
/// # Errors
/// The parent has ended.
pub fn send_ready(output: &mut impl Write, address: SocketAddr) -> io::Result<()> {
    writeln!(output, "{READY}{address}")?;
    output.flush()
}

/// Tells the parent that clients may connect.
///
/// # Errors
/// The parent has ended.
pub fn send_serving(output: &mut impl Write) -> io::Result<()> {
    writeln!(output, "{SERVING}")?;
    output.flush()
}

/// Waits for the parent's list of all replicas, by number; this one is among them.
///
/// # Errors
/// The parent has ended, or wrote something else.
pub fn wait_for_peers(input: &mut impl BufRead) -> io::Result<Vec<(u16, SocketAddr)>> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    parse_peers(&line).ok_or_else(|| {
        Error::new(ErrorKind::InvalidData, format!("no list of peers, but {:?}", line.trim()))
    })
}

/// What a line that says an address begins with.
pub(super) const READY: &str = "ready ";
/// What a replica says once it serves.
pub(super) const SERVING: &str = "serving";
const PEERS: &str = "peers";

/// The line that [`wait_for_peers`] reads.
pub(super) fn peers_line(addresses: &[SocketAddr]) -> String {
    let peers = addresses.iter().enumerate().map(|(number, addr)| format!(" {number}={addr}"));
    format!("{PEERS}{}\n", peers.collect::<String>())
}

fn parse_peers(line: &str) -> Option<Vec<(u16, SocketAddr)>> {
    line.trim()
        .strip_prefix(PEERS)?
        .split_whitespace()
        .map(|peer| {
            let (number, address) = peer.split_once('=')?;
            Some((number.parse().ok()?, address.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_hears_the_peers_that_its_parent_wrote() {
        let addresses = ["127.0.0.1:7001", "[::1]:7002"].map(|a| a.parse().expect("an address"));
        let heard = wait_for_peers(&mut peers_line(&addresses).as_bytes()).expect("a list");
        assert_eq!(heard, [(0, addresses[0]), (1, addresses[1])]);
    }

    #[test]
    fn a_child_may_have_no_peers() {
        assert_eq!(wait_for_peers(&mut peers_line(&[]).as_bytes()).expect("a list"), []);
    }

    #[test]
    fn the_end_of_input_is_no_list_of_peers() {
        assert!(wait_for_peers(&mut &b""[..]).is_err());
        assert!(wait_for_peers(&mut &b"peers 0=nowhere\n"[..]).is_err());
    }

    #[test]
    fn a_child_whose_parent_is_another_refuses_to_live_on() {
        let error = die_with_parent(u32::MAX).expect_err("no such parent");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        // Undone, for the sake of the other tests in this process.
        set_parent_process_death_signal(None).expect("the kernel takes it back");
    }
}
