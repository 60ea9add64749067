//! What the kernel sends from: a batch, and where its parts are, as the kernel wants to be told.

use super::batch::Batch;
use crate::driver::{Request, SendWay};

/// One request sends at most so many bytes.
const MOST_PER_SEND: usize = 1 << 20;
/// One request sends at most so many parts that do not lie together. The kernel allows 1024.
const MOST_PARTS: usize = 64;

#[derive(Default)]
pub(super) struct Outgoing {
    pub(super) batch: Batch,
    vector: Vector,
}

/// Where the parts are that one request sends, as the kernel wants to be told.
#[derive(Default)]
struct Vector {
    parts: Vec<libc::iovec>,
    header: Option<Box<libc::msghdr>>,
}

impl Outgoing {
    /// What to send next, if there is something. It points into the batch, and maybe the vector.
    /// `is_awaited` if somebody wants to hear of it even if nothing else happens.
    pub(super) fn request(
        &mut self,
        fd: i32,
        zero_copy: Option<usize>,
        is_awaited: bool,
    ) -> Option<Request> {
        let is_large = |length| zero_copy.is_some_and(|threshold| length >= threshold);
        if self.batch.queued() == 0 {
            return None;
        }
        if let Some(bytes) = self.batch.small_alone() {
            let length = bytes.len().min(MOST_PER_SEND);
            let way = match is_large(length) {
                true => SendWay::ZeroCopy,
                // It may be told late that it is sent.
                false if self.batch.is_kept() && !is_awaited => SendWay::AtOnce,
                false => SendWay::Patient,
            };
            let data = bytes.as_ptr();
            return Some(Request::Send { fd, data, length: length as u32, way });
        }
        let Vector { parts: vector, header } = &mut self.vector;
        vector.clear();
        let mut room = MOST_PER_SEND;
        for part in self.batch.parts().take(MOST_PARTS) {
            let length = part.len().min(room);
            room -= length;
            vector.push(libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: length });
            if room == 0 {
                break;
            }
        }
        let header = header.get_or_insert_with(|| {
            // SAFETY: all bits zero is a valid header: of no address, no parts and no more.
            Box::new(unsafe { std::mem::zeroed() })
        });
        header.msg_iov = vector.as_mut_ptr();
        header.msg_iovlen = vector.len();
        let zero_copy = is_large(MOST_PER_SEND - room);
        Some(Request::SendVector { fd, header: &raw const **header, zero_copy })
    }
}
