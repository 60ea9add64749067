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

#[derive(Default)]
pub(super) struct Batch {
    small: Vec<u8>,
    /// Each stands before the byte of `small` that has its number.
    pieces: VecDeque<(usize, Piece)>,
    /// How much of `small` is sent.
    small_sent: usize,
    /// How much of the first piece is sent.
    piece_sent: usize,
    /// The length of all pieces that are left.
    pieces_length: usize,
}

impl Batch {
    /// How many bytes there are that are not sent.
    pub(super) fn queued(&self) -> usize {
        self.small.len() - self.small_sent + self.pieces_length - self.piece_sent
    }

    pub(super) fn small_mut(&mut self) -> &mut Vec<u8> {
        &mut self.small
    }

    /// Keeps so many small bytes. If whoever was lent them left fewer, pieces stand at their end.
    pub(super) fn truncate(&mut self, small: usize) {
        self.small.truncate(small);
        let end = self.small.len();
        let beyond = self.pieces.iter_mut().rev().take_while(|(at, _)| *at > end);
        beyond.for_each(|(at, _)| *at = end);
    }

    pub(super) fn push(&mut self, piece: Piece) {
        self.pieces_length += piece.len();
        self.pieces.push_back((self.small.len(), piece));
    }

    /// Appends a batch of which nothing is sent.
    pub(super) fn append(&mut self, mut later: Batch) {
        let before = self.small.len();
        self.small.append(&mut later.small);
        self.pieces.extend(later.pieces.drain(..).map(|(at, piece)| (before + at, piece)));
        self.pieces_length += later.pieces_length;
    }

    /// What is not sent, in pieces that lie together.
    pub(super) fn parts(&self) -> Parts<'_> {
        Parts { batch: self, small: self.small_sent, piece: 0, piece_sent: self.piece_sent }
    }

    /// Notes that so many bytes more are sent, and lets go of the pieces that wholly are.
    pub(super) fn taken(&mut self, mut bytes: usize) {
        loop {
            let before = self.pieces.front().map_or(self.small.len(), |&(at, _)| at);
            let small = bytes.min(before - self.small_sent);
            self.small_sent += small;
            bytes -= small;
            let Some((_, piece)) = self.pieces.front() else { break };
            if self.small_sent < before || self.piece_sent + bytes < piece.len() {
                if self.small_sent == before {
                    self.piece_sent += bytes;
                }
                return;
            }
            bytes -= piece.len() - self.piece_sent;
            self.pieces_length -= piece.len();
            self.piece_sent = 0;
            let_go(self.pieces.pop_front());
        }
        debug_assert_eq!(bytes, 0, "no more is sent than there is");
        if self.queued() == 0 {
            self.clear();
        }
    }

    /// Forgets all, and gives the memory back if it is much.
    pub(super) fn clear(&mut self) {
        self.small.clear();
        self.pieces.drain(..).for_each(let_go);
        (self.small_sent, self.piece_sent, self.pieces_length) = (0, 0, 0);
        if self.small.capacity() > KEPT_CAPACITY {
            self.small = Vec::new();
        }
        if self.pieces.capacity() > KEPT_PIECES {
            self.pieces = VecDeque::new();
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.pieces.drain(..).for_each(let_go);
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
            let piece = self.batch.pieces.get(self.piece);
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
                batch.taken(now);
            }
            assert_eq!(sent, b"abCDEFghIJk", "{step} at once");
            assert!(batch.pieces.is_empty() && batch.small.is_empty());
        }
    }

    #[test]
    fn a_piece_is_let_go_when_its_last_byte_is_sent() {
        let mut batch = batch();
        batch.taken(4);
        assert_eq!(batch.pieces.len(), 4);
        batch.taken(1);
        assert_eq!(batch.pieces.len(), 2, "the one of three bytes, and the empty one");
    }

    #[test]
    fn what_a_large_reply_took_is_freed_when_it_is_sent_and_what_a_small_one_took_is_kept() {
        for (length, kept) in [(KEPT_CAPACITY + 1, false), (100, true)] {
            let mut batch = Batch::default();
            batch.small_mut().resize(length, 1);
            batch.taken(length - 1);
            assert_eq!(batch.queued(), 1);
            batch.taken(1);
            assert_eq!(batch.small.capacity() > 0, kept, "{length} bytes");
        }
    }
}
