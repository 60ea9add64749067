//! Where a replica is, by what the file calls it. Asking for names blocks: it is done on the thread
//! that reads the file, never on a core.

use std::net::{SocketAddr, ToSocketAddrs};

/// An address of that name: the one that is in use, if it still is one of them. A name with a port is
/// looked up as the system does; one that begins with `_` and has none is that of an SRV record.
pub(crate) fn resolve(host: &str, used: Option<SocketAddr>) -> Result<SocketAddr, String> {
    let found = match host.starts_with('_') && !host.contains(':') {
        true => by_record(host)?,
        false => addresses(host)?,
    };
    let still = used.filter(|used| found.contains(used));
    // The least, so that all clients take the same.
    let address = still.or_else(|| found.into_iter().min());
    address.ok_or_else(|| format!("{host:?} has no address now"))
}

pub(super) fn addresses(host: &str) -> Result<Vec<SocketAddr>, String> {
    let found = host.to_socket_addrs().map_err(|error| {
        format!("{host:?} is no address such as \"10.0.0.1:7000\", nor a name and port: {error}")
    })?;
    Ok(found.collect())
}

#[cfg(feature = "srv")]
fn by_record(name: &str) -> Result<Vec<SocketAddr>, String> {
    super::srv::by_record(name, &super::srv::name_servers())
}

#[cfg(not(feature = "srv"))]
fn by_record(name: &str) -> Result<Vec<SocketAddr>, String> {
    Err(format!(
        "{name:?} is the name of an SRV record, which this build does not read (feature srv)"
    ))
}
