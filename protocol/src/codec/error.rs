use super::VERSION;

/// What is wrong with bytes that should have been a frame. It always ends the connection: after
/// it, nothing says where the next frame begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// The header was damaged on its way, or what came is not this protocol.
    #[error(
        "the header's checksum is {found:#010x}, not {expected:#010x} (its kind would be: {frame}): damaged, or not Bowline"
    )]
    HeaderChecksum {
        /// The name of the frame that it would be, had the damage spared that.
        frame: &'static str,
        /// What the header says.
        found: u32,
        /// What its bytes give.
        expected: u32,
    },
    /// What came is the answer of an HTTP server, as a page of metrics has one.
    #[error(
        "it answers as an HTTP server does: a port of metrics, perhaps, or a proxy's; take the one that the \
         replica serves at"
    )]
    Http,
    /// The payload was damaged on its way.
    #[error("the payload's checksum of a frame ({frame}) is {found:#010x}, not {expected:#010x}")]
    PayloadChecksum {
        /// The frame's name.
        frame: &'static str,
        /// What the header says.
        found: u32,
        /// What the payload's bytes give.
        expected: u32,
    },
    /// A payload without a checksum, of a sender that was not asked to leave it out.
    #[error("the payload of a frame ({frame}) has no checksum, but this side wants one")]
    Unsummed {
        /// The frame's name.
        frame: &'static str,
    },
    /// A version that is not spoken here.
    #[error("version {0} is not spoken here (only version {VERSION})")]
    Version(u8),
    /// A kind of frame that is not known here, and must be.
    #[error("frame kind {0} is not known here")]
    Kind(u8),
    /// A flag that is not known here, and must be.
    #[error("a frame ({frame}) has unknown flags {flags:#06x}")]
    Flags {
        /// The frame's name.
        frame: &'static str,
        /// Those that are not known.
        flags: u16,
    },
    /// A section that is not known here and must be, out of order, or not of its length.
    #[error("section {tag:#06x} of a frame ({frame}) is unknown, out of order or malformed")]
    Section {
        /// The frame's name.
        frame: &'static str,
        /// The section's tag.
        tag: u16,
    },
    /// A payload beyond the receiver's limit.
    #[error("a frame ({frame}) has a payload of {length} bytes, more than the limit of {limit}")]
    TooLong {
        /// The frame's name.
        frame: &'static str,
        /// The payload's length, in bytes.
        length: u32,
        /// The limit, in bytes.
        limit: u32,
    },
    /// A field that is out of its range.
    #[error("the {field} of a frame ({frame}) can't be {value}")]
    Field {
        /// The frame's name.
        frame: &'static str,
        /// The field's name.
        field: &'static str,
        /// What it is.
        value: u64,
    },
}
