//! Many transfers at once.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use super::File;
use super::transfer::{Amount, Direction, Transfer};
use crate::buffer::Buffer;

/// Transfers that run at the same time, and are awaited in the order in which they were begun.
///
/// All that are begun before the task next awaits go to the kernel in one call. The task is woken
/// for the transfer that it awaits, not for those behind it: of a hundred reads that end together,
/// the first wakes it, and the others are there already. Each moves its whole buffer, or fails.
///
/// Nothing is allocated once as many transfers were under way at once. How many may be, its user
/// decides; [`Batch::len`] tells how many are.
///
/// ```
/// use bowline_runtime::fs::{Batch, File, OpenOptions};
/// use bowline_runtime::{Runtime, buffer};
///
/// # fn main() -> std::io::Result<()> {
/// # let path = std::env::temp_dir().join(format!("bowline-batch-{}", std::process::id()));
/// # std::fs::write(&path, vec![7; 16 * 4096])?;
/// # let file = path.clone();
/// Runtime::builder().build().unwrap().block_on(async move {
///     let file = File::open(file, OpenOptions::new().read(true)).await?;
///     let mut batch = Batch::new();
///     for block in 0..16 {
///         batch.read(&file, buffer::take(4096), block * 4096);
///     }
///     while let Some((result, block)) = batch.next().await {
///         result?;
///         assert!(block.iter().all(|&byte| byte == 7));
///     }
///     Ok::<(), std::io::Error>(())
/// })?;
/// # std::fs::remove_file(path)
/// # }
/// ```
#[derive(Default)]
pub struct Batch {
    transfers: VecDeque<Transfer>,
}

impl Batch {
    /// Nothing is under way yet.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Begins to fill a buffer from `offset` on.
    pub fn read(&mut self, file: &File, buffer: Buffer, offset: u64) {
        self.begin(Transfer::new(file, buffer, offset, Direction::Read, Amount::Whole));
    }

    /// Begins to write a buffer at `offset`. Nothing is said of the order in which the writes of a
    /// batch reach the file.
    pub fn write(&mut self, file: &File, buffer: Buffer, offset: u64) {
        self.begin(Transfer::new(file, buffer, offset, Direction::Write, Amount::Whole));
    }

    fn begin(&mut self, mut transfer: Transfer) {
        transfer.start();
        self.transfers.push_back(transfer);
    }

    /// How many transfers have not been given back.
    pub fn len(&self) -> usize {
        self.transfers.len()
    }

    /// Whether all have been given back.
    pub fn is_empty(&self) -> bool {
        self.transfers.is_empty()
    }

    /// The result of the transfer that was begun first, and its buffer; None if all were given
    /// back. Errors are those of [`File::read_exact_at`] and [`File::write_all_at`]. Dropping the
    /// future loses nothing.
    pub async fn next(&mut self) -> Option<(io::Result<()>, Buffer)> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// As [`Batch::next`], for futures written by hand.
    pub fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<(io::Result<()>, Buffer)>> {
        let Some(first) = self.transfers.front_mut() else { return Poll::Ready(None) };
        let (result, buffer) = ready!(first.poll(context));
        self.transfers.pop_front();
        Poll::Ready(Some((result.map(drop), buffer)))
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.len()).finish_non_exhaustive()
    }
}
