//! Where a replica is, by what the file calls it. Asking for names blocks: it is done on the thread
//! that reads the file, never on a core.

use std::net::{SocketAddr, ToSocketAddrs};

use bowline_protocol::ReplicaId;

use crate::io::config::Replica;

/// An address of that name: the one that is in use, if it still is one of them. A name with a port is
/// looked up as the system does; one that begins with `_` and has none is that of an SRV record.
pub(crate) fn resolve(host: &str, used: Option<SocketAddr>) -> Result<SocketAddr, String> {
    let found = match is_record(host) {
        true => by_record(host)?,
        false => addresses(host)?,
    };
    one_of(found, used).ok_or_else(|| format!("{host:?} has no address now"))
}

/// The address that is in use, if it is one of those; else the least, so that all clients take the
/// same.
pub(super) fn one_of(found: Vec<SocketAddr>, used: Option<SocketAddr>) -> Option<SocketAddr> {
    used.filter(|used| found.contains(used)).or_else(|| found.into_iter().min())
}

/// A replica that a record of a set names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) id: u16,
    pub(crate) address: SocketAddr,
    /// How many priorities go before its own, and its share among those of the same.
    pub(crate) priority: u8,
    pub(crate) weight: u8,
}

impl Replica {
    /// The same where a set's record has it now.
    pub(crate) fn found(self, found: Found) -> Replica {
        let Found { id, address, priority, weight } = found;
        Replica { id: ReplicaId(id), address, priority, weight, ..self }
    }

    /// As a set's record had it.
    pub(super) const fn as_found(&self) -> Found {
        let Replica { id: ReplicaId(id), address, priority, weight, .. } = *self;
        Found { id, address, priority, weight }
    }
}

/// All replicas that the SRV records of that name name. `used` tells which address of a replica is in
/// use: it is kept while it is one of its target's, or none can be had.
#[cfg(feature = "srv")]
pub(crate) fn find_set(
    name: &str,
    used: impl Fn(u16) -> Option<SocketAddr>,
) -> Result<Vec<Found>, String> {
    super::srv::find_set(name, &super::srv::name_servers(), used)
}

/// None are found without the feature.
#[cfg(not(feature = "srv"))]
pub(crate) fn find_set(
    name: &str,
    _: impl Fn(u16) -> Option<SocketAddr>,
) -> Result<Vec<Found>, String> {
    by_record(name).map(|_| Vec::new())
}

/// It is the name of an SRV record.
pub(crate) fn is_record(host: &str) -> bool {
    host.starts_with('_') && !host.contains(':')
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
