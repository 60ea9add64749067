//! What a connection sends at once: small messages, copied together, and large pieces among them,
//! each in its place and not copied.

use std::collections::VecDeque;

use super::piece::Piece;
use crate::notify::let_go;

/// Memory that grew beyond this is not kept when all is sent: there is some for each connection,
/// and the connections may be many, and idle. As each has two batches, it keeps at most twice as
/// much.
const KEPT_CAPACITY: usize = 160 << 10;
/// The same for the places of pieces.
const KEPT_PIECES: usize = 64;

/// It is moved about for each message, and so is small; most never have a piece.
#[derive(Default)]
pub(super) struct Batch {
    small: Vec<u8>,
    /// How much of `small` is sent.
    small_sent: usize,
    pieces: Option<Box<Pieces>>,
}

#[derive(Default)]
struct Pieces {
    /// Each stands before the small byte that has its number.
    queue: VecDeque<(usize, Piece)>,
    /// How much of the first is sent.
    sent: usize,
    /// The length of all that are left.
    length: usize,
}

impl Batch {
    /// How many bytes there are that are not sent.
    pub(super) fn queued(&self) -> usize {
        let pieces = self.pieces.as_ref().map_or(0, |pieces| pieces.length - pieces.sent);
        self.small.len() - self.small_sent + pieces
    }

    /// Whether nothing is given back when it is sent, be it somebody's piece or memory.
    pub(super) fn is_kept(&self) -> bool {
        self.piece(0).is_none() && self.small.capacity() <= KEPT_CAPACITY
    }

    pub(super) fn small_mut(&mut self) -> &mut Vec<u8> {
        &mut self.small
    }

    /// Keeps so many small bytes. If whoever was lent them left fewer, pieces stand at their end.
    pub(super) fn truncate(&mut self, small: usize) {
        self.small.truncate(small);
        let end = self.small.len();
        let queue = self.pieces.iter_mut().flat_map(|pieces| pieces.queue.iter_mut().rev());
        queue.take_while(|(at, _)| *at > end).for_each(|(at, _)| *at = end);
    }

    pub(super) fn push(&mut self, piece: Piece) {
        self.pieces.get_or_insert_default().push(self.small.len(), piece);
    }

    /// Appends a batch of which nothing is sent.
    pub(super) fn append(&mut self, mut later: Batch) {
        let before = self.small.len();
        self.small.append(&mut later.small);
        if let Some(later) = &mut later.pieces {
            let pieces = self.pieces.get_or_insert_default();
            later.queue.drain(..).for_each(|(at, piece)| pieces.push(before + at, piece));
        }
    }

    /// What is not sent, if there is no piece among it.
    pub(super) fn small_alone(&self) -> Option<&[u8]> {
        self.piece(0).is_none().then(|| &self.small[self.small_sent..])
    }

    /// What is not sent, in pieces that lie together.
    pub(super) fn parts(&self) -> Parts<'_> {
        let piece_sent = self.pieces.as_ref().map_or(0, |pieces| pieces.sent);
        Parts { batch: self, small: self.small_sent, piece: 0, piece_sent }
    }

    fn piece(&self, index: usize) -> Option<&(usize, Piece)> {
        self.pieces.as_ref()?.queue.get(index)
    }

    /// Notes that so many bytes more are sent, up to the end of the first piece that wholly is. That is
    /// the caller's, who goes on with the bytes that are left; None when all are noted.
    pub(super) fn take_sent(&mut self, bytes: &mut usize) -> Option<Piece> {
        let before = self.piece(0).map_or(self.small.len(), |&(at, _)| at);
        let small = (*bytes).min(before - self.small_sent);
        self.small_sent += small;
        *bytes -= small;
        let pieces = self.pieces.as_mut().filter(|_| self.small_sent == before);
        let sent = pieces.and_then(|pieces| pieces.take(bytes));
        if sent.is_none() && self.queued() == 0 {
            self.clear();
        }
        sent
    }

    /// Forgets all, and gives the memory back if it is much.
    pub(super) fn clear(&mut self) {
        self.small.clear();
        self.small_sent = 0;
        if self.small.capacity() > KEPT_CAPACITY {
            self.small = Vec::new();
        }
        if let Some(pieces) = &mut self.pieces {
            pieces.clear();
            if pieces.queue.capacity() > KEPT_PIECES {
                self.pieces = None;
            }
        }
    }
}

