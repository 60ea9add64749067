//! Copies are held back while there is no room for their replies: see [`super::unread`].
//!
//! One that is held back has not started, so its twin may, and nobody is told. It is withdrawn and shed
//! like any other; it counts for what may wait, and not for what others have to wait for. So the load that is told, the
//! estimate of waits and the look for overload go by how long copies waited for nothing but a slot.

use core::time::Duration;

use bowline_protocol::{OptionSet, Request};
use bowline_time::Instant;

use super::arena::Key;
use super::config::Known;
use super::histograms::record;
use super::unread::{Room, considerable};
use super::{Conn, Core};

impl<P> Core<P> {
    /// So many bytes of replies wait for a connection's client to read. To be told before
    /// [`Core::dispatch`] of each connection for which some wait or did when it was told last; and
    /// while this core [holds copies back](Core::is_holding), soon again and of all connections: who
    /// has nothing to read may have been held back for what others had, too.
    pub fn on_unread(&mut self, conn: Conn, bytes: usize, now: Instant) {
        self.copies.clients.set_time(now);
        self.copies.clients.set_unread(conn.0, bytes);
    }

    /// Whether copies that could start are held back, until clients have read; or were until now, and
    /// nobody has [looked](Core::dispatch) since.
    pub const fn is_holding(&self) -> bool {
        self.copies.clients.holds_any() || self.copies.clients.is_released() || self.short.is_some()
    }

    /// For how long nothing was started, or not all that could have been, as too many replies wait in
    /// all; zero if they don't.
    pub fn short_for(&self, now: Instant) -> Duration {
        self.short.map_or(Duration::ZERO, |(since, _)| now - since)
    }

    /// Whether there is room for the reply of a waiting copy.
    pub(super) fn room_for_reply(&self, index: u32) -> Room {
        match self.copies.at(index).conn {
            Some(Conn(client)) => self.copies.clients.room(client, self.expected(index)),
            None => Room::Enough,
        }
    }

    /// How long the reply of a waiting copy is expected to be: exactly, if it is there already.
    pub(super) fn expected(&self, index: u32) -> usize {
        let copy = self.copies.at(index);
        self.expected_of(self.copies.answer_of(index), copy.conn, copy.method)
    }

    /// The same, where this is the entry of its key, if that was done.
    fn expected_of(&self, done: Option<Key>, conn: Option<Conn>, method: Known) -> usize {
        let clients = &self.copies.clients;
        match (done, conn) {
            // What could not be kept is answered with a few words.
            (Some(entry), _) => self.copies.keys.length(entry).map_or(0, considerable),
            (None, Some(Conn(client))) => clients.expected(client, method.place),
            (None, None) => clients.unread.expected(method.place),
        }
    }

    /// Whether there is room for the reply of a copy that comes now.
    pub(super) fn room_for_new(
        &self,
        conn: Conn,
        request: &Request,
        options: &OptionSet,
        known: Known,
    ) -> Room {
        let done = options.key.and_then(|key| self.copies.keys.find_done(key, request.method));
        self.copies.clients.room(conn.0, self.expected_of(done, Some(conn), known))
    }

    /// Whether a connection may be sent an answer of so many bytes now, which no copy has to run for:
    /// there is room for it, and it takes none from one that waits for that.
    pub(super) fn may_answer(&self, Conn(client): Conn, bytes: usize) -> bool {
        let takes_none = bytes == 0 || !self.copies.clients.unread.fits(0);
        let room = self.copies.clients.room(client, bytes);
        (self.short.is_none() || takes_none) && room == Room::Enough
    }

    /// A copy, and all others of its connection, wait until their client has read.
    pub(super) fn hold(&mut self, index: u32, now: Instant) {
        if let Some(Conn(client)) = self.copies.at(index).conn {
            self.stats.holds += u64::from(self.copies.clients.hold(client, now));
        }
    }

    /// A copy starts, or is answered: so those of its connection are not held back any more.
    pub(super) fn note_start(&mut self, index: u32, now: Instant) {
        if let Some(Conn(client)) = self.copies.at(index).conn
            && let Some(since) = self.copies.clients.started(client)
        {
            record(&mut self.histograms.held, now - since);
        }
    }

    /// A request was refused, as the queue is full. If there is no room among all for its reply, either,
    /// those that have to be read keep it out as if it waited.
    pub(super) fn note_refused(
        &mut self,
        conn: Conn,
        request: &Request,
        options: &OptionSet,
        known: Known,
        now: Instant,
    ) {
        if self.room_for_new(conn, request, options, known) == Room::NotOfAll {
            let wanted = self.copies.clients.expected(conn.0, known.place);
            self.note_shortage(Some(wanted), None, now);
        }
    }

    /// All that could start has started, but for one with a reply of so many bytes, for which there
    /// was no room. Without one, it is over if room was found for one as long, or once there is some for
    /// the last such one: that may have been shed meanwhile.
    pub(super) fn note_shortage(
        &mut self,
        wanted: Option<usize>,
        found: Option<usize>,
        now: Instant,
    ) {
        match (self.short, wanted) {
            (None, None) => {}
            (None, Some(wanted)) => {
                self.stats.holds_of_all += 1;
                self.short = Some((now, wanted));
            }
            (Some((since, _)), Some(wanted)) => self.short = Some((since, wanted)),
            (Some((since, wanted)), None)
                if found >= Some(wanted) || self.copies.clients.unread.fits(wanted) =>
            {
                record(&mut self.histograms.held, now - since);
                self.short = None;
            }
            (Some(_), None) => {}
        }
    }
}
