use crate::Codec;

/// Why a text or a number is not a compression method.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MethodError {
    /// The codec is unknown.
    #[error("unknown compression {name:?}; use none, zlib[:1..12], lzo, snappy or zstd[:-100..22]")]
    UnknownCodec {
        /// The name given.
        name: String,
    },
    /// The level is not a number.
    #[error("{text:?} is not a compression level; {codec} takes a whole number from {min} to {max}")]
    NotALevel {
        /// The codec.
        codec: Codec,
        /// The text given.
        text: String,
        /// Lowest level.
        min: i32,
        /// Highest level.
        max: i32,
    },
    /// The level is outside the codec's range.
    #[error("{codec} has no level {level}; use one from {min} to {max}{except}", except = if *min < 0 { " other than 0" } else { "" })]
    LevelOutOfRange {
        /// The codec.
        codec: Codec,
        /// The level given.
        level: i32,
        /// Lowest level.
        min: i32,
        /// Highest level.
        max: i32,
    },
    /// The codec has no levels.
    #[error("{codec} has no levels; write just \"{codec}\"")]
    NoLevels {
        /// The codec.
        codec: Codec,
    },
}

/// Why a codec could not be set up, or why bytes do not decompress to a page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The C library could not allocate or set up its context.
    #[error("cannot set up {codec}: {reason}")]
    Context {
        /// The codec.
        codec: Codec,
        /// The library's reason.
        reason: &'static str,
    },
    /// The bytes are not one complete stream of the codec.
    #[error("{size} bytes are not valid {codec} data: {reason}")]
    Corrupt {
        /// The codec.
        codec: Codec,
        /// Size of the compressed data in bytes.
        size: usize,
        /// The decoder's reason.
        reason: &'static str,
    },
    /// The stream is valid, but holds less than a page.
    #[error("{codec} data decompresses to {actual} bytes where {expected} are expected")]
    TooShort {
        /// The codec.
        codec: Codec,
        /// Size of the page in bytes.
        expected: usize,
        /// Size of the stream's contents in bytes.
        actual: usize,
    },
    /// The stream holds more than a page.
    #[error("{codec} data decompresses to more than the {expected} bytes expected")]
    TooLong {
        /// The codec.
        codec: Codec,
        /// Size of the page in bytes.
        expected: usize,
    },
}
