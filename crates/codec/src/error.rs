use crate::Codec;

/// Why a text or a number names no compression method.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MethodError {
    /// No codec has this name.
    #[error("unknown compression {name:?}; use none, zlib[:1..12], lzo, snappy or zstd[:-100..22]")]
    UnknownCodec {
        /// What was given.
        name: String,
    },
    /// The level is no number.
    #[error("{text:?} is not a compression level; {codec} takes a whole number from {min} to {max}")]
    NotALevel {
        /// The codec.
        codec: Codec,
        /// What was given.
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
        /// What was given.
        level: i32,
        /// Lowest level.
        min: i32,
        /// Highest level.
        max: i32,
    },
    /// The codec has but one way to compress.
    #[error("{codec} has no levels; write just \"{codec}\"")]
    NoLevels {
        /// The codec.
        codec: Codec,
    },
}

/// Why a context could not be made, or why bytes do not decompress to a page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The C library could not allocate or set up its context.
    #[error("cannot set up {codec}: {reason}")]
    Context {
        /// The codec.
        codec: Codec,
        /// What the library said.
        reason: &'static str,
    },
    /// The bytes are no complete stream of the codec.
    #[error("{size} bytes are not valid {codec} data: {reason}")]
    Corrupt {
        /// The codec.
        codec: Codec,
        /// Bytes of compressed data.
        size: usize,
        /// What the library said.
        reason: &'static str,
    },
    /// The stream is valid, but of less than a page.
    #[error("{codec} data decompresses to {actual} bytes where {expected} are expected")]
    TooShort {
        /// The codec.
        codec: Codec,
        /// Bytes of the page.
        expected: usize,
        /// Bytes in the stream.
        actual: usize,
    },
    /// The stream holds more than a page.
    #[error("{codec} data decompresses to more than the {expected} bytes expected")]
    TooLong {
        /// The codec.
        codec: Codec,
        /// Bytes of the page.
        expected: usize,
    },
}