impl Pieces {
    fn push(&mut self, at: usize, piece: Piece) {
        self.length += piece.len();
        self.queue.push_back((at, piece));
    }

    /// Takes what is sent of the first, and, if that is all of it, the piece itself.
    #[inline(never)]
    fn take(&mut self, bytes: &mut usize) -> Option<Piece> {
        let (_, piece) = self.queue.front()?;
        let (length, left) = (piece.len(), piece.len() - self.sent);
        if *bytes < left {
            self.sent += std::mem::take(bytes);
            return None;
        }
        *bytes -= left;
        self.length -= length;
        self.sent = 0;
        self.queue.pop_front().map(|(_, piece)| piece)
    }

    fn clear(&mut self) {
        self.queue.drain(..).for_each(let_go);
        (self.sent, self.length) = (0, 0);
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.clear();
    }
}

/// What is not sent, in order, as slices that are not empty.
pub(super) struct Parts<'a> {
    batch: &'a Batch,
    small: usize,
    /// The next piece.
    piece: usize,
    /// How much of it is sent.
    piece_sent: usize,
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let piece = self.batch.piece(self.piece);
            let before = piece.map_or(self.batch.small.len(), |&(at, _)| at);
            if self.small < before {
                let small = &self.batch.small[self.small..before];
                self.small = before;
                return Some(small);
            }
            let rest = &piece?.1[self.piece_sent..];
            self.piece += 1;
            self.piece_sent = 0;
            if !rest.is_empty() {
                return Some(rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Batch {
        let mut batch = Batch::default();
        batch.small_mut().extend_from_slice(b"ab");
        batch.push(Piece::from(b"CDE".to_vec()));
        batch.push(Piece::from(Vec::new()));
        batch.push(Piece::from(b"F".to_vec()));
        batch.small_mut().extend_from_slice(b"gh");
        let mut later = Batch::default();
        later.push(Piece::from(b"IJ".to_vec()));
        later.small_mut().extend_from_slice(b"k");
        batch.append(later);
        batch
    }

    fn sent_of(batch: &mut Batch, mut bytes: usize) {
        while batch.take_sent(&mut bytes).is_some() {}
        assert_eq!(bytes, 0, "no more is sent than there is");
    }

    #[test]
    fn small_messages_and_pieces_keep_their_order_however_much_is_sent_at_once() {
        for step in 1..=11 {
            let mut batch = batch();
            let mut sent = Vec::new();
            while batch.queued() > 0 {
                let all = batch.parts().collect::<Vec<_>>().concat();
                assert_eq!(all.len(), batch.queued());
                let now = step.min(all.len());
                sent.extend_from_slice(&all[..now]);
                sent_of(&mut batch, now);
            }
            assert_eq!(sent, b"abCDEFghIJk", "{step} at once");
            assert!(batch.piece(0).is_none() && batch.small.is_empty());
        }
    }

    #[test]
    fn a_piece_is_let_go_when_its_last_byte_is_sent() {
        let mut batch = batch();
        sent_of(&mut batch, 4);
        assert!(!batch.is_kept());
        let pieces = |batch: &Batch| batch.pieces.as_ref().unwrap().queue.len();
        assert_eq!(pieces(&batch), 4);
        sent_of(&mut batch, 1);
        assert_eq!(pieces(&batch), 2, "the one of three bytes, and the empty one");
    }

    #[test]
    fn what_a_large_reply_took_is_freed_when_it_is_sent_and_what_a_small_one_took_is_kept() {
        for (length, kept) in [(KEPT_CAPACITY + 1, false), (100, true)] {
            let mut batch = Batch::default();
            batch.small_mut().resize(length, 1);
            assert_eq!(batch.is_kept(), kept, "{length} bytes");
            sent_of(&mut batch, length - 1);
            assert_eq!(batch.queued(), 1);
            sent_of(&mut batch, 1);
            assert_eq!(batch.small.capacity() > 0, kept, "{length} bytes");
        }
    }
}
