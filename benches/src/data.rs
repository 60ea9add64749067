//! The blocks that replicas serve: real bytes that say who they are.

mod block;
mod file;
mod place;

pub use block::{BLOCK_BYTES, BlockError, DataSet};
pub use file::{DataError, Made, ensure_files, hold, refuse_other};
