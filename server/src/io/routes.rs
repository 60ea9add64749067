//! Where the cancels for each peer's cores go out.

use std::rc::Rc;

use bowline_protocol::{ReplicaId, Station};
use bowline_runtime::now;

use super::connection::Connection;
use super::service::Service;
use super::shell::Shell;

impl<S: Service> Shell<S> {
    pub(super) fn is_peer(&self, replica: ReplicaId) -> bool {
        self.peers.iter().any(|peer| peer.replica == replica)
    }

    /// A peer has such a core, as it said itself where this side dialled it.
    fn is_station(&self, station: Station) -> bool {
        let mut peers = self.peers.iter().zip(&self.cores);
        peers.any(|(peer, cores)| peer.replica == station.replica && cores.has(station.core))
    }

    /// A peer's core obeys cancels that it hears on this connection, by its own account. It takes
    /// the place of an earlier one, which is most likely dead and has not noticed.
    pub(super) fn route_up(&self, station: Station, connection: &Rc<Connection<S::Reply>>) {
        if !self.is_station(station) {
            self.count(|io| io.mesh_unknown += 1);
            return;
        }
        if self.routes.borrow_mut().insert(station, connection.clone()).is_some() {
            self.count(|io| io.mesh_replaced += 1);
        }
        self.core.borrow_mut().on_mesh_up(station);
        self.tell_route(station, "cancels reach a peer's core");
    }

    /// A peer told how many cores it has: those that came before it did are welcome now.
    pub(super) fn routes_known(&self, replica: ReplicaId) {
        for connection in self.accepted.borrow().iter().flatten() {
            if let Some(station) = connection.route()
                && station.replica == replica
                && self.is_station(station)
                && !self.routes.borrow().contains_key(&station)
            {
                self.route_up(station, connection);
            }
        }
    }

    /// A connection on which a peer's core heard cancels is over. If it was the last that came up,
    /// an earlier one may live yet.
    pub(super) fn route_down(&self, station: Station, connection: &Rc<Connection<S::Reply>>) {
        let mut routes = self.routes.borrow_mut();
        if !routes.get(&station).is_some_and(|route| Rc::ptr_eq(route, connection)) {
            return;
        }
        let accepted = self.accepted.borrow();
        let mut others = accepted.iter().flatten();
        if let Some(other) = others.find(|other| other.route() == Some(station)) {
            routes.insert(station, other.clone());
            return;
        }
        routes.remove(&station);
        self.core.borrow_mut().on_mesh_down(station);
        self.tell_route(station, "cancels do not reach a peer's core any more");
    }

    /// Each core has a route to each core of each peer, and one of them speaks for all; but not without
    /// end, as whoever dials in can say that it is a peer.
    fn tell_route(&self, station: Station, what: &str) {
        let speaks = (self.station().core, station.core) == (0, 0);
        match speaks && self.route_lines.allows(now()) {
            true => tracing::info!(?station, "{what}"),
            false => tracing::debug!(?station, "{what}"),
        }
    }
}
