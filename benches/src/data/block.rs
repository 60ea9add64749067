//! One block: its layout, how it is made, how a reader proves that it got the right one.
//!
//! | bytes    | content                                                       |
//! |----------|---------------------------------------------------------------|
//! | 0..4     | `BWL1`                                                        |
//! | 4..8     | CRC-32 (IEEE) of bytes 8..4096                                |
//! | 8..16    | number of the block                                           |
//! | 16..24   | seed of the data set                                          |
//! | 24..32   | number of blocks in the set                                   |
//! | 32..4096 | pseudo-random bytes, from the seed and the number of the block |
//!
//! All numbers are little-endian. The replicas of one set hold the same bytes.

use thiserror::Error;

use crate::random::Random;

/// Bytes in a block: what storage reads at once, and what O_DIRECT asks of most devices.
pub const BLOCK_BYTES: usize = 4096;

const MAGIC: [u8; 4] = *b"BWL1";
const HEADER_BYTES: usize = 32;

/// The blocks of one seed and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSet {
    /// Every byte follows from this.
    pub seed: u64,
    /// How many blocks there are.
    pub blocks: u64,
}

/// Why bytes are not the block that was asked for.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BlockError {
    /// Too few or too many bytes.
    #[error("block {block}: {bytes} bytes came instead of {BLOCK_BYTES}")]
    Length {
        /// The block that was asked for.
        block: u64,
        /// How many bytes came.
        bytes: usize,
    },
    /// Not a block of ours, or its bytes were changed.
    #[error("block {block}: its bytes do not match the checksum they carry")]
    Checksum {
        /// The block that was asked for.
        block: u64,
    },
    /// A sound block, but another one.
    #[error("block {block}: the bytes are those of block {found}")]
    OtherBlock {
        /// The block that was asked for.
        block: u64,
        /// The block that came.
        found: u64,
    },
    /// A sound block of another data set.
    #[error(
        "block {block}: its data set has seed {found_seed} and {found_blocks} blocks, not this one's"
    )]
    OtherSet {
        /// The block that was asked for.
        block: u64,
        /// Seed of the set that the bytes belong to.
        found_seed: u64,
        /// Blocks in the set that the bytes belong to.
        found_blocks: u64,
    },
}

impl DataSet {
    /// A set that fills `bytes`, rounded down to whole blocks, with at least one.
    pub fn of_size(seed: u64, bytes: u64) -> Self {
        DataSet { seed, blocks: (bytes / BLOCK_BYTES as u64).max(1) }
    }

    /// The set whose first block these bytes are, if they are one.
    pub fn of_first_block(bytes: &[u8; BLOCK_BYTES]) -> Option<Self> {
        let set = DataSet { seed: word(bytes, 16), blocks: word(bytes, 24) };
        set.verify(0, bytes).is_ok().then_some(set)
    }

    /// Bytes of the whole set.
    pub fn bytes(&self) -> u64 {
        self.blocks * BLOCK_BYTES as u64
    }

    /// Writes block number `block` into `bytes`.
    pub fn fill(&self, block: u64, bytes: &mut [u8; BLOCK_BYTES]) {
        // A stream a block, so that any block can be made without the ones before it.
        let mut random = Random::new(self.seed.wrapping_add(block.rotate_left(32)), "block");
        for word in bytes[HEADER_BYTES..].chunks_exact_mut(8) {
            word.copy_from_slice(&random.bits().to_le_bytes());
        }
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&block.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.seed.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.blocks.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[8..]);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Proves that `bytes` are block number `block` of this set, unchanged.
    ///
    /// # Errors
    /// What else they are.
    pub fn verify(&self, block: u64, bytes: &[u8]) -> Result<(), BlockError> {
        if bytes.len() != BLOCK_BYTES {
            return Err(BlockError::Length { block, bytes: bytes.len() });
        }
        let stored = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        if bytes[0..4] != MAGIC || stored != crc32fast::hash(&bytes[8..]) {
            return Err(BlockError::Checksum { block });
        }
        let found = word(bytes, 8);
        let (found_seed, found_blocks) = (word(bytes, 16), word(bytes, 24));
        if (found_seed, found_blocks) != (self.seed, self.blocks) {
            return Err(BlockError::OtherSet { block, found_seed, found_blocks });
        }
        if found != block {
            return Err(BlockError::OtherBlock { block, found });
        }
        Ok(())
    }
}

/// The little-endian number at `offset` of a block.
fn word(bytes: &[u8], offset: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: DataSet = DataSet { seed: 7, blocks: 100 };

    fn block(set: DataSet, number: u64) -> [u8; BLOCK_BYTES] {
        let mut bytes = [0; BLOCK_BYTES];
        set.fill(number, &mut bytes);
        bytes
    }

    #[test]
    fn a_block_verifies_as_itself_and_as_no_other() {
        let bytes = block(SET, 42);
        assert_eq!(SET.verify(42, &bytes), Ok(()));
        assert_eq!(SET.verify(43, &bytes), Err(BlockError::OtherBlock { block: 43, found: 42 }));
    }

    #[test]
    fn any_flipped_bit_is_seen() {
        let sound = block(SET, 42);
        for bit in (0..BLOCK_BYTES * 8).step_by(97) {
            let mut bytes = sound;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                SET.verify(42, &bytes),
                Err(BlockError::Checksum { block: 42 }),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn a_short_reply_is_not_a_block() {
        let bytes = block(SET, 42);
        assert_eq!(
            SET.verify(42, &bytes[..100]),
            Err(BlockError::Length { block: 42, bytes: 100 })
        );
    }

    #[test]
    fn blocks_of_another_set_are_refused() {
        let other = DataSet { seed: 8, blocks: 100 };
        let error = SET.verify(42, &block(other, 42)).expect_err("another seed");
        assert_eq!(error, BlockError::OtherSet { block: 42, found_seed: 8, found_blocks: 100 });
    }

    #[test]
    fn blocks_differ_in_more_than_their_header() {
        let (a, b) = (block(SET, 1), block(SET, 2));
        let same = a[HEADER_BYTES..].iter().zip(&b[HEADER_BYTES..]).filter(|(x, y)| x == y).count();
        assert!(same < 64, "{same} bytes of 4064 alike, 16 expected by chance");
    }

    #[test]
    fn a_set_has_at_least_one_block() {
        assert_eq!(DataSet::of_size(1, 0).blocks, 1);
        assert_eq!(DataSet::of_size(1, 64 << 20).blocks, 16_384);
    }
}
