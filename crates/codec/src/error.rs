use crate::method::Codec;

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
